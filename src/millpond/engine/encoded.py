"""Which texts of a scan may stay as they lie in its file, in dictionaries, until they crossed an exchange.

Law: encodings are a matter of the wire; whoever looks at values sees plain ones.  A
column stays encoded only past steps that say what they `look_at`, where none of them
looks at it; a receiver gets it plain (`engine.wire`).

A text that comes again and again then travels as a number, and is neither made nor
copied for each of its rows on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.operators.scan import Scan
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan


def unread_texts(plan: Plan, levels: Levels, scan: str, behind: tuple[str, ...]) -> frozenset[str]:
    """The texts of a scan at which no step looks before they are sent.

    `behind` are the steps that take the rows of the scan piece by piece.
    """
    operator = plan.nodes[scan].operator
    if not isinstance(operator, Scan) or not hasattr(operator.source, "read_encoded"):
        return frozenset()
    texts = {field.name for field in plan.shape(scan).schema if field.type == pa.string()}
    called = {scan: {name: name for name in texts}}  # by step: its name of a text, and the scan's
    shown = {view.step for view in plan.views.values()}
    readers = plan.consumers()
    for step in (scan, *behind):
        if step in shown:
            return frozenset()
        for reader, index in readers[step]:
            node, here = plan.nodes[reader], reader in behind
            seen = _seen(node, index, sent=not here)
            if seen is None or (not here and levels.level_of[reader] == levels.level_of[step]):
                return frozenset()
            texts -= {text for name, text in called[step].items() if name in seen}
            if here:
                called[reader] = _called_behind(node, called[step])
    return frozenset(texts)


def _seen(node: Node, index: int, *, sent: bool) -> frozenset[str] | None:
    """The columns that a step looks at before an exchange, or where it has none; None if it may be any."""
    operator: Any = node.operator
    if not hasattr(operator, "looks_at") or node.reads:
        return None
    if sent and node.binding.placements[index].kind != "hash":
        return None
    found: frozenset[str] = operator.looks_at(node.binding, index)
    return found


def _called_behind(node: Node, called: Mapping[str, str]) -> dict[str, str]:
    operator: Any = node.operator
    if not hasattr(operator, "passes"):
        return dict(called)
    return {name: called[old] for name, old in operator.passes(node.binding).items() if old in called}

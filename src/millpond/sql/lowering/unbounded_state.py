"""Warns about state that grows as long as a stream does, when a view is created.

A step stores rows of an append-only input when later rows may need them.  If nothing
bounds that in time, it stores all of them.  This is a warning, not an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from millpond.operators.distinct import Distinct
from millpond.operators.distinct_values import DistinctValues
from millpond.operators.iterate import Iterate
from millpond.operators.join import Join
from millpond.operators.per_key import PerKey
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ConstantRows
from millpond.plan.nodes import Node, Plan, upstream

_JOIN = (
    "bound the join in time: WATERMARK FOR on both sides,"
    " and equal windows or b.ts BETWEEN a.ts AND a.ts + INTERVAL …"
)
_KEYS = "give the rows a WATERMARK FOR, and let the query be by its windows (TUMBLE, HOP, SESSION)"

_TABLE = (
    "let it read a table whose rows are deleted when they are old, or a view WHERE ts > now() - INTERVAL …"
)


def warnings(plan: Plan, steps: Collection[str]) -> tuple[str, ...]:
    """Return the warnings about new steps of a plan, each one once."""
    found = [text for step in steps if step in plan.nodes for text in _warnings(plan, plan.nodes[step])]
    return tuple(dict.fromkeys(found))


def _warnings(plan: Plan, node: Node) -> Iterator[str]:
    operator = node.operator
    if isinstance(operator, Join):
        kept = [s for n, s in enumerate(node.inputs) if node.binding.extra[n].bound is None]
        if names := _streams(plan, kept):
            yield f"a join keeps every row of {names} for ever; {_JOIN}"
        return
    if isinstance(operator, Iterate):
        if names := _streams(plan, node.inputs):
            yield f"a recursion keeps every row of {names} for ever; {_TABLE}"
        return
    what = ""
    if isinstance(operator, Distinct | DistinctValues) and not node.binding.shape.bounds:
        what = "DISTINCT keeps every different row"
    elif isinstance(operator, PerKey) and operator.expires is None:
        what = "what is computed from all rows of a key keeps every row"
    if what and (names := _streams(plan, node.inputs)):
        yield f"{what} of {names} for ever; {_KEYS}"


def _streams(plan: Plan, steps: Sequence[str]) -> str:
    """Name the sources, other than constant rows, of the append-only steps among these."""
    found = set()
    for step in upstream(plan, [s for s in steps if plan.shape(s).append_only]):
        operator = plan.nodes[step].operator
        if isinstance(operator, Scan) and not isinstance(operator.source, ConstantRows):
            found.add(step)
    return " and ".join(sorted(found))

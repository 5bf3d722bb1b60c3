"""Which columns each step must give: a backward pass over the plan.

Law 5 for width: a source reads, and an exchange carries, only the columns
that some view needs.  The origin of rows (`_o`) is needed like a column, but
only where every step up to the sources carries it; else nobody makes it.

A watermark keeps late rows whole.  Over a source that can be read again for other
columns at no great cost it is given whole rows only where some are late.  Columns that
a step needs only to show rows on which user code failed are left out until some do: then
the epoch is run again, `whole`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.delta import ORIGIN
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan


@dataclass(frozen=True)
class Needs:
    columns: dict[str, frozenset[str]]  # that each step must give; with `_o` where its origin is asked for
    origins: frozenset[tuple[str, int]]  # the inputs (step, index) that bring `_o`
    inputs: dict[tuple[str, int], frozenset[str]]  # what each input is read for
    whole_for: dict[str, tuple[str, ...]]  # scans that leave out columns unless one of these steps wants them


def needed_columns(plan: Plan) -> dict[str, frozenset[str]]:
    return needs(plan).columns


def needs(plan: Plan, whole: bool = False) -> Needs:
    carried = _carried(plan)
    needed: dict[str, frozenset[str]] = {step: frozenset() for step in plan.nodes}
    for view in plan.views.values():
        needed[view.step] = frozenset(plan.shape(view.step).schema.names)
    origins: set[tuple[str, int]] = set()
    inputs: dict[tuple[str, int], frozenset[str]] = {}
    whole_for: dict[str, tuple[str, ...]] = {}
    for node in reversed(list(plan.topological())):
        if not node.inputs:
            continue
        wanted = node.operator.requires(node.binding, needed[node.step])
        for index, (source, columns) in enumerate(zip(node.inputs, wanted, strict=True)):
            if ORIGIN in columns and source in carried:
                origins.add((node.step, index))
            else:
                columns -= {ORIGIN}
            if not whole and index == 0 and ORIGIN in columns and hasattr(node.operator, "reads"):
                read = node.operator.reads(node.binding)
                columns = columns if read is None else columns & (read | {ORIGIN})
            inputs[node.step, index] = columns
            if hasattr(node.operator, "suffices") and _reads_again(plan, source):
                columns &= node.operator.suffices(node.binding, needed[node.step])
                whole_for[source] = (*whole_for.get(source, ()), node.step)
            needed[source] = needed[source] | columns
    return Needs(needed, frozenset(origins), inputs, whole_for)


def _reads_again(plan: Plan, step: str) -> bool:
    operator = plan.nodes[step].operator
    return isinstance(operator, Scan) and bool(getattr(operator.source, "reads_again", False))


def _carried(plan: Plan) -> set[str]:
    """The steps up to which the origin of rows can come: nothing but steps that carry it behind them."""
    found: set[str] = set()
    for node in plan.topological():
        carries = getattr(node.operator, "carries_origin", False)
        if carries and (isinstance(node.operator, Scan) or all(i in found for i in node.inputs)):
            found.add(node.step)
    return found

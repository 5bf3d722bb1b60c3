"""GROUP BY the windows of HOP or CUMULATE that close: aggregates slices, which the windows share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millpond.flow.shared_slices import can_share, worth_slices
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.window_assigners import Cumulating, Sliding
from millpond.operators.assign_slices import SLICE, AssignSlices
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.filter import Filter
from millpond.operators.operator import Operator
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.window import END, START, Hop
from millpond.plan.nodes import Node
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, Reference, references
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering, bare
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.time_bounds import closing

Wanted = tuple[str, str, str]  # name, SQL over the source's columns, type


def lower(
    low: Lowering,
    source: Relation,
    groups: Mapping[str, BoundExpression],
    arguments: Sequence[Wanted],
    aggs: Sequence[Agg],
    read: Collection[int],
) -> Relation | None:
    """Return the groups and their aggregates, if they can be computed from slices.

    `read` are the columns that the arguments of the aggregates read.
    """
    node, conditions = _below_conditions(low, source.step)
    sliced = _sliced(node.operator)
    if not low.emit_on_close or sliced is None or not worth_slices(sliced.windows):
        return None
    shape = low.builder.shape(node.inputs[0])
    if not can_share(aggs, shape.append_only) or SLICE in {*groups, *(name for name, _, _ in arguments)}:
        return None
    window = {n: column.name for n, column in enumerate(source.columns) if column.name in (START, END)}
    plain = {n: g.index for n, g in groups.items() if isinstance(g, Reference)}
    own = [name for name in groups if plain.get(name) not in window]
    if any(n in window for n in (*read, *(n for name in own for n in references(groups[name])))):
        return None
    shown = {name: window[n] for name, n in plain.items() if n in window}
    decides = END if isinstance(sliced.windows, Cumulating) else None  # several windows have one start
    if not shown or len(set(shown.values())) < len(shown) or (decides and decides not in shown.values()):
        return None
    closes = closing(low, (END,), source.step)
    if closes is None:
        return None
    step = low.add(sliced, node.inputs, "slices")
    for condition in conditions:
        step = low.add(condition, (step,), "where")
    wanted = [(name, bare(groups[name], source), groups[name].type) for name in own]
    wanted += [(SLICE, quoted(SLICE), "BIGINT"), *arguments]
    rows = low.compute(Relation(step, source.columns), wanted, "arguments")
    named = {column: name for name, column in shown.items()}
    operator = SlidingAggregate(
        tuple(own),
        tuple(aggs),
        sliced.windows,
        closes.bound,
        tuple(groups),
        named.get(START),
        named.get(END),
        low.builder.shape(source.step).schema.field(END).type,
    )
    made = [StepColumn(name, group.type) for name, group in groups.items()]
    return Relation(low.add(operator, (rows.step,), "group"), tuple(made))


def _below_conditions(low: Lowering, step: str) -> tuple[Node, list[Filter]]:
    """The step below conditions that do not read the window, and these: they hold for slices as well."""
    node = low.builder.plan.nodes[step]
    found: list[Filter] = []
    while isinstance(node.operator, Filter) and not {START, END} & {*node.binding.extra.needs}:
        found.append(node.operator)
        node = low.builder.plan.nodes[node.inputs[0]]
    return node, found[::-1]


def _sliced(operator: Operator) -> AssignSlices | None:
    """The step that assigns slices instead of windows."""
    if isinstance(operator, Hop) and not operator.latest:
        return AssignSlices(operator.time, Sliding(operator.size_us, operator.slide_us, operator.offset_us))
    if (
        isinstance(operator, AssignWindows)
        and isinstance(operator.windows, Cumulating)
        and not operator.after_us
    ):
        return AssignSlices(operator.time, operator.windows, operator.watermark, operator.reports)
    return None

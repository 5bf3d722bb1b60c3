"""Python aggregates: use accumulators where rows can be retracted, else compute from a list.

A call is bound as a function of the list of its rows, `f(list(row))`.  If nothing else reads the list, the
call becomes an aggregate of the plan (`passes/lift_list_aggregates.py`).  Whether the input is append-only
then decides how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.operators.accumulate import Accumulate, Call
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import AggregateCall, BoundExpression, Reference
from millpond.sql.bound.list_aggregates import is_list_aggregate, python_aggregate
from millpond.sql.bound.words import SAME
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering, bare
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps.constant_rows import with_nothing
from millpond.sql.lowering.steps.joins import joined

Grouped = Callable[[Lowering, Relation, Sequence[BoundExpression], Sequence[AggregateCall]], Relation]


def in_python(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    calls: Sequence[AggregateCall],
    grouped: Grouped,
) -> Relation:
    """Lower groups with Python aggregates among the calls; `grouped` lowers all others."""
    append_only = low.shape(source).append_only
    fast = [n for n, call in enumerate(calls) if not low.emit_on_close and _is_fast(call, append_only)]
    rest = [n for n in range(len(calls)) if n not in fast]
    parts: list[tuple[Relation, list[int]]] = []
    if rest or not fast:
        parts.append((_by_lists(low, source, groups, [calls[n] for n in rest], grouped), rest))
    if fast:
        parts.append((_accumulated(low, source, groups, [calls[n] for n in fast]), fast))
    width = len(groups)
    if len(parts) == 1:
        return parts[0][0]
    own = [Reference(n, type=group.type) for n, group in enumerate(groups)]
    both = joined(low, parts[0][0], parts[1][0], [(n, n, SAME) for n in own], (), "inner")
    order = list(range(width))
    for number in range(len(calls)):
        side = 0 if number in rest else 1
        before = width + len(rest) + width if side else width
        order.append(before + parts[side][1].index(number))
    return both.pick(order)


def _is_fast(call: AggregateCall, append_only: bool) -> bool:
    function = python_aggregate(call)
    if function is None or call.distinct:
        return False
    return not call.orders and (append_only or function.retracts)


def _by_lists(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    calls: Sequence[AggregateCall],
    grouped: Grouped,
) -> Relation:
    """Compute the functions over lists of their rows."""
    plain = [
        call
        if call.row is None or not is_list_aggregate(call)
        else replace(call, name="list", arguments=(call.row,), type=call.list_type)
        for call in calls
    ]
    found = grouped(low, source, groups, plain)
    if not any(map(is_list_aggregate, calls)):
        return found
    width = len(groups)
    wanted = [(c.name, quoted(c.name), c.type) for c in found.columns[:width]]
    for column, call in zip(found.columns[width:], calls, strict=True):
        if is_list_aggregate(call):
            text = f"{quoted(call.name)}({column.sql})"
            wanted.append((column.name, text, call.type))
        else:
            wanted.append((column.name, quoted(column.name), column.type))
    return low.compute(found, wanted, "aggregates")


def _accumulated(
    low: Lowering, source: Relation, groups: Sequence[BoundExpression], calls: Sequence[AggregateCall]
) -> Relation:
    keys = fresh_names(g.alias or f"group_{n}" for n, g in enumerate(groups))
    wanted = [(n, bare(g, source), g.type) for n, g in zip(keys, groups, strict=True)]
    outs = fresh_names([c.alias or c.name.partition("#")[0] for c in calls], keys)
    taken = [*keys, *outs]

    def column(text: str, kind: str, base: str) -> str:
        for name, known, _ in wanted[len(keys) :]:
            if known == text:
                return name
        (name,) = fresh_names([base], taken)
        taken.append(name)
        wanted.append((name, text, kind))
        return name

    made = []
    for out, call in zip(outs, calls, strict=True):
        function = python_aggregate(call)
        assert function is not None
        arguments = tuple(column(render(c, source.columns), c.type, "argument") for c in call.arguments)
        conditions = [] if call.filter is None else [render(call.filter, source.columns)]
        given = None
        if conditions or not groups:  # excludes the row that represents empty input
            given = column(" AND ".join(conditions) or "true", "BOOLEAN", "given")
        made.append(Call(out, function, arguments, given))
    rows = low.compute(source, wanted, "arguments")
    if not groups:
        rows = with_nothing(low, rows)
    step = low.add(Accumulate(tuple(keys), tuple(made)), (rows.step,), "accumulate")
    columns = [StepColumn(n, g.type) for n, g in zip(keys, groups, strict=True)]
    columns += [StepColumn(n, c.type) for n, c in zip(outs, calls, strict=True)]
    return Relation(step, tuple(columns))

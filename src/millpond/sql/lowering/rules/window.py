"""OVER: recomputes the rows of a partition when one of them changes; see `steps/window_query.py`.

With EMIT ON WINDOW CLOSE, rows whose frames read rows that have not come out yet are left out
(`steps/final_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.filter import Filter
from millpond.operators.per_key import PerKey
from millpond.sql.binding.types import as_stored, quoted
from millpond.sql.bound.expressions import WindowCall
from millpond.sql.bound.relations import BoundWindow
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import final_rows
from millpond.sql.lowering.steps.window_query import Over


def lower(low: Lowering, node: BoundWindow) -> Relation:
    """Calls that are not read are not computed, so they cannot fail, as in a batch query."""
    calls, width = node.calls, node.input.width
    read = [n for n in range(len(calls)) if node.read is None or width + n in node.read]
    source = low.lower(node.input)
    ahead = [final_rows.rows_ahead(low, source, call) if low.final_rows else 0 for call in calls]
    if not read:  # the same rows; other columns take the positions of unread ones
        return Relation(source.step, (*source.columns, *(source.columns[0] for _ in calls)))
    waits = [final_rows.call_of_row_ahead(calls[n], ahead[n]) for n in read if ahead[n]]
    calls = (*calls, *dict.fromkeys(waits))
    found: list[StepColumn | None] = [None] * len(calls)
    held = low.exact(source) if node.read is None else low.narrowed(source, node.input.read)
    by_partition: dict[str, list[int]] = {}
    for n in (*read, *range(len(node.calls), len(calls))):
        key = repr([render(p, source.columns) for p in calls[n].partitions])
        by_partition.setdefault(key, []).append(n)
    for numbers in by_partition.values():
        held = _one_partition(low, held, width, calls, numbers, found)
    step = held.step
    if complete := [quoted(c.name) for c in found[len(node.calls) :] if c is not None]:
        step = low.add(Filter(" AND ".join(f"{name} IS NOT NULL" for name in complete)), (step,), "complete")
    shown = found[: len(node.calls)]
    return Relation(step, (*held.columns[:width], *(c or held.columns[0] for c in shown)))


def _one_partition(
    low: Lowering,
    held: Relation,
    width: int,
    calls: Sequence[WindowCall],
    numbers: list[int],
    found: list[StepColumn | None],
) -> Relation:
    parts = calls[numbers[0]].partitions
    extended, keys = low.extended(Relation(held.step, held.columns), parts, "part")
    names = list(low.builder.shape(extended.step).schema.names)
    outs = fresh_names([calls[n].alias or "over" for n in numbers], names)
    (place,) = fresh_names(["place"], [*names, *outs])
    over = Over(held.columns[:width], keys, names, place, outs)
    texts = []
    for out, n in zip(outs, numbers, strict=True):
        kind = calls[n].type
        texts.append((out, as_stored(over.call(calls[n]), kind)))
        found[n] = StepColumn(out, kind)
    parted = tuple(dict.fromkeys(keys))
    operator = PerKey(parted, sql=over.sql(texts), passes=parted, place=place, alone=over.alone)
    step = low.add(operator, (extended.step,), "over")
    extra = [
        StepColumn(o, f.type) for o, f in zip(outs, (found[n] for n in numbers), strict=True) if f is not None
    ]
    return Relation(step, (*held.columns, *extra))

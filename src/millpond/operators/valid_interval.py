"""ValidInterval: shows each row while the epoch clock is within its interval.

Law: after an epoch at time `now` the output is the input's rows with
``since <= now < until``.  Both bounds are functions of the row alone, so a row
and its retraction agree on them; a row that has no bound (NULL) is never shown.
Rows that will enter or leave wait in a timer wheel (`kernels.timer_wheel`), with their
weights, so an epoch costs the rows that enter, leave and arrive, with or without input.
A retraction takes its row out of the table where it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InternalError, InvalidError
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import project
from millpond.kernels.expressions import bind
from millpond.kernels.timer_wheel import Ints, TimerWheel, times
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, Wake, by_key
from millpond.operators.traits import FiresByTime
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet

_SINCE, _UNTIL = "_since", "_until"
_NEVER = 2**63 - 1  # as DuckDB gives 'infinity'


AT = "_at"  # the deadline of a row, beside its columns
INSTANT = pa.timestamp("us")
# A bucket of the narrowest table is one instant, so it is always due completely.
WIDTHS = (1, *(1000 * 8**tier for tier in range(12)))  # 1 us, then 1 ms, 8 ms, … to 99 days
_REACHES = (WIDTHS[1], *(64 * width for width in WIDTHS[1:-1]))


@dataclass(frozen=True)
class ValidInterval(FiresByTime):
    """`since` and `until` are SQL over the input's columns, of type TIMESTAMP; None: no such bound.

    >>> ValidInterval(None, "ts + INTERVAL '1 hour'").until
    "ts + INTERVAL '1 hour'"
    """

    since: str | None
    until: str | None

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        bounds = []
        for name, sql in ((_SINCE, self.since), (_UNTIL, self.until)):
            if sql is None:
                continue
            bound = bind(schema, sql, name=name, append_only=shape.append_only, step=step)
            if bound.type != INSTANT:
                raise InvalidError(
                    "a bound of an interval of time is a timestamp", detail=f"this is {bound.type}", step=step
                )
            bounds.append((name, bound))
        if not bounds:
            raise InvalidError("an interval of time needs a bound", step=step)
        plain = tuple(f.name for f in schema if not pa.types.is_nested(f.type))
        key = plain if shape.key is None else shape.key
        own = tuple((name, bind(schema, name)) for name in schema.names)
        return Binding(
            Shape(schema, shape.append_only and self.until is None, shape.key),
            (by_key(*key),),
            _wheel(step).tables(schema.append(pa.field(AT, INSTANT)), key, rule="weights"),
            placed_by=key,
            extra=own + tuple(bounds),
            wakes=tuple(Wake(name, width, 0) for name, width in _wheel(step).names),
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return _wheel(binding.tables[0].name.rpartition("/")[0]).is_due(earliest, now_us)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        names = binding.shape.schema.names
        opened = _wheel(ctx.step).open(lambda name, end: ctx.table(name, below_bucket=end), ctx.now_us)
        out, waiting, errors = [], [], None
        if opened.later is not None:
            waiting.append(opened.later.drop_columns([deltas.HASH]))
        if opened.rows is not None and opened.rows.num_rows:
            rows = opened.rows.drop_columns([deltas.HASH])
            if self.since is None:
                out.append(deltas.negate(rows.select([*names, deltas.WEIGHT])))
            else:
                passed, later = self._passed(ctx, binding, rows)
                out.append(passed)
                waiting.append(later)
        if delta is not None:
            plain = deltas.with_weights(delta.select(names).cast(binding.shape.schema), deltas.weights(delta))
            evaluated = project(deltas.consolidate(plain), binding.extra)
            errors = evaluated.errors
            since, until = self._bounds(evaluated.rows)
            rows = evaluated.rows.select([*names, deltas.WEIGHT])
            out.append(rows.filter(pa.array((since <= ctx.now_us) & (ctx.now_us < until))))
            waiting.append(_next(rows, since, until, ctx.now_us))
        changes = _written(ctx, pa.concat_tables(waiting)) if waiting else []
        shown = deltas.consolidate(pa.concat_tables(out)) if out else None
        return StepResult(shown, tuple(changes), errors, opened.drops)

    def _passed(self, ctx: Context, binding: Binding, due: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(rows that enter or leave, rows that wait for their end), of rows whose deadline has come."""
        names = binding.shape.schema.names
        rows = due.select([*names, deltas.WEIGHT])
        since, until = self._bounds(project(rows, binding.extra).rows)
        at = times(due, AT)
        leaves, stays = at == until, ctx.now_us < until
        weights = np.where(leaves, -1, 1) * deltas.weights(due)
        passed = deltas.with_weights(rows, weights).filter(pa.array(leaves | stays))
        rest = pa.array(~leaves & stays)
        chosen = np.flatnonzero(~leaves & stays)
        return passed, _next(rows.filter(rest), since[chosen], until[chosen], ctx.now_us)

    def _bounds(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """The bounds in microseconds; a row without a bound that it needs never enters."""
        since = np.full(rows.num_rows, -_NEVER)
        until = np.full(rows.num_rows, _NEVER)
        if self.since is not None:
            since = _micros(rows, _SINCE, _NEVER)
        if self.until is not None:
            until = _micros(rows, _UNTIL, -_NEVER)
        return since, until


def _wheel(step: str) -> TimerWheel:
    return TimerWheel(f"{step}/due", WIDTHS, _REACHES, AT)


def _written(ctx: Context, rows: pa.Table) -> list[Change]:
    """Writes rows with deadlines after now to the wheel; rows of negative weight are removed from it."""
    rows = deltas.consolidate(rows)
    weights = deltas.weights(rows)
    changes = _taken(ctx, rows.filter(pa.array(weights < 0)))
    fresh = rows.filter(pa.array(weights > 0))
    changes += [Change(name, some) for name, some in _wheel(ctx.step).placed(fresh, ctx.now_us)]
    return changes


def _taken(ctx: Context, owed: pa.Table) -> list[Change]:
    """Removes retracted rows from the table that contains them, by their deadlines.

    Buckets that time has reached have already been read.
    """
    changes = []
    for name, width in _wheel(ctx.step).names:
        if not owed.num_rows:
            break
        buckets = {b for b in np.unique(times(owed, AT) // width).tolist() if b > ctx.now_us // width}
        table = ctx.table(name, buckets=buckets)
        if not table.runs:
            continue
        stored = table.lookup(KeySet.of(owed, table.spec.key)).table.select(owed.column_names)
        after = deltas.consolidate(deltas.concat([owed, stored]))
        rest = after.filter(pa.array(deltas.weights(after) < 0))
        taken = deltas.consolidate(deltas.concat([owed, deltas.negate(rest)]))
        if taken.num_rows:
            changes.append(Change(table.spec.name, taken))
        owed = rest
    if owed.num_rows:
        raise InternalError(
            "a row was retracted that is not there",
            detail=f"{owed.num_rows} rows, first {owed.slice(0, 1).to_pylist()[0]}",
            hint="a retraction met no row; the step that sent it is at fault",
            step=ctx.step,
            epoch=ctx.epoch,
        )
    return changes


def _micros(rows: pa.Table, name: str, missing: int) -> Ints:
    micros: Ints = one_chunk(rows.column(name)).cast(pa.int64()).fill_null(missing).to_numpy()
    return micros


def _next(rows: pa.Table, since: Ints, until: Ints, now_us: int) -> pa.Table:
    """The rows that will still enter or leave, with the time at which they do."""
    at = np.where(now_us < since, since, until)
    ahead = np.flatnonzero((since < until) & (now_us < at) & (at < _NEVER))
    waiting = rows.take(pa.array(ahead))
    index = waiting.num_columns - 1  # before the weight
    return waiting.add_column(index, pa.field(AT, INSTANT), pa.array(at[ahead]).cast(INSTANT))

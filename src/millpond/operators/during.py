"""During: rows while the clock of epochs is within their interval.

Law: after an epoch at time `now` the output is the input's rows with
``since <= now < until``.  Both bounds are functions of the row alone, so a row
and its retraction agree on them; a row that has no bound (NULL) is never shown.
What will enter or leave waits in tables by deadline (`deadlines`), and an epoch
costs what enters, what leaves and what came, with or without input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.operators.deadlines import AT, INSTANT, Ints, due_tables, is_due, open_due, wakes, written
from millpond.operators.expressions import bind
from millpond.operators.kernel import project
from millpond.operators.operator import Binding, Context, Inputs, Result, Shape, by_key
from millpond.operators.watermark import stored

_SINCE, _UNTIL = "_since", "_until"
_NEVER = 2**63 - 1  # as DuckDB gives 'infinity'


@dataclass(frozen=True)
class During:
    """`since` and `until` are SQL over the input's columns, of type TIMESTAMP; None: no such bound.

    >>> During(None, "ts + INTERVAL '1 hour'").until
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
            found = bind(schema, sql, name=name, append_only=shape.append_only, step=step)
            if found.type != INSTANT:
                raise InvalidError(
                    "a bound of an interval of time is a timestamp", detail=f"this is {found.type}", step=step
                )
            bounds.append((name, found))
        if not bounds:
            raise InvalidError("an interval of time needs a bound", step=step)
        plain = tuple(f.name for f in schema if not pa.types.is_nested(f.type))
        key = plain if shape.key is None else shape.key
        own = tuple((name, bind(schema, name)) for name in schema.names)
        return Binding(
            Shape(schema, shape.append_only and self.until is None, shape.key),
            (by_key(*key),),
            due_tables(step, schema, key),
            placed_by=key,
            extra=own + tuple(bounds),
            wakes=wakes(step),
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return is_due(binding.tables[0].name.rpartition("/")[0], earliest, now_us)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        names = binding.shape.schema.names
        opened = open_due(ctx)
        out, waiting, errors = [], [], None
        if opened.later is not None:
            waiting.append(opened.later)
        if opened.due is not None and opened.due.num_rows:
            rows = opened.due
            if self.since is None:
                out.append(deltas.negate(rows.select([*names, deltas.WEIGHT])))
            else:
                passed, later = self._passed(ctx, binding, rows)
                out.append(passed)
                waiting.append(later)
        if delta is not None:
            plain = deltas.with_weights(delta.select(names).cast(binding.shape.schema), deltas.weights(delta))
            found = project(deltas.consolidate(plain), binding.extra)
            errors = found.errors
            since, until = self._bounds(found.rows)
            rows = found.rows.select([*names, deltas.WEIGHT])
            out.append(rows.filter(pa.array((since <= ctx.now_us) & (ctx.now_us < until))))
            waiting.append(_next(rows, since, until, ctx.now_us))
        changes = written(ctx, pa.concat_tables(waiting)) if waiting else []
        shown = deltas.consolidate(pa.concat_tables(out)) if out else None
        return Result(shown, tuple(changes), errors, opened.drops)

    def _passed(self, ctx: Context, binding: Binding, due: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(what enters and what leaves, what waits for its end) of rows whose deadline has come."""
        names = binding.shape.schema.names
        rows = due.select([*names, deltas.WEIGHT])
        since, until = self._bounds(project(rows, binding.extra).rows)
        at = one_chunk(due.column(AT)).cast(pa.int64()).to_numpy()
        leaves, stays = at == until, ctx.now_us < until
        weights = np.where(leaves, -1, 1) * deltas.weights(due)
        passed = deltas.with_weights(rows, weights).filter(pa.array(leaves | stays))
        rest = pa.array(~leaves & stays)
        chosen = np.flatnonzero(~leaves & stays)
        return passed, _next(rows.filter(rest), since[chosen], until[chosen], ctx.now_us)

    def _bounds(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Microseconds; a row without a bound that it needs never enters."""
        since = np.full(rows.num_rows, -_NEVER)
        until = np.full(rows.num_rows, _NEVER)
        if self.since is not None:
            since = _micros(rows, _SINCE, _NEVER)
        if self.until is not None:
            until = _micros(rows, _UNTIL, -_NEVER)
        return since, until


def _micros(rows: pa.Table, name: str, missing: int) -> Ints:
    found: Ints = one_chunk(rows.column(name)).cast(pa.int64()).fill_null(missing).to_numpy()
    return found


def _next(rows: pa.Table, since: Ints, until: Ints, now_us: int) -> pa.Table:
    """The rows that something is still to happen to, with the time of it."""
    at = np.where(now_us < since, since, until)
    ahead = np.flatnonzero((since < until) & (now_us < at) & (at < _NEVER))
    found = rows.take(pa.array(ahead))
    place = found.num_columns - 1  # before the weight
    return found.add_column(place, pa.field(AT, INSTANT), pa.array(at[ahead]).cast(INSTANT))

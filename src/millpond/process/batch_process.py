"""BatchProcess: runs a user's Python once for all keys of a batch, on Arrow data.

The laws of KeyedProcess hold, for code that works on columns: it receives the
rows by key and in order, the distinct keys, and each state as one array with a
value per key.  It sets the arrays and returns a table.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import HASH, ORIGIN
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import canonical_rows
from millpond.kernels.user_code import conformed, error_text, is_row_fault, name_of
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EvolvesState
from millpond.process import row_order
from millpond.process.columns import ColumnHandle
from millpond.process.row_order import plain_rows
from millpond.process.spec import StateSpec
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]

_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class KeyBatch:
    """The argument of a batch function."""

    rows: pa.Table  # by key, and in order within a key
    keys: pa.Table  # the distinct keys
    key_of: Ints  # row -> the number of its key
    starts: Ints  # where the rows of each key begin, and the end
    now: datetime.datetime
    epoch: int

    def __len__(self) -> int:
        return len(self.key_of)


@dataclass(frozen=True)
class BatchProcess(EvolvesState):
    key: tuple[str, ...]
    function: Callable[..., pa.Table]
    states: tuple[StateSpec, ...]
    schema: pa.Schema

    canonical: ClassVar[bool] = True

    def meaning(self) -> Any:
        return self.key

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            raise InvalidError(
                "process_batch needs append-only input",
                detail="rows of this stream can be retracted, and user code cannot undo what it did",
                hint="put it before aggregates, joins and tables, or use apply() on all rows of a key",
                step=step,
            )
        for state in self.states:
            if (
                state.kind != "value"
                or state.form == "pickle"
                or state.ttl is not None
                or state.adds is not None
            ):
                raise InvalidError(
                    f"process_batch cannot keep state {state.name!r} in columns",
                    detail="it takes ValueState with a type, without a time to live",
                    hint="give the state a type, or use process() for lists, maps, timers and time to live",
                    step=step,
                )
        check_names(self.schema.names, step)
        key = pa.schema([stored(shape.schema).field(name) for name in self.key])
        tables = tuple(state.table(step, key) for state in self.states)
        extra = (tuple(shape.schema.names), shape.time)
        return Binding(Shape(self.schema, append_only=True), (by_key(*self.key),), tables, extra=extra)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset([*binding.extra[0], ORIGIN]),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        names, time = binding.extra
        rows = plain_rows(delta)
        keys = KeySet.of(rows.select(list(self.key)), self.key, one_chunk(rows.column(HASH)).to_numpy())
        order = row_order.by_key(rows, keys.inverse, time)
        key_of = keys.inverse[order]
        batch = KeyBatch(
            canonical_rows(rows.select(list(names))).take(pa.array(order)),
            keys.columns,
            key_of,
            np.searchsorted(key_of, np.arange(len(keys) + 1)),
            _EPOCH_UTC + datetime.timedelta(microseconds=ctx.now_us),
            ctx.epoch,
        )
        handles = {s.name: ColumnHandle(s, ctx.table(f"{ctx.step}/{s.name}"), keys) for s in self.states}
        out = self._call(ctx, batch, handles)
        return StepResult(out, tuple(c for handle in handles.values() for c in handle.changes()))

    def _call(self, ctx: Context, batch: KeyBatch, handles: dict[str, ColumnHandle]) -> pa.Table:
        try:
            returned = self.function(batch, **handles)
        except BaseException as error:
            if not is_row_fault(error):
                raise
            raise InvalidError(
                f"{name_of(self.function)} failed on a batch of {len(batch)} rows",
                detail=error_text(error, self.function),
                hint="fix the function; use process() where single bad rows should not stop the others",
                step=ctx.step,
                epoch=ctx.epoch,
            ) from error
        if returned is None:
            return self.schema.empty_table()
        return conformed(returned, self.schema, self.function, ctx.step, ctx.epoch)

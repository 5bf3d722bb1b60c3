"""Accumulate: Python aggregates with stored state, updated by the rows that are inserted and retracted.

Law: a group's row is the result of `finish` on a state to which `accumulate` was
applied for all its rows, in some order, and `retract` for the retracted ones.  So an
epoch costs its own rows, not the size of the groups, and it is correct as long as
`retract` undoes `accumulate`.  The operator remembers: it retracts the rows that its
table says it emitted.

If a call fails, the group is recomputed from its rows, which are also stored
unless no row can ever be retracted.  If that fails too, the group is an error row
(law 9) until it can be computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import moved_names
from millpond.delta import HASH, WEIGHT, concat, consolidate, negate, with_weights
from millpond.errors import InternalError
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.python_function import PythonFunction, Steps, kept
from millpond.kernels.python_rows import arrow_values
from millpond.kernels.python_values import python_values
from millpond.kernels.user_code import error_text, is_row_fault
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import ExpiresBehindBound
from millpond.state.runs.sorted_rows import sorted_columns
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

COUNT, STATE, ERROR = "_n", "_state", "_error"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Call:
    out: str
    function: PythonFunction  # an aggregate
    arguments: tuple[str, ...]  # columns of the input
    given: str | None = None  # a boolean column: rows where it is not true are left out


@dataclass(frozen=True)
class _KeyRows:
    """Rows of complete keys or of a change to them, grouped by key."""

    values: list[tuple[list[Any], ...]]  # for each call, the columns of its arguments as Python values
    given: list[list[Any] | None]
    weights: Ints
    starts: Ints  # first row of each key, and the end

    def of(self, call: int, key: int, *, nulls: bool) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The rows of a key that a call reads, with their weights."""
        columns, conditions = self.values[call], self.given[call]
        for index in range(int(self.starts[key]), int(self.starts[key + 1])):
            row = tuple(column[index] for column in columns)
            if (conditions is None or conditions[index]) and (nulls or all(v is not None for v in row)):
                yield int(self.weights[index]), row


@dataclass(frozen=True)
class Accumulate(ExpiresBehindBound):
    key: tuple[str, ...]
    calls: tuple[Call, ...]
    expires: Bound | None = None  # groups behind it have expired

    canonical: ClassVar[bool] = False

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        stored_schema = stored(shape.schema)
        fields = [stored_schema.field(name) for name in self.key]
        outs = [pa.field(call.out, call.function.gives) for call in self.calls]
        schema = pa.schema([*fields, *outs])
        hidden = [pa.field(COUNT, pa.int64()), pa.field(STATE, pa.binary()), pa.field(ERROR, pa.string())]
        by_time = bucketed_by(self.expires)
        out = TableSpec(f"{step}/out", pa.schema([*schema, *hidden]), key=self.key, **by_time)
        rows = TableSpec(f"{step}/rows", stored_schema, key=self.key, rule="weights", **by_time)
        return Binding(
            Shape(schema, append_only=False, key=self.key, bounds=among(shape.bounds, self.key)),
            (by_key(*self.key),),
            (out,) if shape.append_only else (out, rows),
            placed_by=self.key,
            extra=rows,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.extra.schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        drops = self.ended(ctx, binding)
        if delta is None:
            return StepResult(drops=drops)
        keys, changed = self._rows(binding, delta)
        names = [COUNT, STATE, ERROR, *(call.out for call in self.calls)]
        buckets = buckets_of(binding.tables[0], keys.columns)
        is_found, before = ctx.table(binding.tables[0].name, buckets=buckets).lookup_one(keys, names)
        counts = before.column(COUNT).to_numpy() + _sums(changed)
        if (counts < 0).any():
            raise InternalError(
                "more rows were retracted than there are",
                detail=f"{int((counts < 0).sum())} groups, lowest count {int(counts.min())}",
                step=ctx.step,
                epoch=ctx.epoch,
            )
        after = self._changed(before, is_found, counts, changed)
        again = [n for n, made in enumerate(after) if isinstance(made, str)]
        if again and len(binding.tables) > 1:
            self._from_rows(ctx, binding, delta, keys, again, after)
        result = self._result(ctx, binding, delta, keys, (is_found, before), counts, after)
        return replace(result, drops=drops)

    # -- reading -----------------------------------------------------------------------

    def _rows(self, binding: Binding, table: pa.Table) -> tuple[KeySet, _KeyRows]:
        """The rows, sorted in their total order."""
        columns = sorted_columns(binding.extra, table)
        hashes, w = columns.pop(HASH).to_numpy(), columns.pop(WEIGHT).to_numpy()
        ordered = pa.table(list(columns.values()), schema=binding.extra.schema)
        keys = KeySet.of(ordered, self.key, hashes)
        ends = np.cumsum(np.bincount(keys.inverse, minlength=len(keys)))
        starts = np.concatenate([[0], ends]).astype(np.int64)
        read: dict[str, list[Any]] = {}
        for call in self.calls:
            for name in (*call.arguments, *([call.given] if call.given else [])):
                if name not in read:
                    read[name] = python_values(ordered.column(name))
        values = [tuple(read[name] for name in call.arguments) for call in self.calls]
        arguments = [None if call.given is None else read[call.given] for call in self.calls]
        return keys, _KeyRows(values, arguments, w, starts)

    # -- computing -----------------------------------------------------------------------

    def _changed(self, before: pa.Table, is_found: Any, counts: Ints, rows: _KeyRows) -> list[Any]:
        """For each key (states, values), None if it has no rows left, or the failure reason as text."""
        states, failed = before.column(STATE).to_pylist(), before.column(ERROR).to_pylist()
        after: list[Any] = []
        for key in range(len(counts)):
            if not counts[key]:
                after.append(None)
            elif failed[key] is not None:
                after.append(failed[key])
            else:
                after.append(self._one(states[key] if is_found[key] else None, key, rows))
        return after

    def _one(self, stored_state: bytes | None, key: int, rows: _KeyRows) -> Any:
        states = None if stored_state is None else moved_names.loads(stored_state)
        made, values = [], []
        for number, call in enumerate(self.calls):
            function = call.function.code
            try:
                state = _initial_state(function) if states is None else _restored(function, states[number])
                mine = list(rows.of(number, key, nulls=call.function.nulls))
                for weight, row in sorted(mine, key=_comes_first):
                    for _ in range(abs(weight)):
                        state = _with_row(function, state, row, weight > 0)
                made.append(_plain(function, state))
                values.append(_finished(function, state))
                arrow_values([values[-1]], call.function.gives)
            except BaseException as error:
                if not is_row_fault(error):
                    raise
                return f"{call.function.label}(): {error_text(error, function.accumulate)}"
        return cloudpickle.dumps(made), values

    def _from_rows(
        self,
        ctx: Context,
        binding: Binding,
        delta: pa.Table,
        keys: KeySet,
        again: list[int],
        after: list[Any],
    ) -> None:
        """Compute the selected keys from all their rows."""
        which = np.array(again)
        some = KeySet(keys.hashes[which], keys.columns.take(pa.array(which)), np.empty(0, np.int64))
        stored = ctx.table(binding.tables[1].name).lookup(some).table
        mine = self._rows_of(some, delta) if self.key else delta
        kept_keys, rows = self._rows(binding, concat([stored, mine.drop_columns([HASH])]))
        position_of = {_name(kept_keys, n): n for n in range(len(kept_keys))}
        for number in again:
            after[number] = self._one(None, position_of[_name(keys, number)], rows)

    def _rows_of(self, some: KeySet, delta: pa.Table) -> pa.Table:
        """The rows of some keys, matched by name: a key whose rows cancel has no number among `some`."""
        own = KeySet.of(delta, self.key, _hashes(delta))
        wanted = {_name(some, n) for n in range(len(some))}
        likely = np.flatnonzero(np.isin(own.hashes, some.hashes))
        numbers = [n for n in likely if _name(own, int(n)) in wanted]
        return delta.filter(pa.array(np.isin(own.inverse, numbers)))

    # -- output --------------------------------------------------------------------------

    def _result(
        self,
        ctx: Context,
        binding: Binding,
        delta: pa.Table,
        keys: KeySet,
        was: tuple[Any, pa.Table],
        counts: Ints,
        after: Sequence[Any],
    ) -> StepResult:
        found, before = was
        out = binding.tables[0]
        good = np.array([isinstance(made, tuple) for made in after], np.bool_)
        bad = np.array([isinstance(made, str) for made in after], np.bool_)
        reasons = [made if isinstance(made, str) else None for made in after]
        columns = [keys.columns.column(name) for name in self.key]
        for number, call in enumerate(self.calls):
            values = [made[1][number] if isinstance(made, tuple) else None for made in after]
            columns.append(arrow_values(values, call.function.gives))
        shown = pa.table(columns, schema=binding.shape.schema)
        states = pa.array([made[0] if isinstance(made, tuple) else None for made in after], pa.binary())
        rows = [*shown.columns, pa.array(counts), states, pa.array(reasons, pa.string())]
        kept_rows = pa.table(rows, schema=out.schema).append_column(
            pa.field(HASH, pa.uint64()), pa.array(keys.hashes)
        )
        changes = [Change(out.name, with_weights(kept_rows, (counts > 0).astype(np.int64)))]
        if len(binding.tables) > 1:
            changes.append(Change(binding.tables[1].name, delta))
        old_errors = before.column(ERROR)
        was_bad = found & old_errors.is_valid().to_numpy()
        was_good = found & ~was_bad
        past = pa.table(
            [*columns[: len(self.key)], *(before.column(c.out) for c in self.calls)],
            schema=binding.shape.schema,
        )
        gone, come = past.filter(pa.array(was_good)), shown.filter(pa.array(good))
        both = concat([_weighted(come, 1), _weighted(gone, -1)])
        errors = join_errors(
            self._errors(keys, bad, reasons, 1), self._errors(keys, was_bad, old_errors.to_pylist(), -1)
        )
        return StepResult(
            consolidate(both) if ctx.output_is_read else None,
            tuple(changes),
            None if errors is None else consolidate(errors),
        )

    def _errors(self, keys: KeySet, which: Any, reasons: Sequence[Any], weight: int) -> pa.Table | None:
        numbers = np.flatnonzero(which)
        if not len(numbers):
            return None
        rows = keys.columns.take(pa.array(numbers)) if self.key else pa.table({WEIGHT: [1] * len(numbers)})
        errors = error_rows(rows, [str(reasons[n]) for n in numbers.tolist()])
        return errors if weight > 0 else negate(errors)


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return with_weights(rows, np.full(rows.num_rows, weight, np.int64))


def _sums(rows: _KeyRows) -> Ints:
    ends = np.concatenate([[0], np.cumsum(rows.weights)])
    sums: Ints = ends[rows.starts[1:]] - ends[rows.starts[:-1]]
    return sums


def _comes_first(row: tuple[int, Any]) -> bool:
    return row[0] < 0


def _hashes(table: pa.Table) -> Any:
    return table.column(HASH).to_numpy()


def _name(keys: KeySet, number: int) -> Any:
    """A value that identifies a key."""
    row = keys.columns.slice(number, 1).to_pylist() if keys.columns.num_columns else []
    return int(keys.hashes[number]), repr(row)


# -- states ------------------------------------------------------------------------------


def _initial_state(function: Any) -> Any:
    return function.init() if isinstance(function, Steps) else function()


def _with_row(function: Any, state: Any, row: tuple[Any, ...], comes: bool) -> Any:
    if isinstance(function, Steps):
        step = function.accumulate if comes else function.retract
        assert step is not None
        return kept(state, step(state, *row))
    (state.accumulate if comes else state.retract)(*row)
    return state


def _finished(function: Any, state: Any) -> Any:
    return function.finish(state) if isinstance(function, Steps) else state.finish()


def _plain(function: Any, state: Any) -> Any:
    """The storable form of a state: an object's attributes, as its class may exist only as stored code."""
    return state if isinstance(function, Steps) else state.__getstate__()


def _restored(function: Any, pickled: Any) -> Any:
    if isinstance(function, Steps):
        return pickled
    state = function.__new__(function)
    if hasattr(state, "__setstate__"):
        state.__setstate__(pickled)
    else:
        plain, slots = pickled if isinstance(pickled, tuple) else (pickled, None)
        for name, value in {**(plain or {}), **(slots or {})}.items():
            setattr(state, name, value)
    return state

"""PerKey: any computation over the rows of one key.

Law: the output is, for every key that has rows, the result of the computation on
them.  The state is the input itself, by key.  An epoch fetches the rows of the
keys it touches, computes the output before and after, and emits the
difference.  Both computations see rows in one total order, with canonical floats,
so a retraction is bit for bit the row that was emitted.

It costs the size of the touched keys, not of the change.  It is the reference
that faster operators are tested against, and the fallback where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.column_names import check_names
from millpond.delta import HASH, WEIGHT, assert_non_negative, concat, consolidate, negate
from millpond.errors import InvalidError
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.kernels.duck import reason, statement
from millpond.kernels.expression_kernel import ROW_ERRORS, error_rows, join_errors
from millpond.kernels.python_function import CallsPythonFunctions
from millpond.kernels.python_rows import Row, python_rows
from millpond.kernels.query_binding import bind_query, grouping_columns
from millpond.kernels.user_code import conformed, error_text, is_row_fault
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import ExpiresBehindBound
from millpond.state.runs.sorted_rows import sorted_columns
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

# DuckDB adds the rows of a group one after the other as long as all groups fit one hash table; beyond
# that it adds partial sums, and the last bits of floats could differ.

_WINDOW = re.compile(r"\bover\b", re.IGNORECASE)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PerKey(ExpiresBehindBound, CallsPythonFunctions):
    """Computes by a query over the table `input`, partitioned by the key, or by a Python function.

    The function receives the key as a row and the key's rows as an Arrow table (a
    row of weight 3 occurs three times) and returns an Arrow table of `schema`.
    """

    key: tuple[str, ...]
    schema: pa.Schema | None = None  # of the function's result; a query has its own
    function: Callable[[Row, pa.Table], pa.Table] | None = None
    sql: str | None = None
    apart: str | None = None  # a key column that the query does not know: it runs for each value separately
    passes: tuple[str, ...] = ()  # key columns that the query passes on unchanged
    expires: Bound | None = None  # keys behind it have expired
    functions: tuple[Any, ...] = ()  # Python functions that the SQL calls
    place: str | None = None  # an additional column of `input`: the number of each row in their order
    # The query runs separately for each key: its result could depend on the other keys it sees.
    alone: bool = field(default=False, metadata={"meaning": False})

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if unknown := [name for name in self.key if name not in shape.schema.names]:
            raise InvalidError(
                f"there is no column {unknown[0]!r}",
                detail=f"columns are {', '.join(shape.schema.names)}",
                step=step,
            )
        rows = TableSpec(
            f"{step}/rows", stored(shape.schema), key=self.key, rule="weights", **bucketed_by(self.expires)
        )
        schema, query = self._computation(rows.schema, step)
        check_names(schema.names, step)
        output = Shape(schema, append_only=False, bounds=among(shape.bounds, self.passes))
        return Binding(output, (by_key(*self.key),), (rows,), extra=query)

    def _computation(self, rows: pa.Schema, step: str) -> tuple[pa.Schema, str | None]:
        if (self.sql is None) == (self.function is None):
            raise InvalidError("a computation per key is either a query or a function", step=step)
        if self.sql is not None:
            seen = [f for f in rows if f.name != self.apart]
            seen += [pa.field(self.place, pa.int64())] if self.place is not None else []
            schema, query = bind_query(pa.schema(seen), self.sql, step=step)
            return schema if self.apart is None else schema.append(rows.field(self.apart)), query
        if self.schema is None:
            raise InvalidError(
                "the schema of the function's result is missing",
                hint="pass schema=pa.schema([...])",
                step=step,
            )
        return self.schema, None

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.tables[0].schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        spec = binding.tables[0]
        drops = self.ended(ctx, binding)
        if delta is None:
            return StepResult(drops=drops)
        keys = KeySet.of(delta, self.key, delta.column(HASH).to_numpy())
        stored = ctx.table(spec.name, buckets=buckets_of(spec, keys.columns)).lookup(keys).table
        old = self._compute(ctx, binding, stored)
        new = self._compute(ctx, binding, concat([stored, delta.drop_columns([HASH])]))
        errors = join_errors(new[1], None if old[1] is None else negate(old[1]))
        return StepResult(
            consolidate(concat([new[0], negate(old[0])])),
            (Change(spec.name, delta),),
            None if errors is None else consolidate(errors),
            drops,
        )

    # ------------------------------------------------------------ one side

    def _compute(self, ctx: Context, binding: Binding, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """(output, errors) for these rows: all old, or all new, rows of some keys."""
        columns = sorted_columns(binding.tables[0], rows)
        hashes, w = columns.pop(HASH).to_numpy(), columns.pop(WEIGHT)
        ordered = pa.table(list(columns.values()), schema=binding.tables[0].schema)
        assert_non_negative(ordered.append_column(WEIGHT, w), step=ctx.step, epoch=ctx.epoch)
        keys = KeySet.of(ordered, self.key, hashes)
        times = w.to_numpy()
        ordered = ordered.take(pa.array(np.repeat(np.arange(len(times)), times)))
        ends = np.cumsum(np.bincount(np.repeat(keys.inverse, times), minlength=len(keys)))
        starts = np.concatenate([[0], ends]).astype(np.int64)
        compute = self._by_query if self.function is None else self._by_function
        parts, failed = compute(ctx, binding, ordered, keys, starts)
        out = pa.concat_tables([binding.shape.schema.empty_table(), *parts])
        if not failed:
            return out, None
        numbers = sorted(failed)
        bad = keys.columns.take(pa.array(numbers)) if self.key else _global_key(len(numbers))
        return out, error_rows(bad, [failed[number] for number in numbers])

    def _by_query(
        self, ctx: Context, binding: Binding, rows: pa.Table, keys: KeySet, starts: Ints
    ) -> tuple[list[pa.Table], dict[int, str]]:
        whole, apart = rows, self.apart
        if apart is not None:
            rows = rows.drop_columns([apart])
        if self.place is not None:
            rows = rows.append_column(self.place, pa.array(np.arange(rows.num_rows)))
        query = statement(
            ("per key", rows.schema, binding.extra),
            lambda view: binding.extra.format(input=view),
            rows.schema,
        )
        schema = binding.shape.schema
        results: list[pa.Table] = []
        failed: dict[int, str] = {}
        most = 1 if self.alone or apart is not None else tuning.PER_KEY_KEYS_PER_QUERY
        pending = [(k, min(k + most, len(keys))) for k in range(0, len(keys), most)]
        while pending:
            first, last = pending.pop()
            start, stop = int(starts[first]), int(starts[last])
            try:
                part = query.run(rows.slice(start, stop - start))
                columns = part.columns
                if apart is not None:
                    columns = [*columns, pa.repeat(whole.column(apart)[start], part.num_rows)]
                results.append(pa.table(columns, schema=schema))
            except ROW_ERRORS as error:
                if last - first == 1:
                    failed[first] = reason(error)
                else:
                    middle = (first + last) // 2
                    pending += [(first, middle), (middle, last)]
        return results, failed

    def _by_function(
        self, ctx: Context, binding: Binding, rows: pa.Table, keys: KeySet, starts: Ints
    ) -> tuple[list[pa.Table], dict[int, str]]:
        assert self.function is not None
        results: list[pa.Table] = []
        failed: dict[int, str] = {}
        named = python_rows(keys.columns) if self.key else [Row()] * len(keys)
        for number, key in enumerate(named):
            mine = rows.slice(int(starts[number]), int(starts[number + 1] - starts[number]))
            try:
                returned: Any = self.function(key, mine)
            except BaseException as error:
                if not is_row_fault(error):
                    raise
                failed[number] = error_text(error, self.function)
                continue
            results.append(conformed(returned, binding.shape.schema, self.function, ctx.step, ctx.epoch))
        return results, failed


def is_run_alone(sql: str, key: Sequence[str]) -> bool:
    """Whether a user's query must run separately for each key.

    One query may serve many keys only if it groups the rows of `input` by all columns of the key.  Window
    functions must run alone even then: DuckDB's sort leaves the order of ties undefined, and floats are
    added in the order of a tree over the rows of all keys.

    >>> is_run_alone("select k, sum(x) as s from input group by k", ["k"])
    False
    >>> is_run_alone("select sum(x) as s from input", ["k"])
    True
    >>> is_run_alone("select k, sum(x) over (order by t) as s from input group by k", ["k"])
    True
    """
    return _WINDOW.search(sql) is not None or not set(key) <= grouping_columns(sql)


def _global_key(count: int) -> pa.Table:
    """The single key without columns, as rows."""
    return pa.table({WEIGHT: np.ones(count, np.int64)})

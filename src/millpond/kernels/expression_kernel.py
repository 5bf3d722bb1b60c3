"""Expression kernels: evaluate SQL over the rows of one Arrow table.

Law: the result for a row depends on that row alone.  Floats are made canonical
before they are read (one zero, one NaN), so that a retracted row has exactly the
result it had when it was inserted.  A row whose expression fails becomes an
error row with its reason, while all others are processed (law 9).

A column that is only passed on never goes through DuckDB.  `_w`, `_h` and `_o`
are carried along.  A tiny table costs about half a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.delta import HASH, ORIGIN, WEIGHT, weights
from millpond.identity import canonical, one_chunk
from millpond.kernels import comparisons, distinct_row_cache
from millpond.kernels.duck import PreparedQuery, reason, statement
from millpond.kernels.expressions import Expression, bind, columns_of, compile_expressions, compile_predicate
from millpond.state.tables.error_rows import ERROR_SCHEMA
from millpond.strict_json import mended

__all__ = [
    "Evaluated",
    "canonical_rows",
    "columns_of",
    "compile_expressions",
    "compile_predicate",
    "error_rows",
    "evaluate",
    "keep",
    "masks",
    "project",
    "project_each",
    "rows_as_json",
    "visible",
]

Bools = npt.NDArray[np.bool_]

HIDDEN = (WEIGHT, HASH, ORIGIN)

_PLACE = "_i"  # a row's number, or just a column to count rows by

# Errors that a bad row can raise.  Others (memory, an interrupt, a broken engine) are not caused by the row.
ROW_ERRORS = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
    duckdb.ConstraintException,
    duckdb.NotImplementedException,
)


@dataclass(frozen=True)
class Evaluated:
    rows: pa.Table
    errors: pa.Table | None = None  # in ERROR_SCHEMA


def evaluate(
    table: pa.Table, expressions: Sequence[tuple[str, str]], predicate: str | None = None
) -> Evaluated:
    """Evaluate (name, SQL) expressions over every row where the predicate is true, in row order.

    >>> evaluate(pa.table({"x": ["1", "no"]}), (("y", "x::int"),)).rows.to_pylist()
    [{'y': 1}]
    """
    schema = visible(table).schema
    bound = tuple((name, bind(schema, sql, name=name, append_only=True)) for name, sql in expressions)
    condition = None if predicate is None else compile_predicate(schema, predicate, append_only=True)
    return project(table, bound, condition)


def project(
    table: pa.Table, bound: Sequence[tuple[str, Expression]], condition: Expression | None = None
) -> Evaluated:
    """Like `evaluate`, with expressions that are already bound, as a step stores them."""
    computed = [e for _, e in bound if e.column is None]
    if condition is not None and computed:
        try:
            columns, mask = _compute_where(table, computed, condition)
            return Evaluated(_assembled(table.filter(mask), bound, columns))
        except ROW_ERRORS:  # evaluate one by one, to see which of them failed and where
            pass
    rows_left = Evaluated(table) if condition is None else keep(table, condition)
    if not computed:
        return Evaluated(_assembled(rows_left.rows, bound, []), rows_left.errors)
    columns, good, errors = _compute(rows_left.rows, computed)
    return Evaluated(_assembled(good, bound, columns), join_errors(rows_left.errors, errors))


def keep(table: pa.Table, condition: Expression) -> Evaluated:
    """The rows where a bound condition is true, unchanged."""
    if condition.column is not None:
        return Evaluated(table.filter(table.column(condition.column)))
    if condition.absent:
        return Evaluated(_where_absent(table, condition.absent))
    (mask,), good, errors = _compute(table, [condition])
    return Evaluated(good.filter(mask), errors)


def _where_absent(table: pa.Table, absent: Sequence[tuple[str, bool]]) -> pa.Table:
    """The rows in which columns are NULL, or are not; a column is mostly all NULL or has no NULL."""
    for name, null in absent:
        column = table.column(name)
        if column.null_count == (table.num_rows if null else 0):
            continue
        if column.null_count == (0 if null else table.num_rows):
            return table.slice(0, 0)
        table = table.filter(column.is_null() if null else column.is_valid())
    return table


def masks(table: pa.Table, conditions: Sequence[Expression]) -> list[pa.ChunkedArray] | None:
    """Where each of several conditions is true, in one query; None if a row fails in one of them.

    >>> rows = pa.table({"x": [1, 2]})
    >>> asked = [compile_predicate(rows.schema, sql, append_only=True) for sql in ("x > 1", "x < 5")]
    >>> [mask.to_pylist() for mask in masks(rows, asked)]
    [[False, True], [True, True]]
    """
    fed = _fed(table, conditions)
    try:
        return _columns(_each(_prepared(fed.schema, conditions), fed), conditions)
    except ROW_ERRORS:
        return None


def project_each(
    table: pa.Table, several: Sequence[Sequence[tuple[str, Expression]]]
) -> list[pa.Table] | None:
    """`project` by several lists of expressions, in one query; None if a row fails in one of them.

    >>> rows = pa.table({"x": [1, 2]})
    >>> texts = (("y", "x + 1"), ("z", "-x"))
    >>> asked = [[(n, bind(rows.schema, s, name=n, append_only=True))] for n, s in texts]
    >>> [found.to_pydict() for found in project_each(rows, asked)]
    [{'y': [2, 3]}, {'z': [-1, -2]}]
    """
    computed = [e for bound in several for _, e in bound if e.column is None]
    fed = _fed(table, computed)
    try:
        columns = iter(_columns(_each(_prepared(fed.schema, computed), fed), computed))
    except ROW_ERRORS:
        return None
    return [
        _assembled(table, bound, [next(columns) for _, e in bound if e.column is None]) for bound in several
    ]


def visible(table: pa.Table) -> pa.Table:
    """The user's columns."""
    return table.drop_columns([name for name in HIDDEN if name in table.column_names])


def canonical_rows(table: pa.Table) -> pa.Table:
    """The rows with one zero and one NaN, so that equal rows have equal bits."""
    return pa.table([_canonical(column) for column in table.columns], schema=table.schema)


def rows_as_json(table: pa.Table) -> pa.Array:
    """The user's columns of every row as one line of JSON; NaN and infinities are written as strings."""
    rows = canonical_rows(visible(table))
    if not rows.num_columns:
        return pa.array(["{}"] * table.num_rows, pa.string())
    # The alias is the row as a struct; no column can have its name, because that name is hidden.
    found = statement(
        ("json", rows.schema),
        lambda view: f'select to_json("_row")::varchar from {view} as "_row"',
        rows.schema,
    ).run(rows)
    texts = one_chunk(found.column(0))
    if not any(_may_be_infinite(field.type) for field in rows.schema):
        return texts
    return pa.array([mended(text) for text in texts.to_pylist()], pa.string())


def _may_be_infinite(kind: pa.DataType) -> bool:
    """Whether a value of this type can contain a NaN or an infinity."""
    if pa.types.is_dictionary(kind):
        return _may_be_infinite(kind.value_type)
    inner = (kind.field(n).type for n in range(kind.num_fields))
    return pa.types.is_floating(kind) or any(map(_may_be_infinite, inner))


def error_rows(rows: pa.Table, reasons: Sequence[str]) -> pa.Table:
    """Convert rows that failed to rows of the error delta."""
    return pa.table(
        [rows_as_json(rows), pa.array(reasons, pa.string()), pa.array(weights(rows))], schema=ERROR_SCHEMA
    )


def join_errors(*parts: pa.Table | None) -> pa.Table | None:
    """Concatenate error deltas; None if there are none."""
    found = [part for part in parts if part is not None and part.num_rows]
    return pa.concat_tables(found) if found else None


# ---------------------------------------------------------------- running


def _assembled(
    table: pa.Table, bound: Sequence[tuple[str, Expression]], computed: Sequence[pa.ChunkedArray]
) -> pa.Table:
    """Passed and computed columns in their order, then the hidden columns of the table."""
    rest = iter(computed)
    columns = [next(rest) if e.column is None else table.column(e.column) for _, e in bound]
    hidden = [name for name in HIDDEN if name in table.column_names]
    names = [*(name for name, _ in bound), *hidden]
    return pa.table([*columns, *(table.column(name) for name in hidden)], names=names)


def _compute(
    table: pa.Table, expressions: Sequence[Expression]
) -> tuple[list[pa.ChunkedArray], pa.Table, pa.Table | None]:
    """(columns, the rows they belong to, errors of the other rows)."""
    fed = _fed(table, expressions)
    try:
        return _evaluated(fed, expressions), table, None
    except ROW_ERRORS as error:
        run = _prepared(fed.schema, expressions)
        good = _good_rows(fed, expressions)
        bad = np.flatnonzero(~good)
        if not len(bad):
            raise
        errors = error_rows(table.take(bad), _reasons(fed.take(bad), run, reason(error)))
        mask = pa.array(good)
        return _columns(run.run(fed.filter(mask)), expressions), table.filter(mask), errors


def _evaluated(fed: pa.Table, expressions: Sequence[Expression]) -> list[pa.ChunkedArray]:
    """A column for each expression; where rows repeat and it pays off, equal rows are computed once."""
    by_name = dict(zip(fed.column_names, fed.columns, strict=True))
    found: dict[int, pa.ChunkedArray] = {
        index: comparisons.computed(e.plain, e.type, by_name)
        for index, e in enumerate(expressions)
        if e.plain is not None
    }
    for needs, places in distinct_row_cache.by_columns(expressions).items():
        some = [expressions[index] for index in places]
        run = partial(_selected, some)
        columns = distinct_row_cache.computed(fed.select(list(needs)), some, run)
        if columns is not None:
            found |= dict(zip(places, map(pa.chunked_array, ([c] for c in columns)), strict=True))
    rest = [index for index in range(len(expressions)) if index not in found]
    if rest:
        some = [expressions[index] for index in rest]
        rows = _fed(fed, some) if found else fed
        columns = _columns(_each(_prepared(rows.schema, some), rows), some)
        found |= dict(zip(rest, columns, strict=True))
    return [found[index] for index in range(len(expressions))]


def _selected(expressions: Sequence[Expression], rows: pa.Table) -> pa.Table:
    columns = _columns(_prepared(rows.schema, expressions).run(rows), expressions)
    return pa.table(columns, names=[str(index) for index in range(len(columns))])


def _compute_where(
    table: pa.Table, expressions: Sequence[Expression], condition: Expression
) -> tuple[list[pa.ChunkedArray], pa.Array]:
    """(columns for the rows where the condition is true, which rows those are)."""
    fed = _fed(table, [*expressions, condition], numbered=True)
    picked = ", ".join([*(e.sql for e in expressions), _PLACE])
    found = statement(
        ("where", fed.schema, picked, condition.sql),
        lambda view: f"select {picked} from {view} as input where {condition.sql}",
        fed.schema,
    ).run(fed)
    mask = np.zeros(table.num_rows, np.bool_)
    mask[found.column(found.num_columns - 1).to_numpy()] = True
    return _columns(found, expressions), pa.array(mask)


def _each(run: PreparedQuery, rows: pa.Table) -> pa.Table:
    """Run a statement for each row; large chunks run one by one, because combining them needs a copy."""
    chunks = max(column.num_chunks for column in rows.columns)
    if chunks < 2 or rows.num_rows < chunks * tuning.QUERY_CHUNK_ROWS_MIN:
        return run.run(rows)
    return pa.concat_tables([run.run(pa.Table.from_batches([batch])) for batch in rows.to_batches()])


def _prepared(schema: pa.Schema, expressions: Sequence[Expression]) -> PreparedQuery:
    picked = ", ".join(e.sql for e in expressions)
    return statement(("select", schema, picked), lambda view: f"select {picked} from {view} as input", schema)


def _columns(found: pa.Table, expressions: Sequence[Expression]) -> list[pa.ChunkedArray]:
    columns = found.columns[: len(expressions)]
    return [c if c.type == e.type else c.cast(e.type) for c, e in zip(columns, expressions, strict=True)]


def _fed(table: pa.Table, expressions: Sequence[Expression], *, numbered: bool = False) -> pa.Table:
    """The columns these expressions need; always at least one, because rows are counted by it."""
    needed = {name for e in expressions for name in e.needs}
    names = [name for name in table.column_names if name in needed]
    columns = {name: _canonical(table.column(name)) for name in names}
    if numbered or not columns:
        columns[_PLACE] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
    return pa.table(columns)


def _canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [canonical(chunk) for chunk in column.chunks]
    if all(a is b for a, b in zip(chunks, column.chunks, strict=True)):
        return column
    return pa.chunked_array(chunks, column.type)


# ---------------------------------------------------------------- bad rows


def _good_rows(fed: pa.Table, expressions: Sequence[Expression]) -> Bools:
    """Which rows do not fail: by one query if DuckDB supports TRY for them, else by bisection."""
    tried = f"try(row({', '.join(e.sql for e in expressions)})) is not null"
    try:
        attempt = statement(
            ("try", fed.schema, tried), lambda view: f"select {tried} from {view} as input", fed.schema
        )
        good: Bools = attempt.run(fed).column(0).to_numpy()
        if not good.all():
            return good
    except ROW_ERRORS:  # DuckDB computes a common subexpression outside of the try
        pass
    except duckdb.BinderException:  # DuckDB does not support try for volatile functions
        pass
    good = np.ones(fed.num_rows, np.bool_)
    run = _prepared(fed.schema, expressions)
    parts = [(0, fed.num_rows)]
    while parts:
        start, stop = parts.pop()
        try:
            run.run(fed.slice(start, stop - start))
        except ROW_ERRORS:
            if stop - start == 1:
                good[start] = False
            else:
                middle = (start + stop) // 2
                parts += [(start, middle), (middle, stop)]
    return good


def _reasons(bad: pa.Table, run: PreparedQuery, fallback: str) -> list[str]:
    """Why each row fails: every distinct row runs alone, so a reason depends on its row only."""
    encoded = rows_as_json(bad).dictionary_encode()
    numbers = encoded.indices.to_numpy()
    _, first = np.unique(numbers, return_index=True)
    found = []
    for index in first.tolist():
        try:
            run.run(bad.slice(index, 1))
            found.append(fallback)  # a volatile function: it fails only sometimes
        except ROW_ERRORS as error:
            found.append(reason(error))
    return [found[number] for number in numbers.tolist()]

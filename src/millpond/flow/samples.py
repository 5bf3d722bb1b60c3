"""Finds the schema of a step: given, annotated, or from the result of calling it with sample rows.

Law: a step whose output columns are unknown is refused when it is defined.  A
sample determines the type of a column only if all its rows agree and one has a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.arguments.schemas import DECIMAL, Like, is_typed, refuse, returned, said, schema_of
from millpond.errors import InvalidError
from millpond.kernels.python_rows import arrow_values, python_rows, row_fields, row_values
from millpond.kernels.user_code import error_text, is_row_fault, name_of

TELL = "pass schema=..., annotate the return type with a dataclass, or pass sample=[...]"


def sample_table(sample: Any, schema: pa.Schema, *, step: str | None = None) -> pa.Table:
    """Sample rows as rows of a stream: columns that are left out are NULL."""
    if isinstance(sample, pa.Table):
        sample = sample.to_pylist()
    if isinstance(sample, Mapping | str) or not isinstance(sample, Iterable):
        refuse("a sample is a list of rows", f"got {said(sample)}", 'write sample=[{"k": 1, ...}]', step)
    rows = list(sample)
    if not rows:
        refuse("the sample is empty", "no row tells nothing", 'write sample=[{"k": 1, ...}]', step)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            refuse("a sample row is a dict", f"row {number} is {said(row)}", None, step)
        if unknown := [name for name in row if name not in schema.names]:
            refuse(
                f"no column named {unknown[0]!r}",
                f"row {number} of the sample has it; columns are {', '.join(schema.names)}",
                "write sample rows as this step gets them",
                step,
            )
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(arrow_values(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"the sample does not fit column {field.name!r}",
                detail=f"it is {field.type}, got {', '.join(map(repr, values[:4]))}",
                hint="write sample rows as this step gets them",
                step=step,
            ) from error
    return pa.table(columns, schema=schema)


def sample_schema(
    function: Callable[[Any], Any], rows: Iterable[Any], *, many: bool = False, step: str | None = None
) -> pa.Schema:
    """The schema of a function's results for these rows; `many` if it returns any number for each."""
    made: list[Any] = []
    count = 0
    for row in rows:
        count += 1
        try:
            result = function(row)
            made += result if many else [result]
        except BaseException as error:
            if not is_row_fault(error):
                raise
            raise InvalidError(
                f"{name_of(function)} failed on row {count} of the sample",
                detail=error_text(error, function),
                hint="fix the function or the sample, or pass schema=...",
                step=step,
            ) from error
    if not made:
        refuse(
            "the sample does not determine a schema",
            f"{count} sample rows gave no row",
            "give sample rows for which the function makes rows, or pass schema=...",
            step,
        )
    return rows_schema(made, name=name_of(function), step=step)


def rows_schema(made: Sequence[Any], *, name: str = "the function", step: str | None = None) -> pa.Schema:
    """The schema that these rows have in common."""
    kinds = {type(item) for item in made}
    if len(kinds) == 1 and is_typed(kind := kinds.pop()):
        return schema_of(kind, step=step)
    names: tuple[str, ...] | None = None
    for item in made:
        mine = row_fields(item)
        if mine is None:
            refuse(
                "the sample does not determine the names of columns",
                f"{name} returned {said(item)}",
                "return dicts or dataclass instances, or pass schema=...",
                step,
            )
        if names is None:
            names = mine
        elif set(mine) != set(names):
            refuse(
                "the sample contradicts itself",
                f"{name} returned columns {', '.join(names)} and then {', '.join(mine)}",
                "return the same columns for every row (None where there is no value), or pass schema=...",
                step,
            )
    assert names is not None
    values = [row_values(item, names) for item in made]
    return pa.schema([(n, _column_type(n, [v[i] for v in values], step)) for i, n in enumerate(names)])


def _column_type(name: str, values: list[Any], step: str | None) -> pa.DataType:
    try:
        type = _widened(arrow_values(values, None).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            f"no single type fits the sample's column {name!r}",
            detail=f"values {', '.join(map(repr, values[:4]))}: {' '.join(str(error).split())}",
            hint="let every row have the same type there, or pass schema=...",
            step=step,
        ) from error
    if type is None:
        refuse(
            f"the sample does not determine the type of column {name!r}",
            f"{len(values)} rows hold nothing there, as {values[0]!r}",
            "give a sample row with a value there, or pass schema=...",
            step,
        )
    return type


def _widened(kind: pa.DataType) -> pa.DataType | None:
    """The type of more values than were seen; None when some part was never seen."""
    t = pa.types
    if t.is_null(kind):
        return None
    if t.is_decimal(kind):
        return pa.decimal128(38, max(DECIMAL.scale, kind.scale))
    if t.is_list(kind):
        inner = _widened(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if t.is_struct(kind):
        parts = [(field.name, _widened(field.type)) for field in kind]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    return kind


# ---------------------------------------------------------------- of steps


def rows_step_schema(
    function: Callable[[Any], Any],
    schema: Like | None,
    sample: Any,
    of: pa.Schema,
    *,
    many: bool,
    step: str,
) -> pa.Schema:
    """The schema of a step that returns Python rows, from any available information; `of` is its input's."""
    _one_way(schema, sample, step)
    if schema is not None:
        return schema_of(schema, step=step)
    if sample is not None:
        return sample_schema(function, python_rows(sample_table(sample, of, step=step)), many=many, step=step)
    annotation = returned(function, step=step)
    if annotation is None:
        refuse(
            f"the result type of {name_of(function)} is not known",
            "its columns have no types yet",
            TELL,
            step,
        )
    if annotation.many and not many:
        refuse(
            f"{name_of(function)} returns many rows, and a map gives one for each",
            "its return annotation says so",
            "use flat_map(), or return one row",
            step,
        )
    if annotation.optional and not many:
        refuse(
            f"{name_of(function)} may return None, and a map gives one row for each",
            "its return annotation says so",
            "filter() the rows first, or use flat_map() and return a list of none or one",
            step,
        )
    if many and not annotation.many:
        refuse(
            f"{name_of(function)} returns one row, and a flat_map gives any number",
            "its return annotation says so",
            "use map(), or return a list or an iterator of rows",
            step,
        )
    return schema_of(annotation.row, step=step)


def batch_step_schema(
    function: Callable[[pa.Table], Any], schema: Like | None, sample: Any, of: pa.Schema, *, step: str
) -> pa.Schema:
    """The same for a step that returns Arrow tables."""
    _one_way(schema, sample, step)
    if schema is not None:
        return schema_of(schema, step=step)
    if sample is None:
        refuse(
            f"the result type of {name_of(function)} is not known",
            "its columns have no types yet",
            "pass schema=... or sample=[...]",
            step,
        )
    rows = sample_table(sample, of, step=step)
    try:
        found = function(rows)
    except BaseException as error:
        if not is_row_fault(error):
            raise
        raise InvalidError(
            f"{name_of(function)} failed on the sample",
            detail=error_text(error, function),
            hint="fix the function or the sample, or pass schema=...",
            step=step,
        ) from error
    if not isinstance(found, pa.Table | pa.RecordBatch):
        refuse(
            f"{name_of(function)} must return an Arrow table",
            f"it returned {type(found).__name__} for the sample",
            "return pa.table(...)",
            step,
        )
    if untold := [field.name for field in found.schema if pa.types.is_null(field.type)]:
        refuse(
            f"the sample does not determine the type of column {untold[0]!r}",
            f"all its {found.num_rows} values are NULL",
            "give the column a type in the function, or pass schema=...",
            step,
        )
    return found.schema


def _one_way(schema: Any, sample: Any, step: str) -> None:
    if schema is not None and sample is not None:
        refuse("a schema and a sample are given", "one is enough", "leave out sample=", step)

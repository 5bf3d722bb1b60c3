"""ALTER TABLE … ALTER COLUMN … TYPE: a column gets a wider type, and no row is rewritten.

The column gets a new stored name.  Older rows have the old one, whose values are cast when they are read
(`state.runs.missing_column`).  So only types that have every value of the old one are possible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.added_columns import may_lack, with_column
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.declared_types import declared_size, declared_type
from millpond.sql.statements.altered_table import (
    column_of,
    columns_as_they_are,
    own_steps,
    table_of,
    unused_name,
    users_of,
    with_columns,
)
from millpond.sql.statements.objects import all_objects_with_uses
from millpond.sql.text.column_definitions import (
    check_condition,
    check_expressions,
    stored_schema,
)
from millpond.sql.text.parse import Words
from millpond.sql.text.type_names import type_of
from millpond.state.runs.missing_column import CopyOf

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of integers, by bits
_ANEW = "make a new table, and INSERT … SELECT"
_EXACT_BITS = {"float": 16, "double": 32}  # the integers that a float has exactly


def read_new_type(words: Words, called: str) -> tuple[str, str | None]:
    """The type behind TYPE, and what it asks of values; USING may only repeat the cast."""
    fragment = words.fragment
    using = (n for n in fragment.outside(words.at, types=True) if fragment.word(n) == "USING")
    end = next(using, len(fragment))
    if end == words.at:
        words.fail("a type should stand here")
    said = fragment.part(words.at, end)
    kind = type_of(said)
    declared = declared_type(said.sql) if said.dialect == "postgres" else None
    words.at = end
    if words.take("USING"):
        at = words.at
        plain = words.name("name of the column").lower() == called.lower()
        cast = plain and words.take("::")
        if not (type_of(words.rest) == kind if cast else plain and words.over):
            words.at = at
            words.fail(
                "USING can only cast the column", "add a column and UPDATE it, or compute it in a view"
            )
    return kind, declared


def with_wider_column(plan: Plan, name: str, called: str, kind: str, declared: str | None = None) -> Plan:
    """The plan in which a column has another type; refused if values or readers would not fit."""
    found = table_of(plan, name)
    column = column_of(found, called)
    assert column is not None
    if column.type == kind:
        return _with_declared(plan, found, column, declared)
    scan = found.scan or ""
    wider = replace(
        column, type=kind, declared=declared, stored=unused_name(column.name, plan.shape(scan).schema.names)
    )
    _check(plan, found, column, wider)
    columns = tuple(wider if c is column else c for c in found.columns)
    check_expressions(columns)
    for rule in found.constraints:
        check_condition(columns, rule)
    own = own_steps(plan, found)
    views = {
        v.name: v if v.columns or v.step not in own else replace(v, columns=columns_as_they_are(plan, v.step))
        for v in plan.views.values()
    }
    (field,) = stored_schema([wider])
    source: Any = plan.nodes[scan].operator
    older = CopyOf(column.stored_name, dict(source.source.fill).get(column.stored_name))
    plan = with_column(replace(plan, views=views), own, field, older)
    return with_columns(may_lack(plan, scan, column.stored_name), found, columns, found.key)


def _with_declared(plan: Plan, found: SqlObject, column: SqlColumn, declared: str | None) -> Plan:
    """The plan in which a column of the same type takes longer values, or any."""
    if declared == column.declared:
        return plan
    old, new = declared_size(column.declared), declared_size(declared)
    if declared is not None and (old is None or new is None or old > new):
        raise InvalidError(
            f"the type of column {column.name!r} of table {found.name!r} cannot be changed to {declared}",
            detail="only a type that has every value of the old one is possible: rows are not rewritten",
            hint=f"add a column of the new type and UPDATE it, or {_ANEW}",
        )
    columns = tuple(replace(c, declared=declared) if c is column else c for c in found.columns)
    return with_columns(plan, found, columns, found.key)


def _check(plan: Plan, found: SqlObject, column: SqlColumn, wider: SqlColumn) -> None:
    what = f"the type of column {column.name!r} of table {found.name!r} cannot be changed"
    if column.name in found.key:
        raise InvalidError(f"{what}, it is part of the primary key", hint=_ANEW)
    if plan.shape(found.step or "").time == column.stored_name:
        raise InvalidError(f"{what}, the watermark goes by it", hint=_ANEW)
    if column.generated is not None:
        raise InvalidError(f"{what}, it is computed", hint="drop it, and compute it in a view")
    if any(column.name in rule.unique for rule in found.constraints):
        raise InvalidError(
            f"{what}, a UNIQUE constraint or index has it", hint="drop it first, and add it again"
        )
    try:
        check_expressions([c for c in found.columns if c is not column])
    except InvalidError as error:
        raise InvalidError(f"{what}, a generated column reads it", detail=error.message) from error
    mine = [o for o in all_objects_with_uses(plan).values() if o.kind == "index" and found.name in o.uses]
    users = [o.name for o in mine if column.name in o.key]
    users += users_of(plan, found, column, {o.name for o in mine})
    if users:
        raise InvalidError(
            f"{what}, others use it",
            detail=", ".join(users),
            hint="drop these first, and create them again afterwards",
        )
    (old,), (new,) = stored_schema([column]), stored_schema([wider])
    if not _has_all_values(old.type, new.type):
        raise InvalidError(
            f"{what} from {column.type} to {wider.type}",
            detail="only a type that has every value of the old one is possible: rows are not rewritten",
            hint=f"add a column of the new type and UPDATE it, or {_ANEW}",
        )


def _has_all_values(old: pa.DataType, new: pa.DataType) -> bool:
    """Can every value be cast, and is it still the same?

    >>> _has_all_values(pa.int32(), pa.int64()), _has_all_values(pa.int64(), pa.float64())
    (True, False)
    >>> _has_all_values(pa.decimal128(10, 2), pa.decimal128(12, 3))
    True
    """
    if old == new:
        return True
    if pa.types.is_signed_integer(old):
        if pa.types.is_signed_integer(new):
            return bool(new.bit_width >= old.bit_width)
        if pa.types.is_decimal(new):
            return bool(new.precision - new.scale >= _DIGITS[old.bit_width])
        return int(old.bit_width) <= _EXACT_BITS.get(str(new), 0)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_date(old):
        return bool(pa.types.is_timestamp(new)) and new.tz is None and new.unit == "us"
    return bool(pa.types.is_float32(old) and pa.types.is_float64(new))

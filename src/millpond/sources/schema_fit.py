"""Checks whether a file has the declared columns, and casts them.

Law: a value is never changed silently.
Only casts that keep every value are allowed (a wider number, a finer time, a plain column for an encoded
one);
all others are refused with the column and both types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from millpond.errors import InvalidError

_UNITS = ("s", "ms", "us", "ns")
_INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def declared(schema: pa.Schema) -> pa.Schema:
    """A user's schema without encodings; reserved names are refused."""
    _check_names(schema)
    return pa.schema([f.with_type(_decoded(f.type)).remove_metadata() for f in schema])


def inferred(schema: pa.Schema) -> pa.Schema:
    """The schema of a first file in a form that other files are likely to fit: plain types, NULLs allowed.

    >>> inferred(pa.schema([pa.field("k", pa.dictionary(pa.int8(), pa.large_string()), nullable=False)]))
    k: string
    """
    _check_names(schema)
    return pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])


def misfit(given: pa.Schema, wanted: pa.Schema) -> str | None:
    """Why a file cannot be read as `wanted`, or None; additional columns are ignored.

    >>> misfit(pa.schema([("k", pa.string())]), pa.schema([("k", pa.int64())]))
    "column 'k' is string, and int64 is wanted"
    """
    for field in wanted:
        places = given.get_all_field_indices(field.name)
        if not places:
            return f"column {field.name!r} is missing, columns are {', '.join(given.names) or 'none'}"
        if len(places) > 1:
            return f"column {field.name!r} comes {len(places)} times"
        kind = given.field(places[0]).type
        if not widens(kind, field.type):
            return f"column {field.name!r} is {kind}, and {field.type} is wanted"
    return None


def fit(rows: pa.Table, wanted: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Cast columns to the wanted types; raises pa.ArrowInvalid if a value would change."""
    fields = [wanted.field(name) for name in columns]
    if not fields:
        return rows.select([])  # keeps the number of rows
    arrays = []
    for field in fields:
        column = rows.column(field.name)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(arrays, schema=pa.schema(fields))


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Can every value of one type be represented in the other?

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.uint32(), pa.int64())
    (True, False, True)
    >>> widens(pa.timestamp("ms"), pa.timestamp("us")), widens(pa.timestamp("us", "UTC"), pa.timestamp("us"))
    (True, False)
    """
    t = pa.types
    if given == wanted or t.is_null(given):
        return True
    if t.is_dictionary(given) or t.is_run_end_encoded(given):
        return widens(given.value_type, wanted)
    if any(family(given) and family(wanted) for family in (_is_text, _is_bytes)):
        return True
    if t.is_integer(given):
        return _int_widens(given, wanted)
    if t.is_floating(given):
        return bool(t.is_floating(wanted) and given.bit_width <= wanted.bit_width)
    if t.is_decimal(given):
        if not t.is_decimal(wanted):
            return False
        before_point = given.precision - given.scale, wanted.precision - wanted.scale
        return bool(given.scale <= wanted.scale and before_point[0] <= before_point[1])
    if t.is_timestamp(given):
        same_kind = t.is_timestamp(wanted) and (given.tz is None) == (wanted.tz is None)
        return bool(same_kind) and _finer(given.unit, wanted.unit)
    if t.is_time(given):
        return t.is_time(wanted) and _finer(given.unit, wanted.unit)
    if t.is_duration(given):
        return t.is_duration(wanted) and _finer(given.unit, wanted.unit)
    if _is_list(given):
        return _is_list(wanted) and widens(given.value_type, wanted.value_type)
    if t.is_map(given):
        return (
            t.is_map(wanted)
            and widens(given.key_type, wanted.key_type)
            and widens(given.item_type, wanted.item_type)
        )
    if t.is_struct(given):
        return (
            t.is_struct(wanted)
            and [f.name for f in given] == [f.name for f in wanted]
            and all(widens(a.type, b.type) for a, b in zip(given, wanted, strict=True))
        )
    return False


def _int_widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    signed = t.is_signed_integer(given)
    if t.is_integer(wanted):
        if signed == t.is_signed_integer(wanted):
            return bool(given.bit_width <= wanted.bit_width)
        return not signed and bool(given.bit_width < wanted.bit_width)
    if t.is_floating(wanted):  # exact as long as it fits the mantissa
        return bool(given.bit_width <= {16: 8, 32: 16, 64: 32}[wanted.bit_width])
    if t.is_decimal(wanted):
        return bool(_INT_DIGITS[given.bit_width] <= wanted.precision - wanted.scale)
    return False


def _finer(given: str, wanted: str) -> bool:
    return _UNITS.index(given) <= _UNITS.index(wanted)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _decoded(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _decoded(kind.value_type)
    return _inside(kind, _decoded)


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = _decoded(kind)
    if _is_text(kind) or pa.types.is_null(kind):
        return pa.string()
    if _is_bytes(kind):
        return pa.binary()
    return _inside(kind, _plain)


def _inside(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with its inner types changed; other types are returned unchanged."""
    if _is_list(kind):
        item = kind.value_field
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return make(item.with_type(change(item.type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(change(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    return kind


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    twice = sorted({n for n in names if names.count(n) > 1})
    hidden = [n for n in names if n.startswith("_")]
    if not names:
        raise InvalidError("a source needs at least one column")
    if twice:
        raise InvalidError(f"column {twice[0]!r} comes twice", detail=f"columns are {', '.join(names)}")
    if hidden:
        raise InvalidError(
            f"column {hidden[0]!r} cannot be read: names that start with '_' belong to millpond",
            detail=f"columns are {', '.join(names)}",
            hint="pass schema= with the columns you want; the others are left out",
        )

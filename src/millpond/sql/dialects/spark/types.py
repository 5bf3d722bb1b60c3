"""Spark's types as DuckDB's.

TIMESTAMP has a time zone in Spark (the session's, here always UTC); TIMESTAMP_NTZ has none.
"""

from __future__ import annotations

from sqlglot import exp

_T = exp.DataType.Type
_SCALARS = {
    _T.TINYINT: "TINYINT",
    _T.SMALLINT: "SMALLINT",
    _T.INT: "INTEGER",
    _T.BIGINT: "BIGINT",
    _T.FLOAT: "FLOAT",
    _T.DOUBLE: "DOUBLE",
    _T.BOOLEAN: "BOOLEAN",
    _T.TEXT: "VARCHAR",
    _T.VARCHAR: "VARCHAR",
    _T.CHAR: "VARCHAR",
    _T.BINARY: "BLOB",
    _T.VARBINARY: "BLOB",
    _T.DATE: "DATE",
    _T.TIMESTAMP: "TIMESTAMPTZ",
    _T.TIMESTAMPTZ: "TIMESTAMPTZ",
    _T.TIMESTAMPLTZ: "TIMESTAMPTZ",
    _T.TIMESTAMPNTZ: "TIMESTAMP",
}
DECIMAL = (10, 0)  # without digits


class UnknownType(ValueError):
    """A type of Spark that has no counterpart here."""


def decimal_digits(kind: exp.DataType) -> tuple[int, int]:
    said = [int(part.this.name) for part in kind.expressions]
    width, scale = (*said, 0)[:2] if said else DECIMAL
    if not (0 < width <= 38 and 0 <= scale <= width):
        raise UnknownType(f"DECIMAL({width}, {scale})")
    return width, scale


def duckdb_type(kind: exp.Expr) -> str:
    """DuckDB's name of a type; UnknownType if there is none."""
    if isinstance(kind, exp.DataType):
        if kind.this in (_T.DECIMAL,):
            return "DECIMAL({}, {})".format(*decimal_digits(kind))
        if kind.this in _SCALARS:
            if kind.this in (_T.VARCHAR, _T.CHAR) and kind.expressions:
                raise UnknownType(kind.sql("spark"))  # its length is checked there
            return _SCALARS[kind.this]
        if kind.this == _T.ARRAY and len(kind.expressions) == 1:
            return duckdb_type(kind.expressions[0]) + "[]"
        if kind.this == _T.MAP and len(kind.expressions) == 2:
            return "MAP({}, {})".format(*map(duckdb_type, kind.expressions))
        if kind.this == _T.STRUCT and kind.expressions:
            return f"STRUCT({', '.join(f'{_quoted(n)} {duckdb_type(k)}' for n, k in fields(kind))})"
    raise UnknownType(type_name(kind))


def type_name(kind: exp.Expr) -> str:
    """What a message calls a type; sqlglot would write TIME as TIMESTAMP."""
    if isinstance(kind, exp.DataType) and kind.this == _T.TIME:
        return "TIME"
    return str(kind.sql("spark"))


def fields(kind: exp.DataType) -> list[tuple[str, exp.DataType]]:
    """The names and types of the fields of a STRUCT."""
    found = []
    for part in kind.expressions:
        if not isinstance(part, exp.ColumnDef) or not isinstance(part.args.get("kind"), exp.DataType):
            raise UnknownType(kind.sql("spark"))
        found.append((part.this.name, part.args["kind"]))
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""The types of PostgreSQL, and which of them shows each logical type of SQL.

A list is an array.  A list of lists, a struct, a map and a union are `json`: an array of PostgreSQL must be
rectangular, and a record has no names.  Wide integers are `numeric`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True)
class PgType:
    oid: int
    name: str  # in pg_type
    array: int  # the oid of its array type
    size: int = -1
    sql: str = "VARCHAR"  # the logical type that a parameter of this type has


BOOL = PgType(16, "bool", 1000, 1, "BOOLEAN")
BYTEA = PgType(17, "bytea", 1001, -1, "BLOB")
CHAR = PgType(18, "char", 1002, 1)
NAME = PgType(19, "name", 1003, 64)
INT8 = PgType(20, "int8", 1016, 8, "BIGINT")
INT2 = PgType(21, "int2", 1005, 2, "SMALLINT")
INT4 = PgType(23, "int4", 1007, 4, "INTEGER")
REGPROC = PgType(24, "regproc", 1008, 4)
TEXT = PgType(25, "text", 1009)
OID = PgType(26, "oid", 1028, 4, "BIGINT")
JSON = PgType(114, "json", 199)
FLOAT4 = PgType(700, "float4", 1021, 4, "FLOAT")
FLOAT8 = PgType(701, "float8", 1022, 8, "DOUBLE")
UNKNOWN = PgType(705, "unknown", 1009, -2)
BPCHAR = PgType(1042, "bpchar", 1014)
VARCHAR = PgType(1043, "varchar", 1015)
DATE = PgType(1082, "date", 1182, 4, "DATE")
TIME = PgType(1083, "time", 1183, 8, "TIME")
TIMESTAMP = PgType(1114, "timestamp", 1115, 8, "TIMESTAMP")
TIMESTAMPTZ = PgType(1184, "timestamptz", 1185, 8, "TIMESTAMP WITH TIME ZONE")
INTERVAL = PgType(1186, "interval", 1187, 16, "INTERVAL")
TIMETZ = PgType(1266, "timetz", 1270, 12, "TIME")
VARBIT = PgType(1562, "varbit", 1563, -1, "BIT")
NUMERIC = PgType(1700, "numeric", 1231, -1, "DECIMAL(38,9)")
UUID = PgType(2950, "uuid", 2951, 16, "UUID")
JSONB = PgType(3802, "jsonb", 3807)
REGCLASS = PgType(2205, "regclass", 2210, 4)

TYPES = (
    BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, REGPROC, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR,
    VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ, VARBIT, NUMERIC, UUID, JSONB, REGCLASS,
)  # fmt: skip
BY_OID = {t.oid: t for t in TYPES}
ELEMENTS = {t.array: t for t in TYPES if t is not UNKNOWN}  # by the oid of the array

_SCALARS = {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "BIGINT": INT8, "HUGEINT": NUMERIC,
    "UTINYINT": INT2, "USMALLINT": INT4, "UINTEGER": INT8, "UBIGINT": NUMERIC, "UHUGEINT": NUMERIC,
    "BIGNUM": NUMERIC, "FLOAT": FLOAT4, "DOUBLE": FLOAT8, "VARCHAR": TEXT, "BLOB": BYTEA, "DATE": DATE,
    "TIME": TIME, "TIME_NS": TIME, "TIME WITH TIME ZONE": TIMETZ, "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_S": TIMESTAMP, "TIMESTAMP_MS": TIMESTAMP, "TIMESTAMP_NS": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ, "INTERVAL": INTERVAL, "UUID": UUID, "JSON": JSON, "BIT": VARBIT,
    "PG_OID": OID, "PG_NAME": NAME, "PG_CHAR": CHAR, "PG_VECTOR": TEXT,
}  # fmt: skip
TYPE_NAMES = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone", "time": "time without time zone",
    "timetz": "time with time zone", "varbit": "bit varying", "varchar": "character varying",
    "bpchar": "character",
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)", re.I)


@dataclass(frozen=True)
class ColumnType:
    """How a column is shown: its type, whether it is an array of it, and the type modifier."""

    type: PgType
    is_array: bool = False
    modifier: int = -1

    @property
    def oid(self) -> int:
        return self.type.array if self.is_array else self.type.oid

    @property
    def size(self) -> int:
        return -1 if self.is_array else self.type.size


@lru_cache(maxsize=4096)
def column_type(kind: str) -> ColumnType:
    """The PostgreSQL type of a logical type.

    >>> column_type("INTEGER[]").oid, column_type("DECIMAL(10,2)").modifier, column_type("INTEGER[][]").oid
    (1007, 655366, 114)
    """
    text = kind.strip()
    if text.endswith("]"):
        inner = column_type(text[: text.rindex("[")])
        return ColumnType(JSON) if inner.is_array else ColumnType(inner.type, True)
    base = text.upper()
    decimal = _DECIMAL.fullmatch(base)
    if decimal is not None:
        return ColumnType(NUMERIC, False, ((int(decimal[1]) << 16) | int(decimal[2])) + 4)
    if base in _SCALARS:
        return ColumnType(_SCALARS[base])
    if base.startswith(("STRUCT(", "MAP(", "UNION(", "TUPLE(", "VARIANT")):
        return ColumnType(JSON)
    return ColumnType(TEXT)


def type_name(shown: ColumnType) -> str:
    """As format_type writes it."""
    name = TYPE_NAMES.get(shown.type.name, shown.type.name)
    if shown.modifier >= 4 and shown.type.name == "numeric":
        name = f"numeric({(shown.modifier - 4) >> 16},{(shown.modifier - 4) & 0xFFFF})"
    elif shown.modifier >= 4:
        name = f"{name}({shown.modifier - 4})"
    return f"{name}[]" if shown.is_array else name


def pg_type(kind: str) -> str:
    """PostgreSQL's name of a type that DuckDB's binder gives an expression.

    >>> pg_type("DECIMAL(10,2)"), pg_type("INTEGER[]"), pg_type("STRING_LITERAL"), pg_type("INTEGER_LITERAL")
    ('numeric', 'integer[]', 'unknown', 'integer')
    """
    if kind in ('"NULL"', "NULL", "STRING_LITERAL", "UNKNOWN", "SQLNULL"):
        return "unknown"
    if kind == "INTEGER_LITERAL":
        return "integer"
    if kind.startswith(("STRUCT(", "TUPLE(")) and not kind.endswith("]"):
        return "record"
    if kind.startswith(("DECIMAL(", "HUGEINT", "UHUGEINT")):
        return f"numeric{kind[kind.index('[') :]}" if "[" in kind else "numeric"
    return type_name(replace(column_type(kind), modifier=-1))


_QUALIFIED = re.compile(r'"?(?:pg_catalog|information_schema)"?\.(?:"(\w+)"|(\w+))', re.I)


def unqualified(kind: str) -> str:
    """The name of a type without the schema of PostgreSQL's own types.

    >>> unqualified('"pg_catalog"."text"'), unqualified("pg_catalog.int4[]"), unqualified('pg_catalog."char"')
    ('text', 'int4[]', '"char"')
    """
    found = _QUALIFIED.match(kind)
    if found is None:
        return kind
    name = '"char"' if found[1] == "char" else found[1] or found[2]
    return name + kind[found.end() :]


def sql_type(oid: int) -> str | None:
    """The logical type of a parameter that a client declared; None if it did not.

    >>> sql_type(23), sql_type(1007), sql_type(0)
    ('INTEGER', 'INTEGER[]', None)
    """
    if oid in ELEMENTS:
        return f"{ELEMENTS[oid].sql}[]"
    found = BY_OID.get(oid)
    return None if found is None or found is UNKNOWN else found.sql

"""The tables of a PostgreSQL server as Millpond reads them: columns, types, keys.

Law: a column is read as a type that has all its values, or as text.  If a table changes so that this is no
longer true (a column is dropped, renamed or has another type), the source stops with a DataError: it cannot
know what the rows that it already has should look like now.  Columns that were added are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.errors import DataError, InvalidError
from millpond.sources import pgoutput
from millpond.sources.schema_fit import widens

NUMERIC = 1700
_TYPES: dict[int, tuple[str, pa.DataType]] = {  # by OID; all others are texts
    16: ("BOOLEAN", pa.bool_()),
    17: ("BLOB", pa.binary()),
    20: ("BIGINT", pa.int64()),
    21: ("SMALLINT", pa.int16()),
    23: ("INTEGER", pa.int32()),
    26: ("BIGINT", pa.int64()),
    114: ("JSON", pa.string()),
    700: ("FLOAT", pa.float32()),
    701: ("DOUBLE", pa.float64()),
    1082: ("DATE", pa.date32()),
    1083: ("TIME", pa.time64("us")),
    1114: ("TIMESTAMP", pa.timestamp("us")),
    1184: ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC")),
    2950: ("UUID", pa.string()),
    3802: ("JSON", pa.string()),
}
_WIDE = (38, 10)  # digits of a numeric without limits


@dataclass(frozen=True)
class PostgresTable:
    """A table to replicate: `schema` has the columns to read."""

    namespace: str
    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    @property
    def relation(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class ServerColumn:
    name: str
    type: int
    modifier: int
    shown: str  # the type as PostgreSQL writes it
    required: bool
    computed: bool = False  # by the server from other columns: it is not in the log

    @property
    def sql_type(self) -> str:
        """The type in SQL of the pond."""
        if self.type == NUMERIC:
            return "DECIMAL({},{})".format(*_digits(self.modifier))
        return _TYPES.get(self.type, ("VARCHAR", None))[0]


def _digits(modifier: int) -> tuple[int, int]:
    """
    >>> _digits(((10 << 16) | 2) + 4), _digits(-1)
    ((10, 2), (38, 10))
    """
    if modifier < 4:
        return _WIDE
    digits, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    return (digits, scale) if digits <= 38 and scale <= digits else _WIDE


def fits(type_oid: int, modifier: int, wanted: pa.DataType) -> bool:
    """Can all values of a PostgreSQL type be read as this type, unless a numeric has too many digits?"""
    if pa.types.is_string(wanted):
        return True
    if type_oid == NUMERIC:
        if not pa.types.is_decimal(wanted):
            return False
        return modifier < 4 or widens(pa.decimal128(*_digits(modifier)), wanted)
    found = _TYPES.get(type_oid)
    return found is not None and widens(found[1], wanted)


_COLUMNS = """
SELECT a.attname, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       coalesce(a.attnum = ANY (i.indkey), false), c.relreplident, c.relkind::text, a.attgenerated::text <> ''
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum
"""


def describe(connection: Any, namespace: str, name: str) -> tuple[list[ServerColumn], tuple[str, ...]]:
    """The columns of a table and its primary key; raises InvalidError if there is no such table."""
    rows = connection.execute(_COLUMNS, [namespace, name]).fetchall()
    if not rows:
        raise InvalidError(
            f"there is no table {namespace}.{name} on the server",
            hint="check the schema and the name, and the rights of the user",
        )
    if rows[0][7] not in ("r", "p"):
        raise InvalidError(f"{namespace}.{name} is not a table", hint="views have no log of changes")
    columns = [ServerColumn(r[0], r[1], r[2], r[3], r[4], r[8]) for r in rows]
    return columns, tuple(r[0] for r in rows if r[5])


def check_definition(table: PostgresTable, columns: list[ServerColumn], primary: tuple[str, ...]) -> None:
    """Refuse a definition that the server's table does not fit."""
    known = {c.name: c for c in columns}
    for field in table.schema:
        found = known.get(field.name)
        if found is None:
            raise InvalidError(
                f"table {table.relation} has no column {field.name!r}",
                detail=f"its columns are {', '.join(known)}",
                hint="leave the columns out: they are then those of the table",
            )
        if found.computed:
            raise InvalidError(
                f"column {field.name!r} of {table.relation} is computed by the server and not in its log",
                hint="leave it out, and compute it in a view",
            )
        if not fits(found.type, found.modifier, field.type):
            raise InvalidError(
                f"column {field.name!r} of {table.relation} is {found.shown}, which cannot be read as "
                f"{field.type}",
                hint="declare it as a wider type, or as VARCHAR",
            )
    if not primary:
        raise InvalidError(
            f"table {table.relation} has no primary key",
            hint="ALTER TABLE … ADD PRIMARY KEY on the server: rows are told apart by it",
        )
    if set(table.key) != set(primary):
        raise InvalidError(
            f"the primary key of {table.relation} is ({', '.join(primary)})",
            detail=f"the definition says ({', '.join(table.key)})",
            hint="declare the same key",
        )


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def places_of(relation: pgoutput.LoggedRelation, table: PostgresTable) -> list[int]:
    """Where the columns of a table are in the rows of the log; DataError if they no longer fit."""
    known = {c.name: (number, c) for number, c in enumerate(relation.columns)}
    for field in table.schema:
        if field.name not in known:
            raise _changed(table, f"column {field.name!r} is gone")
        column = known[field.name][1]
        if not fits(column.type, column.modifier, field.type):
            raise _changed(
                table, f"column {field.name!r} has another type, which is not read as {field.type}"
            )
        if field.name in table.key and not (column.in_key or relation.identity == "f"):
            raise _changed(table, f"key column {field.name!r} is no longer part of the replica identity")
    return [known[field.name][0] for field in table.schema]


def _changed(table: PostgresTable, why: str) -> DataError:
    return DataError(
        f"table {table.relation} was altered: {why}",
        detail="rows that were read before have the old columns",
        hint="drop the table here and create it again: it is then copied with its new columns",
    )

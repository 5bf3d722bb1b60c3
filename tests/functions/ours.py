"""Asks Millpond's translation what PostgreSQL was asked, and writes the answer as PostgreSQL does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.kernels.duck import Equipment, connect, without_wrapping
from millpond.kernels.postgres.rows import values
from millpond.kernels.postgres.text_output import (
    date_text,
    float4_text,
    float_text,
    interval_text,
    time_text,
    timestamp_text,
)
from millpond.kernels.postgres.type_names import TypeName, type_named
from millpond.sql.binding.types import CLOSED
from millpond.sql.dialects.library import equip
from millpond.sql.text.duckdb_text import readable_text

Rows = list[list[str | None]]


class Failed(Exception):
    """Why there is no answer."""


class Millpond:
    """A database that answers queries of the default dialect, as a read does."""

    def __init__(self) -> None:
        self.con = connect(CLOSED)
        self.con.execute("set TimeZone = 'UTC'")
        self._equipment = Equipment(self.con)

    def ask(self, sql: str) -> Rows:
        try:
            text = readable_text(sql, "postgres")
            equip(self.con, self._equipment, text)
            found = self.con.sql(text)
            kinds = [str(t) for t in found.types]
            if "TIME WITH TIME ZONE" in kinds:  # Arrow has no such type
                names = [f"c{n}" for n in range(len(kinds))]
                cast = [
                    f"{n}::varchar" if k == "TIME WITH TIME ZONE" else n
                    for n, k in zip(names, kinds, strict=True)
                ]
                found = self.con.sql(f"select {', '.join(cast)} from ({text}) as q({', '.join(names)})")
                kinds = [str(t) for t in found.types]
            table = found.to_arrow_table()
        except (MillpondError, duckdb.Error) as error:
            raise Failed(without_wrapping(str(error)).split("\n")[0]) from error
        columns = [
            [shown(v, type_named(k)) for v in _values(c.combine_chunks())]
            for c, k in zip(table.columns, kinds, strict=True)
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(column.type):
        fields = [_values(column.field(n)) for n in range(column.type.num_fields)]
        there = column.is_valid().to_pylist()
        return [row if ok else None for row, ok in zip(zip(*fields, strict=True), there, strict=True)]
    if pa.types.is_list(column.type):
        inner = _values(column.flatten())
        found: list[Any] = []
        at = 0
        for length in column.value_lengths().to_pylist():
            found.append(None if length is None else inner[at : at + length])
            at += length or 0
        return found
    return values(column)


def shown(value: Any, kind: TypeName) -> str | None:
    """The text of a value."""
    from millpond.kernels.postgres.composite_output import element_text, field_text

    if value is None:
        return None
    if kind.is_list:
        return (
            "{"
            + ",".join(element_text(shown(v, kind.parts[0][1]), kind.parts[0][1].is_list) for v in value)
            + "}"
        )
    if kind.is_record:
        return f"({','.join(field_text(shown(v, k)) for v, (_, k) in zip(value, kind.parts, strict=True))})"
    write = _WRITE.get(kind.name)
    return write(value) if write is not None else str(value)


_WRITE: dict[str, Callable[[Any], str]] = {
    "BOOLEAN": lambda v: "t" if v else "f",
    "DOUBLE": float_text,
    "FLOAT": float4_text,
    "DATE": date_text,
    "TIME": time_text,
    "TIMESTAMP": timestamp_text,
    "TIMESTAMP WITH TIME ZONE": lambda v: timestamp_text(v, "+00"),
    "INTERVAL": interval_text,
    "BLOB": lambda v: "\\x" + v.hex(),
    "DECIMAL": lambda v: f"{v:f}",
}

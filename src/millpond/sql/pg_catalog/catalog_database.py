"""A DuckDB database with the catalog's relations, for one program of a pond."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

from millpond.kernels.duck import connect
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.types import CLOSED, quoted
from millpond.sql.pg_catalog.catalog_functions import MACROS, VIEWS
from millpond.sql.pg_catalog.catalog_rows import CatalogRows, known_types

_TYPES = {
    "oid": "BIGINT", "xid": "BIGINT", "cid": "BIGINT", "boolean": "BOOLEAN", "smallint": "SMALLINT",
    "integer": "INTEGER", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE",
    "timestamp with time zone": "TIMESTAMPTZ", "int2vector": "SMALLINT[]", "oidvector": "BIGINT[]",
    "oid[]": "BIGINT[]", "smallint[]": "SMALLINT[]", "text[]": "VARCHAR[]", "name[]": "VARCHAR[]",
    "real[]": "FLOAT[]", "interval": "INTERVAL", "numeric": "DECIMAL(38,9)", "bytea": "BLOB",
    "information_schema.cardinal_number": "INTEGER", "information_schema.time_stamp": "TIMESTAMPTZ",
}  # fmt: skip
OWN = {
    "millpond_definitions": [("oid", "oid"), ("definition", "text")],
    "millpond_path": [("name", "text")],
    "millpond_types": [("oid", "oid"), ("typname", "text"), ("shown", "text")],
}
SCHEMAS = {"pg_catalog": "pgc", "information_schema": "isc"}


@lru_cache(maxsize=1)
def relations() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """The columns of every relation, by schema, with PostgreSQL's types."""
    text = resources.files("millpond.sql.pg_catalog").joinpath("relations.json").read_text()
    found: dict[str, dict[str, list[tuple[str, str]]]] = {
        schema: {name: [(c, t) for c, t in columns] for name, columns in tables.items()}
        for schema, tables in json.loads(text).items()
    }
    found["pg_catalog"] |= {name: list(columns) for name, columns in OWN.items()}
    return found


@lru_cache(maxsize=1)
def fixed_rows() -> dict[str, Any]:
    """The rows that are the same in every database."""
    found: dict[str, Any] = json.loads(
        resources.files("millpond.sql.pg_catalog").joinpath("rows.json").read_text()
    )
    return found


class CatalogDatabase:
    """The relations with no rows but the fixed ones; `fill` adds those of a program."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._con = connect(CLOSED)
        self._con.execute("set timezone = 'UTC'")
        for schema, tables in relations().items():
            self._con.execute(f"create schema {SCHEMAS[schema]}")
            for name, columns in tables.items():
                listed = ", ".join(f"{quoted(c)} {_kind(t)}" for c, t in columns)
                self._con.execute(f"create table {SCHEMAS[schema]}.{quoted(name)} ({listed})")
        for relation, found in fixed_rows().items():
            rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
            self._insert(relation, rows)
        shown = known_types()
        types = fixed_rows()["pg_type"]["rows"]
        named = [{"oid": r[0], "typname": r[1], "shown": shown.get(r[0], r[1])} for r in types]
        self._insert("millpond_types", named)
        for view in VIEWS:
            self._con.execute(f"create view {view}")
        for macro in MACROS:
            self._con.execute(f"create macro {macro}")
        self._con.execute("set errors_as_json = true")
        self._con.execute("set lock_configuration = true")
        self._filled: list[str] = []

    def fill(self, rows: CatalogRows) -> None:
        """Replace the rows of a program."""
        for relation in self._filled:
            self._con.execute(f"delete from {_table(relation)}")
        for relation, found in rows.rows.items():
            self._insert(relation, found)
        self._filled = list(rows.rows)

    def _insert(self, relation: str, rows: list[dict[str, Any]]) -> None:
        names = list(rows[0]) if rows else []
        table = pa.Table.from_pylist(rows) if rows else None
        if table is None:
            return
        self._con.register("given", table)
        listed = ", ".join(quoted(n) for n in names)
        self._con.execute(f"insert into {_table(relation)} ({listed}) select {listed} from given")
        self._con.unregister("given")

    def replace(self, relation: str, rows: list[dict[str, Any]]) -> None:
        """Replace the rows of one relation."""
        self._con.execute(f"delete from {_table(relation)}")
        self._insert(relation, rows)

    @contextmanager
    def with_tables(self, tables: Mapping[str, pa.Table]) -> Iterator[None]:
        """Show some tables of the pond during one query."""
        try:
            for name, rows in tables.items():
                self._con.register(name, rows)
            yield
        finally:
            for name in tables:
                self._con.unregister(name)

    def query(self, sql: str, params: Any, shown: str) -> tuple[list[tuple[str, str]], pa.Table]:
        try:
            found = self._con.sql(sql, params=params or None)
            names = [(n, str(t)) for n, t in zip(found.columns, found.types, strict=True)]
            return names, found.to_arrow_table()
        except duckdb.Error as error:
            failure = as_user_error(error, shown)
            failure.place = None
            failure.detail = None
            raise failure from error


def column_kind(table: str, column: str) -> str | None:
    """The logical type of a column of the catalog."""
    for tables in relations().values():
        for name, columns in tables.items():
            if not table or name == table:
                for one, kind in columns:
                    if one == column:
                        return _kind(kind)
    return None


def _kind(kind: str) -> str:
    return _TYPES.get(kind, "VARCHAR[]" if kind.endswith("[]") or kind == "anyarray" else "VARCHAR")


def _table(relation: str) -> str:
    schema, _, name = relation.rpartition(".")
    return f"{SCHEMAS[schema or 'pg_catalog']}.{quoted(name)}"

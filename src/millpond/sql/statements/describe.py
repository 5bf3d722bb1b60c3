"""DESCRIBE: lists the columns of a named object, or of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.functions import KIND, inlined, returns, signature
from millpond.sql.reads.system_names import SystemRead
from millpond.sql.reads.system_rows import system_columns
from millpond.sql.result import Result
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parse import Words
from millpond.sql.text.time_windows import as_plain_sql

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")


def run(session: SqlSession, words: Words) -> Result:
    catalog = session.catalog
    if words.fragment.word(words.at) in _QUERIES:
        sql = as_plain_sql(inlined(readable(words.rest), catalog.objects).sql)
        catalog.binder.plan(sql)
        return described([SqlColumn(n, t) for n, t in catalog.binder.describe(sql)], ())
    if len(words.rest) > 1 and words.take("FUNCTION"):
        made = catalog.get(words.name(), "function")
        words.end()
        return described_functions([made])
    words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE") or words.take("SOURCE")
    if words.take("MILLPOND", "."):
        read = SystemRead(("millpond", words.name()), "")
        words.end()
        return described(list(system_columns(session.host, read)), ())
    found = catalog.get(words.name())
    words.end()
    return described(list(found.columns), found.key)


def described(columns: list[SqlColumn], key: tuple[str, ...]) -> Result:
    rows = [
        {
            "column": c.name,
            "type": c.type,
            "null": not c.required,
            "key": c.name in key,
            "default": c.default if c.generated is None else f"generated always as ({c.generated})",
        }
        for c in columns
    ]
    schema = pa.schema(
        [
            ("column", pa.string()),
            ("type", pa.string()),
            ("null", pa.bool_()),
            ("key", pa.bool_()),
            ("default", pa.string()),
        ]
    )
    types = ["VARCHAR", "VARCHAR", "BOOLEAN", "BOOLEAN", "VARCHAR"]
    return Result.of_rows(schema.names, types, pa.Table.from_pylist(rows, schema=schema))


def described_functions(found: list[SqlObject]) -> Result:
    """List functions with their signatures and return types."""
    rows = [[f.name, f.options[KIND], f.options["language"], signature(f), returns(f)] for f in found]
    return texts(["name", "kind", "language", "call", "returns"], sorted(rows))


def texts(names: list[str], rows: list[list[str]]) -> Result:
    """Rows of texts."""
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(names))]
    return Result.of_rows(names, ["VARCHAR"] * len(names), pa.table(columns, names=names))

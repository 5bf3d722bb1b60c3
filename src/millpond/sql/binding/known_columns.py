"""Gives the operators of a query of PostgreSQL their meaning by the types of the columns that it reads.

The translation of a text knows a type only where it is written; here the columns of relations are known, too.
Law: a query that reads no column of these types stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from millpond.plan.objects import SqlColumn
from millpond.sql.binding.catalog import Catalog
from millpond.sql.dialects.postgres.changes import translated_change
from millpond.sql.dialects.postgres.typed_columns import KnownColumns, with_known_columns
from millpond.sql.text.parse import SqlFragment, tokens_of

_KEPT = 256  # texts whose translation is kept
_rewritten = lru_cache(_KEPT)(with_known_columns)
_FIXED = re.compile(r"char\((\d+)\)")


def by_column_types(sql: str, catalog: Catalog, dialect: str) -> str:
    """The translated query, over relations of this catalog."""
    if dialect != "postgres":
        return sql
    known = known_columns([column for one in catalog.read_by(sql) for column in one.columns])
    return _rewritten(sql, known) if known else sql


def change_by_column_types(fragment: SqlFragment, catalog: Catalog) -> SqlFragment:
    """The same for a translated INSERT, UPDATE, DELETE or MERGE."""
    if fragment.word(0) == "INSERT" and "SELECT" not in fragment.words and "CONFLICT" not in fragment.words:
        return fragment
    words = {t.text.lower() for t in fragment.tokens}
    known = known_columns([c for o in catalog.objects.values() if o.name.lower() in words for c in o.columns])
    if not known:
        return fragment

    def expression(sql: str) -> str:
        return _rewritten(f"SELECT {sql}", known)[len("SELECT ") :]

    text = translated_change(fragment.sql, lambda sql: _rewritten(sql, known), expression, expression)
    return fragment if text == fragment.sql else SqlFragment(text, tokens_of(text, "duckdb"), "duckdb")


def known_columns(columns: Sequence[SqlColumn]) -> KnownColumns:
    def named(kind: str) -> frozenset[str]:
        return frozenset(c.name.lower() for c in columns if c.type == kind)

    fixed = ((c.name.lower(), _FIXED.fullmatch(c.declared or "")) for c in columns)
    widths = tuple(sorted((name, int(found[1])) for name, found in fixed if found is not None))
    return KnownColumns(named("JSON"), named("SMALLINT"), named("TIME"), named("BLOB"), widths)

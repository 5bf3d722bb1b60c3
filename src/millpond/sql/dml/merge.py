"""MERGE: appended to the inbox as text and executed in order, like UPDATE.

Law: as in PostgreSQL, every row takes the first WHEN clause that applies, all rows are compared with the
table as it was before the statement, and a row that would be changed twice is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import quoted
from millpond.sql.dml.assigned_values import with_declared
from millpond.sql.dml.deferred_change import (
    change_to_run,
    cut_returning,
    defer_change,
    dry_run,
    named,
    show_empty,
    target,
    with_current_time,
)
from millpond.sql.dml.merged_rows import action_as_column
from millpond.sql.reads.scratch import thread_scratch
from millpond.sql.result import Result
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_LOOKED_UP = ("VARCHAR", "DATE", "TIMESTAMP", "BOOLEAN")  # other types of keys: the whole table is read


@dataclass(frozen=True)
class _Parts:
    """Places in a MERGE: of its source, of ON, and of the first WHEN; and the alias of the table."""

    called: str
    source: int
    on: int
    when: int


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    if fragment.has(1, "INTO", "ONLY"):
        fragment = fragment.rewritten([(fragment.tokens[2].start, fragment.tokens[2].end + 1, "")])
    said = Words(fragment, 1)
    said.need("INTO")
    name = said.name("name of the table")
    _parts(fragment, said.at, name)  # what is missing is told in our words
    fragment = change_to_run(session, fragment, params)
    fragment = with_current_time(session, fragment)
    words = Words(fragment, 1)
    words.need("INTO")
    catalog = session.catalog
    found = target(session, words.name("name of the table"), "merge")
    fragment = _with_columns(fragment, found)
    parts = _parts(fragment, words.at, found.name)
    reads = _reads(catalog, fragment, parts, found)
    fragment = with_declared(fragment, found)
    parts = _parts(fragment, words.at, found.name)
    fragment, returning = cut_returning(fragment, parts.called)
    if returning is not None:
        returning[0] = action_as_column(returning[0])
    sql = fragment.sql
    names = dry_run(session, found, reads, "merge", sql, returning)
    keys = _keys_query(catalog, found, fragment, parts, reads)
    return defer_change(
        session, found, "merge", sql, reads, moves=True, returning=returning, names=names, source_keys=keys
    )


def _parts(fragment: SqlFragment, at: int, name: str) -> _Parts:
    words = Words(fragment, at)
    called = name
    if not fragment.has(at, "USING"):
        words.take("AS")
        called = words.name("alias")
    words.need("USING")
    on = fragment.find("ON", start=words.at)
    if on is None:
        fragment.fail("ON and a condition should follow the source", len(fragment))
        raise AssertionError
    when = fragment.find("WHEN", start=on)
    if when is None:
        fragment.fail("WHEN MATCHED or WHEN NOT MATCHED should follow", len(fragment))
        raise AssertionError
    return _Parts(called, words.at, on, when)


def _with_columns(fragment: SqlFragment, found: SqlObject) -> SqlFragment:
    """Add the columns to every INSERT without them: its values are for the first columns of the table."""
    plain = [quoted(c.name) for c in found.columns if c.generated is None]
    edits = []
    for place in range(len(fragment)):
        if fragment.has(place, "THEN", "INSERT", "VALUES"):
            values = len(fragment.bracket(place + 3)[0].split())
            if values > len(plain):
                fragment.fail(f"table {found.name!r} has {len(plain)} columns for values", place + 3)
            at = fragment.tokens[place + 1].end + 1
            edits.append((at, at, f" ({', '.join(plain[:values])})"))
    return fragment.rewritten(edits) if edits else fragment


def _reads(catalog: Catalog, fragment: SqlFragment, parts: _Parts, found: SqlObject) -> list[SqlObject]:
    """The relations that it reads; the table itself only if it is also a source."""
    reads = named(catalog, fragment.part(parts.source))
    source = named(catalog, fragment.part(parts.source, parts.on))
    looks = "SELECT" in fragment.words[parts.on :] or "FROM" in fragment.words[parts.on :]
    return [o for o in reads if o.name != found.name or looks or o in source]


def _keys_query(
    catalog: Catalog, found: SqlObject, fragment: SqlFragment, parts: _Parts, reads: Sequence[SqlObject]
) -> str | None:
    """A query for all keys of the table that the source can match; None if any row may be matched or changed.

    Only where ON compares every key column with a value of the source, in the column's own type.
    """
    everything = any(fragment.has(n, "BY", "SOURCE") for n in range(parts.when, len(fragment)))
    if everything or not found.key or "SELECT" in fragment.words[parts.on : parts.when]:
        return None
    values = _compared(fragment.part(parts.on + 1, parts.when).sql, parts.called, found)
    if any(k not in values for k in found.key):
        return None
    listed = ", ".join(values[k] for k in found.key)
    sql = f"select distinct {listed} from {fragment.part(parts.source, parts.on).sql}"
    types = {c.name: c.type for c in found.columns}
    with thread_scratch().for_statement() as scratch:
        show_empty(scratch, catalog, reads)
        try:
            given = scratch.query(sql)[0]
        except InvalidError:
            return None  # a value is not of the source alone
    same = (
        kind in _INTEGERS if types[k] in _INTEGERS else kind == types[k] and kind in _LOOKED_UP
        for k, (_, kind) in zip(found.key, given, strict=True)
    )
    return sql if all(same) else None


def _compared(condition: str, called: str, found: SqlObject) -> dict[str, str]:
    """By column of the table: what a condition compares it with."""
    try:
        tree = sqlglot.parse_one(condition, read="duckdb")
    except SqlglotError:
        return {}
    lower, values = {c.name.lower(): c.name for c in found.columns}, {}
    for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        if not isinstance(part, exp.EQ):
            continue
        for one, other in ((part.left, part.right), (part.right, part.left)):
            mine = isinstance(one, exp.Column) and one.table.lower() == called.lower()
            if mine and one.name.lower() in lower:
                values[lower[one.name.lower()]] = other.sql("duckdb")
    return values

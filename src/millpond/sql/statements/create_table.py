"""CREATE TABLE: rows that any process can change.

WITH (connector = …) copies a table of another system (`replicated_table`).
With PRIMARY KEY, inserting a row replaces the row with the same key.  An APPEND ONLY
table accepts no UPDATE and no DELETE, and may have a watermark: views on it see only
rows that were on time, while the table itself stores all rows.  With both, the first row
of a key stays, and another row with that key is an error row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.bag import Bag
from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.operators.stamp import Stamp
from millpond.operators.upsert import Upsert
from millpond.plan.objects import SqlObject
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.sql.binding.types import quoted
from millpond.sql.result import Result
from millpond.sql.statements import replicated_table
from millpond.sql.statements.create_object import create
from millpond.sql.statements.event_time import heartbeats, with_watermark
from millpond.sql.statements.owned_objects import add_owned, with_names
from millpond.sql.text.column_definitions import Definition, read_columns, refuse_metadata
from millpond.sql.text.options import no_options
from millpond.sql.text.other_systems import refuse_options, skip_storage
from millpond.sql.text.parse import SqlFragment, Words
from millpond.sql.text.schema_names import schema_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the table")
        if replicated_table.is_replicated(words):
            return replicated_table.run(session, words, name, exists=exists, replaces=replaces)
        if words.fragment.word(words.at) != "(":
            refuse_options(words, "a table")
            words.fail("the columns should stand here", "CREATE TABLE name (column type, …)")
        inner, words.at = words.fragment.bracket(words.at)
        append_only = words.take("APPEND", "ONLY")
        skip_storage(words)
        refuse_options(words, "a table")
        no_options(words, "a table")
        words.end()
        found = read_columns(inner, lambda like: _copied(session, like))
        refuse_metadata(found, inner, "a table whose rows are inserted")
        for column in inner.split() if append_only else []:
            if column.tokens[0].text.startswith("_"):
                column.fail(
                    "a column of an APPEND ONLY table cannot begin with an underscore",
                    0,
                    "rows of such a table have hidden columns under such names; choose another name, or "
                    "leave out APPEND ONLY",
                )
        if found.time is not None and not append_only:
            inner.fail("a watermark needs an APPEND ONLY table", 0, "CREATE TABLE … (…) APPEND ONLY")
        if found.stamped and not append_only:
            inner.fail(
                "PROCTIME() needs an APPEND ONLY table", 0, "or write DEFAULT now(): when it was inserted"
            )

        found = with_names(found, name, schema_of(name, session.catalog.schemas))
        _check_rules(inner, found, append_only)

        def make(builder: Builder) -> SqlObject:
            made = _table(session, builder, name, found, append_only, words.fragment.sql)
            add_owned(session, builder, made)
            return made

        return create(session, name, "table", exists=exists, replaces=replaces, make=make)

    return called


_PARTS = ("ALL", "COMMENTS", "COMPRESSION", "CONSTRAINTS", "DEFAULTS", "GENERATED", "IDENTITY", "INDEXES",
          "STATISTICS", "STORAGE")  # fmt: skip


def _copied(session: SqlSession, words: Words) -> Definition:
    """LIKE table [{INCLUDING | EXCLUDING} part …]: its columns and NOT NULL, and the parts that are named."""
    found = session.catalog.get(words.name("name of the table"), "table", "view", "materialized view")
    parts: set[str] = set()
    while not words.over:
        including = words.take("INCLUDING")
        if not including:
            words.need("EXCLUDING")
        part = words.fragment.word(words.at)
        if part not in _PARTS:
            words.fail("a part of a table should stand here", ", ".join(_PARTS))
        words.at += 1
        named = set(_PARTS) if part == "ALL" else {part}
        parts = parts | named if including else parts - named
    columns = tuple(
        replace(
            c,
            stored=None,
            default=c.default if "DEFAULTS" in parts else None,
            generated=c.generated if "GENERATED" in parts else None,
            identity=replace(c.identity, sequence="") if c.identity and "IDENTITY" in parts else None,
        )
        for c in found.columns
    )
    rules = tuple(
        replace(rule, name=rule.name if rule.check is not None else "")
        for rule in found.constraints
        if ("CONSTRAINTS" if rule.check is not None else "INDEXES") in parts
    )
    return Definition(columns, found.key if "INDEXES" in parts else (), None, rules)


def _table(
    session: SqlSession, builder: Builder, name: str, found: Definition, append_only: bool, said: str
) -> SqlObject:
    source = InboxTable(found.schema, append_only)
    scan = builder.add(None, Scan(source, source.schema, append_only), (), name)
    if append_only and found.key:
        step = scan
        for column in found.stamped:
            step = builder.add(None, Stamp(column, name), (step,), f"{name}.proctime")
        step = builder.add(None, Upsert(found.key, SEQUENCE, keeps_first=True), (step,), f"{name}.rows")
    elif append_only:
        only = Map(tuple((c.name, quoted(c.name)) for c in found.columns))
        step = builder.add(None, only, (scan,), f"{name}.rows")
        for column in found.stamped:
            step = builder.add(None, Stamp(column, name), (step,), f"{name}.proctime")
    elif found.key:
        step = builder.add(None, Upsert(found.key, SEQUENCE), (scan,), f"{name}.rows")
    else:
        step = builder.add(None, Bag(SEQUENCE), (scan,), f"{name}.rows")
    Stream(builder, step).view(name)
    step = with_watermark(session, builder, found, step, name)
    return SqlObject(
        "table",
        name,
        found.columns,
        found.key,
        step=step,
        scan=scan,
        append_only=append_only,
        uses=heartbeats(session, found),
        said=said,
        constraints=found.constraints,
    )


def _check_rules(inner: SqlFragment, found: Definition, append_only: bool) -> None:
    if append_only and any(rule.unique for rule in found.constraints):
        inner.fail(
            "UNIQUE is not supported for an APPEND ONLY table", 0, "PRIMARY KEY keeps the first row of a key"
        )

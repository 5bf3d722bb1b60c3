"""What a table owns: the indexes of its UNIQUE constraints, and the sequences of its identity columns.

They are created with the table, and dropped with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.arguments.names import check_name
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.plan.objects import SEQUENCE_OF, SqlColumn, SqlConstraint, SqlObject
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.sql.dml.assigned_numbers import LAST, NAME, identity_columns
from millpond.sql.text.column_definitions import Definition
from millpond.sql.text.parse import tokens_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def with_names(found: Definition, table: str, schema: str | None) -> Definition:
    """Give names to constraints and sequences that have none, as PostgreSQL does; all are in a schema."""
    if schema is not None:
        prefix = f"{schema}."
        named = (
            replace(r, name=prefix + r.name.removeprefix(prefix)) if r.name else r for r in found.constraints
        )
        found = replace(found, constraints=tuple(named))
    taken = {rule.name.lower() for rule in found.constraints}
    rules = []
    for rule in found.constraints:
        if not rule.name:
            rule = replace(rule, name=_unused(_default_name(found, rule, table), taken))
            taken.add(rule.name.lower())
        rules.append(rule)
    twice = [r.name for n, r in enumerate(rules) if r.name in [other.name for other in rules[:n]]]
    if twice:
        raise InvalidError(f'constraint "{twice[0]}" for relation "{table}" already exists')
    columns = [
        c
        if c.identity is None
        else replace(c, identity=replace(c.identity, sequence=f"{table}_{c.name}_seq"))
        for c in found.columns
    ]
    return replace(found, constraints=tuple(rules), columns=tuple(columns))


def _default_name(found: Definition, rule: SqlConstraint, table: str) -> str:
    if rule.unique:
        return "_".join((table, *rule.unique, "key"))
    words = {t.text.lower() for t in tokens_of(rule.check or "", "duckdb")}
    read = [c.name for c in found.columns if c.name.lower() in words]
    return "_".join((table, *(read if len(read) == 1 else ()), "check"))


def _unused(name: str, taken: Iterable[str]) -> str:
    number, made = 1, name
    while made.lower() in taken:
        made, number = f"{name}{number}", number + 1
    return made


def add_owned(session: SqlSession, builder: Builder, table: SqlObject) -> None:
    """Create the indexes and sequences of a new table."""
    held = {c.name: c.stored_name for c in table.columns}
    for rule in table.constraints:
        if not rule.unique:
            continue
        check_name("a constraint", rule.name)
        session.catalog.free(rule.name)
        step = builder.plan.views[table.name].step
        view = Stream(builder, step).view(rule.name, key=[held[n] for n in rule.unique])
        made = SqlObject(
            "index", rule.name, table.columns, rule.unique, step=view.step, uses=(table.name,), said=""
        )
        builder.plan = builder.plan.with_object(made)
    for column, identity in identity_columns(table):
        session.catalog.free(identity.sequence)
        sequence = _sequence(builder, identity.sequence, table.name, column.name)
        builder.plan = builder.plan.with_object(sequence)


def _sequence(builder: Builder, name: str, table: str, column: str) -> SqlObject:
    source = InboxTable(pa.schema([(NAME, pa.string()), (LAST, pa.int64())]))
    scan = builder.add(None, Scan(source, source.schema, False), (), name)
    step = builder.add(None, Upsert((NAME,), SEQUENCE), (scan,), f"{name}.rows")
    Stream(builder, step).view(name)
    columns = (SqlColumn(NAME, "VARCHAR", required=True), SqlColumn(LAST, "BIGINT"))
    return SqlObject(
        "table", name, columns, (NAME,), step=step, scan=scan, uses=(table,), options={SEQUENCE_OF: column}
    )

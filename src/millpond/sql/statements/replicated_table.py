"""CREATE TABLE … WITH (connector = …): the copy of a table of another system, which follows its changes.

`connector = 'postgres-cdc'`: a table of a PostgreSQL server, by logical replication.
`connector = 'kafka'` with FORMAT UPSERT or FORMAT DEBEZIUM: changes in the messages of a topic.
`CREATE SOURCE name WITH (connector = 'postgres-cdc', tables = 'a, b')` copies several tables through one
replication slot: a transaction that changes several of them is in one epoch.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond.arguments.names import check_name
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.decode_changes import TRUNCATE_OP, DecodeChanges
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.replicated_table import PUT, SEQUENCE, TRUNCATED, ReplicatedTable
from millpond.operators.scan import Scan
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sources import postgres_connection
from millpond.sources.postgres_cdc import PostgresSource
from millpond.sources.postgres_publication import check_existing
from millpond.sources.postgres_rights import check_rights
from millpond.sources.postgres_schema import PostgresTable, check_definition, describe
from millpond.sources.unavailable import named
from millpond.sql.binding.catalog import columns_of
from millpond.sql.binding.types import text_literal
from millpond.sql.result import Result
from millpond.sql.statements.connector_options import check_connector, need
from millpond.sql.statements.create_object import create
from millpond.sql.statements.kafka_options import (
    KAFKA_OPTIONS,
    VALUE_OPTIONS,
    format_clause,
    kafka_changes,
)
from millpond.sql.text.column_definitions import (
    Definition,
    read_columns,
    refuse_metadata,
    refuse_rules,
    stored_schema,
)
from millpond.sql.text.metadata_columns import read_includes
from millpond.sql.text.options import Options, read_options
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_SERVER = ("connection", "hostname", "port", "username", "password", "database.name")
_SLOT = ("slot.name", "publication.name", "if_lost")
POSTGRES_OPTIONS = (*_SERVER, "tables", *_SLOT)  # of CREATE SOURCE
TABLE_OPTIONS = {
    "postgres-cdc": (*_SERVER, "schema.name", "table.name", *_SLOT),
    "kafka": (*KAFKA_OPTIONS, *VALUE_OPTIONS),
}


def is_replicated(words: Words) -> bool:
    """Does a CREATE TABLE, behind its name, have WITH (connector = …)?"""
    at = words.at
    if words.fragment.word(at) == "(":
        behind = Words(words.fragment, words.fragment.bracket(at)[1])
        _ = read_includes(behind)
        at = behind.at
    if not words.fragment.has(at, "WITH", "("):
        return False
    inside, _ = words.fragment.bracket(at + 1)
    return any(part.tokens and part.word(0) == "CONNECTOR" for part in inside.split() if inside.tokens)


def run(session: SqlSession, words: Words, name: str, *, exists: bool, replaces: bool) -> Result:
    found: Definition | None = None
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        found = read_columns(inner, included=read_includes(words))
        refuse_rules(found, inner, "a table that is a copy")
        if found.clause is not None or any(c.default or c.generated for c in found.columns):
            inner.fail("a copied table has neither defaults nor watermarks", 0, "compute them in a view")
        if not found.key:
            inner.fail("a copied table needs its primary key", 0, "PRIMARY KEY (column, …)")
    words.need("WITH")
    options = read_options(words)
    form = format_clause(words, options)
    words.end()
    check_connector(options, TABLE_OPTIONS, "connector for tables")
    if options["connector"] == "kafka":
        return _from_kafka(session, words, name, found, options, form, exists=exists, replaces=replaces)
    refuse_metadata(found, words.fragment, f"connector {options['connector']!r}")

    def make(builder: Builder) -> SqlObject:
        with named(name):
            table, columns = _table(options, found, name)
            source = _source(options, name, (table,))
        scan = builder.add(None, Scan(source, source.schema, source.append_only), (), name)
        return add_table(builder, name, scan, table, columns, options, words.fragment.sql)

    return create(session, name, "table", exists=exists, replaces=replaces, make=make)


def _from_kafka(
    session: SqlSession,
    words: Words,
    name: str,
    found: Definition | None,
    options: Options,
    form: str,
    *,
    exists: bool,
    replaces: bool,
) -> Result:
    """A table from the changes in a topic."""
    if form == "PLAIN" or found is None:
        words.fragment.fail(
            "a table of a topic needs columns, a primary key, and FORMAT UPSERT or FORMAT DEBEZIUM",
            0,
            "CREATE SOURCE reads messages that only add rows",
        )
    assert found is not None

    def make(builder: Builder) -> SqlObject:
        with named(name):
            source = kafka_changes(_without_connector(options), found, form.lower())
        scan = builder.add(None, Scan(source, source.schema, source.append_only), (), name)
        inputs: tuple[str, ...] = (scan,)
        if source.truncates:
            changes = builder.add(None, Filter(f'"{PUT}" IS NOT NULL'), (scan,), f"{name}.changes")
            emptied = builder.add(None, Filter(f'"{PUT}" IS NULL'), (scan,), f"{name}.truncations")
            places = Map(((TRUNCATED, f'"{SEQUENCE}"'),))
            inputs = (changes, builder.add(None, places, (emptied,), f"{name}.truncated"))
        step = builder.add(None, ReplicatedTable(found.key, repeats=True), inputs, f"{name}.rows")
        Stream(builder, step).view(name)
        return SqlObject(
            "table",
            name,
            found.columns,
            found.key,
            step=step,
            scan=scan,
            options=dict(options),
            said=words.fragment.sql,
        )

    return create(session, name, "table", exists=exists, replaces=replaces, make=make)


def _without_connector(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != "connector"}


def add_table(
    builder: Builder,
    name: str,
    scan: str,
    table: PostgresTable,
    columns: tuple[SqlColumn, ...],
    options: Mapping[str, str],
    said: str,
    uses: tuple[str, ...] = (),
) -> SqlObject:
    """The steps that keep the copy of one table, from a log of changes."""
    relation = table.relation
    changes = builder.add(None, DecodeChanges(relation, table.schema), (scan,), f"{name}.changes")
    is_mine = f"relation = {text_literal(relation)} AND op = {text_literal(TRUNCATE_OP)}"
    emptied = builder.add(None, Filter(is_mine), (scan,), f"{name}.truncations")
    step = builder.add(None, ReplicatedTable(table.key), (changes, emptied), f"{name}.rows")
    Stream(builder, step).view(name)
    return SqlObject(
        "table", name, columns, table.key, step=step, scan=scan, uses=uses, options=dict(options), said=said
    )


def add_source(builder: Builder, name: str, options: Options, said: str) -> SqlObject:
    """CREATE SOURCE … WITH (connector = 'postgres-cdc', tables = …): a log, and a copy of each table."""
    listed = [text.strip() for text in need(dict(options), "tables").split(",")]
    with named(name):
        found = [_described(options, *_schema_and_name(text)) for text in listed]
        source = _source(options, name, tuple(table for table, _ in found))
    scan = builder.add(None, Scan(source, source.schema, source.append_only), (), name)
    shown = {"connector": options["connector"], "source": name}
    for table, columns in found:
        if table.name in builder.plan.objects or table.name in builder.plan.views:
            raise InvalidError(
                f"there is a {table.name!r} already", hint="drop or rename it: the copy has the table's name"
            )
        check_name("a table", table.name)
        made = add_table(builder, table.name, scan, table, columns, shown, said, (name,))
        builder.change(lambda plan, made=made: plan.with_object(made))  # type: ignore[misc]
    return SqlObject(
        "source",
        name,
        columns_of(source.schema),
        step=scan,
        scan=scan,
        append_only=True,
        options=dict(options),
        said=said,
    )


def _table(
    options: Mapping[str, str], found: Definition | None, name: str
) -> tuple[PostgresTable, tuple[SqlColumn, ...]]:
    place = _schema_and_name(options.get("table.name", name), options.get("schema.name", "public"))
    if found is None:
        return _described(options, *place)
    table = PostgresTable(*place, found.schema, found.key)
    server = postgres_connection.shared(_address(options))
    check_definition(table, *describe(server, *place))
    return table, found.columns


def _described(
    options: Mapping[str, str], namespace: str, name: str
) -> tuple[PostgresTable, tuple[SqlColumn, ...]]:
    """A table with the columns and the key that the server says."""
    server = postgres_connection.shared(_address(options))
    columns, key = describe(server, namespace, name)
    made = tuple(SqlColumn(c.name, c.sql_type, required=c.name in key) for c in columns if not c.computed)
    table = PostgresTable(namespace, name, stored_schema(made), key)
    check_definition(table, columns, key)
    return table, made


def _source(options: Mapping[str, str], name: str, tables: Sequence[PostgresTable]) -> PostgresSource:
    given = options.get("slot.name")
    if given is not None and not re.fullmatch("[a-z0-9_]{1,63}", given):
        raise InvalidError(f"no name of a slot: {given!r}", hint="lower-case letters, digits and underscores")
    address = _address(options)
    plain = re.sub("[^a-z0-9_]", "_", name.lower())[:30]
    slot = given or f"millpond_{plain}_{secrets.token_hex(4)}"
    lost: Any = options.get("if_lost", "stop")
    if lost not in ("stop", "copy"):
        raise InvalidError(f"if_lost is 'stop' or 'copy', got {lost!r}")
    server = postgres_connection.shared(address)
    taken = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
    if given is not None and server.execute(taken, [slot]).fetchone():
        raise InvalidError(
            f"replication slot {slot!r} exists already",
            hint="each source needs a slot of its own; leave slot.name out, or choose another name",
        )
    publication = options.get("publication.name", slot)
    if publication != slot:
        check_existing(server, publication, tables)
    check_rights(server, publication, tables)
    return PostgresSource(address, tuple(tables), slot, publication, lost)


def _schema_and_name(text: str, namespace: str = "public") -> tuple[str, str]:
    before, dot, name = text.rpartition(".")
    return (before if dot else namespace), name


def _address(options: Mapping[str, str]) -> str:
    """The address of the server, from one option or from several."""
    parts = {"hostname": "host", "port": "port", "username": "user", "password": "password"}
    if "connection" in options:
        if more := [name for name in (*parts, "database.name") if name in options]:
            raise InvalidError(f"option {more[0]!r} is part of 'connection'", hint="give one of them")
        return options["connection"]
    named = {**parts, "database.name": "dbname"}
    given = {known: options[name] for name, known in named.items() if name in options}
    if "host" not in given:
        raise InvalidError("option 'hostname' is missing", hint="or connection = 'postgresql://user@host/db'")
    return " ".join(
        "{}='{}'".format(k, v.replace("\\", "\\\\").replace("'", "\\'")) for k, v in given.items()
    )

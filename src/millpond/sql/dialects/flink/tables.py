"""CREATE TABLE of Flink: its columns, watermark, key and connector, written as ours.

A table with a connector is a source of rows, or the target of INSERT INTO … SELECT in the same text, which
makes it a sink.  Without a connector it is a table of the pond.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.kernels.duck import quoted
from millpond.sql.binding.types import text_literal
from millpond.sql.dialects.connector_table import ConnectorTable, option_list, translated_options
from millpond.sql.dialects.flink.connectors import INSTEAD, NEEDED, SINKS, SOURCES
from millpond.sql.dialects.flink.syntax import Flink
from millpond.sql.dialects.flink.translate import translated_expression
from millpond.sql.dialects.spark.types import UnknownType, duckdb_type
from millpond.sql.text.duckdb_parser import equipped_parser
from millpond.sql.text.options import Options, read_options
from millpond.sql.text.parse import SqlFragment, Words

_METADATA = ("timestamp", "offset", "partition", "headers", "topic")  # of messages of Kafka
_WITH_METADATA = ("kafka", "upsert-kafka")
_UNTIL = ("NOT", "NULL", "METADATA", "COMMENT", "PRIMARY", "CONSTRAINT", "AS")


@dataclass(frozen=True)
class Metadata:
    """A column that has the metadata of messages."""

    column: str
    key: str
    virtual: bool  # not written by a sink


@dataclass
class FlinkTable:
    """What CREATE TABLE says."""

    name: str
    head: str  # CREATE TABLE … up to the name, without the kind
    fragment: SqlFragment
    columns: list[tuple[str, str]] = field(default_factory=list)  # as we write them, and their types
    names: list[str] = field(default_factory=list)
    key: tuple[str, ...] = ()
    watermark: str = ""
    partitions: tuple[str, ...] = ()
    options: Options | None = None
    metadata: list[Metadata] = field(default_factory=list)

    @property
    def written(self) -> list[str]:
        """The columns of a sink: all but VIRTUAL ones."""
        virtual = {one.column for one in self.metadata if one.virtual}
        return [name for name in self.names if name not in virtual]

    @property
    def connector(self) -> str | None:
        return None if self.options is None else self.options.get("connector")


def read_table(words: Words, replaces: str) -> FlinkTable:
    """Read a statement from behind CREATE TABLE."""
    exists = words.if_not_exists()
    name = words.name("name of the table")
    found = FlinkTable(
        name, f"IF NOT EXISTS {quoted(name)}" if exists else f"{replaces}{quoted(name)}", words.fragment
    )
    if words.fragment.word(words.at) != "(":
        words.fail(
            "the columns should stand here", "CREATE MATERIALIZED VIEW name AS SELECT … stores a query"
        )
    inner, words.at = words.fragment.bracket(words.at)
    for part in inner.split(types=True):
        _read_part(part, found)
    if words.take("COMMENT"):
        words.text()
    for clause in ("DISTRIBUTED", "DISTRIBUTE", "LIKE"):
        if words.fragment.word(words.at) == clause:
            words.fail(f"{clause} of the dialect 'flink' is not supported", "leave it out")
    if words.take("PARTITIONED", "BY"):
        found.partitions = tuple(words.names())
    if words.take("WITH"):
        found.options = read_options(words)
    words.end()
    return found


def _read_part(part: SqlFragment, found: FlinkTable) -> None:
    words = Words(part)
    if words.take("CONSTRAINT"):
        words.name("name of the constraint")
    if words.take("PRIMARY", "KEY"):
        found.key = tuple(words.names())
        words.need("NOT", "ENFORCED")
        words.end()
        return
    if words.take("WATERMARK", "FOR"):
        time = words.name("time column")
        words.need("AS")
        found.watermark = f"WATERMARK FOR {quoted(time)} AS {_delay(words, time)}"
        return
    _read_column(words, found)


def _delay(words: Words, time: str) -> str:
    """`ts - INTERVAL '5' SECOND`, or the column itself."""
    rest = words.rest
    if len(rest) == 1 and rest.tokens[0].text.lower() == time.lower():
        return quoted(time)
    return translated_expression(rest.sql)


def _read_column(words: Words, found: FlinkTable) -> None:
    fragment = words.fragment
    name = words.name("name of a column")
    found.names.append(name)
    if words.take("AS"):
        _read_computed(words, name, found)
        return
    end = next(
        (n for n in fragment.outside(words.at, types=True) if fragment.word(n) in _UNTIL), len(fragment)
    )
    kind = type_of(fragment.part(words.at, end))
    words.at = end
    text = f"{quoted(name)} {kind}"
    while not words.over:
        if words.take("NOT", "NULL"):
            text += " NOT NULL"
        elif words.take("PRIMARY", "KEY"):
            words.need("NOT", "ENFORCED")
            found.key = (name,)
        elif words.take("COMMENT"):
            words.text()
        elif words.take("METADATA"):
            key = words.text() if words.take("FROM") else name
            if key not in _METADATA:
                words.fail(
                    f"METADATA FROM {key!r} of the dialect 'flink' is not supported",
                    f"messages of Kafka have {', '.join(_METADATA)}",
                )
            found.metadata.append(Metadata(name, key, words.take("VIRTUAL")))
            text += f" METADATA FROM {text_literal(key)}"
        elif not words.take("NULL"):
            words.fail("this is not supported in the definition of a column")
    found.columns.append((text, kind))


def _read_computed(words: Words, name: str, found: FlinkTable) -> None:
    rest = words.rest
    comment = rest.find("COMMENT")
    rest = rest if comment is None else rest.part(0, comment)
    if rest.words[:2] == ("PROCTIME", "("):
        found.columns.append((f"{quoted(name)} AS PROCTIME()", "TIMESTAMPTZ"))
        return
    made = translated_expression(rest.sql)
    known = ", ".join(
        f"CAST(NULL AS {kind}) AS {quoted(n)}"
        for n, (_, kind) in zip(found.names, found.columns, strict=False)
    )
    sql = f"SELECT {made} FROM (SELECT {known or 'NULL'})"
    kind = str(equipped_parser(sql).sql(sql).types[0])
    found.columns.append((f"{quoted(name)} {kind} GENERATED ALWAYS AS ({made})", kind))


def type_of(fragment: SqlFragment) -> str:
    """DuckDB's name of a type of Flink."""
    said = fragment.sql
    try:
        kind = exp.DataType.build(said, dialect=Flink)
        if kind.this in (exp.DataType.Type.VARCHAR, exp.DataType.Type.CHAR):
            return "VARCHAR"  # Flink does not check the length of what it stores
        return duckdb_type(kind)
    except (UnknownType, SqlglotError, ValueError):
        fragment.fail(
            f"the type {said} of the dialect 'flink' is not supported", 0, "write VARCHAR or another type"
        )
        raise


# -- as ours ------------------------------------------------------------------------------------


def as_ours(table: FlinkTable) -> str:
    """The statement that creates a table of the pond, or a source."""
    listed = [text for text, _ in table.columns]
    if table.key:
        listed.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    if table.watermark:
        listed.append(table.watermark)
    columns = f"({', '.join(listed)})"
    if table.metadata and table.connector not in _WITH_METADATA:
        _refuse_metadata(table, table.metadata[0], "sources of Kafka have it")
    if table.options is None:
        if table.partitions:
            table.fragment.fail(
                "PARTITIONED BY is not supported for a table", 0, "leave it out: rows are spread by key"
            )
        stamped = any(text.endswith("AS PROCTIME()") for text, _ in table.columns)
        append_only = " APPEND ONLY" if table.watermark or stamped else ""
        return f"CREATE {_kind(table, 'TABLE')} {columns}{append_only}"
    connector = _connector(table, SOURCES)
    for (of, name), hint in NEEDED.items():
        if of == connector and name not in table.options:
            table.fragment.fail(f"option {name!r} of connector {connector!r} is missing", 0, hint)
    known = SOURCES[connector]
    if table.partitions and connector != "filesystem":
        table.fragment.fail(f"PARTITIONED BY is not supported for connector {connector!r}", 0, "leave it out")
    form = _form(table, connector, table.options)
    made = translated_options(table.options, known, "flink")
    if form:
        made.pop("format", None)
    if table.partitions:
        made["partition.by"] = ", ".join(table.partitions)
    kind = "SOURCE" if not form and connector != "postgres-cdc" else "TABLE"
    return f"CREATE {_kind(table, kind)} {columns} {option_list(made)}{form}"


def _refuse_metadata(table: FlinkTable, one: Metadata, hint: str) -> None:
    where = f"connector {table.connector!r}" if table.options is not None else "a table"
    table.fragment.fail(
        f"METADATA FROM {one.key!r} of the dialect 'flink' is not supported for {where}", 0, hint
    )


def _kind(table: FlinkTable, kind: str) -> str:
    replaces = table.head.startswith("OR REPLACE ")
    return f"OR REPLACE {kind} {quoted(table.name)}" if replaces else f"{kind} {table.head}"


def _form(table: FlinkTable, connector: str, options: Options) -> str:
    """FORMAT … ENCODE …, where messages are changes."""
    said = options.get("format", options.get("value.format", "json"))
    if connector == "upsert-kafka":
        return f" FORMAT UPSERT ENCODE {'AVRO' if said == 'avro-confluent' else said.upper()}"
    if connector == "kafka" and said.startswith("debezium"):
        return f" FORMAT DEBEZIUM ENCODE {'JSON' if said == 'debezium-json' else 'AVRO'}"
    return ""


def _connector(table: FlinkTable, known: dict[str, ConnectorTable]) -> str:
    assert table.options is not None
    name = table.options.get("connector")
    if name is None:
        table.fragment.fail("option 'connector' is missing", 0, f"one of {', '.join(known)}")
        raise AssertionError
    if name not in known:
        hint = INSTEAD.get(name) or f"one of {', '.join(known)}"
        table.options.parts["connector"].fail(
            f"connector {name!r} of the dialect 'flink' is not supported", 0, hint
        )
    return name


def sink_options(table: FlinkTable) -> str:
    """WITH (…) of the sink that a table is."""
    connector = _connector(table, SINKS)
    assert table.options is not None
    if stored := [one for one in table.metadata if not one.virtual]:
        _refuse_metadata(table, stored[0], "a sink writes the values of messages only: say VIRTUAL")
    made = translated_options(table.options, SINKS[connector], "flink")
    if connector == "upsert-kafka" or (connector == "jdbc" and table.key):
        if not table.key:
            table.fragment.fail("connector 'upsert-kafka' needs PRIMARY KEY (…) NOT ENFORCED", 0)
        made |= {"mode": "upsert", "key": ", ".join(table.key)}
    else:
        made["mode"] = "append"
    if table.partitions:
        made["partition.by"] = ", ".join(table.partitions)
    return option_list(made)

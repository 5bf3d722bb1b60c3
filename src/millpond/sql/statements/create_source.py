"""CREATE SOURCE: reads rows from outside, and does not store them.

`connector = 'files'`: path, format ('parquet', 'json', 'csv', 'text', 'avro', 'orc'), pattern; for CSV
delimiter, header, quote, null and multiline; partition.by: columns in the names of folders.
`connector = 'delta'`: path, changes; `connector = 'iceberg'`: table; tables of lakes.
`connector = 'kafka'`: messages of a topic (`kafka_options`).
`connector = 'postgres-cdc'`: tables of a PostgreSQL server and their changes (`replicated_table`).
`connector = 'millpond'`: a view of another pond (path, view, append_only, keep, store.…).
`connector = 'nexmark'`: type ('bid', 'auction', 'person'), events, rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.operators.scan import Scan
from millpond.plan.objects import SqlObject
from millpond.sources.delta import DeltaSource
from millpond.sources.files import FileSource
from millpond.sources.iceberg import IcebergSource
from millpond.sources.nexmark import NexmarkSource
from millpond.sources.nexmark_events import NexmarkConfig
from millpond.sources.pond_view import PondSource
from millpond.sources.text_format import CsvOptions
from millpond.sources.unavailable import named
from millpond.sql.binding.catalog import columns_of
from millpond.sql.result import Result
from millpond.sql.statements import replicated_table
from millpond.sql.statements.connector_options import check_connector, flag, listed, need, number, prefixed
from millpond.sql.statements.create_object import create
from millpond.sql.statements.event_time import heartbeats, with_watermark
from millpond.sql.statements.kafka_options import KAFKA_OPTIONS, format_clause, kafka_topics
from millpond.sql.text.column_definitions import (
    PROCTIME,
    Definition,
    read_columns,
    refuse_metadata,
    refuse_rules,
)
from millpond.sql.text.metadata_columns import read_includes
from millpond.sql.text.options import Options, read_options
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the source")
        found: Definition | None = None
        if words.fragment.word(words.at) == "(":
            inner, words.at = words.fragment.bracket(words.at)
            found = read_columns(inner, included=read_includes(words))
            refuse_rules(found, inner, "a source")
            if found.key or any(c.default or c.generated not in (None, PROCTIME) for c in found.columns):
                inner.fail("a source has neither keys nor defaults", 0, "compute them in a view")
            if found.time in found.stamped:
                inner.fail("the time at which a row comes needs no watermark")
        words.need("WITH")
        options = read_options(words)
        form = format_clause(words, options)
        words.end()
        if form != "PLAIN":
            words.fragment.fail(
                f"FORMAT {form} says which rows are replaced: that needs a table",
                0,
                "CREATE TABLE name (…, PRIMARY KEY (…)) WITH (…) FORMAT …",
            )
        check_connector(options, SOURCE_OPTIONS, "connector")
        if options["connector"] != "kafka":
            refuse_metadata(found, words.fragment, f"connector {options['connector']!r}")

        def make(builder: Builder) -> SqlObject:
            if options["connector"] == "postgres-cdc":
                return _with_its_tables(builder, name, options, found, words)
            with named(name):
                source = make_source(dict(options), _read_from_outside(found))
            step = scan = builder.add(None, Scan(source, source.schema, source.append_only), (), name)
            columns = columns_of(source.schema) if found is None else found.columns
            if found is not None and len(found.stamped) == len(columns):  # others come from the source
                columns = (*columns_of(source.schema), *columns)
            if found is not None:
                step = with_watermark(session, builder, found, scan, name)
            return SqlObject(
                "source",
                name,
                columns,
                step=step,
                scan=scan,
                append_only=source.append_only,
                uses=() if found is None else heartbeats(session, found),
                options=dict(options),
                said=words.fragment.sql,
            )

        return create(session, name, "source", exists=exists, replaces=replaces, make=make)

    return called


def _read_from_outside(found: Definition | None) -> Definition | None:
    """Return the columns that the source provides, if any were declared."""
    if found is None:
        return None
    rest = tuple(c for c in found.columns if c.name not in found.stamped)
    return replace(found, columns=rest) if rest else None


def make_source(options: dict[str, str], found: Definition | None) -> Any:
    return _CONNECTORS[need(options, "connector")](options, found)


def _with_its_tables(
    builder: Builder, name: str, options: Options, found: Definition | None, words: Words
) -> SqlObject:
    if found is not None:
        raise InvalidError(
            "this source has no columns of its own: its tables have those of the server",
            hint="leave the columns out, or CREATE TABLE name (…) WITH (connector = 'postgres-cdc', …)",
        )
    return replicated_table.add_source(builder, name, options, words.fragment.sql)


def _files(options: dict[str, str], found: Definition | None) -> FileSource:
    kind: Any = options.pop("format", "parquet")
    schema = None if found is None else found.schema
    csv = CsvOptions(
        options.pop("delimiter", ","),
        flag(options, "header", True),
        options.pop("quote", '"'),
        options.pop("null", ""),
        flag(options, "multiline", False),
    )
    for name, value, least in (("delimiter", csv.delimiter, 1), ("quote", csv.quote, 0)):
        if not least <= len(value.encode()) <= 1:
            raise InvalidError(f"option {name!r} is one character", detail=f"got {value!r}")
    return FileSource(
        need(options, "path"),
        kind,
        schema,
        options.pop("pattern", None),
        csv=csv,
        partition_by=listed(options.pop("partition.by", "")),
    )


def _millpond(options: dict[str, str], found: Definition | None) -> PondSource:
    adds = options.pop("append_only", "").lower()
    if adds not in ("", "true", "false"):
        raise InvalidError("option 'append_only' is true or false", detail=f"got {adds!r}")
    store = {n.removeprefix("store."): v for n, v in options.items() if n.startswith("store.")}
    given: dict[str, Any] = {"append_only": adds == "true"} if adds else {}
    return PondSource(
        need(options, "path"),
        need(options, "view"),
        None if found is None else found.schema,
        keep=options.pop("keep", "1d"),
        options=tuple(store.items()),
        **given,
    )


def _nexmark(options: dict[str, str], found: Definition | None) -> NexmarkSource:
    kind: Any = options.pop("type", None) or options.pop("table.type", "bid")
    events, rate = number(options, "events"), number(options, "rate")
    seed = number(options, "seed")
    config = NexmarkConfig() if seed is None else NexmarkConfig(seed=seed)
    made = NexmarkSource(kind, events, config, rate)
    if found is not None:
        names = [c.name for c in found.columns]
        if names != made.schema.names:
            raise InvalidError(
                f"nexmark {kind}s have other columns",
                detail=f"they are {', '.join(made.schema.names)}",
                hint="leave the columns out, or write all of them",
            )
    return made


def _delta(options: dict[str, str], found: Definition | None) -> DeltaSource:
    changes = options.get("changes")
    if changes not in (None, "true", "false"):
        raise InvalidError("option 'changes' is true or false", detail=f"got {changes!r}")
    schema = None if found is None else found.schema
    follows = None if changes is None else changes == "true"
    return DeltaSource(need(options, "path"), follows, schema, prefixed(options, "store."))


def _iceberg(options: dict[str, str], found: Definition | None) -> IcebergSource:
    schema = None if found is None else found.schema
    return IcebergSource(need(options, "table"), prefixed(options, "catalog."), schema)


_CONNECTORS: dict[str, Callable[[dict[str, str], Definition | None], Any]] = {
    "delta": _delta,
    "files": _files,
    "iceberg": _iceberg,
    "kafka": kafka_topics,
    "millpond": _millpond,
    "nexmark": _nexmark,
}
SOURCE_OPTIONS: dict[str, tuple[str, ...]] = {
    "delta": ("path", "changes", "store.…"),
    "files": (
        *("path", "format", "pattern", "partition.by"),
        *("delimiter", "header", "quote", "null", "multiline"),
    ),
    "iceberg": ("table", "catalog.…"),
    "kafka": KAFKA_OPTIONS,
    "millpond": ("path", "view", "append_only", "keep", "store.…"),
    "nexmark": ("type", "table.type", "events", "rate", "seed"),
    "postgres-cdc": replicated_table.POSTGRES_OPTIONS,
}

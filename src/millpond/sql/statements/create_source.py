"""CREATE SOURCE: rows that come from outside, and are not kept.

`connector = 'files'`: path, format ('parquet', 'json', 'csv'), pattern.
`connector = 'kafka'`: brokers, topic, format ('json'), start, and settings of the client (`client.…`).
`connector = 'nexmark'`: type ('bid', 'auction', 'person'), events, rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.operators.scan import Scan
from millpond.operators.watermark import Watermark
from millpond.plan.objects import SqlObject
from millpond.sources.files import FileSource
from millpond.sources.kafka import KafkaSource
from millpond.sources.nexmark import NexmarkSource
from millpond.sources.nexmark_events import NexmarkConfig
from millpond.sql.catalog import columns_of
from millpond.sql.definitions import PROCTIME, Definition, read_columns
from millpond.sql.parse import Words, near_miss
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.sql.statements.objects import create

Options = dict[str, str]


def run(replaces: bool) -> Callable[[Session, Words], Result]:
    def called(session: Session, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the source")
        found: Definition | None = None
        if words.piece.word(words.at) == "(":
            inner, words.at = words.piece.bracket(words.at)
            found = read_columns(inner)
            if found.key or any(c.default or c.generated not in (None, PROCTIME) for c in found.columns):
                inner.fail("a source has neither keys nor defaults", 0, "compute them in a view")
            if found.time in found.stamped:
                inner.fail("the time at which a row comes needs no watermark")
        words.need("WITH")
        options = words.options()
        words.end()

        def make(builder: Builder) -> SqlObject:
            source = make_source(dict(options), _read_from_outside(found))
            step = scan = builder.add(None, Scan(source, source.schema, source.append_only), (), name)
            columns = columns_of(source.schema) if found is None else found.columns
            if found is not None and len(found.stamped) == len(columns):  # the others are the source's own
                columns = (*columns_of(source.schema), *columns)
            if found is not None and found.time is not None:
                step = builder.add(None, Watermark(found.time, found.delay_us), (scan,), f"{name}.watermark")
            return SqlObject(
                "source",
                name,
                columns,
                step=step,
                scan=scan,
                append_only=True,
                options=options,
                said=words.piece.sql,
            )

        return create(session, name, "source", exists=exists, replaces=replaces, make=make)

    return called


def _read_from_outside(found: Definition | None) -> Definition | None:
    """The columns that the rows bring with them, if any were written."""
    if found is None:
        return None
    rest = tuple(c for c in found.columns if c.name not in found.stamped)
    return replace(found, columns=rest) if rest else None


def make_source(options: Options, found: Definition | None) -> Any:
    connector = need(options, "connector")
    if connector not in _CONNECTORS:
        raise InvalidError(
            f"no connector named {connector!r}",
            detail=f"there are {', '.join(_CONNECTORS)}",
            hint=near_miss(connector, list(_CONNECTORS)),
        )
    made = _CONNECTORS[connector](options, found)
    over(options, connector)
    return made


def _files(options: Options, found: Definition | None) -> FileSource:
    kind: Any = options.pop("format", "parquet")
    schema = None if found is None else found.schema
    return FileSource(need(options, "path"), kind, schema, options.pop("pattern", None))


def _kafka(options: Options, found: Definition | None) -> KafkaSource:
    if found is None:
        raise InvalidError(
            "a Kafka source needs its columns", hint="CREATE SOURCE name (column type, …) WITH (…)"
        )
    kind: Any = options.pop("format", "json")
    client = {
        name.removeprefix("client."): options.pop(name) for name in [*options] if name.startswith("client.")
    }
    source = KafkaSource(
        need(options, "brokers"),
        need(options, "topic"),
        found.schema,
        kind,
        options.pop("start", "earliest"),
        tuple(client.items()),
    )
    if not options:  # else that is told first
        source.check()
    return source


def _nexmark(options: Options, found: Definition | None) -> NexmarkSource:
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


_CONNECTORS = {"files": _files, "kafka": _kafka, "nexmark": _nexmark}


def need(options: Options, name: str) -> str:
    if name not in options:
        raise InvalidError(f"option {name!r} is missing", hint=f"WITH ({name} = '…', …)")
    return options.pop(name)


def number(options: Options, name: str) -> int | None:
    value = options.pop(name, None)
    if value is None:
        return None
    if not value.isdecimal():
        raise InvalidError(f"option {name!r} is a number", detail=f"got {value!r}")
    return int(value)


def over(options: Options, connector: str) -> None:
    """No option may be left that nobody read."""
    if options:
        raise InvalidError(f"connector {connector!r} has no option {next(iter(options))!r}")

"""The connectors of CREATE SINK: which options each has, and the sink that it makes of them.

Every sink also has the options in `SETTINGS`: how it is attached to its view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.arguments.durations import microseconds
from millpond.errors import InvalidError
from millpond.plan.sink_settings import Guarantee, SinkMode, SinkSettings, guarantee_of, modes_of
from millpond.sinks.delta import DeltaSink
from millpond.sinks.files import FilesSink
from millpond.sinks.http import HttpSink, http_sink
from millpond.sinks.iceberg import IcebergSink
from millpond.sinks.jdbc import JdbcSink
from millpond.sinks.kafka import KafkaSink
from millpond.sinks.postgres import PostgresSink
from millpond.sql.statements.connector_options import flag, listed, prefixed
from millpond.sql.statements.kafka_sink_options import KAFKA_SINK_OPTIONS, kafka_sink

SETTINGS = ("mode", "guarantee", "key", "every", "snapshot", "behind.max", "when.behind")


@dataclass(frozen=True)
class SinkConnector:
    options: tuple[str, ...]  # the required ones first; a name that ends in `.…` is a prefix
    required: tuple[str, ...]
    make: Callable[[dict[str, str]], Any]
    sink: type

    @property
    def guarantee(self) -> Guarantee:
        return guarantee_of(self.sink)

    @property
    def modes(self) -> tuple[SinkMode, ...]:
        return modes_of(self.sink)


def make_sink(connector: str, options: dict[str, str]) -> tuple[Any, SinkSettings]:
    """The sink and its settings; the names of the options were checked."""
    found = SINK_CONNECTORS[connector]
    for name in found.required:
        if not options.get(name):
            raise InvalidError(f"option {name!r} is missing", hint=f"WITH ({name} = '…', …)")
    return found.make(options), _settings(options)


def _settings(options: dict[str, str]) -> SinkSettings:
    every, behind = options.get("every"), options.get("behind.max")
    mode: Any = options.get("mode")
    guarantee: Any = options.get("guarantee")
    when_behind: Any = options.get("when.behind", "pause")
    if behind is not None and not behind.isdecimal():
        raise InvalidError("option 'behind.max' is a number of epochs", detail=f"got {behind!r}")
    return SinkSettings(
        None if mode is None else mode.lower(),
        None if guarantee is None else guarantee.lower().replace("-", "_"),
        listed(options.get("key") or options.get("primary_key", "")),
        0 if every is None else microseconds(every),
        flag(options, "snapshot", True),
        None if behind is None else int(behind),
        when_behind,
    )


def _files(options: dict[str, str]) -> FilesSink:
    kind: Any = options.get("format", "parquet").lower()
    store = {n.removeprefix("store."): v for n, v in options.items() if n.startswith("store.")}
    return FilesSink(options["path"], kind, listed(options.get("partition.by", "")), tuple(store.items()))


def _delta(options: dict[str, str]) -> DeltaSink:
    return DeltaSink(options["path"], listed(options.get("partition.by", "")), prefixed(options, "store."))


def _iceberg(options: dict[str, str]) -> IcebergSink:
    return IcebergSink(
        options["table"], prefixed(options, "catalog."), listed(options.get("partition.by", ""))
    )


def _postgres(options: dict[str, str]) -> PostgresSink:
    return PostgresSink(options["connection"], options["table"], options.get("schema", "public"))


def _jdbc(options: dict[str, str]) -> JdbcSink:
    known = ("user", "password", "driver", "batchsize")
    given = {name: options[name] for name in known if name in options}
    given |= {n.removeprefix("spark."): v for n, v in options.items() if n.startswith("spark.")}
    return JdbcSink(options["url"], options["table"], tuple(given.items()))


SINK_CONNECTORS = {
    "delta": SinkConnector(("path", "partition.by", "store.…"), ("path",), _delta, DeltaSink),
    "files": SinkConnector(("path", "format", "partition.by", "store.…"), ("path",), _files, FilesSink),
    "iceberg": SinkConnector(("table", "partition.by", "catalog.…"), ("table",), _iceberg, IcebergSink),
    "http": SinkConnector(
        ("url", "header.…", "batch.rows", "timeout", "tries", "refused.max"), ("url",), http_sink, HttpSink
    ),
    "jdbc": SinkConnector(
        ("url", "table", "user", "password", "driver", "batchsize", "spark.…"),
        ("url", "table"),
        _jdbc,
        JdbcSink,
    ),
    "kafka": SinkConnector(KAFKA_SINK_OPTIONS, ("topic",), kafka_sink, KafkaSink),
    "postgres": SinkConnector(
        ("connection", "table", "schema"), ("connection", "table"), _postgres, PostgresSink
    ),
}

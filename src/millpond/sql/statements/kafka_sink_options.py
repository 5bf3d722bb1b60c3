"""The options of Kafka sinks, and FORMAT … ENCODE … [KEY ENCODE …] behind them.

| FORMAT | mode | messages |
|---|---|---|
| `PLAIN` | `append`, or `changelog` if `mode` says so | rows |
| `UPSERT` | `upsert` | rows, and tombstones for deleted keys |
| `DEBEZIUM` | `changelog` | events of Debezium |
"""

from __future__ import annotations

from typing import Any

from millpond.sinks.kafka import KafkaSink
from millpond.sql.statements.connector_options import need, number
from millpond.sql.statements.kafka_options import BROKERS, client_settings, descriptor_at
from millpond.sql.text.options import Options, only, read_options
from millpond.sql.text.parse import Words

KAFKA_SINK_OPTIONS = (
    *("topic", "brokers", "format", "envelope", "key.fields", "key.format", "primary_key"),
    *("schema.registry", "schema.location", "message", "transaction.timeout", "partitions", "replicas"),
    *("progress.topic", "client.…", "properties.…"),
)
_ENCODE_OPTIONS = ("schema.registry", "schema.location", "message")
_FORMS = {"PLAIN": "append", "UPSERT": "upsert", "DEBEZIUM": "changelog"}
_ENCODES = ("JSON", "AVRO", "PROTOBUF")
_KEY_ENCODES = ("JSON", "TEXT", "AVRO")


def sink_format_clause(words: Words, options: Options) -> None:
    """Parse FORMAT form ENCODE name [(option = value, …)] [KEY ENCODE name] into the options."""
    if not words.take("FORMAT"):
        return
    if options.get("connector") != "kafka":
        words.fail("only Kafka sinks have a FORMAT", "leave it out")
    form = _one_of(words, "FORMAT", tuple(_FORMS))
    words.need("ENCODE")
    _set(words, options, "format", _one_of(words, "ENCODE", _ENCODES).lower())
    mode = options.get("mode", _FORMS[form]).lower()
    if mode != _FORMS[form] and (form, mode) != ("PLAIN", "changelog"):
        words.fail(f"FORMAT {form} is mode {_FORMS[form]}, not {mode}", "leave the option 'mode' out")
    options["mode"] = mode
    if form == "DEBEZIUM":
        _set(words, options, "envelope", "debezium")
    if words.fragment.word(words.at) == "(":
        more = read_options(words)
        only(more, _ENCODE_OPTIONS, "ENCODE")
        options.update(more)
        options.parts.update(more.parts)
    if words.take("KEY", "ENCODE"):
        _set(words, options, "key.format", _one_of(words, "KEY ENCODE", _KEY_ENCODES).lower())


def _one_of(words: Words, what: str, known: tuple[str, ...]) -> str:
    found = words.name(", ".join(known)).upper()
    if found not in known:
        words.fail(f"a sink has no {what} {found}", f"one of {', '.join(known)}")
    return found


def _set(words: Words, options: Options, name: str, value: str) -> None:
    if name in options:
        words.fail(f"the {name} is given twice", f"leave the option {name!r} out")
    options[name] = value


def kafka_sink(options: dict[str, str]) -> KafkaSink:
    options = dict(options)
    for name in BROKERS:
        if name in options:
            options.setdefault("brokers", options.pop(name))
    encoding: Any = options.get("format", "json").lower()
    envelope: Any = options.get("envelope", "plain").lower()
    key_format: Any = options.get("key.format")
    return KafkaSink(
        need(options, "brokers"),
        options["topic"],
        encoding,
        envelope,
        tuple(
            name.strip()
            for name in options.get("key.fields", "").replace(";", ",").split(",")
            if name.strip()
        ),
        None if key_format is None else key_format.lower(),
        options.get("schema.registry", ""),
        descriptor_at(options.get("schema.location", "")),
        options.get("message", ""),
        tuple(client_settings(options).items()),
        options.get("transaction.timeout", "5m"),
        number(options, "partitions") or -1,
        number(options, "replicas") or -1,
        options.get("progress.topic", ""),
    )

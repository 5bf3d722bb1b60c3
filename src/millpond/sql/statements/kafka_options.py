"""The options of the Kafka connector, and FORMAT … ENCODE … behind them.

Names that users of RisingWave and Flink know mean the same here: `properties.bootstrap.server`, other
`properties.…` (settings of the client), `scan.startup.mode`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from millpond.errors import InvalidError
from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_changes import KafkaChanges
from millpond.sources.kafka_topics import KafkaTopicsSource
from millpond.sources.message_formats import FORMATS
from millpond.sources.message_values import Times
from millpond.sql.statements.connector_options import need
from millpond.sql.text.column_definitions import Definition
from millpond.sql.text.options import Options, only, read_options
from millpond.sql.text.parse import Words

KAFKA_OPTIONS = (
    *("brokers", "topic", "topic.pattern", "format", "start", "client.…"),
    *("schema.registry", "schema.location", "message", "delimiter", "scan.startup.mode", "properties.…"),
)
VALUE_OPTIONS: dict[str, tuple[str, ...]] = {  # of tables: how values are written that have no schema
    "decimal.handling.mode": ("precise", "string", "double"),
    "time.precision.mode": get_args(Times),
}
_ENCODE_OPTIONS = ("schema.registry", "schema.location", "message", "delimiter", *VALUE_OPTIONS)
_FORMS = ("PLAIN", "UPSERT", "DEBEZIUM")
BROKERS = ("properties.bootstrap.server", "properties.bootstrap.servers")
_STARTS = {"earliest-offset": "earliest", "latest-offset": "latest"}


def format_clause(words: Words, options: Options) -> str:
    """Parse FORMAT form ENCODE name [(option = value, …)] into the options; returns the form."""
    if not words.take("FORMAT"):
        return "PLAIN"
    form = words.name("PLAIN, UPSERT or DEBEZIUM").upper()
    if form not in _FORMS:
        words.fail(f"there is no FORMAT {form}", f"one of {', '.join(_FORMS)}")
    words.need("ENCODE")
    encode = words.name("an encoding such as JSON or AVRO").lower()
    if encode not in FORMATS:
        words.fail(f"there is no ENCODE {encode.upper()}", f"one of {', '.join(f.upper() for f in FORMATS)}")
    if "format" in options:
        words.fail("the format is given twice", "leave the option 'format' out")
    options["format"] = encode
    if words.fragment.word(words.at) == "(":
        more = read_options(words)
        only(more, _ENCODE_OPTIONS, f"ENCODE {encode.upper()}")
        options.update(more)
        options.parts.update(more.parts)
    return form


def kafka_topics(options: dict[str, str], found: Definition | None) -> KafkaSource | KafkaTopicsSource:
    """The source of one topic, or of all whose names match a pattern."""
    pattern = options.pop("topic.pattern", None)
    if pattern is None:
        return kafka_source(options, found)
    if "topic" in options:
        raise InvalidError("a topic and a pattern of topics are given", hint="leave one of them out")
    made = KafkaTopicsSource(_unchecked({**options, "topic": pattern}, found), pattern)
    made.check()
    return made


def kafka_source(options: dict[str, str], found: Definition | None) -> KafkaSource:
    if "topic.pattern" in options:
        raise InvalidError("a table reads one topic", hint="topic = '…'")
    source = _unchecked(options, found)
    source.check()
    return source


def kafka_changes(options: dict[str, str], found: Definition, form: Any) -> KafkaChanges:
    """The changes of a table."""
    modes: dict[str, Any] = {}
    for name, known in VALUE_OPTIONS.items():
        modes[name] = options.pop(name, "").lower()
        if modes[name] and modes[name] not in known:
            raise InvalidError(
                f"option {name!r} cannot be {modes[name]!r}", hint=f"one of {', '.join(known)}"
            )
    times: Times = modes["time.precision.mode"] or "adaptive"
    return KafkaChanges(
        kafka_source(options, found),
        found.key,
        form,
        modes["decimal.handling.mode"],
        times,
        truncates=form == "debezium",
    )


def _unchecked(options: dict[str, str], found: Definition | None) -> KafkaSource:
    if found is None:
        raise InvalidError(
            "a Kafka source needs its columns", hint="CREATE SOURCE name (column type, …) WITH (…)"
        )
    for name in BROKERS:
        if name in options:
            options.setdefault("brokers", options.pop(name))
    mode = options.pop("scan.startup.mode", None)
    if mode is not None:
        options.setdefault("start", _STARTS.get(mode, mode))
    client = client_settings(options)
    kind: Any = options.pop("format", "json")
    return KafkaSource(
        need(options, "brokers"),
        need(options, "topic"),
        found.schema,
        kind,
        options.pop("start", "earliest"),
        tuple(client.items()),
        options.pop("schema.registry", ""),
        descriptor_at(options.pop("schema.location", "")),
        options.pop("message", ""),
        options.pop("delimiter", ","),
        found.metadata,
    )


def client_settings(options: dict[str, str]) -> dict[str, str]:
    """The settings of the client, which are taken out of the options."""
    return {
        name.partition(".")[2]: options.pop(name)
        for name in [*options]
        if name.startswith(("client.", "properties."))
    }


def descriptor_at(location: str) -> bytes:
    """The file descriptor set of Protobuf messages, which is stored in the pond."""
    if not location:
        return b""
    path = urlsplit(location).path if location.startswith("file:") else location
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidError(f"cannot read the descriptor set {path!r}", detail=str(error)) from error

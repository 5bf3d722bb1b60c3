"""How the value of a message becomes a row: JSON, CSV, raw bytes, Avro, Protobuf.

Law 9: each value becomes a row, or is reported as bad with the reason; a bad one does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sources import text_format
from millpond.sources.avro_messages import AvroMessages
from millpond.sources.csv_records import records_of
from millpond.sources.json_values import parse_values
from millpond.sources.protobuf_messages import ProtobufMessages
from millpond.sources.text_format import CsvLines, JsonLines, halved

Decoded = tuple[list[pa.Table], list[tuple[int, str]]]  # rows in order; (index, reason) of bad ones
FORMATS = ("json", "csv", "bytes", "avro", "protobuf")


class MessageFormat(Protocol):
    def decode(self, values: Sequence[bytes | None]) -> Decoded: ...


@dataclass(frozen=True)
class FormatOptions:
    """What a format needs besides the columns."""

    registry: str = ""  # the address of a schema registry
    descriptor: bytes = b""  # of Protobuf: a FileDescriptorSet
    message: str = ""  # of Protobuf: the full name of the message
    delimiter: str = ","  # of CSV


def message_format(kind: str, schema: pa.Schema, options: FormatOptions) -> MessageFormat:
    """The decoder of a format; raises InvalidError if the columns do not fit it."""
    if kind == "json":
        text_format.check_types(False, schema)
        return JsonMessages(schema)
    if kind == "csv":
        text_format.check_types(True, schema)
        return CsvMessages(schema, options.delimiter)
    if kind == "bytes":
        return BytesMessages(schema)
    if kind == "avro":
        if not options.registry:
            raise InvalidError(
                "Avro messages need a schema registry", hint="schema.registry = 'http://host:8081'"
            )
        return AvroMessages(schema, options.registry)
    if kind == "protobuf":
        return ProtobufMessages(schema, options.descriptor, options.message, bool(options.registry))
    raise InvalidError(f"no format of messages named {kind!r}", hint=f"one of {', '.join(FORMATS)}")


class JsonMessages:
    def __init__(self, schema: pa.Schema) -> None:
        self._lines = JsonLines(schema)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return parse_values(self._lines, [value or b"" for value in values])


class CsvMessages:
    """A line without a header: values in the order of the columns; an empty value is NULL."""

    def __init__(self, schema: pa.Schema, delimiter: str) -> None:
        self._options = text_format.CsvOptions(delimiter=delimiter)
        self._lines = CsvLines(schema, schema.names, self._options)
        self._records = CsvLines(schema, schema.names, replace(self._options, multiline=True))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        lines = [(value or b"").rstrip(b"\r\n") for value in values]
        wrong = {n: "there is no value" for n, line in enumerate(lines) if not line}
        folded = any(b"\n" in line for line in lines)
        if folded:
            wrong |= {n: why for n, line in enumerate(lines) if line and (why := self._not_one_record(line))}
        filled = [n for n in range(len(lines)) if n not in wrong]
        good, bad = halved(self._records if folded else self._lines, [lines[n] for n in filled])
        wrong |= {filled[n]: reason for n, reason in bad}
        return good, sorted(wrong.items())

    def _not_one_record(self, line: bytes) -> str | None:
        """Why a message with quotes or line ends is not a single record."""
        if b"\n" not in line and b'"' not in line:
            return None
        found = records_of(line, self._options.marks)
        if found[0].problem is not None:
            return found[0].problem
        return None if len(found) == 1 else "a line end inside a line"


class BytesMessages:
    """The value as it is, in one column of bytes or text."""

    def __init__(self, schema: pa.Schema) -> None:
        if len(schema) != 1 or schema.field(0).type not in (pa.binary(), pa.string()):
            raise InvalidError(
                "raw messages are one column of bytes or text",
                detail=f"columns are {', '.join(f'{f.name} {f.type}' for f in schema)}",
            )
        self._schema = schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        bad: list[tuple[int, str]] = []
        good: list[Any] = list(values)
        if self._schema.field(0).type == pa.string():
            good = []
            for number, value in enumerate(values):
                try:
                    good.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    bad.append((number, str(error)))
        return [pa.table([pa.array(good, self._schema.field(0).type)], schema=self._schema)], bad

"""How rows become the values of messages: the protocol that JSON, Avro and Protobuf implement.

Law: a row is encoded once, and a message is made of encoded rows by concatenation.
So whether a row fits into a message depends on the row alone, not on the change that it is part of.

| shape | a message has |
|---|---|
| `row` | the columns of a row |
| `logged` | the columns, and `_op`, `_epoch` and `_n` |
| `event` | an event of Debezium: the row before and after a change |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

Shape = Literal["row", "logged", "event"]


@dataclass(frozen=True)
class Unencodable:
    """Why a row cannot be encoded."""

    reason: str


class ChangeId(NamedTuple):
    """Which change a message is about."""

    pond: str
    sink: str
    epoch: int
    number: int


class RowEncoding(Protocol):
    def encoded(self, rows: pa.Table) -> list[bytes | Unencodable]:
        """Each row, as the other methods take it."""

    def row(self, row: bytes) -> bytes:
        """The value of a message with a row."""

    def logged(self, row: bytes, operation: str, change: ChangeId) -> bytes:
        """The value of a message with a row of a changelog."""

    def event(self, before: bytes | None, after: bytes | None, operation: str, change: ChangeId) -> bytes:
        """The value of a message with an event of Debezium; `operation` is c, u or d."""

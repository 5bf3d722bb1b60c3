"""Changes that are decoded together are what the decoder of single messages gives (law 3)."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.decode_changes import CHANGE_LOG
from millpond.sources import postgres_cdc
from millpond.sources.postgres_cdc import PostgresSource
from millpond.sources.postgres_schema import PostgresTable
from tests.sampling import first

KEPT = object()
TABLES = (
    PostgresTable("public", "a", pa.schema([("id", pa.int64()), ("s", pa.string())]), ("id",)),
    PostgresTable(
        "public", "b", pa.schema([("x", pa.string()), ("k", pa.int64()), ("y", pa.string())]), ("k", "x")
    ),
)
# By OID: the table and the places of its columns in a message, which has more of them.
RELATIONS = {70: (0, [0, 2]), 71: (1, [1, 0, 2]), 72: (0, [1, 0])}
WIDTHS = {70: (3, 4), 71: (3,), 72: (2,)}


def row(values: list[Any]) -> bytes:
    found = struct.pack(">H", len(values))
    for value in values:
        if value is None or value is KEPT:
            found += b"n" if value is None else b"u"
        else:
            found += b"t" + struct.pack(">I", len(value)) + value
    return found


def some_row(rng: random.Random, width: int, kept: bool) -> list[Any]:
    choices: list[Any] = [None, b"", b"1", b"2", "größer".encode(), b"n" * 300, *([KEPT] if kept else [])]
    return [rng.choice(choices) for _ in range(width)]


def some_message(rng: random.Random, odd: bool) -> bytes:
    oid = rng.choice(list(RELATIONS))
    if odd and rng.random() < 0.1:
        return b"T" + struct.pack(">IBI", 1, 0, oid)
    width, kept = rng.choice(WIDTHS[oid]), odd and rng.random() < 0.2
    head, new = struct.pack(">I", oid), b"N" + row(some_row(rng, width, kept))
    old = rng.choice([b"K", b"O"]) + row(some_row(rng, width, False))
    return rng.choice([b"I" + head + new, b"U" + head + new, b"U" + head + old + new, b"D" + head + old])


def packed(messages: list[bytes]) -> bytes:
    return np.array([len(m) for m in messages], np.uint32).tobytes() + b"".join(messages)


def one_by_one(messages: list[bytes], sequence: int) -> pa.Table:
    log = postgres_cdc._Log(TABLES)
    for number, message in enumerate(messages):
        log.message(message, sequence + 2 * number, RELATIONS)
    return log.rows()


def together(messages: list[bytes], sequence: int) -> pa.Table:
    source = PostgresSource("postgresql://h/d", TABLES, "slot", "publication")
    return source._logged(packed(messages), len(messages), sequence, RELATIONS)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("seed", first(5, range(200)))
def test_together_is_one_by_one(seed: int, odd: bool) -> None:
    rng = random.Random(seed)
    messages = [some_message(rng, odd) for _ in range(rng.choice([1, 2, 10, 200]))]
    found = together(messages, 1_000)
    assert found.schema == CHANGE_LOG
    assert found.to_pylist() == one_by_one(messages, 1_000).to_pylist()


def test_usual_messages_are_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    messages = [some_message(rng, odd=False) for _ in range(50)]
    monkeypatch.setattr(postgres_cdc._Log, "message", lambda *_: pytest.fail("one by one"))
    assert together(messages, 0).num_rows >= 50


def test_so_many_bytes_that_offsets_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [some_message(random.Random(n), odd=False) for n in range(20)]
    monkeypatch.setattr(postgres_cdc, "BYTES_MAX", 10)
    assert together(messages, 5).to_pylist() == one_by_one(messages, 5).to_pylist()

"""Answers that are given where messages arrive: the bytes that a conversation gives for them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millpond
from millpond.pond import Pond
from millpond.server.pgwire.quick_reads import QuickReads
from millpond.server.server import Server

ASK = b"SELECT id, name, n, at, price FROM t WHERE id = $1"
READY = b"Z\0\0\0\x05"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(
            "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int, at timestamp, price decimal(12,2))"
        )
        pond.sql(
            "INSERT INTO t SELECT i, 'name ' || i, i, timestamp '2026-01-01', i * 1.25 FROM range(9) r(i)"
        )
        pond.sql("INSERT INTO t (id) VALUES (10); FLUSH")
        with pond.serve(pg_port=0) as found:
            yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups that were answered at once, 0 for others; noted before the answer is sent."""
    taken: list[int] = []
    real = QuickReads._group

    def group(reads: QuickReads, data: bytes) -> int:
        taken.append(real(reads, data))
        return taken[-1]

    monkeypatch.setattr(QuickReads, "_group", group)
    return taken


def message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def bind(values: list[bytes | None], formats: list[int], shown: list[int], name: bytes = b"s") -> bytes:
    parts = [b"\0", name, b"\0", struct.pack(f"!H{len(formats)}h", len(formats), *formats)]
    parts.append(struct.pack("!H", len(values)))
    for value in values:
        parts.append(struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value)
    return message(b"B", *parts, struct.pack(f"!H{len(shown)}h", len(shown), *shown))


SYNC = message(b"S")
EXECUTE = message(b"E", b"\0\0\0\0\0")
DESCRIBE = message(b"D", b"P\0")


class RawClient:
    def __init__(self, server: Server) -> None:
        port = int(server.urls["pg"].rpartition(":")[2].partition("/")[0])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.ask(struct.pack("!ii", 18, 196608) + b"user\0ann\0\0")

    def ask(self, data: bytes, ready: int = 1) -> bytes:
        """Send bytes, and read until the server was ready so many times."""
        self.socket.sendall(data)
        found = b""
        while found.count(READY) < ready or not found[:-1].endswith(READY):
            part = self.socket.recv(1 << 20)
            assert part, found
            found += part
        return found

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def raw(server: Server, parse: bytes = ASK) -> Iterator[RawClient]:
    """A client whose statement `s` is known to read one key of a table that is open."""
    client = RawClient(server)
    try:
        client.ask(message(b"P", b"s\0", parse, b"\0\0\0") + SYNC)
        for _ in range(2):  # the first learns it, the second opens the table
            client.ask(bind([b"1"], [], []) + EXECUTE + SYNC)
        yield client
    finally:
        client.close()


def random_group(chance: random.Random) -> bytes:
    binary = chance.random() < 0.5
    key = chance.choice([0, 3, 8, 9, 10, -1, None])
    value = None if key is None else struct.pack("!q", key) if binary else str(key).encode()
    if chance.random() < 0.1:
        value = chance.choice([b"", b"x", b"\xff", b"7 ", b"12345678901234567890"])
    formats = chance.choice([[int(binary)], [int(binary)], [] if not binary else [1], [0, 1]])
    shown = chance.choice([[], [0], [1], [0, 1, 0, 1, 0], [1] * 5, [0, 1], [2]])
    values = [value] * chance.choice([1, 1, 1, 1, 0, 2])
    made = bind(values, formats, shown, chance.choice([b"s", b"s", b"s", b"s", b"none"]))
    made += chance.choice(
        [DESCRIBE + EXECUTE, EXECUTE, message(b"E", b"\0\0\0\0\1"), message(b"H") + EXECUTE]
    )
    return made + SYNC


def test_answers_are_those_of_the_conversation(server: Server, quick: list[int], monkeypatch: Any) -> None:
    chance = random.Random(4)
    groups = [random_group(chance) for _ in range(300)]
    with raw(server) as client:
        quick.clear()
        seen = [client.ask(group) for group in groups]
    assert 30 < len([one for one in quick if one]) < 250
    monkeypatch.setattr(QuickReads, "answer", lambda reads, data: 0)
    with raw(server) as client:
        for group, answer in zip(groups, seen, strict=True):
            assert client.ask(group) == answer, group


def test_groups_that_come_together_or_in_pieces(server: Server, quick: list[int]) -> None:
    group = bind([b"3"], [], [1]) + DESCRIBE + EXECUTE + SYNC
    with raw(server) as client:
        one = client.ask(group)
        assert b"name 3" in one and quick[-1] == len(group)
        assert client.ask(group * 50, 50) == one * 50
        assert client.ask(group + message(b"Q", b"SELECT 1\0"), 2).startswith(one)
        for at in range(1, len(group), 7):
            client.socket.sendall(group[:at])
            assert client.ask(group[at:]) == one
        assert client.ask(message(b"Q", b"SELECT 1\0") + group * 3, 4).endswith(one * 3)


def test_an_unnamed_statement_that_is_parsed_again(server: Server, quick: list[int]) -> None:
    group = message(b"P", b"\0", ASK, b"\0\0\0") + bind([b"3"], [], [], b"") + DESCRIBE + EXECUTE + SYNC
    with raw(server) as client:
        seen = [client.ask(group) for _ in range(4)]
        assert seen == [seen[0]] * 4 and seen[0].startswith(message(b"1") + message(b"2"))
        assert quick[-1] == len(group)
        other = group.replace(b"id, name", b"name, id")
        assert client.ask(other) != seen[0]
        assert quick[-1] == 0
        assert client.ask(group) == seen[0]


def test_not_in_a_transaction_nor_after_an_error(server: Server, quick: list[int]) -> None:
    group = bind([b"3"], [], []) + EXECUTE + SYNC
    with raw(server) as client:
        client.ask(message(b"Q", b"BEGIN\0"))
        quick.clear()
        assert client.ask(group).endswith(READY + b"T")
        client.ask(message(b"Q", b"COMMIT\0"))
        client.socket.sendall(bind([b"3"], [], [], b"none"))
        time.sleep(0.05)
        assert client.ask(group) != client.ask(group)  # the first is skipped until its Sync
        assert [one for one in quick if one] == [len(group)]


def test_a_portal_of_before_is_gone(server: Server) -> None:
    with raw(server) as client:
        client.ask(bind([b"3"], [], []) + EXECUTE + SYNC)
        assert b"34000" in client.ask(EXECUTE + SYNC)


def test_idle_time_counts_from_the_last_answer() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id bigint PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        with pond.serve(pg_port=0, idle_ms_max=400) as server:
            _stays_while_it_reads(pond, server)


def _stays_while_it_reads(pond: Pond, server: Server) -> None:
    address = server.urls["pg"].replace("//", "//ann@")
    with psycopg.connect(address, autocommit=True, prepare_threshold=0) as con:
        for _ in range(6):
            assert con.execute("SELECT n FROM t WHERE id = %s", [1]).fetchall() == [(2,)]
            time.sleep(0.15)
        time.sleep(0.6)
        with pytest.raises(psycopg.OperationalError, match="idle-session timeout"):
            con.execute("SELECT n FROM t WHERE id = %s", [1])


def test_a_message_with_wrong_fields_is_an_error_and_not_the_end(server: Server) -> None:
    short = message(b"B", b"\0s\0\0\0\0\1\0\0\0\x09abc\0\0")
    two_formats = bind([b"3"], [0, 1], [])
    with raw(server) as client:
        good = client.ask(bind([b"3"], [], []) + EXECUTE + SYNC)
        for broken in (
            short,
            two_formats,
            message(b"D", b"X\0"),
            message(b"P", b"\0\xff\xff\0\0\0"),
            message(b"E", b""),
        ):
            answer = client.ask(broken + EXECUTE + SYNC)
            assert answer.count(b"C08P01") == 1 and b"SERROR" in answer, broken
            assert client.ask(bind([b"3"], [], []) + EXECUTE + SYNC) == good
        for broken in (message(b"Q", b"SELECT 1"), message(b"Q", b"SELECT \xff\0"), message(b"S", b"more")):
            assert b"C08P01" in client.ask(broken), broken
        called = client.ask(message(b"F", b"\0\0\0\1\0\0\0\0\0\0"))
        assert b"C0A000" in called and b"use SELECT" in called
        assert client.ask(bind([b"3"], [], []) + EXECUTE + SYNC) == good

"""Law 5 for one key: touching a list or a map of many elements costs what is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import millpond
from millpond import ListState, MapState, Process
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.state.tables import table as tables

SCHEMA = pa.schema([("k", pa.int64()), ("verb", pa.string()), ("n", pa.int64())])


class Big(Process):
    items = ListState(int)
    entries = MapState(int, int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        found: Any = 0
        match row.verb:
            case "extend":
                start = len(self.items)
                self.items.extend(range(start, start + row.n))
            case "append":
                self.items.append(row.n)
            case "len":
                found = len(self.items)
            case "at":
                found = self.items[row.n]
            case "last":
                found = sum(self.items.last(row.n))
            case "drop":
                self.items.keep(len(self.items) - row.n)
            case "sum":
                found = sum(self.items)
            case "fill":
                for n in range(row.n):
                    self.entries.put(n, n)
            case "put":
                self.entries.put(row.n, -1)
            case "get":
                found = self.entries.get(row.n)
            case "in":
                found = int(row.n in self.entries)
            case "remove":
                self.entries.remove(row.n)
            case "fail":
                self.items.append(1)
                self.entries.put(row.n, 1)
                raise ValueError("as told")
        return {"verb": row.verb, "found": found}


@contextmanager
def counted() -> Iterator[list[int]]:
    """The numbers of rows that lookups read."""
    read: list[int] = []
    find = tables._row_locations

    def places(spec: Any, hits: Any) -> Any:
        found = find(spec, hits)
        if spec.name.startswith("big/"):
            read.append(len(found[0]))
        return found

    with mock.patch.object(tables, "_row_locations", places):
        yield read


class Played:
    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.source = MemorySource(SCHEMA)
        stream = pond.stream("in", self.source)
        stream.key_by("k").process(Big, {"verb": str, "found": int}, id="big").view("out")
        pond.drain()

    def __call__(self, verb: str, n: int = 0, *, times: int = 1) -> tuple[int, int, int]:
        """(what it found, rows read, rows written), for one key among others."""
        rows = [{"k": 1, "verb": verb, "n": n}] * times + [{"k": 2, "verb": "len", "n": 0}]
        before = self.pond.epoch
        self.source.push(rows)
        with counted() as read:
            self.pond.drain()
        epochs = range(before + 1, self.pond.epoch + 1)  # one, and perhaps one that only takes merged runs in
        added = [run for epoch in epochs for run in self.pond.at(epoch).manifest.added]
        written = sum(r.rows for r in added if r.table.startswith("big/") and r.kind == "delta")
        delta = self.pond.diff("out", before, self.pond.epoch).to_pylist()
        found = [r["found"] for r in delta if r["verb"] == verb and (verb != "len" or r["found"])]
        return (found[0] if found else -1), sum(read), written


def check_list(play: Played, size: int, chunk: int) -> None:
    for _ in range(size // chunk):
        play("extend", chunk)
    for verb, n, found, written in [
        ("append", -5, 0, 1),
        ("len", 0, size + 1, 0),
        ("at", 0, 0, 0),
        ("at", size // 2, size // 2, 0),
        ("at", -1, -5, 0),
        ("last", 100, sum(range(size - 99, size)) - 5, 0),
        ("drop", 50, 0, 50),
        ("at", 0, 50, 0),
        ("len", 0, size - 49, 0),
        ("append", -6, 0, 1),
        ("last", 2, -11, 0),
    ]:
        got, read, wrote = play(verb, n)
        assert got == found, (verb, n)
        assert wrote == written, (verb, n)
        assert read <= 500 * (size // chunk), (verb, n, read)  # a few of each run


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Played]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, parallelism=2) as pond:
        yield Played(pond)


def test_a_long_list(play: Played) -> None:
    check_list(play, 300_000, 100_000)
    got, _, wrote = play("append", 7, times=200)
    assert (got, wrote) == (0, 200)
    got, read, _ = play("sum")
    assert got == sum(range(50, 300_000)) - 11 + 1400
    assert read < 2 * 300_000


def test_a_long_list_and_a_row_that_fails(play: Played) -> None:
    play("extend", 50_000)
    play("fill", 50_000)
    _, read, wrote = play("fail", 7)
    assert wrote == 0
    assert read <= 1000
    assert play.pond.errors().num_rows == 1
    assert play("len")[0] == 50_000


def test_a_large_map(play: Played) -> None:
    play("fill", 300_000)
    for verb, n, found, written in [
        ("get", 299_999, 299_999, 0),
        ("put", 150_000, 0, 1),
        ("get", 150_000, -1, 0),
        ("in", 300_001, 0, 0),
        ("remove", 5, 0, 1),
        ("in", 5, 0, 0),
        ("in", 6, 1, 0),
    ]:
        got, read, wrote = play(verb, n)
        assert got == found, (verb, n)
        assert wrote == written, (verb, n)
        assert read <= 500, (verb, n, read)


@pytest.mark.slow
def test_ten_million_items(play: Played) -> None:
    check_list(play, 10_000_000, 500_000)

"""What random histories once found, each as small as it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.state.manifest.listing import PageCache, live_runs

KX = pa.schema([("k", pa.int64()), ("x", pa.int64())])
EVENTS = pa.schema([("ts", pa.timestamp("s")), ("x", pa.int64())])


@pytest.fixture
def open_pond(tmp_path: Path) -> Iterator[Any]:
    """Opens the one pond of a test, as often as asked."""
    opened: list[Pond] = []

    def call(**options: Any) -> Pond:
        pond = millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True, **options)
        opened.append(pond)
        return pond

    yield call
    for pond in reversed(opened):
        pond.close()


def test_senders_may_differ_in_what_they_leave_out(open_pond: Any) -> None:
    """A sender without NULL in its keys sends no hashes; one with NULL does."""
    pond = open_pond(parallelism=3)
    source = MemorySource(KX)
    pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("counts")
    source.push([{"k": 1, "x": 1}, {"k": 2, "x": 1}], [{"k": None, "x": 1}, {"k": 1, "x": 1}])
    pond.drain()
    got = {row["k"]: row["n"] for row in pond.read("counts").to_pylist()}
    assert got == {1: 2, 2: 1, None: 1}


def test_a_reader_is_not_left_behind_by_collection(open_pond: Any) -> None:
    """The manifests after an epoch that a reader holds are how it finds the newest."""
    pond = open_pond(retain_epochs=2, collect_every=1)
    source = MemorySource(KX)
    pond.stream("s", source).aggregate(n="count(*)").view("n")
    source.push([{"k": 1, "x": 1}])
    pond.drain()
    reader = open_pond()
    assert reader.read("n").to_pylist() == [{"n": 1}]
    for _ in range(7):
        source.push([{"k": 1, "x": 1}])
        pond.drain()
    assert reader.epoch == pond.epoch
    assert reader.read("n").to_pylist() == [{"n": 8}]


def test_a_reader_finds_the_head_from_a_savepoint(open_pond: Any) -> None:
    """A named epoch outlives the ones after it: no manifest follows it, and yet it is not the newest."""
    pond = open_pond(retain_epochs=2, collect_every=1)
    source = MemorySource(KX)
    pond.stream("s", source).aggregate(n="count(*)").view("n")
    source.push([{"k": 1, "x": 1}])
    pond.drain()
    reader = open_pond()
    named = reader.epoch  # looked at, but not held
    pond.savepoint("here")
    for _ in range(6):
        source.push([{"k": 1, "x": 1}])
        pond.drain()
    assert reader.epoch == pond.epoch > named
    assert reader.read("n", epoch="here").to_pylist() == [{"n": 1}]


def test_distinct_values_of_the_key_itself(open_pond: Any) -> None:
    pond = open_pond()
    source = MemorySource(KX)
    stream = pond.stream("s", source)
    stream.key_by("k").aggregate(d="count(distinct k)", lo="min(k)").view("by_key")
    stream.key_by("k").aggregate(buckets=3, lo="min(distinct k)").view("spread")
    source.push([{"k": 1, "x": 1}, {"k": 1, "x": 2}, {"k": None, "x": 3}])
    pond.drain()
    found = {row["k"]: (row["d"], row["lo"]) for row in pond.read("by_key").to_pylist()}
    assert found == {1: (1, 1), None: (0, None)}
    assert {row["k"]: row["lo"] for row in pond.read("spread").to_pylist()} == {1: 1, None: None}


def test_a_window_does_not_close_before_its_end(open_pond: Any) -> None:
    """Windows of 10 s every 4 s end between multiples of 4."""
    pond = open_pond()
    source = MemorySource(EVENTS)
    windows = pond.stream("s", source, event_time="ts").hop("10s", "4s")
    windows.key_by("window_end").aggregate(on_close=True, n="count(*)").view("closed")
    for second in (0, 9, 9, 10, 13, 14):
        source.push([{"ts": second, "x": 1}])
        pond.drain()
        ends = [row["window_end"].second for row in pond.read("closed").to_pylist()]
        assert sorted(ends) == [end for end in (2, 6, 10, 14) if end <= second]
    assert {row["window_end"].second: row["n"] for row in pond.read("closed").to_pylist()}[10] == 3


def test_compacting_leaves_one_run_of_every_table(open_pond: Any) -> None:
    pond = open_pond(parallelism=4, compact=False)
    source = MemorySource(KX, append_only=False)
    stream = pond.stream("s", source)
    stream.key_by("k").aggregate(lo="min(x)", n="count(*)").view("lowest")
    stream.view("rows")
    for number in range(5):
        source.push([{"k": k, "x": number} for k in range(20)])
        pond.drain()
    source.push([{"k": k, "x": 0, "_w": -1} for k in range(20)])
    pond.drain()
    before = [sorted(map(str, pond.read(view).to_pylist())) for view in ("lowest", "rows")]
    pond.compact()
    head = pond.head()
    runs = Counter(r.table for r in live_runs(head.pages, head.recent, head.gone, PageCache(pond.store)))
    assert runs and set(runs.values()) == {1}
    assert [sorted(map(str, pond.read(view).to_pylist())) for view in ("lowest", "rows")] == before


def test_rows_behind_an_exchange_lie_on_words(open_pond: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Arrow warns of rows that do not, on everybody's screen."""
    pond = open_pond(parallelism=3)
    source = MemorySource(KX, append_only=False)
    pond.stream("s", source).distinct("k").view("keys")
    source.push([{"k": k, "x": 0} for k in range(20)])
    pond.drain()
    assert pond.read("keys").num_rows == 20
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "text", ["min(x, 2)", "count(distinct *)", "count(distinct k, x)", "sum(*)", "mode(x)", "x"]
)
def test_aggregates_that_would_be_misread_are_refused(open_pond: Any, text: str) -> None:
    stream = open_pond().stream("s", MemorySource(KX))
    with pytest.raises(InvalidError):
        stream.key_by("k").aggregate(a=text)

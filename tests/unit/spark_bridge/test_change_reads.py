"""Streaming reads of views by Spark's data source: batches, restarts, modes, rollbacks, collected epochs."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import millpond
from millpond.errors import InvalidError
from tests.unit.spark_bridge.data_source_calls import loaded, read_partitions


class Query:
    """Drives a stream reader as a streaming query does; `offset` is its checkpoint."""

    def __init__(self, path: Path, **options: Any) -> None:
        made, self.schema = loaded(path, **options)
        self.reader = made.streamReader(self.schema)
        self.offset: dict[str, Any] | None = None

    def plan(self) -> tuple[dict[str, Any], dict[str, Any]]:
        start = self.offset = self.offset or self.reader.initialOffset()
        return start, self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        partitions = [pickle.loads(pickle.dumps(p)) for p in self.reader.partitions(start, end)]
        return read_partitions(self.reader, partitions)

    def batch(self) -> list[dict[str, Any]]:
        start, end = self.plan()
        found = self.rows(start, end).to_pylist()
        assert self.rows(start, end).to_pylist() == found, "a batch that runs again has the same rows"
        self.reader.commit(end)
        self.offset = end
        return found


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        rows = pond.table("t", {"k": int, "n": int}, key="k")
        rows.key_by("n").aggregate(rows="count(*)").view("counts")
        pond.table("log", {"s": str})
        pond.insert("t", [{"k": 1, "n": 10}, {"k": 2, "n": 10}])
        pond.insert("log", [{"s": "a"}, {"s": "a"}])
        pond.drain()
        yield pond


def put(pond: millpond.Pond, k: int, n: int) -> int:
    pond.insert("t", {"k": k, "n": n})
    return pond.drain()


def place(pond: millpond.Pond) -> Path:
    return Path(pond.store.uri.removeprefix("file://"))


def test_a_changelog_adds_up_to_the_view(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="counts", mode="changelog", partitions=3)
    seen: Counter[tuple[int, int]] = Counter()
    epochs = set()
    for k, n in [(0, 0), (3, 10), (1, 20), (3, 20), (4, 30)]:
        if k:
            put(pond, k, n)
        for row in query.batch():
            seen[row["n"], row["rows"]] += row["_w"]
            epochs.add(row["_epoch"])
        wanted = {(row["n"], row["rows"]): 1 for row in pond.read("counts").to_pylist()}
        assert {key: weight for key, weight in seen.items() if weight} == wanted
    assert epochs == {1, 2, 3, 4, 5}
    assert query.batch() == []


def test_many_epochs_in_one_batch_and_a_limit(pond: millpond.Pond) -> None:
    one = Query(place(pond), view="t", mode="changelog", startingEpoch="latest")
    few = Query(place(pond), view="t", mode="changelog", startingEpoch="latest", maxEpochsPerTrigger=2)
    assert one.batch() == few.batch() == []
    for k in range(10, 15):
        put(pond, k, k)
    found = one.batch()
    assert sorted((row["_epoch"], row["k"]) for row in found) == [(e, e + 8) for e in range(2, 7)]
    assert [len(few.batch()) for _ in range(4)] == [2, 2, 1, 0]
    start = few.offset = few.reader.initialOffset()
    assert few.reader.latestOffset({**start, "epoch": 1}, ReadAllAvailable())["epoch"] == 6


def test_starting_positions(pond: millpond.Pond) -> None:
    put(pond, 3, 30)
    put(pond, 4, 40)
    snapshot = Query(place(pond), view="t").batch()
    assert sorted(row["k"] for row in snapshot) == [1, 2, 3, 4]
    assert [row["k"] for row in Query(place(pond), view="t", startingEpoch=3).batch()] == [4]
    everything = Query(place(pond), view="t", startingEpoch=0, mode="changelog").batch()
    assert sorted(row["k"] for row in everything) == [1, 2, 3, 4]
    with pytest.raises(InvalidError, match="cannot start at epoch '9'"):
        Query(place(pond), view="t", startingEpoch=9).batch()


def test_upserts_have_one_row_per_key(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="t", mode="upsert")
    first = query.batch()
    assert sorted((r["k"], r["n"], r["_op"], r["_epoch"]) for r in first) == [
        (1, 10, "upsert", 1),
        (2, 10, "upsert", 1),
    ]
    for n in (11, 12, 13):
        put(pond, 1, n)
    put(pond, 3, 30)
    pond.delete("t", [{"k": 3, "n": 30}, {"k": 2, "n": 10}])
    last = pond.drain()
    found = query.batch()
    assert sorted((r["k"], r["n"], r["_op"], r["_epoch"]) for r in found) == [
        (1, 13, "upsert", last),
        (2, 10, "delete", last),
    ]
    with pytest.raises(InvalidError, match="has no key"):
        Query(place(pond), view="log", mode="upsert").batch()


def test_append_refuses_retractions(pond: millpond.Pond) -> None:
    log = Query(place(pond), view="log")
    assert log.batch() == [{"s": "a"}, {"s": "a"}]
    pond.insert("log", [{"s": "b"}, {"s": "b"}])
    pond.drain()
    assert log.batch() == [{"s": "b"}, {"s": "b"}]
    counts = Query(place(pond), view="counts")
    assert counts.batch() == [{"n": 10, "rows": 2}]
    put(pond, 1, 20)
    with pytest.raises(InvalidError, match="retracts rows"):
        counts.batch()


def test_a_rollback_is_seen_as_further_changes(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="t", mode="changelog")
    query.batch()
    put(pond, 1, 99)
    put(pond, 7, 70)
    query.batch()
    pond.rollback(1)
    found = sorted((row["k"], row["n"], row["_w"]) for row in query.batch())
    assert found == [(1, 10, 1), (1, 99, -1), (7, 70, -1)]


def test_available_now_ends(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="t", mode="changelog", startingEpoch=0)
    query.reader.prepareForTriggerAvailableNow()
    put(pond, 8, 80)
    assert sorted(row["k"] for row in query.batch()) == [1, 2]
    assert query.batch() == []


def test_a_restarted_query_continues_from_its_checkpoint(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="t", mode="changelog")
    query.batch()
    put(pond, 3, 30)
    start, end = query.plan()
    put(pond, 4, 40)
    again = Query(place(pond), view="t", mode="changelog")  # the planned batch was not committed
    again.offset = start
    assert [row["k"] for row in again.rows(start, end).to_pylist()] == [3]
    again.offset = end
    assert [row["k"] for row in again.batch()] == [4]


def pins(pond: millpond.Pond) -> int:
    return len([name for name in pond.store.list("pins/")])


def test_the_epochs_of_a_batch_are_pinned_until_it_is_committed(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="t", mode="changelog", startingEpoch="latest")
    query.batch()
    before = pins(pond)
    put(pond, 3, 30)
    start, end = query.plan()
    query.reader.partitions(start, end)
    assert pins(pond) == before + 1
    query.reader.commit(end)
    assert pins(pond) == before
    query.reader.partitions(start, end)
    query.reader.stop()
    assert pins(pond) == before


def test_epochs_that_were_collected(tmp_path: Path) -> None:
    path = tmp_path / "pond"
    with millpond.open(path, engine="inline", retain_epochs=2, collect_every=1) as pond:
        pond.table("t", {"k": int, "n": int}, key="k")
        put(pond, 1, 1)
        query = Query(path, view="t", mode="changelog", pinMs=1)
        query.batch()
        for k in range(8):
            put(pond, k, k)
        with pytest.raises(InvalidError, match=r"epoch 1 is no longer kept"):
            query.batch()


def test_a_checkpoint_of_another_pond(pond: millpond.Pond, tmp_path: Path) -> None:
    query = Query(place(pond), view="t")
    query.batch()
    with millpond.open(tmp_path / "other", engine="inline") as other:
        other.table("t", {"k": int, "n": int}, key="k")
        put(other, 1, 1)
    second = Query(tmp_path / "other", view="t")
    second.offset = query.offset
    with pytest.raises(InvalidError, match="checkpoint of this query is of another pond"):
        second.batch()


def test_a_view_that_lost_a_column(pond: millpond.Pond) -> None:
    query = Query(place(pond), view="counts", mode="changelog")
    query.batch()
    pond.drop_view("counts")
    with pond.changing():
        pond.stream_of("t").key_by("n").aggregate(many="count(*)").view("counts")
    with pytest.raises(InvalidError, match="no column 'rows' any more"):
        query.batch()


def test_modes(pond: millpond.Pond) -> None:
    with pytest.raises(InvalidError, match="no mode named 'upserts'"):
        Query(place(pond), view="t", mode="upserts")
    with pytest.raises(InvalidError, match="'epoch' does not apply to readStream"):
        Query(place(pond), view="t", epoch=1)

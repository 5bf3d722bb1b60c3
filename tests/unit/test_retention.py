"""Error rows and late rows do not grow for ever: they are kept for a time and up to a number, and can be cleared."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.state.manifest.listing import Listing
from millpond.state.retention import BUCKETS, Retention

TIMED = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
START = datetime(2026, 1, 1)
DAY_US = 86_400_000_000


def opened(path: Path | str, clock: ManualClock, **options: Any) -> Pond:
    return millpond.open(path, engine="inline", clock=clock, durable=False, checks=True, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(int(START.timestamp() * 1e6))


@pytest.fixture
def pond(clock: ManualClock) -> Iterator[Pond]:
    with opened("memory://", clock, error_rows_max=20, late_rows_max=20) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
        made.sql("CREATE MATERIALIZED VIEW v AS SELECT id, s::int AS n FROM t")
        made.sql("CREATE TABLE u (id int PRIMARY KEY, s text)")
        made.sql("CREATE MATERIALIZED VIEW w AS SELECT id, s::int AS n FROM u")
        yield made


def failed(pond: Pond, view: str | None = None) -> list[str]:
    return sorted(pond.errors(view).column("row").to_pylist())


def buckets(pond: Pond, table: str) -> set[int | None]:
    return {r.bucket for r in Listing.of(pond.head(), pond._worker.pages).runs(table)}


def put(pond: Pond, number: int, text: str = "x", table: str = "t") -> None:
    pond.insert(table, [{"id": number, "s": text}])
    pond.drain()


# -- what is kept -------------------------------------------------------------------------------


def test_error_rows_are_kept_up_to_a_number(pond: Pond) -> None:
    for number in range(100):
        put(pond, number)
    kept = failed(pond)
    assert 15 <= len(kept) <= 20
    assert any("99" in row for row in kept) and not any('"10"' in row for row in kept)
    assert pond.head().counts["errors/v.select"] == 100, "the total stays"
    assert len(buckets(pond, "_errors")) <= BUCKETS + 5


def test_error_rows_are_kept_for_a_time(clock: ManualClock) -> None:
    with opened("memory://", clock, error_keep_ms=16_000) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, s::int AS n FROM t")
        for number in range(40):
            put(pond, number)
            clock.advance(1_000_000)
        assert 15 <= len(failed(pond)) <= 18
        assert len(buckets(pond, "_errors")) <= BUCKETS + 2
        clock.advance(60_000_000)
        put(pond, 100, "7")
        assert failed(pond) == [], "time passes for rows that are alone, too"
        assert pond.head().counts["errors/v.select"] == 40


def test_late_rows_are_kept_up_to_a_number_and_for_a_time(clock: ManualClock) -> None:
    source = MemorySource(TIMED)
    with opened("memory://", clock, late_rows_max=20, late_keep_ms=16_000) as pond:
        pond.stream("s", source, event_time="ts", delay="1s").view("v")
        source.push([{"k": 0, "ts": START + timedelta(hours=1)}])
        for number in range(60):
            source.push([{"k": 2 * number + n, "ts": START} for n in range(2)])
            pond.drain()
        assert 16 <= pond.late("s.watermark").num_rows <= 20
        assert pond.head().counts["late/s.watermark"] == 118, "the first two came with the hour"
        clock.advance(20_000_000)
        source.push([{"k": 0, "ts": START + timedelta(hours=2)}])
        pond.drain()
        assert pond.late("s.watermark").num_rows == 0
        assert pond.read("v").num_rows == 4


def test_buckets_stay_few_whatever_comes() -> None:
    keep = Retention(rows_max=1000, age_us=DAY_US)
    held: dict[int | None, int] = {None: 400}
    now = 0
    for epoch in range(5000):
        now += (epoch % 7) * 60_000_000
        bucket = keep.open_bucket(held, now)
        assert bucket == max(b for b in {*held, bucket} if b is not None), "never an older one"
        held[bucket] = held.get(bucket, 0) + epoch % 5
        for over in keep.expired(held, now):
            del held[over]
        assert len(held) <= 2 * BUCKETS + 3
        assert sum(held.values()) <= 1000
    assert None not in held


# -- rows that are taken back ----------------------------------------------------------------------


def test_a_dropped_error_row_can_be_taken_back_and_come_again(pond: Pond) -> None:
    """Retention, then the retraction, then the same bad row once more: it is there, once."""
    put(pond, 1)
    row = failed(pond)[0]
    for number in range(100, 150):
        put(pond, number)
    assert row not in failed(pond)
    pond.delete("t", [{"id": 1}])
    pond.drain()
    pond.compact()
    assert row not in failed(pond)
    put(pond, 1)
    assert failed(pond).count(row) == 1
    pond.delete("t", [{"id": 1}])
    pond.drain()
    assert row not in failed(pond)


def test_error_rows_of_earlier_buckets_are_taken_back(pond: Pond, clock: ManualClock) -> None:
    for number in range(12):
        put(pond, number)
        clock.advance(DAY_US)
    assert len(buckets(pond, "_errors")) > 4
    pond.sql("DELETE FROM t WHERE id < 10; FLUSH")
    assert len(failed(pond)) == 2
    put(pond, 11, "5")
    assert len(failed(pond)) == 1
    pond.compact()
    assert len(failed(pond)) == 1
    put(pond, 10, "5")
    assert failed(pond) == []
    pond.compact()
    listing = Listing.of(pond.head(), pond._worker.pages)
    assert sum(r.rows for r in listing.runs("_errors")) == 0, "no debt is left in any bucket"


def test_many_error_rows_are_taken_back_at_once(pond: Pond, clock: ManualClock) -> None:
    with opened("memory://", clock) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, s::int AS n FROM t")
        for start in range(0, 300, 100):
            pond.insert("t", [{"id": start + n, "s": "x"} for n in range(100)])
            pond.drain()
            clock.advance(3 * DAY_US)
        assert len(failed(pond)) == 300 and len(buckets(pond, "_errors")) == 3
        pond.sql("UPDATE t SET s = '1' WHERE id % 2 = 0; FLUSH")
        assert len(failed(pond)) == 150
        pond.sql("DELETE FROM t; FLUSH")
        assert failed(pond) == []


# -- clearing --------------------------------------------------------------------------------------


def test_clear_errors(pond: Pond) -> None:
    put(pond, 1)
    put(pond, 2, table="u")
    pond.clear_errors("v")
    assert failed(pond, "v") == [] and len(failed(pond, "w")) == 1
    put(pond, 1, "3")  # takes back what is not there any more
    put(pond, 3)
    assert len(failed(pond, "v")) == 1
    pond.clear_errors()
    assert failed(pond) == []
    assert pond.head().counts["errors/v.select"] >= 2
    pond.sql("DELETE FROM t; DELETE FROM u; FLUSH")
    assert failed(pond) == []
    put(pond, 2, table="u")
    assert len(failed(pond)) == 1
    with pytest.raises(InvalidError, match="no view named 'x'") as caught:
        pond.clear_errors("x")
    assert "views are" in (caught.value.detail or "")


def test_clear_late(clock: ManualClock) -> None:
    sources = [MemorySource(TIMED), MemorySource(TIMED)]
    with opened("memory://", clock) as pond:
        for name, source in zip("ab", sources, strict=True):
            pond.stream(name, source, event_time="ts", delay="1s").view(name)
            source.push([{"k": 0, "ts": START + timedelta(hours=1)}])
        pond.drain()
        for source in sources:
            source.push([{"k": 1, "ts": START}] * 3)
        pond.drain()
        assert pond.late("a.watermark").num_rows == 3
        pond.clear_late("a.watermark")
        assert (pond.late("a.watermark").num_rows, pond.late("b.watermark").num_rows) == (0, 3)
        pond.clear_late()
        assert pond.late("b.watermark").num_rows == 0
        assert pond.head().counts["late/a.watermark"] == 3
        with pytest.raises(InvalidError, match="step 'a' keeps no late rows"):
            pond.clear_late("a")


def test_clearing_works_from_another_process_and_while_it_runs(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "pond", clock) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, s::int AS n FROM t")
        put(pond, 1)
        with opened(tmp_path / "pond", clock) as other:
            other.clear_errors("v")
            assert len(failed(other)) == 1, "whoever runs it does it"
        pond.drain()
        assert failed(pond) == []
        put(pond, 2)
        pond.start()
        pond.clear_errors()
        assert failed(pond) == []
        pond.stop()


def test_a_command_that_cannot_be_done_is_refused_and_the_pond_goes_on(pond: Pond) -> None:
    for kind, args in (
        ("clear_errors", {"view": "nothing"}),
        ("clear_errors", {"view": 7}),
        ("clear_late", {"step": "nothing"}),
    ):
        pond._inbox.append(kind, args)
        pond.drain()
        assert "refused" in pond.head().metrics["refused"]
    put(pond, 1, "1")
    assert pond.read("v").num_rows == 1


def test_clearing_is_in_the_history(pond: Pond) -> None:
    put(pond, 1)
    before = pond.epoch
    pond.clear_errors()
    assert pond.errors(epoch=before).num_rows == 1
    pond.rollback(before)
    assert pond.errors().num_rows == 1


def test_a_new_view_leaves_out_rows_that_were_late_also_when_these_were_cleared(clock: ManualClock) -> None:
    with opened("memory://", clock, late_rows_max=16) as pond:
        pond.sql(
            "CREATE TABLE c (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '1 second') APPEND ONLY"
        )
        query = "SELECT window_end, count(*) AS n FROM TUMBLE(c, ts, INTERVAL '1 minute') GROUP BY window_end"
        pond.sql(f"CREATE MATERIALIZED VIEW a AS {query}")
        pond.sql("INSERT INTO c VALUES (1, '2026-01-01 00:00'), (1, '2026-01-02 00:00'); FLUSH")
        for _ in range(20):
            pond.sql("INSERT INTO c VALUES (1, '2026-01-01 00:00'); FLUSH")
        assert pond.late("c.watermark").num_rows <= 16
        for name in "bde":
            pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {query} HAVING count(*) > 0")
            assert sorted(pond.read(name).to_pylist(), key=str) == sorted(pond.read("a").to_pylist(), key=str)
            pond.clear_late()
            assert pond.late("c.watermark").num_rows == 0
            pond.sql("INSERT INTO c VALUES (1, '2026-01-01 00:00'); FLUSH")
            assert pond.late("c.watermark").num_rows == 1, "the next late row is seen"
        assert {i.rows for i in pond.states() if (i.step, i.state) == ("c.watermark", "late")} == {1}
        assert pond.head().counts["late/c.watermark"] == 23


def test_a_new_view_over_a_source_is_refused_when_late_rows_of_it_were_dropped(clock: ManualClock) -> None:
    """The source can be read again, but nobody knows any more which of its rows were late."""
    source = MemorySource(TIMED)
    with opened("memory://", clock) as pond:
        stream = pond.stream("s", source, event_time="ts", delay="1s")
        stream.key_by("k").aggregate(n="count(*)").view("v")
        source.push([{"k": 0, "ts": START + timedelta(hours=1)}])
        pond.drain()
        source.push([{"k": 0, "ts": START}])
        pond.drain()
        with pond.changing():
            stream.key_by("k").aggregate(m="count(*)", last="max(ts)").view("w")
        assert pond.read("w").column("m").to_pylist() == [1]
        pond.clear_late()
        assert pond.late("s.watermark").num_rows == 0
        with pytest.raises(InvalidError) as caught, pond.changing():
            stream.key_by("k").aggregate(m="min(ts)").view("x")
        assert "its late rows are no longer kept" in str(caught.value)
        assert pond.views() == ["v", "w"]


def test_a_replay_of_an_epoch_that_took_error_rows_back_is_equal(pond: Pond, clock: ManualClock) -> None:
    put(pond, 1)
    clock.advance(10 * DAY_US)
    put(pond, 2)
    pond.sql("DELETE FROM t; FLUSH")
    assert pond.replay(pond.epoch).same

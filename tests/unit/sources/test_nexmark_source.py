"""Nexmark as a source: ranges of event numbers, replayed at will, due by the clock when live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import DataError, InvalidError
from millpond.plan import codec
from millpond.sources.nexmark import SPLITS_PER_POLL, NexmarkSource
from millpond.sources.nexmark_events import SCHEMAS, NexmarkConfig, generate


def drain(source: NexmarkSource, max_rows: int, position: Any = None) -> tuple[pa.Table, Any]:
    """All that the source gives, by poll, read and advance; and where that ended."""
    tables: list[pa.Table] = []
    while splits := source.poll(position, None, max_rows).splits:
        for split in splits:
            tables += source.read(split, source.schema.names)
        position = json.loads(json.dumps(source.advance(position, splits, ()).position))
    return pa.concat_tables(tables), position


@pytest.mark.parametrize("kind", ["person", "auction", "bid"])
@pytest.mark.parametrize("max_rows", [1, 37, 10_000])
def test_the_splits_of_all_polls_are_the_events(kind: Any, max_rows: int) -> None:
    source = NexmarkSource(kind, events=997)
    rows, position = drain(source, max_rows)
    assert rows.equals(generate(kind, 0, 997, NexmarkConfig()).combine_chunks())
    assert position == {"next": 997}


@pytest.mark.parametrize("kind", ["person", "auction", "bid"])
def test_rows_and_backlog_are_exact_when_events_come_in_order(kind: Any) -> None:
    source = NexmarkSource(kind, events=12_345)
    poll = source.poll({"next": 1_111}, None, 100)
    assert len(poll.splits) == SPLITS_PER_POLL
    for split in poll.splits:
        assert sum(t.num_rows for t in source.read(split, ["date_time"])) == split.rows
    offered = sum(s.rows for s in poll.splits)
    assert 95 <= offered <= 105
    assert poll.backlog_rows == generate(kind, 1_111, 12_345, NexmarkConfig()).num_rows - offered


def test_a_source_without_an_end_never_runs_dry() -> None:
    source = NexmarkSource("bid")
    poll = source.poll({"next": 10**12}, None, 1000)
    assert 990 <= sum(s.rows for s in poll.splits) <= 1010
    assert poll.backlog_rows is None


def test_columns_are_made_as_asked_for() -> None:
    source = NexmarkSource("auction", events=500)
    splits = source.poll(None, None, 1000).splits
    assert [t.column_names for s in splits for t in source.read(s, ["seller", "id"])] == [
        ["seller", "id"]
    ] * 8
    assert sum(t.num_rows for s in splits for t in source.read(s, [])) == 30


def test_a_live_source_gives_what_is_due_since_its_start() -> None:
    clock = ManualClock(1_000_000_000)
    source = NexmarkSource("bid", events_per_second_live=1000, clock=clock)
    first = source.poll(None, None, 10**6)
    assert [s.what for s in first.splits] == [{"first": 0, "last": 1, "start_us": 1_000_000_000}]
    position = source.advance(None, first.splits, ()).position
    assert source.poll(position, None, 10**6).splits == ()
    clock.advance(500_000)
    due = source.poll(position, None, 10**6)
    assert (due.splits[0].what["first"], due.splits[-1].what["last"]) == (1, 501)
    position = source.advance(position, due.splits, ()).position
    assert position == {"next": 501, "start_us": 1_000_000_000}
    clock.advance(60_000_000)  # as after a night in which nobody ran the pond
    late = NexmarkSource("bid", events_per_second_live=1000, clock=clock).poll(position, None, 920)
    assert late.splits[-1].what["last"] == 501 + 1000
    assert late.backlog_rows == 60_000 * 46 // 50 - 920


def test_a_live_source_ends_where_it_is_told_and_reading_needs_no_clock() -> None:
    clock = ManualClock(0)
    source = NexmarkSource("bid", events=100, events_per_second_live=1000, clock=clock)
    position = source.advance(None, source.poll(None, None, 10).splits, ()).position
    clock.advance(10_000_000)
    rows, position = drain(source, 10**6, position)
    assert (rows.num_rows, position["next"]) == (92, 100)
    before = rows
    clock.advance(10_000_000)
    assert drain(source, 10**6, {"next": 0, "start_us": 0})[0].equals(before)


@pytest.mark.parametrize("position", [5, "x", {"files": 1, "partial": None}])
def test_a_position_of_another_source_is_refused(position: Any) -> None:
    with pytest.raises(DataError, match="position is not one of a nexmark source"):
        NexmarkSource("bid").poll(position, None, 10)


@pytest.mark.parametrize("wrong", [{"kind": "bids"}, {"events": 0}, {"events_per_second_live": -1}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        NexmarkSource(**wrong)


def test_the_three_kinds_in_a_pipeline_across_a_restart(tmp_path: Path) -> None:
    config = NexmarkConfig(seed=3, out_of_order=40)

    class Stop(Exception):
        pass

    def run(stop_at: int | None) -> list[dict[str, Any]]:
        def on_epoch(manifest: Any) -> None:
            if manifest.epoch == stop_at:
                raise Stop

        with millpond.open(
            tmp_path, engine="inline", durable=False, epoch_rows_max=500, on_epoch=on_epoch, parallelism=2
        ) as pond:
            bids = pond.stream("bids", NexmarkSource("bid", 5000, config))
            people = pond.stream("people", NexmarkSource("person", 5000, config))
            bids.join(people, [("bidder", "id")]).key_by("state").aggregate(n="count(*)").view("by_state")
            assert pond.plan.nodes["bids"].binding.shape.schema == SCHEMAS["bid"]
            pond.drain()
            return sorted(pond.read("by_state").to_pylist(), key=lambda r: r["state"])

    with pytest.raises(Stop):
        run(stop_at=4)
    found = run(stop_at=None)
    bids = generate("bid", 0, 5000, config, ["bidder"])
    people = generate("person", 0, 5000, config, ["id", "state"])
    joined = bids.join(people, "bidder", "id", "inner").group_by("state").aggregate([([], "count_all")])
    assert found == sorted(
        ({"state": r["state"], "n": r["count_all"]} for r in joined.to_pylist()), key=lambda r: r["state"]
    )


def test_a_source_survives_the_catalog() -> None:
    source = NexmarkSource("person", 10, NexmarkConfig(seed=9), events_per_second_live=5)
    assert codec.loads(codec.dumps(source)) == source

"""Histories written by hand, for what random ones seldom come to; the model looks at every epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.sources.memory import EventTimeBound
from tests.oracle.process_model import EPOCH, SECOND, START, US, Collections, Living, Timed
from tests.oracle.process_world import World

FIRST_US = (START - EPOCH) // US


@pytest.mark.parametrize("near", [1, 2, 32])
@pytest.mark.parametrize("page", [2, 3, 4096])
def test_long_lists_in_pages(tmp_path: Path, near: int, page: int) -> None:
    with World(tmp_path / "pond", Collections, near=near, page=page) as world:
        for count in (5, 4, 40):
            world.push([(0, 0.0, [["l", "extend", count, count]])])
            world.drain()
        for verb in (
            ["all"],
            ["last", 45],
            ["at", 3],
            ["at", -44],
            ["keep", 30],
            ["all"],
            ["clear"],
            ["all"],
        ):
            world.push([(0, 0.0, [["l", *verb], ["l", "len"], ["l", "append", 1]])])
            world.drain()
        world.push([(0, 0.0, [["l", "all"], ["l", "keep", 1], ["l", "all"]])])
        world.drain()


@pytest.mark.parametrize("near", [1, 32])
def test_entries_beyond_those_fetched(tmp_path: Path, near: int) -> None:
    with World(tmp_path / "pond", Collections, near=near) as world:
        world.push([(0, 0.0, [["m", "fill", 40]])])
        world.drain()
        for program in (
            [["m", "remove", "e037"]],
            [["m", "get", "e037"], ["m", "get", "e036"], ["m", "in", "e038"]],
            [["m", "put", "e039", 7], ["m", "remove", "e036"], ["m", "items"], ["m", "len"]],
            [["m", "remove", "e035"], ["ctx", "fail"]],
            [["m", "get", "e035"], ["m", "put", "e035", 1], ["m", "remove", "e035"], ["m", "keys"]],
            [["m", "clear"], ["m", "put", "e039", 1]],
            [["m", "items"]],
        ):
            world.push([(0, 0.0, program)])
            world.drain()


@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("distance", [0.0304, 0.5, 3.7, 41.0, 250.0, 1003.5, 20_001.25, 2_000_000.0])
def test_a_timer_of_any_distance_fires_in_its_time_and_not_before(
    tmp_path: Path, clock: str, distance: float
) -> None:
    """Time comes nearer in ever smaller steps; the timer moves from wide buckets to narrow ones."""
    with World(tmp_path / "pond", Timed, parallelism=2) as world:
        program = [["ctx", "at", "plain", clock, distance], ["ctx", "at", "count", clock, distance * 2]]
        world.push([(key, 0.0, program) for key in (0, 1, 2)])
        world.drain()
        begin = world.clock.at_us
        for share in (0.4, 0.9, 0.99, 0.999, 0.9999):
            at = int(distance * share * SECOND)
            world.clock.at_us = begin + at
            world.source.push(EventTimeBound(FIRST_US + at))
            if share == 0.9:
                world.push([(2, distance * 0.95, [["ctx", "delete", "plain", clock]])])
            world.drain()
            assert not any(row["id"] == -1 for row in world.pond.read("out").to_pylist())
        world.clock.at_us = begin + int(distance * SECOND) + 1000
        world.source.push(EventTimeBound(FIRST_US + int(distance * SECOND)))
        world.drain()
        assert sum(row["id"] == -1 for row in world.pond.read("out").to_pylist()) == 2
        assert len(world.pond.state_rows("plays", "timers")) == 3


def test_no_event_timer_fires_because_the_clock_moves(tmp_path: Path) -> None:
    with World(tmp_path / "pond", Timed) as world:
        world.push([(0, 0.0, [["ctx", "after", "plain", "event", 1.0]])])
        world.drain()
        before = world.pond.epoch
        world.clock.advance(3600 * SECOND)
        world.drain()
        assert world.pond.epoch == before, "there is nothing to do"
        world.source.push(EventTimeBound(FIRST_US + SECOND))
        world.drain()
        assert world.pond.state_rows("plays", "timers") == []


@pytest.mark.parametrize(
    ("begin", "look"),
    [
        (["er", "set", 1], ["er", "get"]),
        (["pr", "set", 1], ["pr", "get"]),
        (["mr", "put", "x", 1], ["mr", "get", "x"]),
        (["mr", "put", "x", 1], ["mr", "in", "x"]),
        (["mr", "fill", 40], ["mr", "items"]),
        (["mp", "put", "x", 1], ["mp", "len"]),
        (["e", "set", 1], ["e", "get"]),
        (["me", "put", "x", 1], ["me", "get", "x"]),
        (["le", "append", 1], ["le", "all"]),
        (["lp", "append", 1], ["lp", "all"]),
    ],
    ids=lambda op: " ".join(map(str, op)),
)
def test_reading_renews_what_says_so(tmp_path: Path, begin: list[object], look: list[object]) -> None:
    with World(tmp_path / "pond", Living) as world:
        world.push([(0, 0.0, [begin])])
        world.drain()
        for seconds in (3.0, 3.0, 3.9, 4.0, 1.0):
            world.clock.advance(int(seconds * SECOND))
            world.push([(0, seconds, [look])])
            world.drain()

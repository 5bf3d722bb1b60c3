"""Admission: bounded epochs, in order, fair between sources, and steered by what was measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.control.admission import FIRST_ROWS, Bounds, Pace, admit, budget_rows, spread
from millpond.sources.source import Split

splits = st.lists(st.builds(Split, st.just({}), st.integers(0, 50), st.integers(0, 400)), max_size=8)
offers = st.dictionaries(st.sampled_from("abcd"), splits, max_size=4)


def split(rows: int, size: int | None = None) -> Split:
    return Split({"rows": rows}, rows, 8 * rows if size is None else size)


@settings(max_examples=100, deadline=None)
@given(offers, st.integers(1, 100), st.integers(1, 800))
def test_what_is_admitted_is_a_prefix_within_the_budget(
    offered: dict[str, list[Split]], rows: int, size: int
) -> None:
    taken = admit(offered, rows, size)
    assert set(taken) == {step for step, found in offered.items() if found}, "nobody starves"
    for step, found in taken.items():
        assert found == offered[step][: len(found)], "order within a source is kept"
    more = [s for found in taken.values() for s in found[1:]]
    firsts = [found[0] for found in taken.values()]
    assert not more or sum(s.rows for s in more) <= max(0, rows - min(s.rows for s in firsts))
    assert not more or sum(s.bytes for s in more) <= max(0, size - min(s.bytes for s in firsts))


def test_one_split_is_taken_however_large_it_is() -> None:
    assert admit({"a": [split(10**9), split(1)]}, 10, 100) == {"a": [split(10**9)]}
    assert admit({}, 10, 100) == {}
    assert admit({"a": []}, 10, 100) == {}


def test_splits_that_belong_together_are_taken_together() -> None:
    pair = [replace(split(3), with_next=True), split(4)]
    assert admit({"a": pair * 3}, 1, 1 << 20) == {"a": pair}, "the first is taken however large it is"
    assert admit({"a": pair * 3}, 13, 1 << 20) == {"a": pair}
    assert admit({"a": pair * 3}, 14, 1 << 20) == {"a": pair * 2}
    assert admit({"a": [*pair, pair[0]]}, 20, 1 << 20) == {"a": [*pair, pair[0]]}, (
        "the last has nothing to wait for"
    )


def test_bytes_bound_as_rows_do() -> None:
    offered = {"a": [split(1, 60), split(1, 60), split(1, 60)]}
    assert len(admit(offered, 100, 130)["a"]) == 2


def test_sources_take_turns() -> None:
    taken = admit({"a": [split(1)] * 10, "b": [split(1)] * 10}, 10, 10**6)
    assert {step: len(found) for step, found in taken.items()} == {"a": 5, "b": 5}


@settings(max_examples=60, deadline=None)
@given(offers, st.integers(1, 6))
def test_every_split_is_dealt_once_and_always_the_same_way(
    offered: dict[str, list[Split]], tasks: int
) -> None:
    dealt = spread(offered, tasks)
    assert len(dealt) == tasks
    assert spread(dict(reversed(offered.items())), tasks) == dealt
    flat = sorted(((step, id(s)) for pile in dealt for step, _, s in pile), key=str)
    assert flat == sorted(((step, id(s)) for step, found in offered.items() for s in found), key=str)


@settings(max_examples=60, deadline=None)
@given(offers, st.integers(1, 6))
def test_a_split_has_one_number_however_many_tasks_there_are(
    offered: dict[str, list[Split]], tasks: int
) -> None:
    """Law 3: the numbers are the order of admission, source by source, each task's splits in that order."""
    in_order = [(step, s) for step in sorted(offered) for s in offered[step]]
    dealt = spread(offered, tasks)
    assert sorted(n for pile in dealt for _, n, _ in pile) == list(range(len(in_order)))
    assert all(in_order[n][0] == step and in_order[n][1] is s for pile in dealt for step, n, s in pile)
    assert all([n for _, n, _ in pile] == sorted(n for _, n, _ in pile) for pile in dealt)


def test_the_load_is_even() -> None:
    dealt = spread({"a": [split(n) for n in (8, 7, 6, 5, 4, 3, 2, 1)]}, 2)
    assert sorted(sum(s.rows for *_, s in pile) for pile in dealt) == [18, 18]


def test_the_first_epoch_knows_nothing() -> None:
    assert budget_rows(Bounds(), Pace(), 10**9) == FIRST_ROWS
    assert budget_rows(Bounds(rows_max=10), Pace(), 10**9) == 10


def test_the_budget_follows_the_speed_within_bounds() -> None:
    bounds = Bounds(rows_max=500_000)
    slow, fast = Pace(1.0, 100.0), Pace(10_000.0, 100.0)
    assert budget_rows(bounds, slow, 0) == bounds.rows_min, "never so few that nothing moves"
    assert budget_rows(bounds, fast, 0) == bounds.rows_max
    middle = Pace(100.0, 100.0)
    assert budget_rows(bounds, middle, 0) < budget_rows(bounds, middle, 10**9), "larger when far behind"


def test_an_overhead_beyond_the_target_leaves_a_small_budget_not_none() -> None:
    assert budget_rows(Bounds(), Pace(100.0, 60_000.0), 10**9) == Bounds().rows_min


def test_speed_is_learned_from_large_epochs_and_overhead_from_small_ones() -> None:
    pace = Pace()
    for _ in range(40):
        pace = pace.measured(10, 40.0)
    assert pace.rows_per_ms is None
    assert abs(pace.floor_ms - 40) < 1
    for _ in range(40):
        pace = pace.measured(100_000, 1040.0)
    assert pace.rows_per_ms is not None
    assert abs(pace.rows_per_ms - 100) < 1
    assert pace.measured(100_000, 0.0).rows_per_ms is not None, "a clock that stands still divides by nothing"


def test_one_slow_epoch_is_not_believed_at_once() -> None:
    steady = Pace(100.0, 0.0)
    slower = steady.measured(100_000, 10_000.0)
    assert slower.rows_per_ms is not None
    assert 50 < slower.rows_per_ms < 100

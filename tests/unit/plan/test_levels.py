"""Levels: one linear chain, exchanges only where rows do not lie right, one edge for all who want the same."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pyarrow as pa

import millpond.plan.levels as levels_module
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan.levels import Levels, cut
from millpond.plan.nodes import Plan
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("unused", pa.string())])


def made(build: Callable[[Callable[[str], Stream]], object]) -> tuple[Plan, Levels]:
    builder = Builder()

    def stream(name: str) -> Stream:
        return Stream(builder, builder.add(name, Scan(MemorySource(SCHEMA), SCHEMA, True), (), name))

    build(stream)
    return builder.plan, cut(builder.plan)


def test_linear_steps_cost_no_exchange() -> None:
    _, levels = made(lambda s: s("in").filter("v > 1", id="f").select("k", id="m").view("v"))
    assert levels.count == 1
    assert levels.edges == ()
    assert levels.steps[0] == ("in", "f", "m", "v.view")


def test_a_level_per_exchange_on_the_longest_path() -> None:
    def build(s: Callable[[str], Stream]) -> None:
        first = s("in").key_by("k").aggregate(id="a", n="count(*)")
        first.key_by("n").aggregate(id="b", m="count(*)").view("b")

    _, levels = made(build)
    assert levels.level_of == {"in": 0, "a": 1, "b": 2}
    assert [(e.producer, e.kind, e.key, e.from_level, e.to_level) for e in levels.edges] == [
        ("in", "hash", ("k",), 0, 1),
        ("a", "hash", ("n",), 1, 2),
    ]
    assert levels.edges[0].prepared_by == "a"


def test_rows_that_lie_by_the_key_are_not_moved() -> None:
    def build(s: Callable[[str], Stream]) -> None:
        first = s("in").key_by("k").aggregate(id="a", n="count(*)")
        first.key_by("k").top_n(1, "n", id="top").view("t")

    _, levels = made(build)
    assert levels.level_of["top"] == levels.level_of["a"] == 1
    assert [e.consumers for e in levels.edges] == [(("a", 0),)]


def test_an_edge_may_skip_a_level() -> None:
    """The join waits for the longer side; the shorter one sends past level 1."""

    def build(s: Callable[[str], Stream]) -> None:
        left = s("in").key_by("v").aggregate(id="a", n="count(*)")
        left.join(s("other"), [("n", "k")], id="j").view("j")

    _, levels = made(build)
    assert levels.level_of["j"] == 2
    spans = {(e.producer, e.from_level, e.to_level) for e in levels.edges}
    assert spans == {("in", 0, 1), ("a", 1, 2), ("other", 0, 2)}


def test_rows_that_stay_where_they_are_are_forwarded_to_a_later_level() -> None:
    def build(s: Callable[[str], Stream]) -> None:
        counted = s("in").key_by("k").aggregate(id="a", v="count(*)")
        counted.union(s("other").select("k", "v", id="m"), id="u").view("u")

    _, levels = made(build)
    assert levels.level_of["u"] == 1
    assert ("m", "forward") in {(e.producer, e.kind) for e in levels.edges}


def test_two_consumers_of_one_kind_share_an_edge() -> None:
    def build(s: Callable[[str], Stream]) -> None:
        rows = s("in").select("k", "v", id="m")
        rows.distinct(id="d").view("d")
        rows.key_by("k").apply(sql="SELECT k, max(v) AS v FROM input GROUP BY k", id="p").view("p")
        rows.key_by("k").apply(sql="SELECT k, min(v) AS v FROM input GROUP BY k", id="q").view("q")

    plan, levels = made(build)
    by_key = [e for e in levels.edges if e.key == ("k",)]
    assert [e.consumers for e in by_key if e.prepared_by is None] in ([(("p", 0), ("q", 0))], [])
    # Every consumer is served by exactly one edge, whatever was merged.
    served = [c for e in levels.edges for c in e.consumers]
    assert sorted(served) == sorted({("d", 0), ("p", 0), ("q", 0)})
    assert len({e.id for e in levels.edges}) == len(levels.edges)
    assert plan.views.keys() == {"d", "p", "q"}


def test_an_edge_carries_only_the_columns_that_are_needed() -> None:
    _, levels = made(lambda s: s("in").key_by("k").aggregate(id="a", s="sum(v)").view("a"))
    assert levels.columns["in"] == ("k", "v")
    assert levels.edges[0].columns == ("k", "v")


def test_a_plan_without_steps_has_one_empty_level() -> None:
    assert cut(Plan()).steps == ((),)


def test_the_examples_of_levels_hold() -> None:
    found = doctest.testmod(levels_module)
    assert found.attempted and not found.failed

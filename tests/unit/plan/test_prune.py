"""Which columns travel: those that some view needs, through every kind of step."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan.prune import needed_columns
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("x", pa.string())])


def needed_of_source(build: Callable[[Stream], object]) -> set[str]:
    builder = Builder()
    build(Stream(builder, builder.add("in", Scan(MemorySource(SCHEMA), SCHEMA, True), (), "in")))
    return set(needed_columns(builder.plan)["in"])


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda s: s.view("v"), {"k", "v", "w", "x"}),
        (lambda s: s.select("k").view("v"), {"k"}),
        (lambda s: s.select(y="v + 1").view("v"), {"v"}),
        (lambda s: s.filter("w > 1").select("k").view("v"), {"k", "w"}),
        (lambda s: s.key_by("k").aggregate(s="sum(v)").view("v"), {"k", "v"}),
        (lambda s: s.key_by("k").aggregate(s="sum(v) FILTER (WHERE w > 1)").view("v"), {"k", "v", "w"}),
        (lambda s: s.key_by("k").aggregate(s="count(DISTINCT x)").view("v"), {"k", "x"}),
        (lambda s: s.aggregate(n="count(*)").view("v"), set()),
        (lambda s: s.select("k").distinct().view("v"), {"k"}),
        (lambda s: s.map_batches(lambda t: t, SCHEMA).select("k").view("v"), {"k", "v", "w", "x"}),
        (lambda s: s.filter("v > 1"), {"v"}),
    ],
    ids=[
        "all", "select", "computed", "filter", "aggregate", "filtered aggregate", "distinct count", "count", "distinct",
        "user code", "no view",
    ],
)  # fmt: skip
def test_a_source_gives_what_views_need(build: Callable[[Stream], object], wanted: set[str]) -> None:
    assert needed_of_source(build) == wanted


def test_two_views_add_up() -> None:
    def build(stream: Stream) -> None:
        stream.select("k").view("a")
        stream.key_by("v").aggregate(n="count(*)").view("b")

    assert needed_of_source(build) == {"k", "v"}

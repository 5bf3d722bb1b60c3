"""Going on with another plan: only where every old step means the same and no new one would miss rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.bag import Bag
from millpond.operators.per_key import PerKey
from millpond.operators.scan import Scan
from millpond.plan.compatibility import check_compatible
from millpond.plan.nodes import Plan
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def made(build: Callable[[Stream], object], *, source: MemorySource | None = None) -> Plan:
    builder = Builder()
    found = source or MemorySource(SCHEMA)
    build(Stream(builder, builder.add("in", Scan(found, found.schema, True), (), "in")))
    return builder.plan


def counts(stream: Stream) -> None:
    stream.key_by("k").aggregate(id="by_k", n="count(*)").view("n")


def test_the_same_plan_goes_on() -> None:
    check_compatible(made(counts), made(counts), {"in"})


def test_a_step_that_left_is_refused() -> None:
    with pytest.raises(InvalidError, match="step 'by_k' is in the pond but not in this pipeline") as caught:
        check_compatible(made(counts), made(lambda s: s.view("v")), {"in"})
    assert "by_k" in (caught.value.detail or "")


@pytest.mark.parametrize(
    "changed",
    [
        lambda s: s.key_by("v").aggregate(id="by_k", n="count(*)").view("n"),
        lambda s: s.key_by("k").aggregate(id="by_k", n="sum(v)").view("n"),
        lambda s: s.filter("v > 0", id="f").key_by("k").aggregate(id="by_k", n="count(*)").view("n"),
    ],
    ids=["another key", "another aggregate", "another input"],
)
def test_a_step_that_means_something_else_is_refused(changed: Callable[[Stream], object]) -> None:
    with pytest.raises(InvalidError, match="step 'by_k' has another definition") as caught:
        check_compatible(made(counts), made(changed), {"in"})
    assert caught.value.step == "by_k"
    assert caught.value.hint


def test_how_a_step_computes_may_change() -> None:
    """A query per key was once run for many keys at a time, whatever was in it."""
    sql = "select k, row_number() over (order by v) as n from input"

    def built(alone: bool) -> Plan:
        return made(lambda s: s._then("p", PerKey(("k",), sql=sql, alone=alone), "apply").view("n"))

    check_compatible(built(False), built(True), {"in"})


def test_a_function_may_change_its_code() -> None:
    def first(table: pa.Table) -> pa.Table:
        return table

    def second(table: pa.Table) -> pa.Table:
        return table.slice(0)

    old = made(lambda s: s.map_batches(first, SCHEMA, id="m").view("v"))
    check_compatible(old, made(lambda s: s.map_batches(second, SCHEMA, id="m").view("v")), {"in"})


def also_sums(stream: Stream) -> None:
    counts(stream)
    stream.key_by("k").aggregate(id="sums", s="sum(v)").view("s")


def test_a_new_step_over_a_source_that_was_read_is_refused() -> None:
    with pytest.raises(InvalidError, match="step 'sums' is new, but source 'in' was already read"):
        check_compatible(made(counts), made(also_sums), {"in"})


def test_a_new_step_over_a_source_that_gave_nothing_yet_is_fine() -> None:
    check_compatible(made(counts), made(also_sums), set())


def test_a_new_name_for_a_step_that_is_kept_is_fine() -> None:
    def named_twice(stream: Stream) -> None:
        stream.key_by("k").aggregate(id="by_k", n="count(*)").view("n")
        stream.key_by("k").aggregate(id="by_k", n="count(*)").view("again")

    check_compatible(made(counts), made(named_twice), {"in"})


def with_table(more: Callable[[Stream], object]) -> Plan:
    builder = Builder()
    source = InboxTable(SCHEMA)
    scan = builder.add("t", Scan(source, source.schema, False), (), "t")
    rows = Stream(builder, builder.add(None, Bag(SEQUENCE), (scan,), "t.rows"))
    rows.view("t")
    more(rows)
    return builder.plan


def test_a_new_step_over_a_table_that_was_filled_is_refused() -> None:
    """All tables share one position, the inbox's: it tells nothing about one of them, so it counts for all."""
    old, new = (
        with_table(lambda s: None),
        with_table(lambda s: s.key_by("k").aggregate(n="count(*)").view("n")),
    )
    with pytest.raises(InvalidError, match="source 't' was already read"):
        check_compatible(old, new, {"inbox"})
    check_compatible(old, new, set())


def test_steps_that_are_read_twice_are_looked_at_once() -> None:
    """Forty steps, each a union of the one before with itself: 2 ** 40 ways down to the source (law 5)."""

    def doubled(stream: Stream) -> None:
        for _ in range(40):
            stream = stream.union(stream.filter("v > 0"))
        stream.view("many")

    check_compatible(made(lambda s: s.view("v")), made(lambda s: (s.view("v"), doubled(s))), set())


# -- state that ends -----------------------------------------------------------------------------

TIMED = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])


def windows(stream: Stream) -> None:
    window = stream.watermark("ts", "5s", id="mark").tumble("10s", id="w")
    counted = window.key_by("window_end", "k").aggregate(id="counted", n="count(distinct v)")
    window.join(counted, ["window_end", "k"], id="joined").view("joined")
    window.key_by("window_end").first("v", id="first").filter("v > 0", id="f").view("f")
    window.key_by("window_end").top_n(2, "v", id="top").view("top")


def test_a_pond_from_before_state_ended_goes_on_with_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource(TIMED)
    new = made(windows, source=source)
    monkeypatch.setattr(Builder, "ended", lambda self, operator, inputs, spans=(): operator)
    old = made(windows, source=source)
    for step in ("counted", "joined", "first", "top", "counted.v-distinct"):
        assert old.nodes[step].binding.tables != new.nodes[step].binding.tables, step
        assert any(t.bucket_width for t in new.nodes[step].binding.tables), step
    found = check_compatible(old, new, {"in"})
    assert {s: n.binding.tables for s, n in found.nodes.items()} == {
        s: n.binding.tables for s, n in old.nodes.items()
    }
    assert check_compatible(new, old, {"in"}).nodes["joined"] == new.nodes["joined"], "the other way as well"


def test_another_meaning_is_refused_whatever_ends() -> None:
    def other(stream: Stream) -> None:
        window = stream.watermark("ts", "5s", id="mark").tumble("10s", id="w")
        window.key_by("window_end").first("v desc", id="first").filter("v > 0", id="f").view("f")

    def was(stream: Stream) -> None:
        window = stream.watermark("ts", "5s", id="mark").tumble("10s", id="w")
        window.key_by("window_end").first("v", id="first").view("f")

    source = MemorySource(TIMED)
    with pytest.raises(InvalidError, match="step 'first' has another definition"):
        check_compatible(made(was, source=source), made(other, source=source), {"in"})

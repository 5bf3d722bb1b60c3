"""Views whose definition changed: rebuilt by one call, in one commit, from what the pond holds (laws 1 and 2)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import Process, ValueState
from millpond.errors import InvalidError
from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource

COLUMNS = {"city": str, "x": int}
Define = Callable[[Pond, Stream], Any]


def opened(path: Path, **more: Any) -> Pond:
    return millpond.open(path, engine="inline", durable=False, **more)


def some(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"city": city, "x": x} for city, x in rows]


def rows(pond: Pond, view: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[c] for c in columns) for row in pond.read(view).to_pylist())


def count(pond: Pond, orders: Stream) -> None:
    orders.key_by("city").aggregate(n="count(*)").view("by_city")


def count_and_sum(pond: Pond, orders: Stream) -> None:
    orders.key_by("city").aggregate(n="count(*)", s="sum(x)").view("by_city")


@pytest.fixture(params=["table", "memory", "files"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[..., Pond], Callable[..., None]]:
    """A program over each kind of input, and how rows get in; every call of the first is a new process."""
    kind, source, numbers = request.param, MemorySource(COLUMNS), iter(range(1000))
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"city": pa.array([], pa.string()), "x": pa.array([], pa.int64())}), folder / "0")

    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        if kind == "table":
            orders: Stream = pond.table("orders", COLUMNS)
        else:
            orders = pond.stream("orders", source if kind == "memory" else FileSource(folder))
        define(pond, orders)
        return pond

    def feed(pond: Pond, *given: tuple[str, int]) -> None:
        if kind == "table":
            pond.insert("orders", some(*given))
        elif kind == "memory":
            source.push(some(*given))
        else:
            pq.write_table(pa.Table.from_pylist(some(*given)), folder / f"{next(numbers)}.parquet")

    return program, feed


World = tuple[Callable[..., Pond], Callable[..., None]]


def test_an_aggregate_more(world: World) -> None:
    program, feed = world
    with program(count) as pond:
        feed(pond, ("a", 1), ("b", 2), ("a", 3))
        pond.drain()
    with program(count_and_sum) as pond:
        with pytest.raises(InvalidError, match="defined differently in the pond") as told:
            pond.drain()
        assert "(n=count(*))" in str(told.value) and "s=sum(x)" in str(told.value)
        assert "pond.replace('by_city')" in (told.value.hint or "")
        assert rows(pond, "by_city", "city", "n") == [("a", 2), ("b", 1)]
    with program(count_and_sum) as pond:  # the call that the hint names
        pond.replace("by_city")
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 2, 4), ("b", 1, 2)]
        assert [e.kind for e in pond.epochs()][-2:] == ["takeover", "change"]
        feed(pond, ("b", 5))
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 2, 4), ("b", 2, 7)]
    with program(count_and_sum) as pond:  # without the call: the pond knows the program
        feed(pond, ("c", 1))
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 2, 4), ("b", 2, 7), ("c", 1, 1)]
        epoch = pond.epoch
    with program(count_and_sum) as pond:  # and with it nothing happens: it may stay in the program
        pond.replace("by_city")
        pond.drain()
        assert pond.epoch <= epoch + 1 and "change" not in {e.kind for e in pond.epochs() if e.epoch > epoch}


def test_against_a_model_over_many_changes_and_restarts(world: World) -> None:
    program, feed = world
    dice = random.Random(7)
    model: dict[str, list[int]] = defaultdict(list)
    aggregates = {
        "n": ("count(*)", len),
        "s": ("sum(x)", sum),
        "m": ("max(x)", max),
        "d": ("count(distinct x)", lambda v: len(set(v))),
        "a": ("avg(x * 2)", lambda v: sum(2 * i for i in v) / len(v)),
    }
    chosen = ["n"]
    for _ in range(12):
        threshold = dice.randrange(3)

        def define(
            pond: Pond, orders: Stream, chosen: list[str] = chosen, threshold: int = threshold
        ) -> None:
            view = orders.key_by("city").aggregate(**{c: aggregates[c][0] for c in chosen}).view("by_city")
            view.filter(f"{chosen[0]} > {threshold}").view("over")
            orders.select("city").distinct().view("cities")

        with program(define) as pond:
            pond.replace()
            for _ in range(dice.randrange(3)):
                given = [(dice.choice("abcd"), dice.randrange(9)) for _ in range(dice.randrange(1, 5))]
                feed(pond, *given)
                for city, x in given:
                    model[city].append(x)
                pond.drain()
            if dice.random() < 0.3:
                pond.compact()
            pond.drain()
            wanted = sorted((city, *(aggregates[c][1](v) for c in chosen)) for city, v in model.items())
            assert rows(pond, "by_city", "city", *chosen) == wanted
            assert rows(pond, "over", "city", *chosen) == [w for w in wanted if w[1] > threshold]
            assert rows(pond, "cities", "city") == [(city,) for city in sorted(model)]
        chosen = dice.sample(sorted(aggregates), dice.randrange(1, 5))


def test_history_sinks_and_rollback_over_it(tmp_path: Path) -> None:
    held: dict[tuple[Any, ...], int] = defaultdict(int)

    def deliver(epoch: int, changes: pa.Table) -> None:
        for row in changes.to_pylist():
            w = row.pop("_w")
            held[tuple(row.items())] += w

    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        orders = pond.table("orders", COLUMNS)
        define(pond, orders)
        return pond

    def with_sink(*aggs: str) -> Define:
        def define(pond: Pond, orders: Stream) -> None:
            named = {f"c{i}": a for i, a in enumerate(aggs)}
            orders.key_by("city").aggregate(**named).view("by_city").sink("out", CallbackSink(deliver))

        return define

    with program(with_sink("count(*)")) as pond:
        pond.insert("orders", some(("a", 1), ("a", 2)))
        before = pond.drain()
    with program(with_sink("count(*)", "sum(x)")) as pond:
        pond.replace("by_city")
        pond.drain()
        assert pond.read("by_city", epoch=before).to_pylist() == [{"city": "a", "c0": 2}]
        assert pond.read("by_city").to_pylist() == [{"city": "a", "c0": 2, "c1": 3}]
        assert held[(("city", "a"), ("c0", 2), ("c1", 3))] == 1  # of other columns a sink gets all rows
        pond.rollback(before)
        pond.drain()
        assert pond.read("by_city").to_pylist() == [{"city": "a", "c0": 2}]
    with program(with_sink("count(*)", "sum(x)")) as pond:
        with pytest.raises(InvalidError, match="defined differently"):
            pond.drain()
        pond.replace("by_city")
        pond.drain()
        assert pond.read("by_city").to_pylist() == [{"city": "a", "c0": 2, "c1": 3}]


def test_views_that_share_a_changed_step_are_named_together(tmp_path: Path) -> None:
    def program(least: int) -> Pond:
        pond = opened(tmp_path / "pond")
        big = pond.table("orders", COLUMNS).filter(f"x > {least}", id="big")
        big.key_by("city").aggregate(n="count(*)").view("by_city")
        big.aggregate(n="count(*)").view("all")
        return pond

    with program(1) as pond:
        pond.insert("orders", some(("a", 1), ("a", 2), ("b", 3)))
        pond.drain()
    with program(2) as pond:
        with pytest.raises(InvalidError, match="step 'big' is defined differently") as told:
            pond.drain()
        assert "pond.replace('by_city', 'all')" in (told.value.hint or "")
        pond.replace("by_city")
        with pytest.raises(InvalidError, match="view 'all' changes as well") as told:
            pond.drain()
        assert "pond.replace('all', 'by_city')" in (told.value.hint or "")
        pond.replace("all", "by_city")
        pond.drain()
        assert rows(pond, "by_city", "city", "n") == [("b", 1)]
        assert rows(pond, "all", "n") == [(1,)]


class Tally(Process):
    n = ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += row.x
        yield {"city": row.city, "total": self.n.value}


class Twice(Tally):
    pass


def test_input_that_is_gone(tmp_path: Path) -> None:
    """It is said, and the choice to begin empty is one word."""
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"city": ["a"], "x": [1]}), folder / "1.parquet")

    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        define(pond, pond.stream("orders", FileSource(folder, schema=COLUMNS)))
        return pond

    with program(count) as pond:
        pond.drain()
    (folder / "1.parquet").unlink()
    with program(count_and_sum) as pond:
        pond.replace("by_city")
        with pytest.raises(InvalidError, match=r"file '1\.parquet' was read, and is gone now") as told:
            pond.drain()
        assert "pond.replace(view, backfill=False)" in (told.value.hint or "")
        assert rows(pond, "by_city", "city", "n") == [("a", 1)]
    with program(count_and_sum) as pond:
        pond.replace("by_city", backfill=False)
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == []
        pq.write_table(pa.table({"city": ["a"], "x": [7]}), folder / "2.parquet")
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 1, 7)]
    with program(count_and_sum) as pond:
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 1, 7)]


def test_a_process_step_begins_empty_or_not_at_all(tmp_path: Path) -> None:
    source = MemorySource(COLUMNS)

    def program(key: str) -> Pond:
        pond = opened(tmp_path / "pond")
        out = pa.schema([("city", pa.string()), ("total", pa.int64())])
        pond.stream("orders", source).key_by(key).process(Tally, out, id="tally").view("totals")
        return pond

    with program("city") as pond:
        source.push(some(("a", 1)))
        pond.drain()
    with program("x") as pond:
        pond.replace("totals")
        with pytest.raises(InvalidError, match="its input was already read") as told:
            pond.drain()
        assert "backfill=False" in (told.value.hint or "")
    with program("x") as pond:
        pond.replace("totals", backfill=False)
        pond.drain()
        assert rows(pond, "totals", "total") == []
        source.push(some(("a", 5), ("b", 5)))
        pond.drain()
        assert rows(pond, "totals", "total") == [(5,), (10,)]
        assert pond.state("tally", "n").to_pylist() == [{"x": 5, "n": 10}]  # by the id in the program


def test_a_table_that_can_retract_is_read_whole_even_from_now(tmp_path: Path) -> None:
    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        define(pond, pond.table("orders", COLUMNS, key="city"))
        return pond

    with program(count) as pond:
        pond.insert("orders", some(("a", 1)))
        pond.drain()
    with program(count_and_sum) as pond:
        pond.replace(backfill=False)
        pond.drain()
        pond.delete("orders", some(("a", 1)))
        pond.drain()
        assert rows(pond, "by_city", "city") == []


def test_a_view_that_the_program_left_out_is_dropped_by_the_call_of_the_hint(tmp_path: Path) -> None:
    def both(pond: Pond, orders: Stream) -> None:
        count(pond, orders)
        orders.select("x").view("xs").filter("x > 1").view("big")

    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        define(pond, pond.table("orders", COLUMNS))
        return pond

    with program(both) as pond:
        pond.drain()
    with program(count) as pond:
        with pytest.raises(InvalidError, match="view 'xs' is in the pond but not in this pipeline") as told:
            pond.drain()
        assert "pond.drop_view('xs')" in (told.value.hint or "")
        with pytest.raises(InvalidError, match="cannot be dropped, others use it"):
            pond.drop_view("xs")
        pond.drop_view("xs", cascade=True)
        pond.drain()
        assert pond.views() == ["by_city", "orders"]
    with program(count) as pond:
        pond.drain()


def test_views_of_sql_live_on_beside_the_program(tmp_path: Path) -> None:
    """Statements are not written again when the program runs again."""

    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        define(pond, pond.table("orders", COLUMNS))
        return pond

    with program(count) as pond:
        pond.insert("orders", some(("a", 1), ("b", 2)))
        pond.drain()
        pond.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(x) AS s FROM orders")
        pond.sql("CREATE VIEW plain AS SELECT city FROM by_city")
    with program(count_and_sum) as pond:
        pond.replace("by_city")
        pond.insert("orders", some(("a", 4)))
        pond.drain()
        assert pond.sql("SELECT s FROM total").fetchall() == [(7,)]
        assert pond.sql("SELECT city FROM plain ORDER BY city").fetchall() == [("a",), ("b",)]
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 2, 5), ("b", 1, 2)]
        pond.sql("CREATE MATERIALIZED VIEW over_flow AS SELECT max(n) AS m FROM by_city")
    with program(count) as pond:
        pond.replace("by_city")
        with pytest.raises(InvalidError, match="'over_flow' is built on what this program defines") as told:
            pond.drain()
        assert "DROP MATERIALIZED VIEW over_flow" in (told.value.hint or "")


def test_a_table_with_columns_that_sql_added(tmp_path: Path) -> None:
    def program(define: Define) -> Pond:
        pond = opened(tmp_path / "pond")
        define(pond, pond.table("orders", COLUMNS))
        return pond

    with program(count) as pond:
        pond.insert("orders", some(("a", 1)))
        pond.drain()
        pond.sql("ALTER TABLE orders ADD COLUMN note text")
    for define in (count, count_and_sum):
        with program(define) as pond:
            pond.replace()
            pond.drain()
            pond.insert("orders", [{"city": "a", "x": 2, "note": "hi"}, {"city": "b", "x": 1}])
            pond.drain()
    with program(count_and_sum) as pond:
        pond.drain()
        assert rows(pond, "by_city", "city", "n", "s") == [("a", 3, 5), ("b", 2, 2)]
        assert pond.read("orders").column_names == ["city", "x", "note"]
        pond.sql("CREATE MATERIALIZED VIEW notes AS SELECT note, count(*) AS n FROM orders GROUP BY note")
        assert pond.sql("SELECT n FROM notes WHERE note = 'hi'").fetchall() == [(2,)]


def test_a_table_of_another_type_is_refused_with_what_differs(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.table("orders", COLUMNS)
        pond.drain()
    with opened(tmp_path / "pond") as pond:
        pond.table("orders", {"city": str, "x": float})
        pond.replace("orders")
        with pytest.raises(InvalidError, match="table 'orders' is defined differently") as told:
            pond.drain()
        assert told.value.detail == (
            "its columns are (city string, x int64) in the pond, and (city string, x double) in this program"
        )


def test_wrong_calls_of_replace(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        count(pond, pond.table("orders", COLUMNS))
        with pytest.raises(InvalidError, match="no view named 'by_ctiy'") as told:
            pond.replace("by_ctiy")
        assert told.value.hint == "did you mean 'by_city'?"
        pond.drain()
        with pytest.raises(InvalidError, match="already running"):
            pond.replace("by_city")


def test_windows_over_a_watermark_whose_delay_changed(tmp_path: Path) -> None:
    """Steps that name the watermark follow it."""
    columns = {"k": str, "at": pa.timestamp("us")}
    source = MemorySource(columns)
    second = 1_000_000

    def program(delay: str) -> Pond:
        pond = opened(tmp_path / "pond")
        ticks = pond.stream("in", source, event_time="at", delay=delay)
        windows = ticks.tumble("10s").key_by("k", "window_end")
        windows.aggregate(n="count(*)", on_close=True).view("n")
        ticks.late().view("late")
        return pond

    with program("0s") as pond:
        source.push([{"k": "a", "at": s * second} for s in (1, 2, 11, 12)])
        pond.drain()
        source.push([{"k": "a", "at": 3 * second}])
        pond.drain()
        assert rows(pond, "n", "n") == [(2,)]
    with program("5s") as pond:
        pond.replace()
        pond.drain()
        assert rows(pond, "n", "n") == []  # the first window is not over yet
        source.push([{"k": "a", "at": 16 * second}])
        pond.drain()
        assert sum(n for (n,) in rows(pond, "n", "n")) + pond.read("late").num_rows >= 2
    with program("5s") as pond:
        source.push([{"k": "a", "at": 40 * second}])
        pond.drain()
        total = sum(n for (n,) in rows(pond, "n", "n"))
        assert total + pond.read("late").num_rows == 6


def test_a_join_in_time_over_a_watermark_whose_delay_changed(tmp_path: Path) -> None:
    """Its state expires by the new version of the watermark step."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    one, two = MemorySource(schema), MemorySource(schema)

    def program(delay: str) -> Pond:
        pond = opened(tmp_path / "p")
        left, right = (
            pond.stream(name, source).watermark("ts", delay, id=f"{name}.w")
            for name, source in (("one", one), ("two", two))
        )
        right = right.select("k", paid="ts")
        left.join(right, "k", where="paid BETWEEN ts AND ts + INTERVAL '10 seconds'", id="j").view("v")
        return pond

    def send(second: int) -> None:
        for source in (one, two):
            source.push([{"k": 1, "ts": second * 1_000_000}])

    with program("5s") as pond:
        send(1)
        pond.drain()
    with program("6s") as pond:
        pond.replace("v")
        for second in (20, 50, 100):
            send(second)
            pond.drain()
        kept = {s.state: s.rows for s in pond.states() if s.step.startswith("j")}
        assert pond.read("v").num_rows == 4
        assert max(kept.values()) == 1, "only the newest rows can still have partners"

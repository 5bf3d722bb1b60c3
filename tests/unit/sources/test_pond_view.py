"""Another pond's view as a source: exact over changes, kills, restarts, collections, rollbacks and forks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.plan.codec import dumps, loads
from millpond.settings import make_settings
from millpond.sources import pond_view, upstream_pond
from millpond.sources.pond_view import PondSource
from millpond.sources.source import Source
from millpond.state.manifest.pins import pins
from millpond.state.store.memory_store import MemoryStore
from millpond.testing.dying_store import Died, DyingStore
from millpond.testing.sources import CHECKS, SourceCase
from tests.sampling import seeds

QUICK: dict[str, Any] = {"engine": "inline", "durable": False, "parallelism": 2, "checks": True}


@pytest.fixture(autouse=True)
def another_process() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """What this process knows of other ponds is gone, as after a restart."""
    upstream_pond._holds.clear()
    upstream_pond._upstream.cache_clear()


def orders(place: Any, **more: Any) -> millpond.Pond:
    """A pond with a table and two views; `by_who` updates and deletes its rows."""
    pond = millpond.open(place, **{**QUICK, **more})
    pond.sql("""
        CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, who TEXT, n BIGINT);
        CREATE MATERIALIZED VIEW IF NOT EXISTS by_who AS
            SELECT who, count(*) AS orders, sum(n) AS n FROM orders GROUP BY who;
    """)
    pond.drain()
    return pond


def put(pond: millpond.Pond, *rows: tuple[int, str, int]) -> None:
    pond.insert("orders", [{"id": id, "who": who, "n": n} for id, who, n in rows])
    pond.drain()


def plain(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def same(down: millpond.Pond, name: str, up: millpond.Pond, view: str) -> None:
    assert plain(down.read(name)) == plain(up.read(view))


def reading(place: Any, source: Any, **more: Any) -> millpond.Pond:
    pond = millpond.open(place, **{**QUICK, **more})
    pond.stream("up", source).view("copy")
    return pond


def kept(pond: millpond.Pond) -> list[tuple[int, int]]:
    """The epochs that readers have pinned as a source."""
    return sorted((p.epoch, p.last) for p in pins(pond._reader.store) if p.why.startswith("source "))


# -- conformance ---------------------------------------------------------------------------------


class PondCase(SourceCase):
    def __init__(self, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self.pond = millpond.open(folder / "up", **QUICK)
        self.pond.table("rows", {"n": int, "word": str}, key="n")
        self.pond.drain()

    def open(self) -> Source:
        return PondSource(self.pond._reader.store.uri, "rows")

    def add(self, rows: int) -> None:
        made = [{"n": n, "word": f"w{n % 3}"} for n in range(len(self.rows), len(self.rows) + rows)]
        self.rows += made
        for start in range(0, rows, 4):
            self.pond.insert("rows", made[start : start + 4])
            self.pond.drain()

    def expected(self) -> list[dict[str, Any]]:
        return self.rows

    def close(self) -> None:
        self.pond.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[SourceCase], None], tmp_path: Path) -> None:
    case = PondCase(tmp_path)
    try:
        check(case)
    finally:
        case.close()


# -- two ponds, random changes, kills and restarts -----------------------------------------------


class Model:
    """The table of the upper pond, and what DuckDB says about views over it."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, int]] = {}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        con = duckdb.connect()
        con.execute("CREATE TABLE orders (id BIGINT, who TEXT, n BIGINT)")
        if self.rows:
            con.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(k, *v) for k, v in self.rows.items()])
        return sorted(con.execute(query).fetchall())


BIG = "SELECT who, n FROM by_who WHERE n > 20"
BY_COUNT = "SELECT orders, count(*) AS people, sum(n) AS n FROM by_who GROUP BY orders"


@pytest.mark.parametrize("seed", seeds(1, 0, 12, "MILLPOND_POND_SOURCE_SEED"))
def test_two_ponds_with_kills_equal_duckdb(seed: int) -> None:
    """Kills of both ponds before random commits, restarts, and an upper pond that keeps few epochs."""
    rng, model = random.Random(seed), Model()
    above, below = MemoryStore(f"up{seed}"), MemoryStore(f"down{seed}")
    few = {"retain_epochs": rng.choice([1, 2, 5, 1000]), "collect_every": 1}
    killed = 0

    def opened(store: Any, define: str, **more: Any) -> millpond.Pond:
        settings = make_settings(checks=True, durable=False, lease_ms=1, sink_close_ms=1, **more)
        pond = millpond.Pond(store, engine="inline", parallelism=2, settings=settings, take_over=True)
        try:
            pond.sql(define)
        except BaseException:
            pond.close()
            raise
        return pond

    def run(store: MemoryStore, define: str, act: Callable[[millpond.Pond], None], **more: Any) -> bool:
        """Run a pond until it is done or dies; returns whether it died."""
        dying = DyingStore(store)
        try:
            pond = opened(dying, define, **more)
        except Died:
            return True
        try:
            dying.armed_after = rng.choice([None, None, 0, 1, 2])
            act(pond)
            return False
        except Died:
            return True
        finally:
            dying.armed, dying.armed_after = False, None
            pond.close()

    up = (
        "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, who TEXT, n BIGINT);"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS by_who AS"
        " SELECT who, count(*) AS orders, sum(n) AS n FROM orders GROUP BY who"
    )
    down = (
        f"CREATE SOURCE IF NOT EXISTS by_who WITH (connector = 'millpond', path = '{above.uri}',"
        " view = 'by_who');"
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS big AS {BIG};"
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS by_count AS {BY_COUNT}"
    )
    upper = "WITH by_who AS (SELECT who, count(*) AS orders, CAST(sum(n) AS BIGINT) AS n FROM orders GROUP BY who) "

    def change(pond: millpond.Pond) -> None:
        for _ in range(rng.randint(1, 4)):
            for _ in range(rng.randint(1, 5)):
                key = rng.randrange(12)
                if key in model.rows and rng.random() < 0.4:
                    del model.rows[key]
                    pond.sql(f"DELETE FROM orders WHERE id = {key}")
                else:
                    who, n = rng.choice("abcd"), rng.randrange(20)
                    model.rows[key] = (who, n)
                    pond.insert("orders", [{"id": key, "who": who, "n": n}])
            pond.drain()

    def settle(pond: millpond.Pond) -> None:
        pond.drain()

    while run(above, up, settle, **few):
        killed += 1
    for number in range(8):
        killed += run(above, up, change, **few)
        while run(above, up, settle, **few):  # what is in the inbox counts
            killed += 1
        if rng.random() < 0.7:
            if rng.random() < 0.5:
                forget()  # another process
            killed += run(below, down, settle, epoch_rows_max=rng.choice([3, 100]))
        if number in (3, 7):
            while run(below, down, settle):
                killed += 1
            pond = millpond.Pond(below, engine="inline", take_over=True)
            assert plain(pond.read("big")) == model.ask(upper + BIG), f"at step {number}"
            assert plain(pond.read("by_count")) == model.ask(upper + BY_COUNT), f"at step {number}"
            pond.close()
    assert killed, "nothing was killed"
    mine = [p for p in pins(above) if p.why.startswith("source ")]
    assert len(mine) <= 2, f"pins are not released: {mine}"


# -- pins ----------------------------------------------------------------------------------------


def test_what_was_not_read_is_kept_and_let_go_after_it_was(tmp_path: Path) -> None:
    up = orders(tmp_path / "up", retain_epochs=1, collect_every=1)
    put(up, (1, "ann", 2), (2, "bob", 3))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    (first,) = kept(up)
    down.close()
    for n in range(12):  # nobody reads; the upper pond collects
        put(up, (1, "ann", n), (n + 10, "cy", n))
        up._runner.drain(settle=True)  # type: ignore[union-attr]
    assert kept(up) == [first], "one epoch is kept for the reader"
    assert up.head().floor > first[1]
    forget()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    same(down, "copy", up, "by_who")
    put(up, (1, "ann", 100))
    down.drain()
    same(down, "copy", up, "by_who")
    ((begin, end),) = kept(up)
    assert first[0] < begin <= end == up.epoch, "the pin follows what was read"
    down.drain()
    up.close()
    down.close()


def test_epochs_that_were_collected_before_they_were_pinned(tmp_path: Path) -> None:
    """A pond whose pins were deleted finds that its position is gone, and says so."""
    up = orders(tmp_path / "up", retain_epochs=1, collect_every=1)
    put(up, (1, "ann", 2))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    down.close()
    for pin in pins(up._reader.store):
        if pin.why.startswith("source "):
            up._reader.store.delete(pin.name)
    forget()
    for n in range(5):
        put(up, (1, "ann", n + 5))
        up._runner.drain(settle=True)  # type: ignore[union-attr]
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    with pytest.raises(InvalidError, match="no longer keeps epoch"):
        down.drain()
    down.close()
    up.close()


def test_a_position_moves_over_many_quiet_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pond_view, "QUIET_EPOCHS", 5)
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    was = down.epoch
    up.sql("CREATE TABLE other (k BIGINT PRIMARY KEY)")
    for n in range(3):
        up.insert("other", [{"k": n}])
        up.drain()
    down.drain()
    assert down.epoch == was, "epochs that do not change the view make no epoch"
    for n in range(3, 12):
        up.insert("other", [{"k": n}])
        up.drain()
    down.drain()
    assert down.epoch == was + 1
    assert kept(up)[0][0] > 5
    put(up, (2, "bob", 4))
    down.drain()
    same(down, "copy", up, "by_who")
    up.close()
    down.close()


def test_a_large_view_comes_in_several_epochs_and_large_changes_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pond_view, "PIECE_ROWS", 40)
    up = millpond.open(tmp_path / "up", **QUICK)
    up.table("rows", {"k": int, "v": int}, key="k")
    up.insert("rows", [{"k": k, "v": 0} for k in range(400)])
    up.drain()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "rows"), epoch_rows_max=100)
    down.drain()
    same(down, "copy", up, "rows")
    epochs = down.epoch
    assert epochs >= 4, "a snapshot is read piece by piece"
    up.insert("rows", [{"k": k, "v": 1} for k in range(0, 400, 2)])
    up.drain()
    source = PondSource(tmp_path / "up", "rows")
    splits = source.poll(down.head().positions["up"], None, 1000).splits
    assert len(splits) > 3 and all(s.with_next for s in splits[:-1]) and not splits[-1].with_next
    down.drain()
    assert down.epoch == epochs + 1, "an epoch of the other pond stays whole"
    same(down, "copy", up, "rows")
    up.close()
    down.close()


# -- what can happen to the other pond -----------------------------------------------------------


def test_a_rollback_of_the_other_pond_takes_rows_back(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2))
    back = up.epoch
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    put(up, (2, "bob", 3), (1, "cy", 7))
    down.drain()
    same(down, "copy", up, "by_who")
    up.rollback(back)
    up.drain()
    down.drain()
    same(down, "copy", up, "by_who")
    put(up, (5, "eve", 1))
    down.drain()
    same(down, "copy", up, "by_who")
    up.close()
    down.close()


def test_a_source_of_new_rows_refuses_a_rollback(tmp_path: Path) -> None:
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql("CREATE TABLE log (n BIGINT) APPEND ONLY")
    up.drain()
    up.insert("log", [{"n": 1}, {"n": 1}])
    up.drain()
    back = up.epoch
    source = PondSource(tmp_path / "up", "log")
    assert source.append_only, "the other pond knows it"
    down = reading(tmp_path / "down", source)
    up.insert("log", [{"n": 2}])
    up.drain()
    down.drain()
    assert plain(down.read("copy")) == [(1,), (1,), (2,)]
    up.rollback(back)
    up.drain()
    with pytest.raises(InvalidError, match="retracts rows, and this source only adds them"):
        down.drain()
    down.close()
    taken = reading(tmp_path / "other", PondSource(tmp_path / "up", "log", append_only=False))
    taken.drain()
    assert plain(taken.read("copy")) == [(1,), (1,)]
    taken.close()
    up.close()


def test_a_view_that_is_dropped_and_made_again(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2), (2, "bob", 4))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    up.sql("DROP MATERIALIZED VIEW by_who")
    up.drain()
    with pytest.raises(InvalidError, match="has no view named 'by_who'"):
        down.drain()
    up.sql(
        "CREATE MATERIALIZED VIEW by_who AS SELECT who, count(*) AS orders, 0::HUGEINT AS n FROM orders GROUP BY who"
    )
    up.drain()
    down.close()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who", down_schema(up)))
    put(up, (3, "cy", 1))
    down.drain()
    same(down, "copy", up, "by_who")
    up.close()
    down.close()


def down_schema(up: millpond.Pond) -> pa.Schema:
    return up._reader.view_schema("by_who")


def test_a_view_that_is_replaced_gives_the_difference(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2), (2, "bob", 4))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    up.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW by_who AS"
        " SELECT who, count(*) AS orders, sum(n) AS n FROM orders WHERE n > 3 GROUP BY who"
    )
    up.drain()
    down.drain()
    same(down, "copy", up, "by_who")
    assert plain(down.read("copy")) == [("bob", 1, 4)]
    up.sql("CREATE OR REPLACE MATERIALIZED VIEW by_who AS SELECT who, 1 AS other FROM orders")
    up.drain()
    with pytest.raises(InvalidError, match="has other columns"):
        down.drain()
    up.close()
    down.close()


def test_a_pond_that_was_created_again_is_refused(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2))
    source = PondSource(tmp_path / "up", "by_who")
    down = reading(tmp_path / "down", source)
    down.drain()
    up.close()
    (tmp_path / "up").rename(tmp_path / "gone")
    forget()
    with pytest.raises(UnavailableError, match="source 'up' is unavailable: no pond at"):
        down.drain()
    orders(tmp_path / "up").close()
    with pytest.raises(InvalidError, match="another pond than the one that was read before"):
        down.drain()
    down.close()


def test_a_pond_that_lost_epochs_is_refused(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    up.close()
    newest = sorted((tmp_path / "up" / "manifests").iterdir())[-1]
    newest.unlink()
    forget()
    with pytest.raises(DataError, match="older than what was read from it"):
        down.drain()
    down.close()


def test_a_fork_of_the_reader_goes_on_by_itself(tmp_path: Path) -> None:
    up = orders(tmp_path / "up", retain_epochs=1, collect_every=1)
    put(up, (1, "ann", 2))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    for n in range(4):
        put(up, (n, "cy", n))
        up._runner.drain(settle=True)  # type: ignore[union-attr]
    down.fork(tmp_path / "fork")
    fork = reading(tmp_path / "fork", PondSource(tmp_path / "up", "by_who"))
    fork.drain()
    same(fork, "copy", up, "by_who")
    assert len(kept(up)) == 2, "each has a pin"
    for n in range(4):
        put(up, (n, "eve", n))
        up._runner.drain(settle=True)  # type: ignore[union-attr]
    for pond in (down, fork):
        pond.drain()
        same(pond, "copy", up, "by_who")
        pond.close()
    up.close()


def test_a_fork_of_the_other_pond_is_a_pond_like_any_other(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2), (2, "bob", 3))
    up.fork(tmp_path / "fork")
    fork = orders(tmp_path / "fork")
    put(fork, (2, "cy", 9))
    down = reading(tmp_path / "down", PondSource(tmp_path / "fork", "by_who"))
    down.drain()
    same(down, "copy", fork, "by_who")
    put(fork, (1, "eve", 9))
    down.drain()
    same(down, "copy", fork, "by_who")
    for pond in (up, fork, down):
        pond.close()


def test_a_column_that_the_view_gains_is_left_out(tmp_path: Path) -> None:
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    up.drain()
    up.insert("t", [{"k": 1, "v": 2}])
    up.drain()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "t"))
    down.drain()
    up.sql("ALTER TABLE t ADD COLUMN w BIGINT DEFAULT 7")
    up.drain()
    up.sql("INSERT INTO t VALUES (1, 3, 4), (2, 5, 6)")
    up.drain()
    down.drain()
    assert plain(down.read("copy")) == [(1, 3), (2, 5)]
    up.close()
    down.close()


def test_a_step_that_is_added_later_sees_what_was_read(tmp_path: Path) -> None:
    up = orders(tmp_path / "up", retain_epochs=1, collect_every=1)
    put(up, (1, "ann", 2), (2, "bob", 3))
    down = millpond.open(tmp_path / "down", **QUICK)
    down.sql(
        f"CREATE SOURCE by_who WITH (connector = 'millpond', path = '{tmp_path / 'up'}', view = 'by_who');"
        "CREATE MATERIALIZED VIEW first AS SELECT who, n FROM by_who"
    )
    down.drain()
    put(up, (1, "bob", 5))
    down.drain()
    down.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM by_who")
    down.drain()
    assert plain(down.read("first")) == [("bob", 8)]
    assert plain(down.read("total")) == [(8,)]
    put(up, (7, "cy", 5))
    down.drain()
    assert plain(down.read("total")) == [(13,)]
    up.close()
    down.close()


# -- definitions ---------------------------------------------------------------------------------


def test_errors_of_definitions(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no pond to read from"):
        PondSource(tmp_path / "none", "by_who")
    up = orders(tmp_path / "up")
    with pytest.raises(InvalidError, match="has no view named 'by_whom'") as error:
        PondSource(tmp_path / "up", "by_whom")
    assert "by_who" in str(error.value)
    with pytest.raises(InvalidError, match="other columns"):
        PondSource(tmp_path / "up", "by_who", {"who": int})
    with pytest.raises(InvalidError, match="must not contain credentials"):
        PondSource("s3://KEY:SECRET@bucket/pond", "v")
    with pytest.raises(InvalidError, match="keep must be positive"):
        PondSource(tmp_path / "up", "by_who", keep="0s")
    with pytest.raises(InvalidError, match="name of a view"):
        PondSource(tmp_path / "up", "")
    with up.changing():
        up.stream("own", PondSource(tmp_path / "up", "by_who")).view("own")
    with pytest.raises(InvalidError, match="cannot read its own view"):
        up.drain()
    up.close()


def test_only_some_columns(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    put(up, (1, "ann", 2), (2, "ann", 3), (3, "bob", 1))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "orders", {"who": str}))
    down.drain()
    put(up, (1, "bob", 2))
    down.drain()
    assert Counter(row["who"] for row in down.read("copy").to_pylist()) == {"ann": 1, "bob": 2}
    up.close()
    down.close()


def test_a_stored_source_contacts_nothing(tmp_path: Path) -> None:
    orders(tmp_path / "up").close()
    source = PondSource(tmp_path / "up", "by_who", options={"durable": "false"})
    raw = dumps(source)
    (tmp_path / "up").rename(tmp_path / "gone")
    assert loads(raw) == source


def test_rows_are_counted_without_their_columns(tmp_path: Path) -> None:
    """Equal rows, and a query that reads no column."""
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql("CREATE TABLE log (n BIGINT)")
    up.sql("INSERT INTO log VALUES (1), (1), (1), (2)")
    up.drain()
    down = millpond.open(tmp_path / "down", **QUICK)
    down.sql(
        f"CREATE SOURCE log WITH (connector = 'millpond', path = '{tmp_path / 'up'}', view = 'log');"
        "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM log"
    )
    down.drain()
    assert plain(down.read("counted")) == [(4,)]
    up.sql("DELETE FROM log WHERE n = 1; INSERT INTO log VALUES (7), (7)")
    up.drain()
    down.drain()
    assert plain(down.read("counted")) == [(3,)]
    up.close()
    down.close()


def test_windows_over_a_view_that_only_grows(tmp_path: Path) -> None:
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql("CREATE TABLE log (at TIMESTAMP, n BIGINT) APPEND ONLY")
    up.sql("INSERT INTO log VALUES ('2026-01-01 00:00:10', 1), ('2026-01-01 00:00:20', 2)")
    up.drain()
    down = millpond.open(tmp_path / "down", **QUICK)
    down.sql(
        "CREATE SOURCE log (at TIMESTAMP, n BIGINT, WATERMARK FOR at AS at - INTERVAL '0 seconds')"
        f" WITH (connector = 'millpond', path = '{tmp_path / 'up'}', view = 'log');"
        "CREATE MATERIALIZED VIEW minutes AS SELECT window_end, sum(n) AS n"
        " FROM TUMBLE(log, at, INTERVAL '1 minute') GROUP BY window_end EMIT ON WINDOW CLOSE"
    )
    down.drain()
    assert down.read("minutes").num_rows == 0
    up.sql("INSERT INTO log VALUES ('2026-01-01 00:01:05', 5)")
    up.drain()
    down.drain()
    assert [row[1] for row in plain(down.read("minutes"))] == [3]
    up.close()
    down.close()


def test_columns_that_exchange_their_names(tmp_path: Path) -> None:
    """No run changes, and all rows do."""
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT, b BIGINT); INSERT INTO t VALUES (1, 2, 3), (4, 5, 5)"
    )
    up.drain()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "t"))
    down.drain()
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        up.sql(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
        up.drain()
    down.drain()
    shown = sorted((r["k"], r["a"], r["b"]) for r in down.read("copy").to_pylist())
    assert (
        shown == sorted((r["k"], r["a"], r["b"]) for r in up.read("t").to_pylist()) == [(1, 3, 2), (4, 5, 5)]
    )
    up.close()
    down.close()


def test_a_column_that_is_dropped_and_added_again(tmp_path: Path) -> None:
    up = millpond.open(tmp_path / "up", **QUICK)
    up.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT); INSERT INTO t VALUES (1, 2), (4, 5)")
    up.drain()
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "t"))
    down.drain()
    up.sql("ALTER TABLE t DROP COLUMN a")
    up.drain()
    up.sql("ALTER TABLE t ADD COLUMN a BIGINT DEFAULT 7")
    up.drain()
    up.sql("INSERT INTO t VALUES (9, 9)")
    up.drain()
    down.drain()
    assert plain(down.read("copy")) == [(1, 7), (4, 7), (9, 9)]
    same(down, "copy", up, "t")
    up.close()
    down.close()


def test_views_that_are_swapped(tmp_path: Path) -> None:
    up = orders(tmp_path / "up")
    up.sql(
        "CREATE MATERIALIZED VIEW other AS SELECT who, count(*) AS orders, max(n)::HUGEINT AS n FROM orders GROUP BY who"
    )
    put(up, (1, "ann", 2), (2, "ann", 4), (3, "bob", 1))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who", {"who": str, "orders": int}))
    down.drain()
    up.sql("ALTER MATERIALIZED VIEW by_who SWAP WITH other")
    up.drain()
    put(up, (4, "cy", 9))
    down.drain()
    shown = sorted((r["who"], r["orders"]) for r in up.read("by_who").to_pylist())
    assert plain(down.read("copy")) == shown
    up.close()
    down.close()


def test_a_rollback_of_the_reader(tmp_path: Path) -> None:
    up = orders(tmp_path / "up", retain_epochs=30, collect_every=1)
    put(up, (1, "ann", 2))
    down = reading(tmp_path / "down", PondSource(tmp_path / "up", "by_who"))
    down.drain()
    back = down.epoch
    for n in range(3):
        put(up, (n, "bob", n))
        down.drain()
    down.rollback(back)
    down.drain()
    same(down, "copy", up, "by_who")
    for n in range(40):  # the epoch of the older position is gone
        put(up, (n % 5, "cy", n))
    up._runner.drain(settle=True)  # type: ignore[union-attr]
    down.drain()
    same(down, "copy", up, "by_who")
    down.rollback(back)
    with pytest.raises(InvalidError, match="no longer keeps epoch"):
        down.drain()
    up.close()
    down.close()

"""Views that ask for the time are filled while it passes: deadlines, stamps, and joins as of when rows come."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.sql.binding.now import macros
from millpond.state.manifest.manifest import Manifest

SECOND = 1_000_000
START = 1_709_164_800 * SECOND
VIEWS = {
    "recent": "SELECT id, ts FROM t WHERE ts > now() - INTERVAL '60 seconds'",
    "ahead": "SELECT id, k FROM t WHERE ts <= now()",
    "between_": "SELECT id FROM t WHERE now() BETWEEN ts AND ts + INTERVAL '90 seconds'",
    "counted": "SELECT k, count(*) AS n, max(ts) AS m FROM t WHERE ts > now() - INTERVAL '2 minutes' GROUP BY k",
    "pairs": "SELECT t.id, u.id AS other FROM t JOIN u ON t.k = u.k WHERE t.ts > now() - INTERVAL '1 minute'",
    "lonely": "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.ts > now())",
    "of_view": "SELECT k, count(*) AS n FROM old WHERE ts > now() - INTERVAL '30 seconds' GROUP BY k",
}
OLD = "SELECT id, k, ts FROM t WHERE ts <= now()"


class Crash(BaseException):
    pass


class Timed:
    """A pond whose rows and clock move with every epoch of a fill."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.clock = ManualClock(START)
        self.crashes = False
        self.moved = 0
        self.pond = self.opened()
        self.pond.sql(f"""
            CREATE TABLE t (id int PRIMARY KEY, k int, ts timestamp);
            CREATE TABLE u (id int PRIMARY KEY, k int, ts timestamp);
            CREATE MATERIALIZED VIEW old AS {OLD}
        """)
        for _ in range(4):
            self.change(15)
            self.pond.drain()
            self.pass_time()

    def opened(self) -> millpond.Pond:
        options: dict[str, Any] = {"clock": self.clock, "checks": True, "poll_ms": 1, "durable": False}
        tasks = self.rng.choice([1, 2, 3])
        return millpond.open(self.path, engine="inline", parallelism=tasks, epoch_rows_max=10, **options)

    def change(self, count: int = 3) -> None:
        rng, now = self.rng, self.clock.now_us()
        for name in "tu":
            ids = rng.sample(range(60), count)
            at = [now + rng.randrange(-150, 150) * SECOND for _ in ids]
            rows = {"id": pa.array(ids, pa.int32()), "k": pa.array([i % 4 for i in ids], pa.int32())}
            self.pond.insert(name, pa.table({**rows, "ts": pa.array(at).cast(pa.timestamp("us"))}))

    def pass_time(self) -> None:
        self.clock.advance(self.rng.choice([0, 1, SECOND // 4, SECOND, 20 * SECOND, 50 * SECOND]))

    def committed(self, manifest: Manifest) -> None:
        if manifest.backfill is not None and self.moved < 60:
            self.moved += 1
            self.pass_time()
            if self.rng.random() < 0.7:
                self.change()
            if self.crashes and manifest.kind == "epoch" and self.rng.random() < 0.25:
                raise Crash

    def create(self, views: dict[str, str]) -> int:
        """How often it crashed meanwhile."""
        crashed = 0
        self.pond.on_epoch(self.committed)
        try:
            self.pond.sql(";".join(f"CREATE MATERIALIZED VIEW {n} AS {q}" for n, q in views.items()))
        except Crash:
            while not set(views) <= set(self.pond.views()) and (crashed := crashed + 1) < 100:
                self.pond.close()
                self.pond = self.opened()
                self.pond.on_epoch(self.committed)
                with contextlib.suppress(Crash):
                    self.pond.drain()
        assert "rounds" in next(
            m.metrics["backfill"]
            for e in range(self.pond.epoch, 0, -1)
            if (m := self.manifest(e)).kind == "change"
        )
        return crashed

    def manifest(self, epoch: int) -> Manifest:
        return self.pond.at(epoch).manifest

    def check(self, first: int) -> None:
        """Law 1 at every epoch that has the views, at the time of each."""
        seen = 0
        with duckdb.connect(config={"threads": 1}) as batch:
            batch.execute("SET timezone = 'UTC'")
            for epoch in range(first, self.pond.epoch + 1):
                manifest = self.manifest(epoch)
                for statement in macros(f"make_timestamptz({manifest.now_us})"):
                    batch.execute(statement)
                for name in "tu":
                    batch.register(name, self.pond.read(name, epoch=epoch))
                batch.execute(f"CREATE OR REPLACE TABLE old AS {OLD}")
                here = self.pond._reader.plan_of(manifest).views
                for name, query in VIEWS.items():
                    if name in here:
                        given = Counter(
                            tuple(r.values()) for r in self.pond.read(name, epoch=epoch).to_pylist()
                        )
                        assert given == Counter(batch.sql(query).fetchall()), f"{name} at epoch {epoch}"
                        seen += 1
        assert seen > 5


@pytest.mark.parametrize("crashes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_deadlines_come_while_a_view_is_filled(crashes: bool, tmp_path: Path) -> None:
    timed = Timed(tmp_path / "pond", 3 + crashes)
    timed.crashes, before = crashes, timed.pond.epoch
    assert timed.create(dict(list(VIEWS.items())[crashes::2])) >= crashes
    for _ in range(6):
        timed.pass_time()
        if timed.rng.random() < 0.5:
            timed.change()
        timed.pond.drain()
        if timed.rng.random() < 0.3:
            timed.pond.compact()
    timed.check(before)
    timed.pond.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_deadlines_at_length(seed: int, tmp_path: Path) -> None:
    timed = Timed(tmp_path / "pond", seed)
    timed.crashes, before = seed % 2 == 0, timed.pond.epoch
    timed.create(VIEWS)
    for _ in range(20):
        timed.pass_time()
        timed.change()
        timed.pond.drain()
    timed.check(before)
    timed.pond.close()


def test_rows_of_the_past_are_looked_up_once(tmp_path: Path) -> None:
    """Those of the first round in the table as of its epoch, the others as of an epoch since they came."""
    timed = Timed(tmp_path / "pond", 1)
    pond, rng = timed.pond, timed.rng
    pond.sql("""
        CREATE TABLE rates (k int PRIMARY KEY, rate int);
        CREATE TABLE orders (id int, k int) APPEND ONLY;
    """)
    came: dict[int, int] = {}  # order -> the epoch before it was sent

    def step(manifest: Manifest | None = None) -> None:
        if manifest is None or (manifest.backfill is not None and len(came) < 100):
            fresh = range(len(came), len(came) + 4)
            came.update(dict.fromkeys(fresh, pond.epoch))
            pond.insert("orders", [{"id": i, "k": i % 5} for i in fresh])
            pond.insert("rates", [{"k": rng.randrange(4), "rate": rng.randrange(1000)}])

    for _ in range(8):
        step()
        pond.drain()
    first = pond.epoch
    pond.on_epoch(step)
    pond.sql("""
        CREATE MATERIALIZED VIEW looked AS SELECT o.id, o.k, r.rate, proctime() AS at
        FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON o.k = r.k
    """)
    fills = [m for e in range(first, pond.epoch + 1) if (m := timed.manifest(e)).backfill]
    base = next(m.backfill.base for m in fills if m.backfill)
    adopted = next(e for e in range(first, pond.epoch + 1) if timed.manifest(e).kind == "change")
    assert max(m.backfill.round for m in fills if m.backfill) > 0
    rates = {
        e: {r["k"]: r["rate"] for r in pond.read("rates", epoch=e).to_pylist()}
        for e in range(base, adopted + 1)
    }
    past = {r["id"] for r in pond.read("orders", epoch=base).to_pylist()}
    looked = pond.read("looked", epoch=adopted).to_pylist()
    assert Counter(r["id"] for r in looked) == Counter(
        r["id"] for r in pond.read("orders", epoch=adopted).to_pylist()
    )
    for row in looked:
        epochs = [base] if row["id"] in past else range(max(base, came[row["id"]]), adopted + 1)
        assert row["rate"] in {rates[e].get(row["k"]) for e in epochs}, row
    assert len({r["at"] for r in looked if r["id"] in past}) == 1, "a round has one time"
    pond.insert("rates", [{"k": k, "rate": 5000} for k in range(5)])
    pond.insert("orders", [{"id": 10_000, "k": 1}])
    pond.drain()
    after = pond.read("looked").to_pylist()
    assert [r["rate"] for r in after if r["id"] == 10_000] == [5000]
    assert [r for r in after if r["rate"] != 5000 and r["id"] < len(came)] != []
    pond.close()

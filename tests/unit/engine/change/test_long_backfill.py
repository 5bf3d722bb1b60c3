"""Views that are filled while the pond goes on: a chunk, an epoch, a chunk; exact from their first epoch on."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.engine.change.backfill import Progress
from millpond.engine.change.long_backfill import LongBackfill
from millpond.errors import ConflictError
from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.sql.session import SqlSession
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.garbage import files_of
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest
from tests.sampling import first
from tests.waiting import until

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, k int, x int);
CREATE TABLE m (k int, w text);
CREATE MATERIALIZED VIEW old AS SELECT k, count(*) AS n, max(x) AS hi FROM t GROUP BY k;
"""
OLD = "SELECT k, count(*) AS n, max(x) AS hi FROM t GROUP BY k"
VIEWS = {
    "sums": "SELECT k, sum(x) AS s, min(x) AS lo, count(DISTINCT x) AS d FROM t GROUP BY k",
    "everything": "SELECT count(*) AS n FROM m",
    "joined": "SELECT t.id, m.w, old.n FROM t JOIN m ON m.k = t.k JOIN old ON old.k = t.k",
    "outer_": "SELECT m.k, m.w, t.id FROM m LEFT JOIN t ON t.id = m.k",
    "top": "SELECT id, x FROM t ORDER BY x DESC, id LIMIT 5",
    "kinds": "SELECT DISTINCT w FROM m",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY x, id) AS r FROM t",
    "without": "SELECT id FROM t WHERE k NOT IN (SELECT k FROM m)",
    "both": "SELECT k FROM m UNION ALL SELECT n FROM old",
}


def opened(path: Path, **options: Any) -> Pond:
    options = {"durable": False, "checks": True, "poll_ms": 5, "epoch_rows_max": 12, **options}
    return millpond.open(path, engine="inline", **options)


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


class World:
    """A pond that is changed from inside of its own chain, whenever a chunk is in."""

    def __init__(self, path: Path, seed: int, **options: Any) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.options = options
        self.told: list[Progress] = []
        self.acts: list[Callable[[], None]] = [self.insert, self.insert, self.change, self.delete, self.words]
        self.next: list[Callable[[], None]] = []  # each act comes once before one comes again
        self.often = 0.8
        self.pond = opened(path, **options)
        self.pond.sql(TABLES)
        for _ in range(2):
            self.insert(40)
        self.words(20)
        self.pond.sql("FLUSH")

    def insert(self, count: int = 4) -> None:
        rng = self.rng
        ids = rng.sample(range(100), count)
        self.pond.insert(
            "t", [{"id": i, "k": rng.choice([0, 1, 2, 3, 9, 10]), "x": rng.randrange(20)} for i in ids]
        )

    def change(self) -> None:
        SqlSession(self.pond.session.host).run(
            f"UPDATE t SET x = x + 1, k = (k + 1) % 5 WHERE id % 7 = {self.rng.randrange(7)}"
        )

    def delete(self) -> None:
        at = self.rng.randrange(10)
        SqlSession(self.pond.session.host).run(
            f"DELETE FROM t WHERE id % 10 = {at}; DELETE FROM m WHERE k % 10 = {at}"
        )

    def words(self, count: int = 3) -> None:
        rows = [{"k": self.rng.randrange(12), "w": self.rng.choice("abc")} for _ in range(count)]
        self.pond.insert("m", rows)

    def progress(self, progress: Progress) -> None:
        self.told.append(progress)
        if self.rng.random() < self.often:
            self.act()

    def act(self) -> None:
        if not self.next:
            self.next = self.rng.sample(self.acts, len(self.acts))
        self.next.pop()()

    def create(self, *names: str) -> None:
        self.pond.session.on_progress = self.progress
        self.pond.sql(";".join(f"CREATE MATERIALIZED VIEW {n} AS {VIEWS[n]}" for n in names))

    def check(self, first: int = 0) -> int:
        """Law 1 at every kept epoch from `first` on; how many of them had the new views."""
        head = self.pond.head()
        had = 0
        with duckdb.connect(config={"threads": 1}) as batch:
            for epoch in range(max(first, head.floor), head.epoch + 1):
                plan = self.pond._reader.plan_of(self.pond.at(epoch).manifest)
                if "old" not in plan.views:
                    continue
                batch.register("t", self.pond.read("t", epoch=epoch))
                batch.register("m", self.pond.read("m", epoch=epoch))
                batch.execute(f"CREATE OR REPLACE TABLE old AS {OLD}")
                assert counted(self.pond.read("old", epoch=epoch)) == Counter(
                    batch.sql("FROM old").fetchall()
                )
                here = [name for name in VIEWS if name in plan.views]
                for name in here:
                    want = Counter(batch.sql(VIEWS[name]).fetchall())
                    assert counted(self.pond.read(name, epoch=epoch)) == want, f"{name} at epoch {epoch}"
                had += bool(here)
        return had

    def check_nothing_left(self) -> None:
        """No table of a fill is in the listing, and no file of it is kept once history is."""
        runner = self.pond._runner
        assert runner is not None
        for _ in range(3):
            self.pond.sql("INSERT INTO m VALUES (1, 'a'); FLUSH")
            inbox.append(self.pond.store, "gc", {"keep": 1})
            runner.drain(settle=True)
        head = self.pond.head()
        assert head.backfill is None
        known = {t.name for n in self.pond.plan.nodes.values() for t in n.binding.tables} | {"_errors"}
        assert set(Listing.of(head, self.pond._worker.pages).tables()) <= known
        needed: set[str] = set()
        for epoch in history.epochs(self.pond.store):
            needed |= files_of(history.read_manifest(self.pond.store, epoch), self.pond._worker.pages)
        assert set(self.pond.store.list("runs/")) <= needed, "files that nobody needs"


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path / "pond", getattr(request, "param", 0), parallelism=2)
    yield world
    world.pond.close()


def fills(world: World) -> list[Manifest]:
    return [m for e in history.epochs(world.pond.store) if (m := world.pond.at(e).manifest).backfill]


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_old_views_move_on_and_new_ones_are_exact_from_their_first_epoch(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", seed, parallelism=1 + seed, epoch_rows_max=16)
    before = world.pond.epoch
    world.create(*[*VIEWS][seed::2])
    during = fills(world)
    moved = [m for m in during if m.admitted]
    assert len(moved) > 5, "epochs with rows, while the views were filled"
    assert len({str(counted(world.pond.read("old", epoch=m.epoch))) for m in moved}) > 3
    assert all(not set(VIEWS) & set(world.pond._reader.plan_of(m).views) for m in during)
    head = world.pond.head()
    assert (head.kind, head.metrics["backfill"]["chunks"]) == ("change", world.told[-1].chunks)
    assert head.metrics["backfill"]["rounds"] > 1
    assert [p.chunks for p in world.told] == list(range(1, len(world.told) + 1))
    assert world.told[-1].rows == world.told[-1].total
    assert world.pond.progress.backfill is None
    for _ in range(2):
        world.act()
        world.pond.sql("FLUSH")
    assert world.check(before) >= 3
    world.check_nothing_left()
    world.pond.close()


def test_whoever_takes_over_goes_on_with_the_next_chunk(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after every commit: no part of any table is taken in twice."""
    parts: list[tuple[str, int, int]] = []
    real = LongBackfill._run

    def seen(self: LongBackfill, ask: Any, splits: Any, past: Any, fill: Any) -> Any:
        if past.since is None:
            parts.extend(
                (step, s.what["h_min"], s.what["h_max"]) for step, given in splits.items() for s in given
            )
        return real(self, ask, splits, past, fill)

    monkeypatch.setattr(LongBackfill, "_run", seen)

    class Crash(BaseException):
        pass

    def crash(manifest: Manifest) -> None:
        if manifest.backfill is not None and manifest.kind == "epoch":
            raise Crash

    made.pond.on_epoch(crash)
    first, crashes = made.pond.epoch, 0
    with pytest.raises(Crash):
        made.create("without")
    while crashes < 200:
        crashes += 1
        made.pond.close()
        made.pond = opened(made.path, epoch_rows_max=made.rng.choice([12, 24]), parallelism=crashes % 3 + 1)
        made.pond.on_epoch(crash)
        made.insert()
        try:
            made.pond.drain()
            break
        except Crash:
            assert "without" not in made.pond.views()
    assert crashes > 4 and "without" in made.pond.views()
    assert len(parts) == len(set(parts))
    for step in {step for step, _, _ in parts}:
        ranges = sorted((low, high) for s, low, high in parts if s == step)
        assert ranges[0][0] == 0 and ranges[-1][1] == 2**64 - 1
        assert all(one[1] + 1 == two[0] for one, two in pairwise(ranges))
    assert made.check(first) > 0
    made.check_nothing_left()


def test_a_crash_before_the_commit_costs_one_chunk(made: World) -> None:
    class Crash(BaseException):
        pass

    done: list[int] = []

    def crash(progress: Progress) -> None:
        done.append(progress.chunks)
        if len(done) < 12 and len(done) % 3 == 0:
            raise Crash

    made.pond.session.on_progress = crash
    with pytest.raises(Crash):
        made.pond.sql(f"CREATE MATERIALIZED VIEW sums AS {VIEWS['sums']}")
    while "sums" not in made.pond.views() and len(done) < 100:
        made.pond.close()
        made.pond = opened(made.path)
        made.pond._listeners.on_progress = crash
        try:
            made.pond.drain()
        except Crash:
            continue
    assert done[:6] == [1, 2, 3, 3, 4, 5]
    assert made.check() > 0


def test_whatever_is_done_to_the_pond_meanwhile(made: World) -> None:
    store = made.pond.store
    made.acts += [
        lambda: inbox.append(store, "rescale", {"parallelism": made.rng.randint(1, 3)}) and None,
        lambda: inbox.append(store, "compact", {}) and None,
        lambda: inbox.append(store, "gc", {"keep": 1}) and None,
        lambda: inbox.append(store, "savepoint", {"name": "s"}) and None,
    ]
    made.often, first = 1.0, made.pond.epoch
    made.create("without", "everything")
    inside = [e for e in made.pond.head().savepoints.values()]
    assert inside and made.told[-1].chunks >= len(made.acts)
    assert made.check(first) > 0
    for epoch in inside:  # back to the middle of it: what was being filled then does not come
        made.pond.rollback(epoch)
        assert "without" not in made.pond.views()
        made.insert()
        made.pond.sql("FLUSH; DROP SAVEPOINT s")
    made.check(made.pond.epoch)
    made.create(*(name for name in ("without", "everything") if name not in made.pond.views()))
    made.check(made.pond.epoch)
    made.check_nothing_left()


def test_a_rollback_meanwhile_ends_it_and_a_statement_tries_again(made: World) -> None:
    before = made.pond.epoch
    made.insert()
    made.pond.sql("FLUSH")

    def back(progress: Progress) -> None:
        made.told.append(progress)
        if len(made.told) == 4:
            inbox.append(made.pond.store, "rollback", {"epoch": before})

    made.pond.session.on_progress = back
    made.pond.sql(f"CREATE MATERIALIZED VIEW sums AS {VIEWS['sums']}")
    assert [p.chunks for p in made.told[:6]] == [1, 2, 3, 4, 1, 2]
    made.check()
    with pytest.raises(ConflictError, match="the program was not changed"):
        made.told.clear()
        with made.pond.changing(on_progress=back):
            Stream(made.pond._builder, "t.rows").aggregate(n="count(*)").view("all")
    assert "all" not in made.pond.views()
    made.check_nothing_left()


def test_what_fails_for_good_is_refused_and_leaves_nothing(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.errors import InvalidError

    real = LongBackfill._run

    def fails(self: LongBackfill, ask: Any, *given: Any) -> Any:
        if ask.progress.chunks == 3:
            raise InvalidError("it cannot be done", detail="never")
        return real(self, ask, *given)

    monkeypatch.setattr(LongBackfill, "_run", fails)
    with pytest.raises(InvalidError, match="the program was not changed") as caught:
        made.create("sums")
    assert "it cannot be done; never" in (caught.value.detail or "")
    assert "sums" not in made.pond.views()
    made.check_nothing_left()
    monkeypatch.setattr(LongBackfill, "_run", real)
    made.create("sums")
    assert made.check(made.pond.epoch) == 1


def test_errors_of_new_steps_are_seen_with_them_and_not_before(made: World) -> None:
    bad = "SELECT id, (CASE WHEN x > 10 THEN 'no' ELSE '7' END)::int AS q FROM t"
    made.pond.session.on_progress = made.progress
    made.pond.sql(f"CREATE MATERIALIZED VIEW bad AS {bad}")
    for manifest in fills(made):
        assert made.pond.errors(epoch=manifest.epoch).num_rows == 0

    def check() -> None:
        failing = made.pond.sql("SELECT count(*) FROM t WHERE x > 10").fetchone()
        errors = sum(made.pond.errors()["weight"].to_pylist())
        assert failing is not None and errors == failing[0] > 0
        assert made.pond.read("bad").num_rows + failing[0] == made.pond.read("t").num_rows

    check()
    made.delete()
    made.pond.sql("FLUSH")
    check()
    made.pond.sql("DROP MATERIALIZED VIEW bad")
    assert made.pond.errors().num_rows == 0


@pytest.mark.slow
def test_a_pond_that_is_fed_faster_than_it_fills_comes_to_an_end(made: World) -> None:
    made.often, made.acts = 1.0, [lambda: made.insert(30)]
    made.create("sums")
    assert 2 < made.pond.head().metrics["backfill"]["rounds"] < 10
    assert made.check(made.pond.epoch) == 1


def test_other_sessions_go_on_and_other_changes_wait(tmp_path: Path) -> None:
    world = World(tmp_path / "pond", 3, epoch_rows_max=2)
    pond = world.pond
    pond.start()
    begun, go = threading.Event(), threading.Event()

    def slowly(progress: Progress) -> None:
        begun.set()
        go.wait(0.4)

    pond.session.on_progress = slowly
    creating = threading.Thread(target=lambda: pond.sql(f"CREATE MATERIALIZED VIEW sums AS {VIEWS['sums']}"))
    creating.start()
    assert begun.wait(120)
    other = SqlSession(pond.session.host)
    failed: list[BaseException] = []

    def drop() -> None:
        try:
            other.run("DROP MATERIALIZED VIEW old")
        except BaseException as error:
            failed.append(error)

    dropping = threading.Thread(target=drop)
    third = SqlSession(pond.session.host)
    assert third.run("UPDATE t SET x = 5 WHERE id = 1").rowcount <= 1
    third.run("INSERT INTO t VALUES (1000, 77, 1); FLUSH")
    assert third.run("SELECT n FROM old WHERE k = 77").fetchall() == [(1,)]
    jobs = [row for row in third.run("SHOW JOBS").fetchall() if row[0] != "compaction"]
    ((job, what, state, done, total, unit, _),) = jobs
    assert (job, what, state, unit) == ("backfill", "sums", "running", "rows") and 0 <= done < total
    assert pond.head().backfill is not None and "sums" not in pond.views()
    dropping.start()
    go.set()
    creating.join(120)
    dropping.join(120)
    assert failed == []
    # The thread behind start() takes the plan of a commit a moment after it.
    until(lambda: pond.views() == ["m", "sums", "t"])
    pond.close()


def test_a_fork_of_the_middle_has_nothing_of_it(made: World, tmp_path: Path) -> None:
    made.create("sums")
    middle = fills(made)[-1]
    assert any(
        "!" in table or "sums" in table for table in Listing.of(middle, made.pond._worker.pages).tables()
    )
    made.pond.fork(tmp_path / "fork", epoch=middle.epoch)
    with opened(tmp_path / "fork") as fork:
        fork.drain()
        assert fork.views() == ["m", "old", "t"]
        assert fork.head().backfill is None
        assert not [t for t in Listing.of(fork.head(), fork._worker.pages).tables() if "sums" in t]
        fork.sql("INSERT INTO t VALUES (1, 1, 1); FLUSH")


@pytest.mark.parametrize("which", [0, 0.5, -1])
def test_a_pond_restored_from_a_backup_of_the_middle_completes_it(
    made: World, tmp_path: Path, which: float
) -> None:
    made.create("sums")
    found = fills(made)
    middle = found[int(which * len(found)) if which > 0 else int(which)]
    assert middle.backfill is not None
    made.pond.backup(tmp_path / "backup", middle.epoch, verify=True)
    made.pond.close()
    shutil.rmtree(made.path)
    millpond.restore(tmp_path / "backup", tmp_path / "restored")
    made.pond = opened(tmp_path / "restored")
    made.pond.drain()
    assert "sums" in made.pond.views() and made.pond.head().backfill is None
    made.insert()
    made.pond.drain()
    assert made.check() > 0


def test_what_minds_when_rows_come_is_filled_while_the_pond_waits(made: World) -> None:
    """Where the changes since cannot be run through the same plan: one commit, as for little ones."""
    source = MemorySource(pa.schema([("k", pa.int32())]))
    with made.pond.changing():
        stream = made.pond.stream("s", source)
        stream.aggregate(n="count(*)").view("n")
    source.push(*[[{"k": n % 4}] for n in range(40)])
    made.pond.drain()
    epoch = made.pond.epoch
    with made.pond.changing():
        stream.join(Stream(made.pond._builder, "t.rows"), on="k").aggregate(n="count(*)").view("pairs")
    assert made.pond.epoch == epoch + 1 and made.pond.head().metrics["backfill"]["chunks"] > 1
    ks = made.pond.read("t")["k"].to_pylist()
    assert made.pond.read("pairs").to_pylist() == [{"n": 10 * sum(k < 4 for k in ks)}]


def test_a_little_is_filled_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "pond", 0, epoch_rows_max=100_000)
    epoch = world.pond.epoch
    world.create("sums")
    assert world.pond.epoch == epoch + 1
    assert world.check(epoch) == 1
    world.pond.close()


def test_what_is_looked_for_is_read_before_rows_that_would_be_shown_alone(made: World) -> None:
    """Else a view that keeps rows without a partner would hold most of them, and lose them again."""
    made.often = 0.0
    made.create("outer_", "without")  # m LEFT JOIN t, and t NOT IN m: whichever is first, one is taken back
    both = next(m.backfill for m in fills(made) if m.backfill is not None)
    assert [step for step, *_ in both.cuts] == ["m.rows", "t.rows"], "the smaller one"
    made.pond.sql("DROP MATERIALIZED VIEW outer_; DROP MATERIALIZED VIEW without")
    made.create("outer_")
    alone = fills(made)[-1].backfill
    assert alone is not None and [step for step, *_ in alone.cuts] == ["t.rows", "m.rows"]
    made.check()


def test_copies_of_old_steps_keep_state_of_their_own(made: World) -> None:
    """A join that no view holds is computed again beside itself, and what only the fill needed goes."""
    pond = made.pond
    with pond.changing():
        t, m = (Stream(pond._builder, f"{name}.rows") for name in "tm")
        shared = t.join(m, on="k", id="shared")
        shared.key_by("w").aggregate(n="count(*)").view("per_w")
    with pond.changing(on_progress=made.progress):
        shared.key_by("k").aggregate(n="count(*)").view("per_k")
    names = {t for f in fills(made) if f.backfill for t in f.backfill.tables}
    assert any(name.startswith("shared!again/") for name in names)

    def check() -> None:
        pairs = pond.sql("SELECT t.k, w FROM t JOIN m USING (k)").fetchall()
        assert dict(pond.sql("SELECT k, n FROM per_k").fetchall()) == Counter(k for k, _ in pairs)
        assert dict(pond.sql("SELECT w, n FROM per_w").fetchall()) == Counter(w for _, w in pairs)

    check()
    made.change()
    pond.sql("FLUSH")
    check()
    made.check_nothing_left()

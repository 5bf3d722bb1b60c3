"""Replay: the same manifest and the same input give the same outcome (law 3), and nothing is written."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import MapState, Process, ValueState
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.plan.user_code import user_codes
from millpond.pond import Pond
from millpond.serve.replay import difference
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from millpond.state.store.store import Store

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
TIMED = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])


def opened(path: Path, **settings: Any) -> Pond:
    return millpond.open(path, engine="inline", durable=False, **settings)


def everything(store: Store) -> set[str]:
    return {name for name in store.list("") if not name.startswith(("lease/", "pins/"))}


def test_every_epoch_comes_out_the_same_and_nothing_is_written(tmp_path: Path) -> None:
    rng = random.Random(7)
    source = MemorySource(SCHEMA, append_only=False)
    with opened(tmp_path / "pond", parallelism=3, compact=False) as pond:
        stream = pond.stream("s", source)
        stream.key_by("k").aggregate(n="count(*)", total="sum(v)", top="max(v)").view("by_k")
        stream.key_by("k").top_n(2, "v desc").view("best")
        held: list[dict[str, Any]] = []
        for _ in range(6):
            rows = [{"k": rng.choice("abcdef"), "v": rng.randrange(100)} for _ in range(20)]
            gone = rng.sample(held, min(len(held), 5))
            held = [r for r in held if r not in gone] + rows
            source.push([*rows, *({**r, "_w": -1} for r in {tuple(g.items()): g for g in gone}.values())])
            pond.drain()
            pond.rescale(rng.randrange(1, 6))
        before = everything(pond.store)
        for made in pond.epochs(last=None):
            if made.kind == "epoch":
                found = pond.replay(made.epoch)
                assert found.same, (made.epoch, found.differences)
                assert bool(found.tables) == bool(made.changed)
        assert everything(pond.store) == before


def test_a_function_that_rolls_dice_is_found_out(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    with opened(tmp_path / "pond") as pond:
        schema = pa.schema([("k", pa.string()), ("luck", pa.float64())])
        pond.stream("s", source).flat_map(lambda r: [{"k": r.k, "luck": random.random()}], schema).view(
            "lucky"
        )
        epoch = pond.drain()
        found = pond.replay(epoch)
        assert not found.same
        (odd,) = found.differences.values()
        assert sorted(odd["_only"].to_pylist()) == ["committed"] * 2 + ["replay"] * 2
        was = {r["luck"] for r in odd.to_pylist() if r["_only"] == "committed"}
        assert was == set(pond.read("lucky")["luck"].to_pylist())
        assert found.counts == found.committed_counts == {"rows/s": 2}


def test_rows_of_the_inbox(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.table("prices", SCHEMA, key="k").aggregate(total="sum(v)").view("total")
        pond.insert("prices", [{"k": "tea", "v": 3}])
        pond.drain()
        pond.insert("prices", [{"k": "tea", "v": 4}])
        pond.delete("prices", [{"k": "milk", "v": 1}])
        epoch = pond.drain()
        found = pond.replay(epoch)
        assert found.same and found.counts["rows/prices"] == 2
        assert found.outputs["prices.rows"].to_pylist() == [
            {"k": "tea", "v": 3, "_w": -1},
            {"k": "tea", "v": 4, "_w": 1},
        ]
    # From another process: only the pond is there.
    assert opened(tmp_path / "pond").replay(epoch).same


def test_after_compaction_and_rollback(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond", parallelism=2) as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        for number in range(4):
            source.push([{"k": key, "v": number} for key in "abc"])
            last = pond.drain()
        pond.compact()
        assert pond.replay(last).same
        pond.rollback(2)
        again = pond.drain()
        assert again > last
        for made in pond.epochs(last=None):
            if made.kind == "epoch":
                assert pond.replay(made.epoch).same, made


def test_closed_windows_late_rows_and_errors(tmp_path: Path) -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second)

    def picky(row: Any) -> list[dict[str, Any]]:
        return [{"n": 1 // (row.at.second - 15)}]

    source = MemorySource(TIMED)
    with opened(tmp_path / "pond", parallelism=2) as pond:
        stream = pond.stream("clicks", source, event_time="at", delay="5s")
        stream.tumble("10s").key_by("window_end", "k").aggregate(n="count(*)", on_close=True).view("windows")
        stream.flat_map(picky, pa.schema([("n", pa.int64())])).view("picky")
        for seconds in ((1, 9), (15, 28), (3, 29), (45,)):
            source.push([{"k": "a", "at": at(s)} for s in seconds])
            pond.drain()
        found = {e.epoch: pond.replay(e.epoch) for e in pond.epochs() if e.kind == "epoch"}
        assert all(f.same for f in found.values())
        assert sum(f.counts.get("errors/clicks.watermark.flat_map", 0) for f in found.values()) == 1
        late = [
            f.counts["late/clicks.watermark"] for f in found.values() if "late/clicks.watermark" in f.counts
        ]
        assert late == [1]


def test_files_are_read_again_and_a_lost_one_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"k": ["a", "b"], "v": [1, 2]}), folder / "one.parquet")
    (folder / "bad.parquet").write_text("no parquet at all")
    with opened(tmp_path / "pond") as pond:
        pond.stream("s", FileSource(folder, schema=SCHEMA)).key_by("k").aggregate(n="count(*)").view("by_k")
        epoch = pond.drain()
    reader = opened(tmp_path / "pond")
    assert reader.errors().num_rows == 1
    found = reader.replay(epoch)
    assert found.same, found  # what the coordinator refused is not counted to the tasks
    (folder / "one.parquet").unlink()
    message = f"epoch {epoch} cannot be replayed: what it read from source 's' is missing"
    with pytest.raises(InvalidError, match=message) as told:
        reader.replay(epoch)
    assert told.value.step == "s" and told.value.epoch == epoch
    assert "file 'one.parquet' is gone: it was admitted from" in (told.value.detail or "")
    assert "read to its end" not in str(told.value)  # it was
    assert "put it back" in (told.value.hint or "")
    pq.write_table(pa.table({"k": ["a", "b"], "v": [1, 3]}), folder / "one.parquet")
    with pytest.raises(InvalidError, match=message) as told:
        reader.replay(epoch)
    assert "file 'one.parquet' changed after it was admitted" in (told.value.detail or "")


def test_a_savepoint_keeps_the_rows_of_tables_that_its_epoch_read(tmp_path: Path) -> None:
    with opened(tmp_path / "pond", retain_epochs=3, collect_every=1) as pond:
        table = pond.table("t", {"k": str, "v": int})
        table.key_by("k").aggregate(n="count(*)").view("by_k")
        pond.insert("t", [{"k": "a", "v": 1}])
        pond.drain()
        pond.insert("t", [{"k": "b", "v": 1}])
        named = pond.drain()
        pond.savepoint("named")
        for number in range(12):
            pond.insert("t", [{"k": "a", "v": number}])
            pond.drain()
        assert pond.head().floor > named
        assert pond.replay("named").epoch == named and pond.replay("named").same


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond", retain_epochs=3, collect_every=1) as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        with pytest.raises(InvalidError, match="no pond here"):
            pond.replay(1)
        for number in range(8):
            source.push([{"k": "a", "v": number}])
            pond.drain()
        pond.rollback(pond.epoch - 1)
        rollback = next(e.epoch for e in pond.epochs() if e.kind == "rollback")
        with pytest.raises(InvalidError, match=f"epoch {rollback} computed nothing: it went back to epoch"):
            pond.replay(rollback)
        with pytest.raises(InvalidError, match="there is no epoch 99 yet"):
            pond.replay(99)
        with pytest.raises(InvalidError, match="no longer kept"):
            pond.replay(1)
        floor = pond.head().floor
        with pytest.raises(InvalidError, match="the epoch before it is no longer kept"):
            pond.replay(floor)
        source.push([{"k": "a", "v": 8}])  # the epoch gone back from may have been one of a merge alone
        pond.drain()
        with pytest.raises(InvalidError, match="no step named 'by-k'") as told:
            pond.replay(pond.epoch, step="by-k")
        assert told.value.hint is not None and "s.by-k" in told.value.hint
    with pytest.raises(InvalidError, match="what it read from source 's' is missing"):
        opened(tmp_path / "pond").replay(rollback + 1)
    with opened(tmp_path / "pond") as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        pond.drain()
        with pytest.raises(InvalidError, match="it took the pond over"):
            pond.replay(next(e.epoch for e in reversed(pond.epochs()) if e.kind == "takeover"))


def test_a_savepoint_can_be_replayed_after_its_time(tmp_path: Path) -> None:
    """The files of a named epoch and of the one before it stay (law 6); those of its inbox do not."""
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond", retain_epochs=3, collect_every=1) as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        for number in range(10):
            source.push([{"k": "a", "v": number}])
            pond.drain()
            if number == 1:
                pond.savepoint("second")
        assert pond.savepoints() == {"second": 2} and pond.head().floor > 2
        assert pond.replay("second").same


def test_an_epoch_that_ran_nothing_is_trivially_the_same(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}])
    with opened(tmp_path / "pond") as pond:
        pond.stream("s", source).view("rows")
        pond.drain()
        pond.savepoint("x")
        found = pond.replay(pond.epoch)
        assert found.same and found.tables == 0 and found.outputs == {}


def test_one_step_is_looked_at_and_user_errors_are_heard(tmp_path: Path) -> None:
    def half(row: Any) -> Any:
        yield {"n": 1}
        yield {"n": 10 // row.v}

    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 0}, {"k": "b", "v": 2}])
    heard: list[tuple[str, int]] = []
    raised: list[BaseException] = []
    with opened(tmp_path / "pond") as pond:
        stream = pond.stream("s", source)
        stream.flat_map(half, pa.schema([("n", pa.int64())]), id="half").view("halves")
        stream.key_by("k").aggregate(n="count(*)").view("by_k")
        epoch = pond.drain()
        assert half.__code__ in user_codes(pond.plan) and len(user_codes(pond.plan)) == 1
        found = pond.replay(
            epoch,
            step="half",
            on_input=lambda step, inputs: heard.append(
                (step, sum(i.num_rows for i in inputs if i is not None))
            ),
            on_error=raised.append,
        )
    assert found.same and set(found.outputs) == {"half"} and heard == [("half", 2)]
    (error,) = raised
    assert isinstance(error, ZeroDivisionError)
    trace = error.__traceback__
    assert trace is not None and trace.tb_next is not None
    assert trace.tb_next.tb_frame.f_locals["row"].v == 0  # the user's own frame


def test_a_fix_is_tried_without_touching_the_pond(tmp_path: Path) -> None:
    def pipeline(pond: Pond, source: MemorySource, factor: int) -> None:
        schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
        pond.stream("s", source).flat_map(lambda r: [{"k": r.k, "v": r.v * factor}], schema, id="times").view(
            "v"
        )

    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 21}])
    with opened(tmp_path / "pond") as pond:
        pipeline(pond, source, 1)
        epoch = pond.drain()
        with opened(tmp_path / "scratch") as other:
            pipeline(other, source, 2)
            found = pond.replay(epoch, plan=other.plan)
        assert not found.same and found.outputs["times"].to_pylist() == [{"k": "a", "v": 42, "_w": 1}]
        assert pond.read("v").to_pylist() == [{"k": "a", "v": 21}]
        assert not (tmp_path / "scratch" / "manifests").exists()


def test_in_a_fork(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}])
    with opened(tmp_path / "pond") as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        pond.drain()
        pond.fork(tmp_path / "fork")
    source.push([{"k": "a", "v": 2}])
    with opened(tmp_path / "fork") as pond:
        pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("by_k")
        with pytest.raises(InvalidError, match="began the fork"):
            pond.replay(0)
        assert pond.replay(pond.drain()).same


def test_tables_of_other_columns_differ_in_every_row() -> None:
    new = pa.table({"k": ["a"], "n": [1], "_gone": [False], "_w": [1]})
    old = pa.table({"k": ["a"], "_gone": [False], "_w": [1]})
    assert difference(new, old).num_rows == 2
    assert difference(new, new).num_rows == 0
    assert difference(None, old)["_only"].to_pylist() == ["committed"]


class Reminder(Process):
    """Counts, and reminds by both clocks; some rows are too much for it."""

    seen = ValueState(int, default=0)
    notes = MapState(str, int, ttl="2s", clock="processing")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.value += 100 // row.v
        self.notes[row.k] = row.v
        ctx.set_timer("soon", ctx.now + timedelta(seconds=1), clock="processing")
        ctx.set_timer(f"later-{row.at.second}", row.at + timedelta(seconds=2))
        return {"what": "row", "n": self.seen.value}

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield {"what": timer.name, "n": self.seen.value}


def test_timers_of_both_clocks_and_epochs_without_input(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000_000)
    source = MemorySource(pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us"))]))
    with opened(tmp_path / "pond", clock=clock, parallelism=3) as pond:
        keyed = pond.stream("s", source, event_time="at").key_by("k")
        keyed.process(
            Reminder(), schema=pa.schema([("what", pa.string()), ("n", pa.int64())]), id="remind"
        ).view("rows")
        for second in range(6):
            rows = [
                {"k": k, "v": v, "at": datetime(2026, 1, 1, 0, 0, second)}
                for k, v in zip("abc", (1, 2, 0), strict=True)
            ]
            source.push(rows)
            pond.drain()
            clock.advance(1_500_000)
            pond.drain()
        made = [e for e in pond.epochs(last=None) if e.kind == "epoch"]
        without = [e.epoch for e in made if not e.rows and e.tasks]
        assert without, "an epoch was run for the clock alone"
        raised: list[BaseException] = []
        found = {e.epoch: pond.replay(e.epoch, on_error=raised.append) for e in made}
        assert all(f.same for f in found.values()), {e: f for e, f in found.items() if not f.same}
        assert all(found[e].outputs["remind"].num_rows for e in without if found[e].outputs)
        # A process step does the rows of a key that failed once more, with care: each error is heard twice.
        assert len(raised) == 12 and all(isinstance(e, ZeroDivisionError) for e in raised)
        assert {w.partition("-")[0] for w in pond.read("rows")["what"].to_pylist()} == {
            "row",
            "soon",
            "later",
        }
    # From the pond alone, what the stored code does without input can be seen as well.
    assert all(opened(tmp_path / "pond").replay(e).same for e in without)


def test_a_breakpoint_may_take_its_time(tmp_path: Path) -> None:
    """The limit of a call is for pipelines; in a replay somebody may be looking."""

    def slow(row: Any, n: Any = ValueState(int, default=0)) -> Any:
        if sitting:
            time.sleep(0.6)
        n.value += 1
        return {"n": n.value}

    sitting: list[bool] = []
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}])
    with opened(tmp_path / "pond") as pond:
        keyed = pond.stream("s", source).key_by("k")
        keyed.process(slow, schema=pa.schema([("n", pa.int64())]), id="slow", timeout="300ms").view("rows")
        epoch = pond.drain()
        sitting.append(True)
        assert pond.replay(epoch, plan=pond.plan).same

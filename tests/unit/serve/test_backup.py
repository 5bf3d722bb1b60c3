"""Backup and restore: consistent, incremental, verified; whole or not there."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import ConflictError, DataError, InvalidError, MillpondError, UnavailableError
from millpond.pond import Pond
from millpond.serve.backup import CopyProgress, back_up
from millpond.serve.restore import restore
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource
from millpond.state import inbox
from millpond.state.backup_record import records
from millpond.state.store.local_store import LocalStore
from millpond.state.store.store import Data, Put, StoreError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(path: Path, **options: Any) -> Pond:
    return millpond.open(path, engine="inline", **{"durable": False, "lease_ms": 400, **options})


def created(path: Path, **options: Any) -> Pond:
    pond = opened(path, **options)
    pond.sql("CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")
    pond.sql(
        "CREATE MATERIALIZED VIEW m AS SELECT v % 3 AS r, count(*) AS n, sum(v) AS s FROM t GROUP BY v % 3"
    )
    return pond


def put(pond: Pond, *keys: int) -> None:
    pond.insert("t", [{"k": k, "v": 7 * k} for k in keys])
    pond.flush()


def shown(pond: Pond, epoch: int | str | None = None) -> list[list[tuple[Any, ...]]]:
    return [
        sorted(tuple(r.values()) for r in pond.read(view, epoch=epoch).to_pylist()) for view in ("t", "m")
    ]


def oracle(keys: range) -> list[list[tuple[Any, ...]]]:
    """What a pond that got these keys shows."""
    rows = [(k, 7 * k) for k in keys]
    groups = {r: [v for _, v in rows if v % 3 == r] for r in range(3)}
    return [rows, sorted((r, len(vs), sum(vs)) for r, vs in groups.items() if vs)]


def files(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_restored_pond_continues_exactly(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        for k in range(5):
            put(pond, k)
        pond.savepoint("s")
        put(pond, 5)
        made = pond.backup(tmp_path / "b", verify=True)
        at, head = shown(pond), pond.head()
        put(pond, 100)
        savepoint = shown(pond, "s")
    assert (made.epoch, made.pond, made.inbox_entries, made.verified) == (head.epoch, head.pond, 0, True)
    assert made.copied_files == made.files and made.copied_bytes == made.bytes > 0
    restored = millpond.restore(tmp_path / "b", tmp_path / "r")
    assert (restored.epoch, restored.pond) == (head.epoch, head.pond)
    with opened(tmp_path / "r") as again:
        now = again.head()
        assert shown(again) == at
        assert (now.positions, now.watermarks, now.counts) == (head.positions, head.watermarks, head.counts)
        assert shown(again, "s") == savepoint
        assert again.savepoints() == {"s": head.savepoints["s"]}
        put(again, 6, 7)
        again.compact()
        assert shown(again) == oracle(range(8))


def test_entries_that_were_acknowledged_and_not_executed_are_part_of_it(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 0)
    with opened(tmp_path / "p") as pond:
        pond.insert("t", [{"k": 1, "v": 7}])
        pond.insert("t", [{"k": 2, "v": 14}])
        assert pond.backup(tmp_path / "b").inbox_entries == 2
        old = pond.backup(tmp_path / "old", pond.epoch - 1)
        assert old.inbox_entries == 0, "an older epoch is what it was"
    millpond.restore(tmp_path / "b", tmp_path / "r")
    with opened(tmp_path / "r") as again:
        assert shown(again) == oracle(range(1))
        again.drain()
        assert shown(again) == oracle(range(3))
        put(again, 3)
        assert shown(again) == oracle(range(4))
    assert millpond.restore(tmp_path / "old", tmp_path / "r2").epoch == old.epoch


def test_only_what_is_new_is_copied(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        for k in range(6):
            put(pond, k)
        first = pond.backup(tmp_path / "b")
        before = files(tmp_path / "b")
        again = pond.backup(tmp_path / "b")
        assert (again.copied_files, again.files) == (0, first.files)
        assert files(tmp_path / "b") == before, "the same epoch again writes nothing"
        put(pond, 6)
        second = pond.backup(tmp_path / "b")
        after = files(tmp_path / "b")
        assert 0 < second.copied_files < second.files
        assert {n: after[n] for n in before} == before, "nothing that was there is touched"
        assert len(after) - len(before) == second.copied_files + 1, "and the record"
    for epoch, keys in ((first.epoch, range(6)), (second.epoch, range(7))):
        millpond.restore(tmp_path / "b", tmp_path / f"r{epoch}", epoch)
        with opened(tmp_path / f"r{epoch}") as restored:
            assert shown(restored) == oracle(keys)
    millpond.restore(tmp_path / "b", tmp_path / "newest")
    with opened(tmp_path / "newest") as restored:
        assert shown(restored) == oracle(range(7))


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[CopyProgress] = []
    with created(tmp_path / "p") as pond:
        put(pond, 1)
        made = pond.backup(tmp_path / "b", on_progress=told.append)
    assert [p.files for p in told] == list(range(1, made.files + 1))
    assert told[-1] == CopyProgress(made.files, made.files, made.bytes)


class Failing(LocalStore):
    """A store whose n-th put fails."""

    left = 10**9

    def put_new(self, name: str, data: Data) -> Put:
        self.left -= 1
        if self.left < 0:
            raise StoreError("no room")
        return super().put_new(name, data)


def test_a_backup_that_is_cut_short_leaves_the_one_before_and_is_completed_by_the_next(
    tmp_path: Path,
) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 0, 1)
        first = pond.backup(tmp_path / "b")
        put(pond, 2)
        put(pond, 3)
        pond.compact()
        for puts in range(100):
            target = Failing(tmp_path / "b", durable=False)
            target.left = min(puts, 1)  # one file further than the one before
            try:
                done = back_up(pond._reader, target)
            except StoreError:
                shutil.rmtree(tmp_path / "r", ignore_errors=True)
                millpond.restore(tmp_path / "b", tmp_path / "r")
                with opened(tmp_path / "r") as restored:
                    assert shown(restored) == oracle(range(2))
                continue
            break
        assert puts > 2, "it was cut short at several places"
        assert done.epoch > first.epoch
    shutil.rmtree(tmp_path / "r")
    millpond.restore(tmp_path / "b", tmp_path / "r")
    with opened(tmp_path / "r") as restored:
        assert shown(restored) == oracle(range(4))


def test_a_restore_that_is_cut_short_is_completed_by_the_next(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 0, 1)
        pond.savepoint("s")
        put(pond, 2)
        made = pond.backup(tmp_path / "b")
    for puts in range(made.files):
        target = Failing(tmp_path / "r", durable=False)
        target.left = puts
        with pytest.raises(StoreError):
            restore(LocalStore(tmp_path / "b"), target)
    millpond.restore(tmp_path / "b", tmp_path / "r")
    with opened(tmp_path / "r") as restored:
        assert shown(restored) == oracle(range(3))
        with pytest.raises(ConflictError, match="there is a pond here already"):
            millpond.restore(tmp_path / "b", tmp_path / "r")


def test_a_backup_while_the_pond_runs_and_collects(tmp_path: Path) -> None:
    """Each backup is one epoch: as many rows of `t` as the sum over `m` says, a prefix of what was written."""
    pond = created(tmp_path / "p", retain_epochs=1, poll_ms=1, fan_in=2)
    pond.drain()
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        k = 0
        try:
            while not stop.is_set():
                pond.insert("t", [{"k": k, "v": 7 * k}])
                k += 1
                if k % 10 == 0:
                    inbox.append(pond.store, "gc", {"keep": 1}, start=int(pond.head().positions["inbox"]))
        except BaseException as error:
            failed.append(error)

    pond.start()
    writer = threading.Thread(target=write)
    writer.start()
    made = []
    try:
        with opened(tmp_path / "p") as other:
            while len(made) < 6:
                made.append(other.backup(tmp_path / "b", verify=True))
    finally:
        stop.set()
        writer.join()
        pond.close()
    assert not failed
    for number, backup in enumerate(made):
        target = tmp_path / f"r{number}"
        if not target.exists():
            millpond.restore(tmp_path / "b", target, backup.epoch)
        with opened(target) as restored:
            rows = restored.read("t").num_rows
            assert shown(restored) == oracle(range(rows))
            restored.drain()
            after = restored.read("t").num_rows
            assert after >= rows and shown(restored) == oracle(range(after))


def damage(path: Path, kind: str) -> None:
    found = sorted(f for f in (path / kind).rglob("*") if f.is_file())
    for file in found[-1:] if kind == "manifests" else found:
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        file.unlink()
        file.write_bytes(bytes(raw))


@pytest.mark.parametrize("kind", ["runs", "catalog", "inbox", "manifests"])
def test_a_damaged_pond_is_not_backed_up(tmp_path: Path, kind: str) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, *range(100))
    with opened(tmp_path / "p") as pond:
        pond.insert("t", [{"k": k, "v": 1} for k in range(1000)])
        damage(tmp_path / "p", kind)
    with opened(tmp_path / "p") as pond, pytest.raises(DataError):
        pond.backup(tmp_path / "b")
    assert records(LocalStore(tmp_path / "b")) == []


def test_every_damaged_or_missing_file_of_a_backup_is_found(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 0, 1)
        pond.savepoint("s")
        put(pond, 2)
        pond.insert("t", [{"k": 3, "v": 21}])
        pond.drain()
        pond.backup(tmp_path / "b")
        whole = files(tmp_path / "b")
        for name, raw in whole.items():
            file = tmp_path / "b" / name
            for other in (raw[: len(raw) // 2], raw[:-1] + bytes([raw[-1] ^ 1]), None):
                file.unlink()
                if other is not None:
                    file.write_bytes(other)
                if not name.startswith("backups/"):
                    with pytest.raises(DataError):
                        pond.backup(tmp_path / "b", verify=True)
                with pytest.raises(MillpondError) as caught:
                    millpond.restore(tmp_path / "b", tmp_path / "r")
                assert isinstance(caught.value, DataError) or (name.startswith("backups/") and other is None)
                shutil.rmtree(tmp_path / "r", ignore_errors=True)
                if other is not None:
                    file.unlink()
                file.write_bytes(raw)
        pond.backup(tmp_path / "b", verify=True)


def test_the_backup_of_a_fork_stands_alone(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        for k in range(120):
            pond.insert("t", [{"k": k, "v": 7 * k}])
            if k % 40 == 39:
                pond.flush()
        pond.fork(tmp_path / "f")
    with opened(tmp_path / "f") as fork:
        fork.fork(tmp_path / "g")
    with opened(tmp_path / "g") as fork:
        put(fork, 120)
        fork.backup(tmp_path / "b")
        put(fork, 121)
        assert 0 < fork.backup(tmp_path / "b").copied_files < 10
    for gone in ("p", "f", "g"):
        shutil.rmtree(tmp_path / gone)
    millpond.restore(tmp_path / "b", tmp_path / "r")
    with opened(tmp_path / "r") as restored:
        assert shown(restored) == oracle(range(122))
        put(restored, 122)
        restored.compact()
        assert shown(restored) == oracle(range(123))
        assert not restored.head().roots


def with_sink(
    path: Path, heard: list[Any], fails: Callable[[], bool] = lambda: False
) -> tuple[Pond, MemorySource]:
    def deliver(id: str, delta: pa.Table) -> None:
        if fails():
            raise OSError("the target is down")
        heard.append((id, sorted(map(str, delta.to_pylist()))))

    source = MemorySource(SCHEMA)
    pond = opened(path, retain_epochs=1)
    pond.stream("in", source).key_by("k").aggregate(s="sum(v)").view("sums").sink(
        "out", CallbackSink(deliver)
    )
    return pond, source


def test_sinks_are_told_what_the_lost_pond_still_owed_them(tmp_path: Path) -> None:
    """A target that was down for some epochs when the backup was made gets them from the restored pond."""
    heard: list[Any] = []
    down = False
    pond, source = with_sink(tmp_path / "p", heard, lambda: down)
    with pond:
        source.push([{"k": 1, "v": 1}])
        pond.drain()
        down = True
        for v in (2, 3):
            source.push([{"k": 1, "v": v}])
            with pytest.raises(UnavailableError, match="sink 'out' failed"):
                pond.drain()
        made = pond.backup(tmp_path / "b")
        id = made.pond
        items = list(source.items)
    told = len(heard)
    down = False
    millpond.restore(tmp_path / "b", tmp_path / "r")
    again, source = with_sink(tmp_path / "r", heard)
    source.items.extend(items)
    with again:
        source.push([{"k": 1, "v": 4}])
        again.drain()
        assert again.read("sums").to_pylist() == [{"k": 1, "s": 10}]
    sums = [rows for _, rows in heard]
    assert sums[0] == ["{'k': 1, 's': 1, '_w': 1}"]
    assert sums[told:] == [
        ["{'k': 1, 's': 1, '_w': -1}", "{'k': 1, 's': 3, '_w': 1}"],
        ["{'k': 1, 's': 3, '_w': -1}", "{'k': 1, 's': 6, '_w': 1}"],
        ["{'k': 1, 's': 10, '_w': 1}", "{'k': 1, 's': 6, '_w': -1}"],
    ]
    assert all(told_by.startswith(f"{id}:") for told_by, _ in heard), "it is the same pond"
    assert len({told_by for told_by, _ in heard}) == len(heard)


def test_a_pond_with_a_new_id_is_another_pond_to_sinks(tmp_path: Path) -> None:
    heard: list[Any] = []
    pond, source = with_sink(tmp_path / "p", heard)
    with pond:
        source.push([{"k": 1, "v": 1}])
        pond.drain()
        made = pond.backup(tmp_path / "b")
        items = list(source.items)
    restored = millpond.restore(tmp_path / "b", tmp_path / "r", new_id=True)
    assert restored.pond != made.pond
    again, source = with_sink(tmp_path / "r", heard)
    source.items.extend(items)
    with again:
        source.push([{"k": 1, "v": 4}])
        again.drain()
    assert heard[-1][0].startswith(f"{restored.pond}:")


def test_a_restored_pond_and_its_backups_share_a_target_with_those_of_the_lost_one(tmp_path: Path) -> None:
    """Epochs and inbox entries of two histories have the same numbers."""
    with created(tmp_path / "p") as pond:
        put(pond, 0)
        first = pond.backup(tmp_path / "b")
        put(pond, 50)
        pond.backup(tmp_path / "b")
    millpond.restore(tmp_path / "b", tmp_path / "r", first.epoch)
    with opened(tmp_path / "r") as again:
        put(again, 1)
        put(again, 2)
        again.backup(tmp_path / "b", verify=True)
    millpond.restore(tmp_path / "b", tmp_path / "r2")
    with opened(tmp_path / "r2") as last:
        assert shown(last) == oracle(range(3))


def test_what_cannot_be_a_target(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond, created(tmp_path / "q") as other:
        put(pond, 0)
        put(other, 0)
        with pytest.raises(InvalidError, match="cannot be backed up into itself"):
            pond.backup(tmp_path / "p")
        with pytest.raises(InvalidError, match="must not be a pond"):
            pond.backup(tmp_path / "q")
        pond.backup(tmp_path / "b")
        with pytest.raises(InvalidError, match="backups of another pond"):
            other.backup(tmp_path / "b")
        with pytest.raises(InvalidError, match="there is no epoch 99"):
            pond.backup(tmp_path / "b", 99)
    with pytest.raises(InvalidError, match="there is no backup here"):
        millpond.restore(tmp_path / "nothing", tmp_path / "r")
    with pytest.raises(InvalidError, match="there is no backup of epoch 99"):
        millpond.restore(tmp_path / "b", tmp_path / "r", 99)
    with pytest.raises(ConflictError, match="there is a backup here"):
        millpond.restore(tmp_path / "b", tmp_path / "b")
    with opened(tmp_path / "b") as wrong:
        for call in (
            lambda: wrong.epoch,
            lambda: wrong.sql("CREATE TABLE x (k int)"),
            lambda: wrong.read("t"),
        ):
            with pytest.raises(InvalidError, match="this is a backup, not a pond"):
                call()


def test_a_backup_keeps_its_pin_while_it_takes_long(tmp_path: Path) -> None:
    clock = ManualClock(0)
    with created(tmp_path / "p") as pond:
        put(pond, 0)
        seen: list[list[str]] = []

        def slow(progress: CopyProgress) -> None:
            seen.append(pond.store.list("pins/"))
            clock.advance(40 * 60 * 1_000_000)

        back_up(pond._reader, LocalStore(tmp_path / "b", durable=False), on_progress=slow, clock=clock)
        pins = [name for names in seen for name in names]
        assert len(set(pins)) > 2, "renewed"
        assert all(names for names in seen)
        left = {name for name in pond.store.list("pins/")} & set(pins)
        assert len(left) <= 1, "but for the pond's own reader"


def test_an_older_pond_is_not_restored_over(tmp_path: Path) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 1)
        first = pond.backup(tmp_path / "b")
        put(pond, 2)
        pond.backup(tmp_path / "b")
    millpond.restore(tmp_path / "b", tmp_path / "again", epoch=first.epoch)
    before = sorted(p.name for p in (tmp_path / "again").rglob("*"))
    with pytest.raises(ConflictError, match="there is a pond here already"):
        millpond.restore(tmp_path / "b", tmp_path / "again")
    assert sorted(p.name for p in (tmp_path / "again").rglob("*")) == before


@pytest.mark.parametrize("place", ["", "backups", "backups/daily"])
def test_a_pond_is_not_backed_up_into_itself(tmp_path: Path, place: str) -> None:
    with created(tmp_path / "p") as pond:
        put(pond, 1)
        with pytest.raises(InvalidError, match="cannot be backed up into itself"):
            pond.backup(tmp_path / "p" / place)
        assert pond.backup(tmp_path / "p-backup").epoch == pond.epoch

"""Reading where nothing can be written: a read-only mount, a full disk, a bucket without write access."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.engine.task.worker import Worker
from millpond.errors import DataError, UnavailableError
from millpond.pond import Pond
from millpond.serve.reader import Reader
from millpond.state.manifest.manifest import manifest_name
from millpond.state.store import local_store
from millpond.state.store.local_store import LocalStore
from millpond.state.store.store import Data, NotWritableError, Put, ReadOnlyError

REFUSALS = [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT]


class ReadOnlyStore(LocalStore):
    """A store that takes no writes, and counts how often it was asked to."""

    refused = 0

    def put_new(self, name: str, data: Data) -> Put:
        self.refused += 1
        raise NotWritableError(f"may not write {name}", detail="403 Forbidden")

    def delete(self, name: str) -> None:
        raise NotWritableError(f"may not delete {name}", detail="403 Forbidden")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        pond.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
        for k in range(3):
            pond.sql("INSERT INTO t VALUES (?, 'a'); FLUSH", params=[k])
        pond.savepoint("s")
    return tmp_path / "p"


def everything(pond: Pond) -> list[Any]:
    """Every way to read."""
    head = pond.epoch
    with pond.at(head - 1) as moment:
        older = moment.read("m").to_pylist()
    return [
        pond.read("m").to_pylist(),
        pond.lookup("t", 1).to_pylist(),
        pond.diff("m", head - 3, head).to_pylist(),
        [delta.table.to_pylist() for delta in pond.changes("m", head - 3)],
        older,
        pond.read("m", epoch="s").to_pylist(),
        pond.sql("SELECT * FROM m").fetchall(),
        pond.sql("SHOW TABLES").fetchall(),
        pond.sql("SHOW JOBS").fetchall(),
        pond.errors().to_pylist(),
        [state.rows for state in pond.states()],
        [epoch.epoch for epoch in pond.epochs()],
        pond.explain(),
        pond.views(),
    ]


@pytest.fixture
def expected(path: Path) -> list[Any]:
    with millpond.open(path, engine="inline", durable=False) as pond:
        return everything(pond)


def files(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*")}


def test_everything_can_be_read_from_a_store_that_takes_no_writes(path: Path, expected: list[Any]) -> None:
    before = files(path)
    store = ReadOnlyStore(path)
    with Pond(store, engine="inline") as pond:
        assert everything(pond) == expected
        assert store.refused
        with pytest.raises(NotWritableError):
            pond.insert("t", [{"k": 9, "v": "x"}])
    assert files(path) == before


@pytest.mark.parametrize("code", REFUSALS)
def test_what_the_system_says_where_nothing_can_be_written(
    path: Path, expected: list[Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **named: object) -> Iterator[None]:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local_store.LocalStore, "_write", refuse)
    with millpond.open(path, engine="inline", durable=False) as pond:
        assert everything(pond) == expected
        with pytest.raises(NotWritableError, match=r"no room to write|cannot write"):
            pond.insert("t", [{"k": 9, "v": "x"}])


@pytest.mark.parametrize("folder", ["runs/", "manifests/", "catalog/", "lease/", "inbox/"])
def test_a_write_fails_at_once_where_trying_again_does_not_help(
    path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    put_new = local_store._link_new

    def refuse(temp: Path, target: Path) -> bool:
        if target.is_relative_to(path / folder):  # ponds that other tests left open also write
            refused.append(target.name)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return put_new(temp, target)

    with millpond.open(path, engine="inline", durable=False) as pond:
        monkeypatch.setattr(local_store, "_link_new", refuse)
        with pytest.raises(ReadOnlyError, match=f"cannot write {folder}"):
            pond.sql("CREATE MATERIALIZED VIEW w AS SELECT k FROM t WHERE k > 1")
            pond.sql("INSERT INTO t VALUES (9, 'x'); FLUSH")
        assert len(refused) == 1
        monkeypatch.undo()


def test_a_pond_on_a_read_only_mount(path: Path, expected: list[Any], tmp_path: Path) -> None:
    program = (
        "import sys, millpond\n"
        "from tests.unit.serve.test_read_only import everything\n"
        "with millpond.open(sys.argv[1], engine='inline') as pond: print(everything(pond) == eval(sys.stdin.read()))"
    )
    mount = f"mount --bind {path} {path} && mount -o remount,ro,bind {path} && ! touch {path}/x 2>/dev/null"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'{mount} && exec "$@"',
            "sh",
            sys.executable,
            "-c",
            program,
            str(path),
        ],
        input=repr(expected),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[3])])},
    )
    assert done.stdout.strip() == "True", done.stderr


def collected(path: Path) -> None:
    """Everything but the newest epoch goes, by another process that may write."""
    with millpond.open(path, engine="inline", durable=False, retain_epochs=1) as pond:
        pond.sql("INSERT INTO t VALUES (10, 'b'); FLUSH")
        pond.drop_savepoint("s")
        pond.compact()
        for k in range(3):
            pond.sql("INSERT INTO t VALUES (?, 'c'); FLUSH", params=[20 + k])
    from millpond.cli.upkeep import taken_over

    with taken_over(Reader(Worker(LocalStore(path, durable=False))), retain_epochs=1, lease_ms=100) as upkeep:
        upkeep.collect()


def test_an_epoch_that_was_collected_under_a_reader_without_a_pin_is_told(path: Path) -> None:
    reader = Reader(Worker(ReadOnlyStore(path)))
    with (
        pytest.raises(UnavailableError, match="was collected while it was being read"),
        reader.pinned() as old,
    ):
        epoch = old.epoch
        collected(path)
        reader.read("m", epoch=epoch)
    assert reader.read("m").num_rows == 3, "the newest epoch can be read"


def test_a_file_that_is_lost_is_still_told_as_lost(path: Path) -> None:
    reader = Reader(Worker(ReadOnlyStore(path)))
    for run in (path / "runs").rglob("*"):
        if run.is_file():
            run.unlink()
    with pytest.raises(DataError, match="is missing"):
        reader.read("m")


def test_a_disk_that_fills_up_between_two_reads_ends_no_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pin of the first read runs out, and cannot be renewed or removed."""
    clock = ManualClock(0)
    reader = Reader(Worker(LocalStore(path, durable=False)), clock=clock, reader_ms=1000)
    first = reader.read("m").to_pylist()
    monkeypatch.setattr(LocalStore, "put_new", ReadOnlyStore.put_new)
    monkeypatch.setattr(LocalStore, "refused", 0, raising=False)
    monkeypatch.setattr(LocalStore, "delete", ReadOnlyStore.delete)
    clock.advance(10_000_000)
    assert reader.read("m").to_pylist() == first
    reader.close()


def test_a_reader_notices_that_the_newest_manifest_was_deleted(path: Path) -> None:
    reader = Reader(Worker(LocalStore(path)), clock=ManualClock(0))
    head = reader.head()
    (path / manifest_name(head.epoch)).unlink()
    with pytest.raises(DataError, match=f"the manifest of epoch {head.epoch} is missing") as caught:
        reader.read("m")
    assert "do not delete files under manifests/" in str(caught.value.hint)
    assert Reader(Worker(LocalStore(path))).head().epoch == head.epoch - 1  # looks as after a crash

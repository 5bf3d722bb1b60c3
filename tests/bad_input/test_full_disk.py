"""A disk that is full: a clear error, nothing half written, and on it goes when there is room (law 2)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.engine.coordinator import runner
from millpond.errors import UnavailableError
from millpond.pond import Pond
from millpond.state.manifest.manifest import Manifest
from millpond.state.store import local_store
from millpond.state.store.local_store import LocalStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of trying again is right for a disk, and long for a test."""
    monkeypatch.setattr(runner, "PAUSE_S_MAX", 0.005)


def defined(pond: Pond) -> Pond:
    pond.table("t", SCHEMA, key="k").aggregate(n="count(*)", s="sum(v)").view("total")
    return pond


class FullStore(LocalStore):
    """A folder on a volume that runs full at a word."""

    full = False
    fills_at: str | None = None  # the first name with this in it finds no room

    def _write(self, temp: Path, pieces: Sequence[memoryview]) -> None:
        if self.full:
            temp.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._write(temp, pieces)

    def put_new(self, name: str, data: Any) -> Any:
        if self.fills_at is not None and name.startswith(self.fills_at):
            self.full = True
        return super().put_new(name, data)


@pytest.mark.parametrize("fills_at", ["runs/", "manifests/", "inbox/"])
def test_no_room_is_told_and_nothing_is_half_there(tmp_path: Path, fills_at: str) -> None:
    store = FullStore(tmp_path / "pond", durable=False)
    pond = defined(Pond(store, engine="inline"))
    pond.drain()
    pond.insert("t", [{"k": 1, "v": 1}])
    pond.drain()
    before = pond.epoch
    store.fills_at = fills_at
    with pytest.raises(UnavailableError, match="no room to write") as caught:
        pond.insert("t", [{"k": 2, "v": 2}])
        pond.drain()
    assert fills_at in caught.value.message
    assert "bytes, the volume has" in (caught.value.detail or "")
    assert "free space" in (caught.value.hint or "")
    store.fills_at, store.full = None, False
    assert pond.epoch == before
    for name in store.list("manifests/"):
        Manifest.decode(store.get(name), name=name)
    assert not list((tmp_path / "pond" / ".tmp").iterdir())
    assert pond.read("t").to_pylist() == [{"k": 1, "v": 1}]

    pond.insert("t", [{"k": 3, "v": 3}])
    pond.drain()  # the same process goes on when there is room
    got = {r["k"] for r in pond.read("t").to_pylist()}
    assert got == ({1, 3} if fills_at == "inbox/" else {1, 2, 3})
    pond.close()


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A real volume of a few megabytes, where one can be made."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only root can mount a volume")
    folder = tmp_path / "small"
    folder.mkdir()
    ask = [mount, "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    done = subprocess.run(ask, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no volume can be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run([umount, "-l", folder], check=True)


def test_a_real_volume_runs_full_and_gets_room_again(small_volume: Path) -> None:
    ballast = small_volume / "ballast"
    ballast.write_bytes(bytes(3 << 20))
    with defined(millpond.open(small_volume / "pond", engine="inline", compact=False)) as pond:
        pond.drain()
        done = 0
        with pytest.raises(UnavailableError, match="no room to write"):
            for number in range(200):
                keys = range(number * 1000, number * 1000 + 1000)
                pond.insert("t", pa.table({"k": keys, "v": [1] * 1000}))
                pond.drain()
                done = number + 1
        assert done > 3
        assert pond.read("total").to_pylist() == [{"n": 1000 * done, "s": 1000 * done}]
        ballast.unlink()
        pond.drain()
        again = pond.read("total").to_pylist()[0]["n"]
        assert again in (1000 * done, 1000 * done + 1000), "what was taken in is in, what was not is not"
        pond.insert("t", [{"k": -1, "v": 1}])
        pond.drain()
        assert pond.read("total").to_pylist()[0]["n"] == again + 1


def test_the_errors_that_mean_full() -> None:
    assert errno.ENOSPC in local_store._FULL
    assert errno.EDQUOT in local_store._FULL

"""The warm tier: one fetch a host, least recently used out first, and never in anybody's way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.state.store import disk_cache
from millpond.state.store.disk_cache import DiskCache
from millpond.state.store.local_store import LocalStore
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import MissingError, Put, StoreError
from tests.waiting import until


class Remote(MemoryStore):
    """A store that counts what is fetched from it, and can be slow or break off."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.breaks = False
        self.together: threading.Barrier | None = None
        self.pause_s = 0.0

    def chunks(self, name: str) -> Iterator[memoryview]:
        whole = memoryview(self.get(name))
        self.fetched.append(name)
        if self.together is not None:
            self.together.wait()
        time.sleep(self.pause_s)
        half = len(whole) // 2
        yield whole[:half]
        if self.breaks:
            raise StoreError("the line broke")
        yield whole[half:]


def filled(names: str, size: int = 100) -> Remote:
    remote = Remote()
    for name in names.split():
        remote.put_new(name, name.encode() * size)
    return remote


def text(buffer: pa.Buffer) -> bytes:
    return bytes(memoryview(buffer))


def held_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.parent.name != "locks")


def leftovers(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and p.parent.name == "tmp"]


def test_a_name_is_fetched_once(tmp_path: Path) -> None:
    remote = filled("a b")
    cache = DiskCache(remote, tmp_path, 10_000)
    assert [text(cache.map(n)) for n in "aabba"] == [n.encode() * 100 for n in "aabba"]
    assert remote.fetched == ["a", "b"]
    assert (cache.counts.hits, cache.counts.misses, cache.counts.skipped) == (3, 2, 0)
    assert text(DiskCache(remote, tmp_path, 10_000).map("a")) == b"a" * 100  # another process's view
    assert remote.fetched == ["a", "b"]


def test_stores_that_share_a_folder_do_not_mix(tmp_path: Path) -> None:
    first, second = Remote(), Remote()
    first.put_new("a", b"of the first")
    second.put_new("a", b"of the second")
    assert text(DiskCache(first, tmp_path, 10_000).map("a")) == b"of the first"
    assert text(DiskCache(second, tmp_path, 10_000).map("a")) == b"of the second"


def test_a_map_is_a_mapping_of_the_copy(tmp_path: Path) -> None:
    cache = DiskCache(filled("a", 1 << 20), tmp_path, 10 << 20)
    before = pa.total_allocated_bytes()
    held = [cache.map("a"), cache.map("a")]
    assert pa.total_allocated_bytes() == before
    assert held[0].equals(held[1])
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert maps.read_text().count(str(tmp_path)) >= 2


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    remote = filled("a b c d e f")
    cache = DiskCache(remote, tmp_path, 500)
    for name in "abcde":
        cache.map(name)
    cache.map("a")  # so b is now the oldest
    cache.map("f")  # 600 bytes: down to 450, which takes two
    assert held_bytes(tmp_path) == 400
    remote.fetched.clear()
    for name in "adef":
        cache.map(name)
    assert remote.fetched == []
    cache.map("b")
    cache.map("c")
    assert remote.fetched == ["b", "c"]


@pytest.mark.slow
def test_the_bound_holds_over_many_files_and_caches(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(200)]
    remote = Remote()
    for name in names:
        remote.put_new(name, name.encode() * 100)
    caches = [DiskCache(remote, tmp_path, 5_000) for _ in range(4)]
    for i, name in enumerate(names):
        assert text(caches[i % 4].map(name)) == name.encode() * 100
        assert held_bytes(tmp_path) <= 5_000


def test_what_earlier_processes_left_counts(tmp_path: Path) -> None:
    DiskCache(filled("a", 9_000), tmp_path, 100_000).map("a")
    cache = DiskCache(filled("b", 10), tmp_path, 5_000)
    cache.map("b")
    assert held_bytes(tmp_path) == 10


def test_evicting_and_deleting_do_not_hurt_a_reader(tmp_path: Path) -> None:
    remote = filled("a b", 1_000)
    cache = DiskCache(remote, tmp_path, 1_500)
    first = cache.map("a")
    second = cache.map("b")
    assert held_bytes(tmp_path) == 1_000
    cache.delete("b")
    assert held_bytes(tmp_path) == 0
    assert text(first) == b"a" * 1_000 and text(second) == b"b" * 1_000
    with pytest.raises(MissingError):
        cache.map("b")


def test_a_file_larger_than_the_cache_is_read_and_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(filled("a", 10_000), tmp_path, 100)
    assert text(cache.map("a")) == b"a" * 10_000
    assert held_bytes(tmp_path) == 0


def test_many_readers_make_one_fetch(tmp_path: Path) -> None:
    remote = filled("a")
    remote.pause_s = 0.05
    caches = [DiskCache(remote, tmp_path, 10_000) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda cache: text(cache.map("a")), caches))
    assert bodies == [b"a" * 100] * 8
    assert remote.fetched == ["a"]


def test_prefetch_is_parallel(tmp_path: Path) -> None:
    # Names in different lock stripes: every fetch waits for the other three, one by one would never end.
    remote = Remote()
    cache = DiskCache(remote, tmp_path, 100_000)
    names: dict[str, str] = {}
    for i in range(1000):
        names.setdefault(cache._digest(f"n{i}")[:2], f"n{i}")
    chosen = list(names.values())[:5]
    for name in chosen:
        remote.put_new(name, name.encode())
    cache.map(chosen[4])
    remote.together = threading.Barrier(4, timeout=10)
    cache.prefetch([*chosen, chosen[0]], parallel=4)
    assert sorted(remote.fetched) == sorted(chosen)
    remote.together = None
    assert [text(cache.map(name)) for name in chosen] == [name.encode() for name in chosen]
    assert sorted(remote.fetched) == sorted(chosen)
    cache.prefetch([])


def test_prefetch_tells_of_a_failure(tmp_path: Path) -> None:
    cache = DiskCache(filled("a"), tmp_path, 10_000)
    with pytest.raises(MissingError):
        cache.prefetch(["a", "nowhere"])


def test_a_broken_fetch_leaves_nothing(tmp_path: Path) -> None:
    remote = filled("a")
    cache = DiskCache(remote, tmp_path, 10_000)
    remote.breaks = True
    with pytest.raises(StoreError, match="the line broke"):
        cache.map("a")
    assert held_bytes(tmp_path) == 0 and leftovers(tmp_path) == []
    remote.breaks = False
    assert text(cache.map("a")) == b"a" * 100


def test_runs_are_kept_on_the_way_out(tmp_path: Path) -> None:
    remote = Remote()
    cache = DiskCache(remote, tmp_path, 10_000)
    assert cache.put_new("runs/1/a", [b"12", b"34"]) is Put.WON
    assert cache.put_new("runs/1/a", b"other") is Put.LOST
    cache.put_new("manifests/1", b"m")
    assert text(cache.map("runs/1/a")) == b"1234"
    assert remote.fetched == []
    assert text(cache.map("manifests/1")) == b"m"
    assert remote.fetched == ["manifests/1"]


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, pieces: list[memoryview]) -> None:
        os.write(fd, b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_cache, "write_buffers", full)


def test_a_full_disk_costs_the_copy_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = filled("a b c d e")
    cache = DiskCache(remote, tmp_path, 10_000)
    for name in "abcd":
        cache.map(name)
    with monkeypatch.context() as patched:
        fill_the_disk(patched)
        assert text(cache.map("e")) == b"e" * 100
        assert cache.put_new("runs/x", b"kept") is Put.WON
    assert cache.counts.skipped == 2
    assert os.strerror(errno.ENOSPC) in (cache.counts.reason or "")
    assert held_bytes(tmp_path) == 100  # each failure made room by half: 400, 200, 100
    assert leftovers(tmp_path) == []
    assert text(cache.map("runs/x")) == b"kept"


def test_old_leftovers_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    cache = DiskCache(filled("a b"), tmp_path, 150)
    cache.map("a")
    tmp = next(p for p in tmp_path.rglob("tmp") if p.is_dir())
    for name, age_s in (("old", 7200), ("fresh", 60)):
        (tmp / name).write_bytes(b"x" * 100)
        os.utime(tmp / name, (time.time() - age_s,) * 2)
    cache.map("b")
    assert [p.name for p in leftovers(tmp_path)] == ["fresh"]


def test_copies_of_an_earlier_boot_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = filled("a")
    folder, boot = tmp_path / "cache", tmp_path / "boot_id"
    monkeypatch.setattr(disk_cache, "_BOOT", boot)
    for text_of_boot in ("first\n", "second\n"):
        boot.write_text(text_of_boot)
        DiskCache(remote, folder, 10_000).map("a")
    assert remote.fetched == ["a", "a"]


def test_without_a_boot_id_copies_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(disk_cache, "_BOOT", tmp_path / "nowhere")
    monkeypatch.setattr(disk_cache, "sync", synced.append)
    remote = filled("a")
    DiskCache(remote, tmp_path / "cache", 10_000).map("a")
    DiskCache(remote, tmp_path / "cache", 10_000).map("a")
    assert len(synced) == 1 and remote.fetched == ["a"]


def test_a_cache_needs_a_folder_and_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidError, match="cannot make the disk cache"):
        DiskCache(Remote(), tmp_path / "file" / "cache", 1)
    with pytest.raises(InvalidError, match="needs room"):
        DiskCache(Remote(), tmp_path, 0)


READER = """
import os, random, sys
from pathlib import Path
from typing import Any
from millpond.state.store.disk_cache import DiskCache
from millpond.state.store.local_store import LocalStore
store, cache_folder = LocalStore(sys.argv[1]), sys.argv[2]
children = []
for reader in range(6):
    pid = os.fork()
    if pid == 0:
        cache, rng = DiskCache(store, Path(cache_folder), 60_000), random.Random(reader)
        for _ in range(400):
            n = rng.randrange(40)
            if bytes(memoryview(cache.map(f"runs/{n}"))) != bytes([n]) * 5_000:
                os._exit(1)
        os._exit(0)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


@pytest.mark.slow
def test_processes_share_a_cache_that_is_too_small(tmp_path: Path) -> None:
    """Six processes evict under each other's hands; every read is whole and the bound holds."""
    store = LocalStore(tmp_path / "pond", durable=False)
    for n in range(40):
        store.put_new(f"runs/{n}", bytes([n]) * 5_000)
    subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "pond"), str(tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": str(Path(disk_cache.__file__).parents[3])},
        check=True,
        timeout=60,
    )
    # Every copy is 1/12 of the limit, so each process looks after each: at most one over per process.
    assert 0 < held_bytes(tmp_path / "cache") <= 60_000 + 6 * 5_000
    assert leftovers(tmp_path / "cache") == []


def test_a_cache_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    import shutil

    below = MemoryStore()
    cache = DiskCache(below, tmp_path / "cache", 1 << 20)
    cache.put_new("runs/1/a", b"abc")
    shutil.rmtree(tmp_path / "cache")
    assert bytes(memoryview(cache.map("runs/1/a"))) == b"abc"
    assert cache.put_new("runs/1/b", b"def") is Put.WON
    shutil.rmtree(tmp_path / "cache")
    cache._evict()
    assert bytes(memoryview(cache.map("runs/1/b"))) == b"def"
    assert cache.counts.skipped == 0


def test_without_a_folder_files_are_read_from_the_store(tmp_path: Path) -> None:
    import shutil

    below = MemoryStore()
    below.put_new("runs/1/a", b"abc")
    cache = DiskCache(below, tmp_path / "cache", 1 << 20)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file now")
    assert bytes(memoryview(cache.map("runs/1/a"))) == b"abc"
    assert cache.put_new("runs/1/b", b"def") is Put.WON
    assert cache.counts.skipped > 0


def test_files_are_fetched_ahead_in_parallel(tmp_path: Path) -> None:
    """All requests are under way at the same time: one slow answer does not delay the others."""
    together = threading.Barrier(4)

    class Slow(MemoryStore):
        def map(self, name: str) -> pa.Buffer:
            together.wait(30)
            return super().map(name)

    below = Slow()
    names = [f"runs/1/{n}" for n in range(4)]
    for name in names:
        below.put_new(name, name.encode())
    cache = DiskCache(below, tmp_path, 1 << 20)
    cache.prefetch_soon(names)
    assert [bytes(memoryview(cache.map(name))) for name in names] == [name.encode() for name in names]
    assert cache.counts.misses == 4
    until(lambda: cache.counts.fetched_bytes == sum(map(len, names)), 30)


def test_a_failure_ahead_is_left_to_the_reader(tmp_path: Path) -> None:
    cache = DiskCache(MemoryStore(), tmp_path, 1 << 20)
    cache.prefetch_soon(["runs/1/none"])
    with pytest.raises(MissingError):
        cache.map("runs/1/none")


class InParts:
    """A store that answers for parts of files, and remembers which were asked for."""

    uri = "memory://parts"
    reads_parts = True

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked: list[tuple[int, int]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.shrinks = False

    def read_part(self, name: str, start: int, length: int) -> tuple[memoryview, int]:
        with self.lock:
            self.asked.append((start, length))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.01)
        with self.lock:
            self.at_once -= 1
        size = len(self.body) - (1 if self.shrinks and start else 0)
        return memoryview(self.body)[start : start + length], size

    def read_end(self, name: str, length: int) -> tuple[memoryview, int]:
        start = max(0, len(self.body) - length)
        self.asked.append((start, length))
        return memoryview(self.body)[start:], len(self.body)


def test_a_large_file_is_fetched_in_parts_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "PART_BYTES", 1_000)
    body = bytes(n * 31 % 251 for n in range(6_500))
    store: Any = InParts(body)
    cache = DiskCache(store, tmp_path, 1 << 20)
    assert cache.map("runs/a").to_pybytes() == body
    assert sorted(start for start, _ in store.asked) == [0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000]
    assert store.most_at_once > 1
    assert cache.map("runs/a").to_pybytes() == body and len(store.asked) == 7  # from the disk
    assert (cache.counts.hits, cache.counts.misses, cache.counts.fetched_bytes) == (1, 1, 6_500)


def test_a_small_file_is_one_request(tmp_path: Path) -> None:
    store: Any = InParts(b"abc")
    assert DiskCache(store, tmp_path, 1 << 20).map("runs/a").to_pybytes() == b"abc"
    assert len(store.asked) == 1


def test_a_file_that_changes_between_its_parts_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "PART_BYTES", 1_000)
    store: Any = InParts(bytes(5_000))
    store.shrinks = True
    cache = DiskCache(store, tmp_path, 1 << 20)
    with pytest.raises(StoreError, match="changed while"):
        cache.map("runs/a")
    store.shrinks = False
    assert cache.map("runs/a").size == 5_000

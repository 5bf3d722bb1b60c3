"""Of a large file in a bucket, only the blocks that a lookup touches are fetched, and each is verified."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import DataError
from millpond.state.runs import packed_writer, segment
from millpond.state.runs.open_files import OpenFiles
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.store import disk_cache, partial_file
from millpond.state.store.disk_cache import DiskCache
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

SPEC = TableSpec(
    "t/out", pa.schema([("k", pa.int64()), ("n", pa.int64()), ("name", pa.string())]), ("k",), rule="latest"
)
KEYS = 40_000


class Bucket:
    """A store that answers for parts of files, and counts them."""

    uri = "memory://bucket"
    reads_parts = True

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[tuple[str, int, int]] = []

    def read_part(self, name: str, start: int, length: int) -> tuple[memoryview, int]:
        self.asked.append((name, start, length))
        body = self.files[name]
        return memoryview(body)[start : start + length], len(body)

    def read_end(self, name: str, length: int) -> tuple[memoryview, int]:
        size = len(self.files[name])
        return self.read_part(name, max(0, size - length), length)

    @property
    def bytes(self) -> int:
        return sum(length for _, _, length in self.asked)


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of 4 kB; files above 64 kB are large."""
    monkeypatch.setattr(packed_writer, "BLOCK", 1 << 12)
    monkeypatch.setattr(packed_writer, "FENCE_ROWS", 1 << 9)
    monkeypatch.setattr(segment, "SMALL_ROWS", 1 << 9)
    monkeypatch.setattr(disk_cache, "END_BYTES", 32 << 10)
    monkeypatch.setattr(disk_cache, "WHOLE_BYTES_MAX", 64 << 10)
    monkeypatch.setattr(partial_file, "GAP_BYTES", 0)
    monkeypatch.setattr(partial_file, "PART_BYTES", 64 << 10)
    yield


def rows(keys: range, version: int) -> pa.Table:
    return pa.table(
        {"k": keys, "n": [k * 3 + version for k in keys], "name": [f"name {k} {version}" for k in keys]},
        schema=SPEC.schema,
    )


def made() -> tuple[Bucket, list[RunRef]]:
    """A large run, and a newer one that replaces a tenth of its keys."""
    files, refs = {}, []
    for epoch, keys in ((1, range(KEYS)), (2, range(0, KEYS, 10))):
        writer = PackedWriter()
        info = writer.add(SPEC, rows(keys, epoch))
        assert info is not None
        name = f"runs/{epoch}/a"
        files[name] = b"".join(bytes(memoryview(b)) for b in writer.finish()[0])
        refs.append(info.ref(name, lo=epoch, hi=epoch, kind="delta"))
    return Bucket(files), refs


def cached(bucket: Bucket, folder: Path) -> DiskCache:
    store: Any = bucket
    return DiskCache(store, folder, 1 << 30)


def looked_up(cache: DiskCache, refs: list[RunRef], keys: list[int]) -> dict[int, tuple[int, str]]:
    table = Table(SPEC, refs, OpenFiles(cache).open)
    wanted = KeySet.of(pa.table({"k": pa.array(keys, pa.int64())}), ["k"])
    found, values = table.lookup_one(wanted)
    assert found.tolist() == [k < KEYS for k in values["k"].to_pylist()]
    assert table.lookup(wanted).table.num_rows == found.sum()
    return {row["k"]: (row["n"], row["name"]) for row in values.filter(pa.array(found)).to_pylist()}


def expected(keys: list[int]) -> dict[int, tuple[int, str]]:
    versions = {k: 2 if k % 10 == 0 else 1 for k in keys if k < KEYS}
    return {k: (k * 3 + v, f"name {k} {v}") for k, v in versions.items()}


def test_a_lookup_fetches_only_what_it_touches(tmp_path: Path) -> None:
    bucket, refs = made()
    cache = cached(bucket, tmp_path)
    size = sum(map(len, bucket.files.values()))
    keys = [7, 20, 30_001, KEYS + 5]
    assert looked_up(cache, refs, keys) == expected(keys)
    assert bucket.bytes < size // 5
    asked = len(bucket.asked)
    assert cache.counts.parts == asked and cache.counts.fetched_bytes == bucket.bytes
    # A new process of the host finds the same blocks in the sparse copy, and verifies them again.
    again = cached(bucket, tmp_path)
    assert looked_up(again, refs, keys) == expected(keys)
    assert len(bucket.asked) == asked and again.counts.hits >= 2
    # Everything, at last.
    every = Table(SPEC, refs, OpenFiles(cache).open).scan()
    assert every.num_rows == KEYS
    assert dict(zip(every["k"].to_pylist(), every["n"].to_pylist(), strict=True)) == {
        k: k * 3 + (2 if k % 10 == 0 else 1) for k in range(KEYS)
    }


def test_of_a_file_with_many_tables_only_the_table_that_is_read_is_fetched(tmp_path: Path) -> None:
    """What the driver reads to feed a sink of one view."""
    bucket, _ = made()
    small = TableSpec("v/out", SPEC.schema, ("k",), rule="latest")
    writer = PackedWriter()
    infos = [writer.add(SPEC, rows(range(KEYS), 3)), writer.add(small, rows(range(50), 3))]
    bucket.files["runs/3/a"] = b"".join(bytes(memoryview(b)) for b in writer.finish()[0])
    assert infos[1] is not None
    ref = infos[1].ref("runs/3/a", lo=3, hi=3, kind="delta")
    table = Table(small, [ref], OpenFiles(cached(bucket, tmp_path)).open)
    assert table.scan().num_rows == 50
    assert bucket.bytes < len(bucket.files["runs/3/a"]) // 20


def test_random_lookups_equal_those_in_complete_files(tmp_path: Path) -> None:
    bucket, refs = made()
    random = np.random.default_rng(5)
    for round_ in range(4):
        cache = cached(bucket, tmp_path / str(round_ // 2))
        keys = random.choice(KEYS + 1_000, size=1 + round_ * 60, replace=False).tolist()
        assert looked_up(cache, refs, keys) == expected(keys)


def test_a_block_that_came_damaged_is_fetched_again_and_then_refused(tmp_path: Path) -> None:
    bucket, refs = made()
    cache = cached(bucket, tmp_path)
    table = Table(SPEC, refs[:1], OpenFiles(cache).open)
    good = bucket.files["runs/1/a"]
    bad = bytearray(good)
    place = PackedFile.open("a", pa.py_buffer(good)).entries[0].body[0] + 100 * (1 << 12)
    bad[place] ^= 1
    bucket.files["runs/1/a"] = bytes(bad)
    with pytest.raises(DataError, match="damaged block"):
        table.scan()
    bucket.files["runs/1/a"] = good
    assert table.scan().num_rows == KEYS  # the storage is well again: the block is fetched once more


def test_what_the_disk_refuses_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, refs = made()
    cache = cached(bucket, tmp_path)
    files = OpenFiles(cache)
    keys = [3, 20]
    table = Table(SPEC, refs, files.open)
    for ref in refs:
        files.open(ref.file)

    def full(fd: int, body: memoryview, start: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(partial_file, "write_at", full)
    wanted = KeySet.of(pa.table({"k": pa.array(keys, pa.int64())}), ["k"])
    assert table.lookup_one(wanted)[0].all()


def test_a_copy_may_be_evicted_while_it_is_mapped(tmp_path: Path) -> None:
    bucket, refs = made()
    cache = cached(bucket, tmp_path)
    files = OpenFiles(cache)
    table = Table(SPEC, refs, files.open)
    for ref in refs:
        assert files.open(ref.file).is_partial
        cache._sparse(ref.file).unlink()
    assert table.scan().num_rows == KEYS


def test_files_of_earlier_versions_have_larger_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(packed_writer, "BLOCK", 1 << 18)
        patch.setattr(packed_writer, "FENCE_ROWS", 1 << 15)
        patch.setattr(packed_writer, "VERSION", 2)
        writer = PackedWriter()
        info = writer.add(SPEC, rows(range(KEYS), 1))
        assert info is not None
        body = b"".join(bytes(memoryview(b)) for b in writer.finish()[0])
    file = PackedFile.open("a", pa.py_buffer(body))
    assert (file.entries[0].block, file.entries[0].fence_rows) == (1 << 18, 1 << 15)
    table = Table(SPEC, [info.ref("a", lo=1, hi=1, kind="delta")], lambda _: file)
    found, values = table.lookup_one(KeySet.of(pa.table({"k": pa.array([5, KEYS - 1])}), ["k"]))
    assert found.all() and sorted(values["n"].to_pylist()) == [16, 3 * KEYS - 2]

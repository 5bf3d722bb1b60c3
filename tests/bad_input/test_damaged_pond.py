"""Damage under a live pond: a DataError that names the file, and nothing committed after it (laws 2, 6, 9)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

import millpond
from millpond.errors import DataError
from millpond.pond import Pond
from millpond.state.checksummed_json import sealed
from millpond.state.manifest.manifest import FORMAT, Manifest, manifest_name
from millpond.state.runs.packed import HEADER

RUN = "run (file|segment) runs/"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(path: Path, **options: Any) -> Pond:
    options = {"durable": False, "compact": False, **options}
    pond = millpond.open(path, engine="inline", **options)
    pond.table("t", SCHEMA, key="k").aggregate(n="count(*)", s="sum(v)").view("total")
    return pond


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with opened(tmp_path / "pond") as pond:
        pond.drain()
        for value in range(4):
            pond.insert("t", [{"k": value, "v": value}, {"k": 100, "v": value}])
            pond.drain()
    yield tmp_path / "pond"


def run_files(path: Path) -> list[Path]:
    """The runs of all epochs with rows; epoch 0 has what the program itself brings."""
    first = f"{0:016d}-"
    return sorted(p for p in (path / "runs").rglob("*") if p.is_file() and not p.name.startswith(first))


def manifests(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "manifests").iterdir())


def rewritten(file: Path, change: Callable[[bytearray], object]) -> None:
    """Another file under the same name: what a bad disk, or a bad hand, leaves."""
    raw = bytearray(file.read_bytes())
    found = change(raw)
    file.unlink()
    file.write_bytes(bytes(found if isinstance(found, bytes | bytearray) else raw))


def flip(at: int) -> Callable[[bytearray], None]:
    def change(raw: bytearray) -> None:
        raw[at] ^= 0x10

    return change


def newer_header(raw: bytearray) -> None:
    magic, _, zero, length, _ = HEADER.unpack_from(raw)
    facts = HEADER.pack(magic, 99, zero, length, 0)[:-8]
    raw[: HEADER.size] = facts + xxhash.xxh3_64_intdigest(facts).to_bytes(8, "little")


DAMAGE: dict[str, Callable[[bytearray], object]] = {
    "truncated to half": lambda raw: raw[: len(raw) // 2],
    "truncated by a byte": lambda raw: raw[:-1],
    "empty": lambda raw: b"",
    "flipped bit in the header": flip(20),
    "flipped bit in the body": flip(400),
    "flipped bit in the footer": flip(-40),
    "grown": lambda raw: raw + b"x",
    "something else": lambda raw: b"not a run file" * 30,
    "newer version": newer_header,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_named_and_stops_the_pond(path: Path, name: str) -> None:
    before = manifests(path)
    for file in run_files(path):
        rewritten(file, DAMAGE[name])
    with opened(path) as pond:
        with pytest.raises(DataError, match=RUN) as caught:
            pond.read("t")
        assert caught.value.hint
        assert caught.value.detail
        pond.insert("t", [{"k": 100, "v": 9}])
        with pytest.raises(DataError, match=RUN):
            pond.drain()
        with pytest.raises(DataError, match=RUN):
            pond.drain()
    # Taking over is a commit of its own; no epoch with rows may follow.
    added = [n for n in manifests(path) if n not in before]
    assert all(Manifest.decode((path / "manifests" / n).read_bytes()).kind == "takeover" for n in added)


def test_one_damaged_file_is_the_one_that_is_named(path: Path) -> None:
    file = run_files(path)[1]
    rewritten(file, flip(-40))
    with opened(path) as pond, pytest.raises(DataError, match=file.name):
        [pond.read(view) for view in ("t", "total")]


def test_no_flipped_bit_of_a_run_goes_unseen(path: Path) -> None:
    """Either the rows come out right (the bit was padding), or the damage is told; never other rows."""
    rng = random.Random(5)
    file = max(run_files(path), key=lambda f: f.stat().st_size)
    raw = file.read_bytes()
    with opened(path) as pond:
        want = [pond.read(view).to_pylist() for view in ("t", "total")]
    told = 0
    for _ in range(60):
        at = rng.randrange(len(raw))
        rewritten(file, flip(at))
        with opened(path) as pond:
            try:
                assert [pond.read(view).to_pylist() for view in ("t", "total")] == want, f"bit of byte {at}"
            except DataError:
                told += 1
        file.unlink()
        file.write_bytes(raw)
    assert told > 20


def test_a_missing_run_is_named(path: Path) -> None:
    before = manifests(path)
    for file in run_files(path):
        file.unlink()
    with opened(path) as pond:
        with pytest.raises(DataError, match="a file of epoch 4 is missing") as caught:
            pond.read("t")
        assert "no such file in the store: runs/" in (caught.value.detail or "")
        with pytest.raises(DataError, match="a file of epoch 4 is missing"):
            pond.diff("t", 2, 4)
        pond.insert("t", [{"k": 100, "v": 9}])
        for _ in range(2):
            with pytest.raises(DataError, match=r"a file of epoch \d+ is missing") as caught:
                pond.drain()
            assert "no such file in the store: runs/" in (caught.value.detail or "")
    assert len(manifests(path)) <= len(before) + 2, "two take-overs"


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_missing_manifest_is_named(path: Path, number: int) -> None:
    (path / manifest_name(number)).unlink()
    with opened(path) as pond:
        for call in (lambda: pond.read("t"), pond.drain, lambda: pond.epoch):
            with pytest.raises(DataError, match=f"the manifest of epoch {number} is missing") as caught:
                call()
            assert "restore" in (caught.value.hint or "")


@pytest.mark.parametrize("raw", [b"", b"garbage", b'{"format":1}', b"\x00" * 100])
def test_a_garbage_manifest_is_named_and_nothing_is_committed(path: Path, raw: bytes) -> None:
    newest = manifests(path)[-1]
    (path / "manifests" / newest).write_bytes(raw)
    with opened(path) as pond:
        for call in (lambda: pond.read("t"), pond.drain):
            with pytest.raises(DataError, match=f"manifests/{newest} cannot be read"):
                call()
    assert manifests(path)[-1] == newest


def test_no_flipped_bit_of_a_manifest_goes_unseen(path: Path) -> None:
    newest = path / "manifests" / manifests(path)[-1]
    raw = newest.read_bytes()
    rng = random.Random(3)
    for _ in range(40):
        rewritten(newest, flip(rng.randrange(len(raw))))
        with opened(path) as pond, pytest.raises(DataError):
            pond.read("t")
        newest.unlink()
        newest.write_bytes(raw)


def test_a_pond_of_a_newer_version_is_left_alone(path: Path) -> None:
    newest = path / "manifests" / manifests(path)[-1]
    data = {**json.loads(newest.read_bytes()), "format": FORMAT + 1, "something": "new"}
    del data["xxh3"]
    newest.write_bytes(sealed(data))
    before = sorted(str(p) for p in path.rglob("*"))
    with opened(path) as pond:
        for call in (lambda: pond.read("t"), pond.drain):
            with pytest.raises(DataError, match="written by a newer version of millpond") as caught:
                call()
            assert "upgrade" in (caught.value.hint or "")
    assert sorted(str(p) for p in path.rglob("*")) == before


def test_a_damaged_page_is_named(path: Path) -> None:
    newest = path / "manifests" / manifests(path)[-1]
    data = json.loads(newest.read_bytes())
    del data["xxh3"]
    data.update(pages=[["pages/x", 1]])
    newest.write_bytes(sealed(data))
    with opened(path) as pond, pytest.raises(DataError, match="is missing"):
        pond.read("t")
    (path / "pages").mkdir(exist_ok=True)
    (path / "pages" / "x").write_bytes(b"{}")
    with opened(path) as pond, pytest.raises(DataError, match="pages/x cannot be read"):
        pond.read("t")


@pytest.mark.parametrize("damage", [lambda raw: b"{", flip(60), lambda raw: raw[:-1] + b" }"])
def test_a_damaged_catalog_is_told(path: Path, damage: Callable[[bytearray], object]) -> None:
    for file in (path / "catalog").iterdir():
        rewritten(file, damage)
    pond = millpond.open(path, engine="inline", durable=False)
    for call in (lambda: pond.read("t"), pond.drain, pond.views):
        with pytest.raises(DataError, match="the catalog cannot be read") as caught:
            call()
        assert "catalog/" in (caught.value.detail or "")


def test_a_missing_catalog_is_told(path: Path) -> None:
    for file in (path / "catalog").iterdir():
        file.unlink()
    pond = millpond.open(path, engine="inline", durable=False)
    for call in (lambda: pond.read("t"), pond.drain, pond.views):
        with pytest.raises(DataError, match="the catalog cannot be read") as caught:
            call()
        assert "is missing" in (caught.value.detail or "")


def test_a_damaged_inbox_entry_is_named(path: Path) -> None:
    with opened(path) as pond:
        number = pond.insert("t", [{"k": 1, "v": 1}])
        (path / "inbox" / f"{number:016d}").write_bytes(b"\xff\xff")
        with pytest.raises(DataError, match=f"inbox entry {number} cannot be read"):
            pond.drain()


def test_damage_that_a_merge_meets_stops_the_pond(path: Path) -> None:
    """Compaction runs beside the chain; what it finds is not left for later."""
    for file in run_files(path)[:2]:
        rewritten(file, flip(400))
    with opened(path, compact=True, fan_in=2) as pond:
        pond.insert("t", [{"k": 7, "v": 7}])
        with pytest.raises(DataError, match=RUN):
            pond.compact()


def test_damage_that_a_delivery_meets_stops_the_pond(path: Path) -> None:
    shown: list[int] = []

    class Target:
        def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
            shown.append(epoch)

    for file in run_files(path)[:1]:
        rewritten(file, flip(-40))
    pond = millpond.open(path, engine="inline", durable=False, compact=False)
    table = pond.table("t", SCHEMA, key="k").sink("out", Target())
    table.aggregate(n="count(*)", s="sum(v)").view("total")
    with pond, pytest.raises(DataError, match=RUN):
        pond.drain()
    assert shown == []

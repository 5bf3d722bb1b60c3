"""What a look at a folder sees at once, what only after a rest, and what a look costs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.sources import local_listing
from millpond.sources.files import FileSource
from millpond.sources.folder import _hidden
from millpond.sources.local_listing import LocalListing

LONG_AGO = 1_700_000_000  # s


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which every directory counts as large, and nothing is looked at anew by itself."""
    monkeypatch.setattr(local_listing, "LARGE", 0)
    monkeypatch.setattr(local_listing, "REST", 1e9)
    for name in ("a", "b", "sub/c"):
        put(tmp_path / name, b"1")
    return tmp_path


def put(file: Path, content: bytes) -> None:
    """Whole, by renaming it."""
    file.parent.mkdir(exist_ok=True)
    made = file.with_name("_made")
    made.write_bytes(content)
    made.rename(file)


def settle(folder: Path, at_s: int = LONG_AGO) -> None:
    """As if the last change of every directory that changed was long ago."""
    for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
        if path.stat().st_mtime > LONG_AGO + 1_000_000:
            os.utime(path, (at_s, at_s))


def names(listing: LocalListing) -> list[str]:
    return sorted(file.path for file in listing.files())


def test_what_did_not_change_is_not_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(folder)
    listing = LocalListing(str(folder), _hidden)
    first = listing.files()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail("a directory was read again"))
    assert listing.files() is first
    assert names(listing) == ["a", "b", "sub/c"]


def test_a_new_file_costs_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(folder)
    listing = LocalListing(str(folder), _hidden)
    listing.files()
    put(folder / "d", b"1")
    looked: list[str] = []
    real = local_listing._file
    monkeypatch.setattr(local_listing, "_file", lambda at, e: looked.append(e.name) or real(at, e))
    assert names(listing) == ["a", "b", "d", "sub/c"]
    assert looked == ["d"]


@pytest.mark.parametrize("where", ["", "sub/"])
def test_files_that_come_go_and_are_replaced_are_seen_at_once(folder: Path, where: str) -> None:
    settle(folder)
    listing = LocalListing(str(folder), _hidden)
    listing.files()
    place = folder / where
    put(place / "new", b"123")
    put(place / "new2", b"12")
    assert {f"{where}new", f"{where}new2"} <= set(names(listing))
    settle(folder, LONG_AGO + 1)
    listing.files()
    (place / "new").unlink()
    os.link(place / "new2", folder / "_kept")  # so that its inode is not used again
    put(place / "new2", b"4567")
    found = {file.path: file.size for file in listing.files()}
    assert f"{where}new" not in found
    assert found[f"{where}new2"] == 4


def test_a_directory_that_just_changed_is_read_again(folder: Path) -> None:
    """Two changes within a tick of the file system's clock leave the directory with one time."""
    listing = LocalListing(str(folder), _hidden)
    listing.files()
    now = os.stat(folder).st_mtime_ns
    put(folder / "d", b"1")
    os.utime(folder, ns=(now, now))
    assert "d" in names(listing)


def test_a_file_that_is_rewritten_in_place_is_seen_after_a_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(folder)
    listing = LocalListing(str(folder), _hidden)
    listing.files()
    (folder / "a").write_bytes(b"12345")
    assert max(file.size for file in listing.files()) == 1, "it costs a look at every file"
    clock = local_listing.time.monotonic
    monkeypatch.setattr(local_listing.time, "monotonic", lambda: clock() + local_listing.REST_S_MAX)
    assert max(file.size for file in listing.files()) == 5


def test_small_folders_are_looked_at_each_time(tmp_path: Path) -> None:
    put(tmp_path / "a", b"1")
    settle(tmp_path)
    listing = LocalListing(str(tmp_path), _hidden)
    first = listing.files()
    assert listing.files() is first, "and are the same list when they are the same"
    (tmp_path / "a").write_bytes(b"12345")
    assert [file.size for file in listing.files()] == [5]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_a_fresh_look_sees(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    (folder / "_gone").mkdir()  # not seen; files go on there, so that no inode is used again
    listing = LocalListing(str(folder), _hidden)
    for step in range(40):
        file = folder / rng.choice(["", "sub/", "sub2/", "sub/deep/"]) / rng.choice("abcdef")
        match rng.randrange(3):
            case 0:
                file.parent.mkdir(parents=True, exist_ok=True)
                if file.exists():
                    os.link(file, folder / "_gone" / str(step))
                put(file, b"x" * step)
            case 1 if file.exists():
                file.rename(folder / "_gone" / str(step))
            case 2 if file.exists() and not (file.parent / "z").exists():
                file.rename(file.with_name("z"))
        if rng.random() < 0.5:
            settle(folder, LONG_AGO + step)
        if rng.random() < 0.7:
            assert sorted(listing.files()) == sorted(LocalListing(str(folder), _hidden).files())


def test_a_file_is_offered_as_it_is_now(folder: Path, tmp_path: Path) -> None:
    """Not as a listing of a while ago shows it: a piece names the size that reading it must find."""
    for file in list(folder.rglob("*")):
        if file.is_file():
            file.unlink()
    pq.write_table(pa.table({"k": [1]}), folder / "one.parquet")
    settle(folder)
    source = FileSource(str(folder))
    source.poll(None, None, 100)
    with (folder / "one.parquet").open("wb") as handle:  # in place
        pq.write_table(pa.table({"k": list(range(50))}), handle)
    (split,) = source.poll(None, None, 100).splits
    assert split.rows == 50
    assert [t.num_rows for t in source.read(split, ["k"])] == [50]

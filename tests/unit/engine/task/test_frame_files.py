"""Frames in files: what is fetched is what was left, and what is not there is an error (law 9)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from millpond.engine.task.frame_files import Shelf, fetch, is_ticket
from millpond.errors import UnavailableError


def test_frames_of_any_size_come_back_in_any_order(tmp_path: Path) -> None:
    folder = str(tmp_path / "made when needed")
    shelves = [Shelf(folder) for _ in range(3)]
    sizes = [1, 4095, 4096, 4097, 70_000, 5 << 20]
    left = [(shelf.leave(body := os.urandom(size)), body) for size in sizes for shelf in shelves]
    for shelf in shelves:
        shelf.close()
    random.Random(1).shuffle(left)
    assert all(is_ticket(ticket) for ticket, _ in left)
    assert [bytes(fetch(folder, ticket)) for ticket, _ in left] == [body for _, body in left]


def test_a_frame_stays_when_its_file_is_gone(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path))
    frame = fetch(str(tmp_path), shelf.leave(b"frame"))
    for file in tmp_path.iterdir():
        file.unlink()
    assert bytes(frame) == b"frame"
    assert frame.readonly


def test_nothing_is_made_where_nothing_is_left(tmp_path: Path) -> None:
    Shelf(str(tmp_path / "depot")).close()
    assert list(tmp_path.iterdir()) == []


def test_a_frame_that_is_not_there_or_cut_short_is_an_error(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path))
    ticket = shelf.leave(b"x" * 10_000)
    [file] = tmp_path.iterdir()
    os.truncate(file, 9_000)
    with pytest.raises(UnavailableError, match="missing"):
        fetch(str(tmp_path), ticket)
    file.unlink()
    with pytest.raises(UnavailableError, match="missing") as caught:
        fetch(str(tmp_path), ticket)
    assert caught.value.hint == "run the epoch again"


def test_a_full_or_missing_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="could not be written") as caught:
        Shelf(str(tmp_path / "file" / "depot")).leave(b"frame")
    assert "spark.local.dir" in str(caught.value.hint)


def test_tickets_are_told_from_frames() -> None:
    assert not is_ticket(b"")
    assert not is_ticket(b"millpond ticket\0")
    assert not is_ticket(memoryview(b"mp" + bytes(62)))

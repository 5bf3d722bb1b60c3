"""Whoever still writes into the folder of a run is waited for, and is no reason for the run to fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import data
from benchmarks.peers.command import clear, work_folder


def test_a_folder_in_which_somebody_writes_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, refused = shutil.rmtree, [OSError(39, "Directory not empty"), FileNotFoundError(2, "gone")]

    def raced(folder: Path) -> None:
        if refused:
            raise refused.pop()
        delete(folder)

    monkeypatch.setattr(data, "scratch", lambda: tmp_path)
    monkeypatch.setattr(shutil, "rmtree", raced)
    with work_folder("peer") as folder:
        (folder / "log").touch()
    assert not refused and not folder.exists()


def test_what_cannot_be_deleted_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(_: Path) -> None:
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(shutil, "rmtree", refuses)
    assert not clear(tmp_path, patience_seconds=0.3)
    assert "is left behind: [Errno 39] Directory not empty" in capsys.readouterr().err

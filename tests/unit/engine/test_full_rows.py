"""A watermark over files reads few columns, and whole rows where some are late or have no time."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.sources.files import FileSource
from millpond.sources.source import Split

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("ms")), ("text", pa.string())])


def _at(seconds: int) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=seconds)


def _write(folder: Path, name: str, *rows: tuple[int, int | None, str]) -> None:
    columns = [{"k": k, "at": None if at is None else _at(at), "text": text} for k, at, text in rows]
    pq.write_table(pa.Table.from_pylist(columns, SCHEMA), folder / f"{name}.parquet")


def test_whole_rows_are_read_only_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    asked: list[tuple[str, ...]] = []
    read = FileSource.read

    def spied(self: FileSource, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        asked.append(tuple(columns))
        return read(self, split, columns)

    monkeypatch.setattr(FileSource, "read", spied)
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True)
    rows = pond.stream("rows", FileSource(folder, schema=SCHEMA), event_time="at", delay="1s")
    rows.select("k").view("seen")

    def drained() -> list[tuple[str, ...]]:
        asked.clear()
        pond.drain()
        return list(asked)

    _write(folder, "a", (1, 0, "one"), (2, 100, "two"))
    assert drained() == [("k", "at")]
    _write(folder, "b", (3, 99, "just on time"))
    assert drained() == [("k", "at")]
    _write(folder, "c", (4, 5, "late"), (5, 101, "five"))
    assert drained() == [("k", "at"), ("k", "at", "text")]
    _write(folder, "d", (6, None, "no time"), (7, 102, "seven"))
    assert drained() == [("k", "at"), ("k", "at", "text")]

    assert sorted(pond.read("seen")["k"].to_pylist()) == [1, 2, 3, 5, 7]
    late: list[dict[str, Any]] = pond.late("rows.watermark").select(SCHEMA.names).to_pylist()
    assert late == [{"k": 4, "at": _at(5), "text": "late"}]
    (error,) = pond.errors().to_pylist()
    assert "no time" in error["row"]
    assert pond.head().counts["rows/rows"] == 7
    pond.close()

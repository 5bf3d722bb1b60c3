"""The conformance suite over the sources that need no server, and over sources with a bug, which it must find."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from millpond.sources.source import Advance, Poll, Source, Split
from millpond.testing import sources
from millpond.testing.sources import CHECKS, SourceCase, check_source

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "n", "type": "long"}, {"name": "word", "type": ["null", "string"]}],
    }
)


class Numbered(SourceCase):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def fresh(self, count: int) -> list[dict[str, Any]]:
        made = [{"n": n, "word": f"w{n % 3}"} for n in range(len(self.rows), len(self.rows) + count)]
        self.rows += made
        return made

    def expected(self) -> list[dict[str, Any]]:
        return self.rows


class Memory(Numbered):
    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []
        self.partitions: dict[int, str] = {}
        self.sources: list[MemorySource] = []

    def open(self) -> Source:
        # The items are the system: every process sees the same ones.
        return MemorySource(SCHEMA, items=self.items, _partitions=self.partitions)

    def add(self, rows: int, partition: str | None = None) -> None:
        made = self.fresh(rows)
        for start in range(0, rows, 4):
            MemorySource(SCHEMA, items=self.items, _partitions=self.partitions).push(
                made[start : start + 4], partition=partition
            )

    def add_partition(self) -> None:
        self.add(2, "another")


class Folder(Numbered):
    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__()
        self.folder, self.kind, self.files = folder, kind, 0

    def open(self) -> Source:
        schema = pa.schema([("line", pa.string())]) if self.kind == "text" else SCHEMA
        return FileSource(self.folder, self.kind, schema)  # type: ignore[arg-type]

    def expected(self) -> list[dict[str, Any]]:
        return [{"line": f"{r['n']} {r['word']}"} for r in self.rows] if self.kind == "text" else self.rows

    def add(self, rows: int) -> None:
        made = self.fresh(rows)
        for start in range(0, rows, 6):
            self.write(made[start : start + 6])

    def write(self, rows: Sequence[Mapping[str, Any]], text: str = "") -> None:
        self.files += 1
        place = self.folder / f"{self.files:04d}.{self.kind}.tmp"
        if self.kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), place)
        elif self.kind == "orc":
            orc.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), place)
        elif self.kind == "avro":
            with place.open("wb") as file:
                fastavro.writer(file, AVRO, rows)
        elif self.kind == "text":
            place.write_text("".join(f"{row['n']} {row['word']}\n" for row in rows))
        elif self.kind == "json":
            place.write_text("".join(json.dumps(row) + "\n" for row in rows) + text)
        else:
            lines = ["n,word", *(f"{row['n']},{row['word']}" for row in rows)]
            place.write_text("\n".join(lines) + "\n" + text)
        os.utime(place, ns=(self.files * 10**9, self.files * 10**9))
        place.rename(place.with_suffix(""))

    def add_bad(self) -> int:
        if self.kind == "text":
            raise sources.NotApplicable("every line is a text")
        if self.kind in ("parquet", "orc", "avro"):
            (self.folder / f"9999.{self.kind}").write_bytes(b"no footer")
        else:
            self.write([], '{"n": "word"}\n' if self.kind == "json" else "word,1\n")
        return 1

    def add_partition(self) -> None:
        self.add(2)


CASES: dict[str, Callable[[Path], SourceCase]] = {
    "memory": lambda folder: Memory(),
    "parquet": lambda folder: Folder(folder, "parquet"),
    "json": lambda folder: Folder(folder, "json"),
    "csv": lambda folder: Folder(folder, "csv"),
    "text": lambda folder: Folder(folder, "text"),
    "avro": lambda folder: Folder(folder, "avro"),
    "orc": lambda folder: Folder(folder, "orc"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_source(check: Callable[[SourceCase], None], name: str, tmp_path: Path) -> None:
    check(CASES[name](tmp_path))


# -- sources with a bug --------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrapped:
    """The source of a list, with one method replaced by a wrong one."""

    rows: Any
    bug: str = ""

    append_only = True
    schema = SCHEMA

    def table(self, step: str) -> None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        start = position[0] if isinstance(position, tuple | list) else int(position or 0)
        if self.bug == "starts over" and start > 20:
            start = 0
        end = min(len(self.rows), start + max_rows)
        if self.bug == "skips" and start:
            start += 1
        return Poll((Split({"first": start, "last": end}, end - start, 0),) if start < end else ())

    def advance(self, position: Any, admitted: Sequence[Split], rejects: Sequence[Any]) -> Advance:
        if self.bug == "stays" and position:
            return Advance(position)
        if self.bug == "tuple":
            return Advance((admitted[-1].what["last"],))
        return Advance(admitted[-1].what["last"])

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = self.rows[split.what["first"] : split.what["last"]]
        if self.bug == "random":
            rows = rows[:: -1 if os.urandom(1)[0] & 1 else 1]
        if self.bug == "grows":
            rows = [{**row, "n": row["n"] + len(self.rows)} for row in rows]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        if self.bug == "types":
            table = table.set_column(0, "n", table["n"].cast(pa.int32()))
        yield table if self.bug == "all columns" else table.select(list(columns))


class Buggy(Numbered):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug

    def open(self) -> Source:
        return Wrapped(self.rows, self.bug)  # type: ignore[return-value]

    def add(self, rows: int) -> None:
        self.fresh(rows)


# The checks over a live pond store the plan, which these sources cannot be part of.
PROTOCOL = [check for check in CHECKS if check is not sources.a_pond_counts_every_row_once]


def failed(bug: str) -> set[str]:
    found = set()
    for check in PROTOCOL:
        try:
            check(Buggy(bug))
        except sources.NotApplicable:
            pass
        except AssertionError:
            found.add(check.__name__)
    return found


def test_a_correct_source_passes() -> None:
    assert failed("") == set()


@pytest.mark.parametrize(
    ("bug", "check"),
    [
        ("starts over", "positions_only_rise"),
        ("skips", "a_crash_at_any_step"),
        ("stays", "positions_only_rise"),
        ("tuple", "positions_only_rise"),
        ("random", "replay_returns_the_same_rows"),
        ("grows", "polls_can_be_repeated"),
        ("types", "schemas_are_checked"),
        ("all columns", "replay_returns_the_same_rows"),
    ],
)
def test_a_bug_is_found(bug: str, check: str) -> None:
    assert check in failed(bug)


def test_all_checks_at_once_name_those_that_do_not_apply(tmp_path: Path) -> None:
    assert check_source(Memory) == ["bad_input_becomes_error_rows"]

"""The conformance suite, for the sinks that need no server, and for sinks that break a rule."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from millpond.sinks.callback import CallbackSink
from millpond.sinks.delivery import Delivery, EpochDelta, Part, SinkBinding
from millpond.sinks.files import FilesSink, committed_files
from millpond.testing.sinks import CHECKS, SCHEMA, TYPES, Deliverer, Feed, run_check


class CallbackTarget:
    """A function that stores each id once."""

    def __init__(self, folder: Path) -> None:
        self.received: dict[str, pa.Table] = {}
        self.modes = ("changes", "append", "changelog")

    def reset(self) -> None:
        self.received.clear()

    def sink(self) -> Any:
        return CallbackSink(lambda id, rows: self.received.setdefault(id, rows))

    def read(self) -> Sequence[Mapping[str, Any]]:
        return [row for rows in [*self.received.values()] for row in rows.to_pylist()]


class FolderTarget:
    """Files as a reader sees them who lists the folder."""

    def __init__(self, folder: Path, kind: Any, partition_by: tuple[str, ...] = ()) -> None:
        self.folder, self.kind, self.partition_by = folder / "out", kind, partition_by
        self.whole = not partition_by  # a reader who lists the folder may see some files of an epoch

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def sink(self) -> Any:
        return FilesSink(self.folder, self.kind, self.partition_by, (("durable", "false"),))

    def read(self) -> Sequence[Mapping[str, Any]]:
        found = []
        for path in sorted(self.folder.glob(f"**/*.{self.kind}")):
            folders = [part.partition("=") for part in path.relative_to(self.folder).parts[:-1]]
            for row in self._rows(path):
                found.append(dict(row) | {name: _value(text) for name, _, text in folders})
        return found

    def _rows(self, path: Path) -> list[dict[str, Any]]:
        if self.kind == "json":
            return [json.loads(line) for line in path.read_text().split("\n") if line]
        if self.kind == "csv":
            types = {f.name: pa.string() for f in TYPES} | {f.name: f.type for f in SCHEMA}
            options = pa.csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            parsing = pa.csv.ParseOptions(newlines_in_values=True)
            return pa.csv.read_csv(path, convert_options=options, parse_options=parsing).to_pylist()
        return pq.ParquetFile(path).read().to_pylist()

    def same(self, expected: Any, found: Any) -> bool:
        return self.kind != "parquet" or expected == found


def _value(text: str) -> Any:
    return None if text == "__HIVE_DEFAULT_PARTITION__" else int(text) if text.lstrip("-").isdigit() else text


@dataclass(frozen=True)
class TwoStepFileSink:
    """A sink of the full form, as small as it can be: a rename publishes what was prepared."""

    folder: str
    guarantee: ClassVar[Any] = "exactly_once"
    modes: ClassVar[Any] = ("changelog", "append")

    def open(self, binding: SinkBinding) -> TwoStepFilePublisher:
        Path(self.folder, "prepared").mkdir(parents=True, exist_ok=True)
        return TwoStepFilePublisher(Path(self.folder))

    def prepare(self, part: Part) -> Any:
        name = f"{part.epoch}-{part.number}-{id(part)}-{part.binding.token}"
        pq.write_table(part.rows, Path(self.folder, "prepared", name))
        return name


class TwoStepFilePublisher:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, delivery: Delivery) -> bool:
        return (self.folder / f"{delivery.epoch}.published").exists()

    def publish(self, delivery: Delivery, prepared: Sequence[Any]) -> None:
        if not self.has(delivery):
            temp = self.folder / "prepared" / f"{delivery.epoch}-{delivery.binding.token}-names"
            temp.write_text(json.dumps(prepared))
            temp.rename(self.folder / f"{delivery.epoch}.published")


class TwoStepTarget:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def sink(self) -> Any:
        return TwoStepFileSink(str(self.folder))

    def read(self) -> Sequence[Mapping[str, Any]]:
        names = [n for p in self.folder.glob("*.published") for n in json.loads(p.read_text())]
        return [r for n in names for r in pq.ParquetFile(self.folder / "prepared" / n).read().to_pylist()]


TARGETS: dict[str, Any] = {
    "callback": CallbackTarget,
    "parquet": lambda folder: FolderTarget(folder, "parquet"),
    "json": lambda folder: FolderTarget(folder, "json"),
    "csv": lambda folder: FolderTarget(folder, "csv"),
    "partitioned": lambda folder: FolderTarget(folder, "json", ("n",)),
    "two steps": TwoStepTarget,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("target", TARGETS)
def test_conforms(target: str, check: str, tmp_path: Path) -> None:
    if (target, check) == ("partitioned", "every type"):
        pytest.skip("its rows have no column to partition by")
    run_check(check, TARGETS[target](tmp_path))


# -- the suite finds sinks that break a rule ------------------------------------------


@dataclass(frozen=True)
class BrokenSink:
    """Appends to a file, without the epoch."""

    path: str
    how: str
    guarantee: ClassVar[Any] = "exactly_once"
    modes: ClassVar[Any] = ("changelog",)

    def write(self, delivery: Delivery) -> None:
        done = Path(self.path + ".done")
        if self.how == "epoch apart" and done.exists() and int(done.read_text()) >= delivery.epoch:
            return
        with open(self.path, "a") as file:
            for row in delivery.rows.to_pylist():
                file.write(json.dumps(row) + "\n")
                file.flush()
        done.write_text(str(delivery.epoch))


class BrokenTarget:
    def __init__(self, folder: Path, how: str) -> None:
        self.path, self.how = folder / "out.json", how

    def sink(self) -> Any:
        return BrokenSink(str(self.path), self.how)

    def read(self) -> Sequence[Mapping[str, Any]]:
        lines = self.path.read_text().split("\n")[:-1] if self.path.exists() else []
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "how, check",
    [
        ("no epoch", "repeats"),
        ("no epoch", "zombie"),
        ("epoch apart", "crashes"),
        ("epoch apart", "whole epochs"),
    ],
)
def test_finds_what_is_broken(how: str, check: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_check(check, BrokenTarget(tmp_path, how))


def test_values_in_names_of_folders_are_read_by_others(tmp_path: Path) -> None:
    """Spark leaves letters outside of ASCII as they are, and reads bytes in hexadecimal as single letters."""
    values = ["ä/ö", "日本", "a=b", "100%", "%2F", "..", "x:y", "q\"'", "tab\t", "back\\", " ", "\x7f", None]
    target = FolderTarget(tmp_path, "parquet", ("s",))
    deliverer = Deliverer(target, "append")
    schema = Feed("append").delta({}).schema
    rows = [{"k": n, "s": value, "n": 1, "_w": 1} for n, value in enumerate(values)]
    refused = {"k": 99, "s": "__HIVE_DEFAULT_PARTITION__", "n": 1, "_w": 1}
    (reason,) = deliverer.give(EpochDelta(1, pa.Table.from_pylist([*rows, refused], schema=schema)))
    assert "stands for NULL" in reason.reason
    found = duckdb.sql(
        f"SELECT k, s FROM read_parquet('{target.folder}/*/*.parquet', hive_partitioning = true) ORDER BY k"
    ).fetchall()
    assert found == [(n, value) for n, value in enumerate(values)]
    assert {path.name for path in target.folder.glob("s=*本")} == {"s=日本"}


def test_a_value_that_is_too_long_for_a_folder_is_refused(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path, "parquet", ("s",))
    target.poison = lambda row: {**row, "s": "x" * 300}
    target.modes = ("append",)
    feed = Feed("append")
    deliverer = Deliverer(target, "append")
    part = EpochDelta(1, feed.delta({}))
    rows = [{"k": 1, "s": "x" * 300, "n": 1, "_w": 1}, {"k": 2, "s": "good", "n": 1, "_w": 1}]
    part = EpochDelta(1, pa.Table.from_pylist(rows, schema=part.delta.schema))
    for _ in range(2):
        (refused,) = deliverer.give(part)
        assert "too long" in refused.reason and '"k": 1' in refused.row
    assert [row["k"] for row in target.read()] == [2]
    (name,) = committed_files(str(target.folder))
    assert name.startswith("s=good/epoch-")

"""Parts of large deliveries are prepared by workers, beside the chain (law 7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import millpond
from millpond.engine.coordinator import worker_preparing
from millpond.engine.coordinator.worker_preparing import WorkerPreparing
from millpond.engine.inline import InlineEngine
from millpond.errors import InvalidError, UnavailableError
from millpond.sinks import delivery as deliveries
from millpond.sinks.delivery import Delivery, Part, SinkBinding

ROWS = 40


@dataclass(frozen=True)
class PartsSink:
    """Prepares files, and publishes by writing their names."""

    folder: str
    fails: str = ""
    guarantee: ClassVar[Any] = "exactly_once"
    modes: ClassVar[Any] = ("changelog",)

    def open(self, binding: SinkBinding) -> PartsPublisher:
        return PartsPublisher(Path(self.folder))

    def prepare(self, part: Part) -> Any:
        if self.fails == "invalid" and not Path(self.folder, "in-driver").exists():
            Path(self.folder, "in-driver").touch()
            raise InvalidError("the environment variable KEY is not set")
        if self.fails == "unavailable" and part.number == 2 and not Path(self.folder, "failed").exists():
            Path(self.folder, "failed").touch()
            raise UnavailableError("the target is away")
        name = f"{part.epoch}-{part.number}-{id(part.rows)}"
        Path(self.folder, name).write_text(json.dumps([row["k"] for row in part.rows.to_pylist()]))
        return {"name": name, "rows": part.rows.num_rows, "first": part.first}


class PartsPublisher:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, delivery: Delivery) -> bool:
        return (self.folder / f"{delivery.epoch}.published").exists()

    def publish(self, delivery: Delivery, prepared: Sequence[Any]) -> None:
        (self.folder / f"{delivery.epoch}.published").write_text(json.dumps(prepared))


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts each job has; the inline engine pretends to have four cores."""
    sizes: list[int] = []

    def run(self: InlineEngine, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        if function is worker_preparing._prepare_part:
            sizes.append(len(items))
        return [function(item) for item in items]

    cut = Delivery.cut
    monkeypatch.setattr(InlineEngine, "map", run)
    monkeypatch.setattr(Delivery, "cut", lambda self: cut(self, 7))
    monkeypatch.setattr(WorkerPreparing, "cores", property(lambda self: 4))
    return sizes


def _delivered(folder: Path, sink: PartsSink) -> list[int]:
    """The rows that were published, in their order."""
    found: list[int] = []
    for path in sorted(Path(sink.folder).glob("*.published"), key=lambda p: int(p.stem)):
        prepared = json.loads(path.read_text())
        assert [p["first"] for p in prepared] == list(range(0, 7 * len(prepared), 7))
        for part in prepared:
            rows = json.loads(Path(sink.folder, part["name"]).read_text())
            assert len(rows) == part["rows"]
            found += rows
    return found


def _run(tmp_path: Path, sink: PartsSink, tries: int = 1) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.table("t", {"k": int}).key_by("k").aggregate(c="count(*)").view("v").sink("out", sink)
        pond.insert("t", pa.table({"k": list(range(ROWS))}))
        for _ in range(tries - 1):
            with pytest.raises(UnavailableError):
                pond.drain()
        pond.drain()


@pytest.mark.parametrize("fails", ["", "invalid", "unavailable"])
def test_workers_prepare_and_the_driver_publishes(fails: str, tmp_path: Path, mapped: list[int]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    sink = PartsSink(str(folder), fails)
    _run(tmp_path, sink, tries=2 if fails == "unavailable" else 1)
    assert sorted(_delivered(tmp_path, sink)) == list(range(ROWS))
    assert max(mapped) == 2, "half of the cores stay free"
    expected = {"": [2, 2, 2], "invalid": [2], "unavailable": [2, 2, 2, 2, 2]}
    assert mapped == expected[fails]
    staged = [p for p in (tmp_path / "pond" / "runs").rglob("*-d-*") if p.is_file()]
    assert staged == [], "rows for workers are left in the store"


def test_small_deliveries_and_small_engines_stay_in_the_driver(
    tmp_path: Path, mapped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.setattr(WorkerPreparing, "cores", property(lambda self: 2))
    _run(tmp_path, PartsSink(str(folder)))
    assert mapped == []
    assert deliveries.PART_ROWS * worker_preparing.PARTS_MIN == 1_000_000


def test_rows_that_a_killed_process_left_are_collected(
    tmp_path: Path, mapped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    sink = PartsSink(str(folder))

    def die(self: Any, ask: Any, sink: Any, parts: Any) -> Any:
        name = millpond.state.runs.run_names.new_name(ask.token, ask.head, "d", 0)
        self._worker.store.put_new(name, b"rows")
        raise UnavailableError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(WorkerPreparing, "_some", die)
        with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
            pond.table("t", {"k": int}).key_by("k").aggregate(c="count(*)").view("v").sink("out", sink)
            pond.insert("t", pa.table({"k": list(range(ROWS))}))
            with pytest.raises(UnavailableError):
                pond.drain()
    runs = tmp_path / "pond" / "runs"
    assert [p for p in runs.rglob("*-d-*") if p.read_bytes() == b"rows"]
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, retain_epochs=1) as pond:
        pond.table("t", {"k": int}).key_by("k").aggregate(c="count(*)").view("v").sink("out", sink)
        for n in range(30):
            pond.insert("t", [{"k": n}])
            pond.drain()
    assert not [p for p in runs.rglob("*-d-*") if p.read_bytes() == b"rows"]
    assert set(_delivered(tmp_path, sink)) == set(range(ROWS))

"""Columns that only failures would show are not read until something fails; then rows are shown whole (law 9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import ValueState
from millpond.engine.inline import InlineEngine
from millpond.engine.task.full_row_retry import Epochs
from millpond.engine.task.spec import EpochSpec, Report
from millpond.errors import InternalError
from millpond.plan.prune import needed_columns, needs
from millpond.sources.memory import MemorySource

ROW = {"k": str, "x": int, "note": str}


def share(row: Any, n: Any = ValueState(int, default=0)) -> Any:
    n.value += 1
    return row.k, 12 // row.x, n.value


def build(pond: millpond.Pond, source: MemorySource) -> None:
    stream = pond.stream("in", source).key_by("k")
    stream.process(share, {"k": str, "part": int, "n": int}, id="share").view("v")


def row(k: str, x: int) -> dict[str, Any]:
    return {"k": k, "x": x, "note": f"{k}{x}"}


def test_only_what_is_read_is_asked_for(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline") as pond:
        build(pond, MemorySource(ROW))
        assert needed_columns(pond.plan)["in"] - {"_o"} == {"k", "x"}
        assert needs(pond.plan, full_rows=True).columns["in"] - {"_o"} == {"k", "x", "note"}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_that_failed_are_shown_whole(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[bool] = []
    plain = InlineEngine.run

    def run(engine: InlineEngine, spec: EpochSpec) -> list[Report]:
        ran.append(spec.full_rows)
        return plain(engine, spec)

    monkeypatch.setattr(InlineEngine, "run", run)
    source = MemorySource(ROW)
    with millpond.open(tmp_path, engine="inline", parallelism=parallelism) as pond:
        build(pond, source)
        for rows in ([row("a", 1), row("b", 2)], [row("a", 0), row("b", 3), row("c", 4)], [row("a", 6)]):
            source.push(rows)
            pond.drain()
        assert ran == [False, False, True, True], "the second epoch was run again, and the third at once"
        assert sorted(pond.read("v").to_pylist(), key=lambda r: (r["k"], r["n"])) == [
            {"k": "a", "part": 12, "n": 1},
            {"k": "a", "part": 2, "n": 2},  # the row that failed did not count
            {"k": "b", "part": 6, "n": 1},
            {"k": "b", "part": 4, "n": 2},
            {"k": "c", "part": 3, "n": 1},
        ]
        (error,) = pond.errors().to_pylist()
        assert json.loads(error["row"]) == row("a", 0)
        assert "ZeroDivisionError" in error["reason"]


def test_what_was_tried_in_vain_leaves_no_file(tmp_path: Path) -> None:
    source = MemorySource(ROW)
    with millpond.open(tmp_path, engine="inline") as pond:
        build(pond, source)
        source.push([row("a", 0), row("b", 1)])
        pond.drain()
        named = {ref.file for ref in pond.head().recent}
        there = {f"runs/{path.parent.name}/{path.name}" for path in (tmp_path / "runs").glob("*/*")}
        assert {name for name in there if "-p-" not in name} <= named


class Asks:
    """An engine whose step is never content."""

    def run(self, spec: EpochSpec) -> list[Report]:
        return [Report(0, 0, "a", (), (), (), {}, {}, {"needs_full_rows": True})]


def test_whole_rows_are_all_there_is() -> None:
    spec = EpochSpec("memory:", "c", 1, 1, 0, (1,), ((),), (), (), (), {}, {})
    with pytest.raises(InternalError, match="asks for full rows"):
        Epochs(Asks()).run(spec)  # type: ignore[arg-type]


def test_without_an_origin_all_columns_give_the_order(tmp_path: Path) -> None:
    """Law 3: rows without an origin come in the order of their columns, so none may be left out."""
    with millpond.open(tmp_path, engine="inline") as pond:
        source = MemorySource(ROW)
        both = pond.stream("in", source).map_batches(
            lambda t: t,
            schema=pa.schema([("k", pa.string()), ("x", pa.int64()), ("note", pa.string())]),
            id="same",
        )
        both.key_by("k").process(share, {"k": str, "part": int, "n": int}, id="share").view("v")
        assert needed_columns(pond.plan)["same"] - {"_o"} == {"k", "x", "note"}

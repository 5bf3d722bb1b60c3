"""Many views in one pipeline: merges keep up with them, and a few rows are one task's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.engine.inline import InlineEngine
from millpond.engine.task.worker import Worker
from millpond.sources.memory import MemorySource
from millpond.state.runs import open_files
from millpond.state.store.store import open_store

VIEWS = 12


def define(pond: millpond.Pond) -> None:
    rows = pond.table("t", {"id": int, "x": int}, key="id")
    for n in range(VIEWS):
        stream = rows.filter(f"x % {n + 2} <> 0")
        stream.key_by("x").aggregate(n="count(*)", id=f"by{n}").view(f"v{n}")


def put(pond: millpond.Pond, first: int, last: int) -> None:
    pond.insert("t", [{"id": i, "x": i % 7} for i in range(first, last)])
    pond.drain()


def test_merges_of_small_tables_keep_up_with_epochs(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, durable=False) as pond:
        define(pond)
        for number in range(40):
            put(pond, number * 10, number * 10 + 10)
            pond._runner.drain(settle=True)  # type: ignore[union-attr]
        runs = Counter(r.table for r in pond._runner.coordinator.live.values())  # type: ignore[union-attr]
        assert max(runs.values()) <= 2 * 2 * 6, "two tasks, two sizes, six of each"
        merged = [r for m in range(1, pond.epoch) for r in added(pond, m) if r.kind == "merge"]
        assert len({r.file for r in merged}) < len(merged) / 4, "merges share their files"
        for n in range(VIEWS):
            found = {row["x"]: row["n"] for row in pond.read(f"v{n}").to_pylist()}
            wanted = Counter(i % 7 for i in range(400) if i % 7 % (n + 2))
            assert found == wanted


@pytest.mark.slow
def test_what_merges_have_opened_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run elsewhere; the process that merges must not keep every file of its history open."""
    monkeypatch.setattr(open_files, "FILES_SPARE", 4)
    store = open_store((tmp_path / "pond").as_uri(), durable=False)
    with millpond.Pond(store, engine=InlineEngine(Worker(store)), parallelism=2) as pond:
        define(pond)
        opened = []
        for number in range(40):
            put(pond, number * 10, number * 10 + 10)
            pond._runner.drain(settle=True)  # type: ignore[union-attr]
            opened.append(len(pond._worker._files))
        live = {r.file for r in pond._runner.coordinator.live.values()}  # type: ignore[union-attr]
        assert max(opened) > 4, "merges open files here"
        assert max(opened[20:]) <= 2 * len(live) + 2 * 4, (opened, len(live))
        assert pond.read("v0").num_rows == 3


def added(pond: millpond.Pond, epoch: int) -> Any:
    from millpond.state.manifest import history

    return history.read_manifest(pond.store, epoch).added


def test_a_few_rows_are_one_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 50)
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=3, durable=False) as pond:
        define(pond)
        tasks = []
        for first, last in ((0, 10), (10, 20), (20, 400), (400, 480), (480, 490)):
            pond.insert("t", [{"id": i, "x": i % 7} for i in range(first, (first + last) // 2)])
            pond.insert("t", [{"id": i, "x": i % 7} for i in range((first + last) // 2, last)])
            pond.drain()
            tasks.append(pond.head().metrics["tasks"][-1])
        assert tasks[1:] == [1, 3, 2, 1]
        assert {r["x"]: r["n"] for r in pond.read("v0").to_pylist()} == Counter(
            i % 7 for i in range(490) if i % 7 % 2
        )


def windows(pond: millpond.Pond, source: MemorySource) -> Any:
    stream = pond.stream("s", source, event_time="at", delay="1s").tumble("10s").key_by("window_end", "x")
    return stream.aggregate(on_close=True, n="count(*)")


def tasks_of(pond: millpond.Pond, source: MemorySource, second: int, rows: int) -> int:
    for half in range(2):
        source.push([{"at": second * 1_000_000, "x": 2 * x + half} for x in range(rows // 2)])
    pond.drain()
    return int(pond.head().metrics["tasks"][-1])


TIMED = pa.schema([("at", pa.timestamp("us")), ("x", pa.int64())])


def test_rows_that_wait_for_time_count_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 50)
    source = MemorySource(TIMED)
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=4, durable=False) as pond:
        windows(pond, source).view("v")
        tasks = [
            tasks_of(pond, source, second, rows)
            for second, rows in ((0, 2), (1, 2), (2, 1000), (3, 2), (13, 2), (14, 2))
        ]
        assert tasks[1:] == [1, 4, 3, 3, 1], "a thousand that wait are 125, until their window was closed"
        assert pond.read("v").num_rows == 1000


def half(row: dict[str, Any]) -> dict[str, Any]:
    return {"y": row["x"] // 2}


def test_rows_of_users_functions_count_tenfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 50)
    source = MemorySource(TIMED)
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=4, durable=False) as pond:
        pond.stream("s", source, event_time="at", delay="1s").map(half, schema={"y": int}).view("v")
        tasks = [tasks_of(pond, source, second, rows) for second, rows in enumerate((2, 4, 8))]
        assert tasks[1:] == [1, 2]


def test_a_commit_of_merges_does_not_forget_what_tasks_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 50)
    source = MemorySource(TIMED)
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=4, durable=False) as pond:
        windows(pond, source).view("v")
        for second in range(2):
            tasks_of(pond, source, second, 4)
        pond.compact()
        assert "tasks_us" not in pond.head().metrics, "a commit without tasks lies between"
        assert tasks_of(pond, source, 2, 4) == 1


def test_filters_of_the_same_rows_are_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.kernels import expression_kernel

    asked: list[str] = []
    prepared = expression_kernel._prepared
    monkeypatch.setattr(
        expression_kernel,
        "_prepared",
        lambda schema, es: asked.append(", ".join(e.sql for e in es)) or prepared(schema, es),
    )
    conditions = ["x > 2", "s::int % 2 = 0", "s <> '4'", "NOT (x = 3)", "x IS NULL OR s IS NULL"]
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True) as pond:
        rows = pond.table("t", {"id": int, "x": int | None, "s": str | None}, key="id")
        for n, condition in enumerate(conditions):
            rows.filter(condition).view(f"v{n}")
        pond.insert("t", [{"id": i, "x": i % 5 or None, "s": str(i)} for i in range(20)])
        pond.drain()
        assert len(asked) == 1, "one query for five filters"
        wanted = [
            {i for i in range(20) if i % 5 > 2},
            {i for i in range(20) if i % 2 == 0},
            {i for i in range(20) if i != 4},
            {i for i in range(20) if i % 5 not in (0, 3)},
            {i for i in range(20) if i % 5 == 0},
        ]
        assert [set(pond.read(f"v{n}")["id"].to_pylist()) for n in range(5)] == wanted
        pond.insert("t", [{"id": 99, "x": 4, "s": "no number"}])  # fails in one of them
        pond.drain()
        wanted = [w | ({99} if n in (0, 2, 3) else set()) for n, w in enumerate(wanted)]
        assert [set(pond.read(f"v{n}")["id"].to_pylist()) for n in range(5)] == wanted
        assert len(pond.errors("v1")) == 1 and len(pond.errors("v0")) == 0
        pond.delete("t", [{"id": 99, "x": 4, "s": "no number"}])
        pond.drain()
        assert len(pond.errors()) == 0 and pond.read("v0").num_rows == len(wanted[0]) - 1


def test_projections_of_the_same_rows_are_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.kernels import expression_kernel

    asked: list[int] = []
    prepared = expression_kernel._prepared
    monkeypatch.setattr(
        expression_kernel, "_prepared", lambda schema, es: asked.append(len(es)) or prepared(schema, es)
    )
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True) as pond:
        rows = pond.table("t", {"id": int, "x": int, "s": str}, key="id")
        rows.select("id", y="x * 2", z="x + 1").view("a")
        rows.select("id", n="s::int").view("b")
        rows.select("id", "s", again="-x").view("c")
        pond.insert("t", [{"id": i, "x": i % 5, "s": str(i)} for i in range(20)])
        pond.drain()
        assert asked == [4], "one query for three projections"
        pond.insert("t", [{"id": 3, "x": 9, "s": "no number"}])  # an update; it fails in one of them
        pond.delete("t", [{"id": 4, "x": 4, "s": "4"}])
        pond.drain()
        xs = {i: 9 if i == 3 else i % 5 for i in range(20) if i != 4}
        assert {r["id"]: (r["y"], r["z"]) for r in pond.read("a").to_pylist()} == {
            i: (x * 2, x + 1) for i, x in xs.items()
        }
        assert {r["id"]: r["n"] for r in pond.read("b").to_pylist()} == {i: i for i in xs if i != 3}
        assert {r["id"]: r["again"] for r in pond.read("c").to_pylist()} == {i: -x for i, x in xs.items()}
        assert len(pond.errors("b")) == 1 and len(pond.errors("a")) == 0

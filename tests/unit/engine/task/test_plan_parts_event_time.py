"""Parts of a plan hear the same watermarks: windows close in every part in the same epoch (laws 1 and 3)."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond import Pond, tuning, watermarks
from millpond.clock import ManualClock
from millpond.engine.inline import InlineEngine
from millpond.engine.task.plan_parts import parts
from millpond.plan.watermark_steps import watermark_steps
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.windows import tumbling

NOON = datetime.datetime(2024, 1, 1, 12)


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 2000)
    monkeypatch.setattr(InlineEngine, "default_parallelism", 2)
    monkeypatch.setattr(tuning, "PLAN_PARTS_US", 0)
    monkeypatch.setattr(tuning, "PLAN_PART_SHARE_MAX", 1.0)
    monkeypatch.setattr(tuning, "QUICK_TASK_US", 10**12)


SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])
NOON_US = int(NOON.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000


def at(minute: int) -> dict[str, object]:
    return {"k": "x", "at": NOON + datetime.timedelta(minutes=minute)}


def opened(path: Path, clock: ManualClock | None = None) -> Pond:
    return millpond.open(path, engine="inline", parallelism=2, durable=False, clock=clock or ManualClock(0))


def bound_of(pond: Pond, step: str) -> datetime.datetime:
    us = pond.head().watermarks[step]["bound"]
    return datetime.datetime.fromtimestamp(us / 1_000_000, datetime.UTC).replace(tzinfo=None)


def ran_in_parts(pond: Pond) -> bool:
    return "plan_parts" in pond.head().metrics["ran"]


@pytest.mark.parametrize("windows", ["behind the watermark step", "in front of it"])
def test_windows_close_in_every_part(tmp_path: Path, windows: str) -> None:
    """A window of `window()` reads from in front of the watermark step that closes it."""
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        rows = pond.stream("rows", source).watermark("at", "0s")
        for minutes in (5, 10):
            if windows == "in front of it":
                of = rows.key_by("k").window(tumbling(f"{minutes}m"), on_close=True).aggregate(n="count(*)")
            else:
                of = rows.tumble(f"{minutes}m").key_by("window_end").aggregate(on_close=True, n="count(*)")
            of.view(f"v{minutes}")
        pond.drain()
        for minute in (1, 11):
            source.push([at(minute)])
            pond.drain()
        assert ran_in_parts(pond)
        assert [pond.read(view).num_rows for view in ("v5", "v10")] == [1, 1]


def test_what_a_source_promises_does_not_hide_the_rows_of_another_part(tmp_path: Path) -> None:
    """A part with the source but without the watermark step behind user code observes nothing for it."""
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        rows = pond.stream("rows", source)
        counted = rows.key_by("k").aggregate(n="count(*)", last="max(at)", d="count(distinct at)")
        counted.key_by("n").aggregate(m="max(d)").key_by("m").aggregate(n="count(*)").view("heavy")
        marked = rows.map(lambda row: {"k": row.k, "at": row.at}, SCHEMA).watermark("at", "0s", id="w")
        marked.tumble("5m").key_by("window_end").aggregate(on_close=True, n="count(*)").view("closed")
        pond.drain()
        for minute in (1, 11):
            source.push([at(minute)], EventTimeBound(NOON_US))
            pond.drain()
        assert ran_in_parts(pond)
        assert bound_of(pond, "w") == NOON + datetime.timedelta(minutes=11)
        assert pond.read("closed").num_rows == 1


def test_parts_have_the_watermarks_that_their_steps_hear(tmp_path: Path) -> None:
    """Those of other sources, too, that bound rows together with theirs: an idle one follows the others."""
    one, two, three = (MemorySource(SCHEMA) for _ in range(3))
    with opened(tmp_path / "pond") as pond:
        marks = [
            pond.stream(name, source).watermark("at", "0s", idle="30s", id=f"{name}.w").key_by("k")
            for name, source in (("one", one), ("two", two), ("three", three))
        ]
        marks[0].stream.union(marks[1].stream).key_by("k").window(tumbling("5m")).aggregate(
            n="count(*)"
        ).view("u")
        marks[0].window(tumbling("5m"), on_close=True).aggregate(n="count(*)").view("v")
        marks[2].window(tumbling("5m"), on_close=True).aggregate(n="count(*)").view("w")
        steps = {view.name: view.step for view in pond.plan.views.values()}
        found = parts(pond.plan, 3)
        assert len(found) == 3
        for part in found:
            wanted = {"three.w"} if steps["w"] in part.steps else {"one.w", "two.w"}
            assert wanted == part.steps & {"one.w", "two.w", "three.w"}
        assert watermark_steps(pond.plan).heard_by[steps["v"]] == {"one.w", "two.w"}


def test_the_function_of_a_watermark_runs_once(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        own = watermarks.custom(lambda rows, state: (None, state))
        rows = pond.stream("rows", MemorySource(SCHEMA)).watermark("at", own, id="w")
        for minutes in (5, 10):
            rows.tumble(f"{minutes}m").key_by("window_end").aggregate(n="count(*)").view(f"v{minutes}")
        assert sum("w" in part.steps for part in parts(pond.plan, 2)) == 1


def test_views_of_the_same_windows_are_dealt_to_several_parts(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.sql(
            "CREATE TABLE a (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY"
        )
        for n, what in enumerate(("count(*)", "max(k)", "median(k)", "count(DISTINCT k)")):
            pond.sql(
                f"CREATE MATERIALIZED VIEW v{n} AS SELECT window_end, {what} AS a "
                "FROM TUMBLE(a, ts, INTERVAL '1 minute') GROUP BY window_end EMIT ON WINDOW CLOSE"
            )
        assert len(parts(pond.plan, 2)) == 2

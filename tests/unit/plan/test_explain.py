"""Explain says levels, exchanges, state and views, as text and as a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import Process, ValueState
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan.explain import explain_text, mermaid
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.timestamp("us"))])


class Target:
    """A sink that shows itself as `a sink`."""

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        raise AssertionError("nothing runs here")

    def __repr__(self) -> str:
        return "a sink"


@pytest.fixture
def plan() -> Plan:
    builder = Builder()
    stream = Stream(builder, builder.add("bids", Scan(MemorySource(SCHEMA), SCHEMA, True), (), "bids"))
    counted = (
        stream.filter("v > 1 AND k <> 3", id="real")
        .key_by("k")
        .aggregate(id="by_k", n="count(*)", s="sum(v)")
    )
    counted.view("counts").sink("out", Target())
    counted.key_by("n").top_n(2, "s desc", id="best").view("best")
    stream.aggregate(id="all", n="count(*)").view("total")
    return builder.plan


def test_text_names_levels_exchanges_state_and_views(plan: Plan) -> None:
    text = explain_text(plan, cut(plan))
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("level")] == ["level 0", "level 1", "level 2"]
    assert "  by_k: Aggregate by (k) n=count(*), s=sum(v)" in text
    assert "    from real  [hash (k), pre-aggregated]" in lines
    assert "    from bids  [hash to one task, pre-aggregated]" in lines
    assert any(line.startswith("    state by_k/groups: latest, key (k)") for line in lines)
    assert "    view counts" in lines
    assert "sink out: a sink from view counts, changes at_least_once" in lines
    assert "shared: bids" in lines


def test_every_step_stands_once(plan: Plan) -> None:
    heads = [
        line
        for line in explain_text(plan, cut(plan)).splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert [line.split(":")[0].strip() for line in heads] == [s for level in cut(plan).steps for s in level]


def test_the_drawing_has_a_box_a_level_and_an_arrow_an_input(plan: Plan) -> None:
    drawn = mermaid(plan, cut(plan)).splitlines()
    assert drawn[0] == "flowchart LR"
    assert sum(line.startswith("  subgraph") for line in drawn) == 3
    arrows = [line for line in drawn if "==>" in line or "-->" in line]
    assert len(arrows) == sum(len(n.inputs) for n in plan.nodes.values()) + len(plan.views)
    # Quotes and angle brackets of an expression would end a label: they are written otherwise.
    boxes = [line for line in drawn if "real" in line]
    assert boxes and all("<>" not in line and "&lt;&gt;" in line for line in boxes)


def test_an_empty_plan_can_be_explained() -> None:
    assert explain_text(Plan(), cut(Plan())) == "level 0"
    assert mermaid(Plan(), cut(Plan())).splitlines()[0] == "flowchart LR"


def test_a_process_step_is_named_by_its_code_and_its_times_are_one_line(tmp_path: Path) -> None:
    class Quiet(Process):
        last = ValueState(int, ttl="1h", clock="processing")

        def on_row(self, row: Any, ctx: Any) -> None: ...

        def on_timer(self, timer: Any, ctx: Any) -> None: ...

    def tally(row: Any, n: Any = ValueState(int, 0)) -> None: ...

    with millpond.open(tmp_path, engine="inline") as pond:
        keyed = pond.stream("s", MemorySource({"k": str})).key_by("k")
        keyed.process(Quiet, {"k": str}, id="quiet").view("quiet")
        keyed.process(tally, {"k": str}, id="tally").view("tally")
        lines = pond.explain().splitlines()
    assert "  quiet: KeyedProcess by (k) Quiet -> k string" in lines
    assert "  tally: KeyedProcess by (k) tally() -> k string" in lines
    assert [line for line in lines if "state quiet/" in line] == [
        "    state quiet/last: latest, key (k)",
        "    state quiet/ttl.last: latest, key (k), buckets of 7 widths by at",
        "    state quiet/timers: latest, key (k), order timer",
        "    state quiet/due.event: latest, key (k), order timer, at, buckets of 6 widths by at",
        "    state quiet/due.processing: latest, key (k), order timer, at, buckets of 6 widths by at",
    ]

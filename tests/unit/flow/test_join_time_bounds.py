"""Joins bounded in time by their condition: what is read from the text, and that no pair is missed."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.flow.join_time_bounds import time_spans
from millpond.flow.windowed import JoinKind
from millpond.plan.expiry import TimeDistance
from millpond.sources.memory import MemorySource

MINUTE = 60_000_000
COLUMNS = [("ts", 0, "ts"), ("paid", 1, "at"), ("k", 0, "k")]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("paid BETWEEN ts AND ts + INTERVAL '10 minutes'", [(0, None), (None, 10 * MINUTE)]),
        ("paid >= ts - INTERVAL 5 MINUTE AND k > 3", [(-5 * MINUTE, None)]),
        ("(ts + INTERVAL '1 hour') > paid", [(None, 60 * MINUTE)]),
        ("ts - INTERVAL '1 minute' = paid", [(-MINUTE, -MINUTE)]),
        ("\"TS\" <= paid AND paid <= ts + INTERVAL '2 days'", [(0, None), (None, 2880 * MINUTE)]),
        ("paid - INTERVAL '1 minute' < INTERVAL '1 minute' + ts", [(None, 2 * MINUTE)]),
        ("ts <= paid OR k = 1", []),
        ("NOT ts <= paid", []),
        ("paid NOT BETWEEN ts AND ts + INTERVAL '1 minute'", []),
        ("paid <= ts + INTERVAL '1 month'", []),
        ("paid <= ts + k * INTERVAL '1 minute'", []),
        ("date_trunc('day', paid) = ts", []),
        ("ts <= ts + INTERVAL '1 minute'", []),
        ("unknown <= paid", []),
        ("x.ts <= paid", []),
        ("this is (no condition", []),
    ],
)
def test_spans(condition: str, found: list[tuple[int | None, int | None]]) -> None:
    assert time_spans(condition, COLUMNS) == [TimeDistance("ts", "at", low, high) for low, high in found]


@pytest.mark.parametrize("kind", ["inner", "left", "full", "semi", "anti"])
@pytest.mark.parametrize("on_windows", [True, False], ids=["windows", "interval"])
def test_no_pair_is_missed(kind: JoinKind, on_windows: bool) -> None:
    """Rows come out of order, as far as the watermark allows: the view is the batch join of them."""
    chance = random.Random(7)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
    sources = [MemorySource(schema), MemorySource(schema)]
    pond = millpond.open("memory://", engine="inline", durable=False, checks=True)
    left, right = (
        pond.stream(name, source, event_time="ts", delay="6s")
        for name, source in zip("ab", sources, strict=True)
    )
    if on_windows:
        made = left.tumble("4s").join(right.tumble("4s"), ["k", "window_end"], kind)
        condition = (
            "a.k = b.k AND time_bucket(INTERVAL 4 SECOND, a.ts) = time_bucket(INTERVAL 4 SECOND, b.ts)"
        )
    else:
        where = "ts_right BETWEEN ts - INTERVAL '3 seconds' AND ts + INTERVAL '5 seconds'"
        made = left.join(right, "k", kind, where=where if kind not in ("semi", "anti") else None)
        condition = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 3 SECOND AND a.ts + INTERVAL 5 SECOND"
        if kind in ("semi", "anti"):
            condition = "a.k = b.k"
    made.view("v")
    kept: list[list[dict[str, object]]] = [[], []]
    for epoch in range(20):
        for side, source in enumerate(sources):
            now = 3 * epoch + 10
            rows = [
                {
                    "k": chance.randrange(3),
                    "v": 10 * epoch + n,
                    "ts": datetime(2026, 1, 1) + timedelta(seconds=now - chance.random() * 3),
                }
                for n in range(chance.randrange(4))
            ]
            kept[side] += rows
            source.push(rows)
        pond.drain()
    tables = [pa.Table.from_pylist(rows, schema=schema) for rows in kept]
    con = duckdb.connect()
    con.register("a", tables[0])
    con.register("b", tables[1])
    pairs = kind not in ("semi", "anti")
    shown = "a.v, b.v AS w" if pairs else "a.v"
    wanted = con.execute(f"SELECT {shown} FROM a {kind} JOIN b ON {condition} ORDER BY ALL").fetchall()
    got = pond.read("v").select(["v", "v_right"] if pairs else ["v"])
    con.register("got", got)
    assert con.execute("SELECT * FROM got ORDER BY ALL").fetchall() == wanted
    held = sum(info.rows for info in pond.states() if info.step.startswith("join-"))
    if on_windows or pairs:
        assert held < 40, "closed times are gone"
    pond.close()

"""Passes of the physical plan: plan texts before and after each, and results that no switch changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import tuning
from millpond.engine.task.optimizer import EPOCH_CHOICES, NAMES, PASSES, VARIABLE, optimize, passes_off
from millpond.engine.task.task_plan import TaskPlan, unoptimized
from millpond.errors import InvalidError
from millpond.plan.levels import cut

PROGRAM = """
    CREATE TABLE t (id int PRIMARY KEY, k bigint, x int);
    CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n, sum(x) AS total FROM t WHERE x > 1 GROUP BY k;
    CREATE MATERIALIZED VIEW b AS SELECT k, count(*) AS n, sum(x) AS total FROM t WHERE x > 2 GROUP BY k;
    CREATE MATERIALIZED VIEW c AS SELECT id, x + 1 AS y FROM t;
    CREATE MATERIALIZED VIEW d AS SELECT id, x + 2 AS z FROM t
"""
# By pass, each behind all that come before it in `PASSES`: lines that it takes from the plan, and gives.
SINGLE = {
    "shared_filters": (
        ["apply a.where", "apply b.where"],
        ["shared filters a.where, b.where of t.rows"],
    ),
    "shared_projections": (
        ["apply c.select", "apply d.select"],
        ["shared projections c.select, d.select of t.rows"],
    ),
    "hash_order": (
        ["shared filters a.where, b.where of t.rows"],
        ["shared filters a.where, b.where of t.rows; sorted by hash of (k)"],
    ),
    "batched_aggregates": (
        [
            "send a.arguments to a.group of level 2 by hash prepared",
            "send b.arguments to b.group of level 2 by hash prepared",
        ],
        [
            "send a.arguments to a.group of level 2 by hash unprepared",
            "send b.arguments to b.group of level 2 by hash unprepared",
        ],
    ),
    "row_positions": (
        [
            "shared filters a.where, b.where of t.rows; sorted by hash of (k)",
            "apply a.arguments",
            "apply b.arguments",
        ],
        [
            "shared filters a.where, b.where of t.rows; sorted by hash of (k); positions of a.where, b.where",
            "pass positions a.arguments",
            "pass positions b.arguments",
        ],
    ),
}
FUSED = {
    "fused_scans": (
        ["read source s", "shared filters e.where, f.where of s", "apply e.arguments"],
        [
            "fused scan s",
            "  shared filters e.where, f.where of s",
            "  apply e.arguments",
            "  keep e.arguments",
        ],
    ),
    "batch_reduction": (
        ["  keep e.arguments"],
        ["  keep e.arguments reduced for e.group, pre-aggregated"],
    ),
    "dictionary_columns": (["fused scan s"], ["fused scan s; encoded w"]),
}


def changed(plan: TaskPlan, name: str) -> tuple[list[str], list[str]]:
    """Lines that a pass takes from a plan and gives to it, behind all passes before it."""
    names = [each.__name__ for each in PASSES]
    before = optimize(plan, names[names.index(name) :]).text().split("\n")
    after = optimize(plan, names[names.index(name) + 1 :]).text().split("\n")
    return [line for line in before if line not in after], [line for line in after if line not in before]


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql(PROGRAM)
        yield pond


@pytest.mark.parametrize("name", SINGLE)
def test_what_a_pass_changes(name: str, pond: millpond.Pond) -> None:
    plan = unoptimized(pond.plan, cut(pond.plan), 1, single_task=True)
    assert changed(plan, name) == SINGLE[name]


def test_aggregates_of_one_shape_are_one_item(pond: millpond.Pond) -> None:
    plan = unoptimized(pond.plan, cut(pond.plan), 2, single_task=True)
    assert changed(plan, "batched_aggregates") == (
        ["apply a.group", "apply b.group"],
        ["batched aggregates a.group, b.group"],
    )
    several = unoptimized(pond.plan, cut(pond.plan), 2)
    assert optimize(several) == several, "rows of a hash range come prepared"


@pytest.mark.parametrize("name", FUSED)
def test_what_a_pass_changes_behind_a_scan(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1], "x": [2], "w": ["a"]}), folder / "0.parquet")
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql(f"CREATE SOURCE s WITH (connector = 'files', path = '{folder}', format = 'parquet')")
        if name != "dictionary_columns":  # an aggregate may read any text
            pond.sql("CREATE MATERIALIZED VIEW e AS SELECT k, sum(x) AS total FROM s WHERE x > 1 GROUP BY k")
        ranked = "SELECT *, row_number() OVER (PARTITION BY k ORDER BY x) AS n FROM s WHERE x > 2"
        pond.sql(f"CREATE MATERIALIZED VIEW f AS SELECT k, w, x FROM ({ranked}) WHERE n <= 2")
        taken, given = changed(unoptimized(pond.plan, cut(pond.plan), 0), name)
        assert set(FUSED[name][0]) <= set(taken) and set(FUSED[name][1]) <= set(given), (taken, given)


def test_a_plan_remembers_the_passes_that_changed_it(pond: millpond.Pond) -> None:
    plan = unoptimized(pond.plan, cut(pond.plan), 1, single_task=True)
    assert optimize(plan).passes == tuple(SINGLE)
    assert optimize(plan, NAMES) == plan


def test_the_environment_switches_passes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes_off() == frozenset()
    monkeypatch.setenv(VARIABLE, "hash_order, fused_scans")
    assert passes_off() == {"hash_order", "fused_scans"}
    monkeypatch.setenv(VARIABLE, "all")
    assert passes_off() == {*(each.__name__ for each in PASSES), *EPOCH_CHOICES}
    monkeypatch.setenv(VARIABLE, "hash_oder")
    with pytest.raises(InvalidError, match="names no pass: 'hash_oder'"):
        passes_off()


# -- results ----------------------------------------------------------------------------


def outcome(folder: Path, parallelism: int, off: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All rows of all views after each epoch, and which ways were taken."""
    monkeypatch.setenv(VARIABLE, off)
    rng = random.Random(5)
    (folder / "in").mkdir(parents=True)
    found: list[Any] = []
    ran: set[str] = set()
    with millpond.open(
        folder / "pond", engine="inline", durable=False, parallelism=parallelism, checks=True
    ) as pond:
        pond.sql(PROGRAM)
        pond.sql(f"""
            CREATE SOURCE s (k bigint, x int, w text)
                WITH (connector = 'files', path = '{folder}/in', format = 'parquet');
            CREATE MATERIALIZED VIEW e AS SELECT k, count(*) AS n, sum(x) AS total FROM s WHERE x > 1 GROUP BY k;
            CREATE MATERIALIZED VIEW f AS SELECT k, w, 10 // x AS y FROM s WHERE x < 8;
            CREATE MATERIALIZED VIEW g AS
                SELECT s.k, s.w, t.x FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = t.id
        """)
        for epoch in range(3):
            rows = [(rng.randrange(12), rng.randrange(4), rng.randrange(9)) for _ in range(20)]
            listed = ", ".join(map(str, {row[0]: row for row in rows}.values()))
            pond.sql(
                f"INSERT INTO t VALUES {listed} ON CONFLICT (id) DO UPDATE SET k = excluded.k, x = excluded.x"
            )
            pond.sql("FLUSH")
            ran |= set(pond.head().metrics.get("ran", {}))
            table = pa.table(
                {
                    "k": pa.array([rng.randrange(12) for _ in range(30)], pa.int64()),
                    "x": pa.array([rng.randrange(9) for _ in range(30)], pa.int32()),
                    "w": [f"w{rng.randrange(3)}" for _ in range(30)],
                }
            )
            pq.write_table(table, folder / "in" / f"{epoch}.parquet", row_group_size=10)
            pond.drain()
            ran |= set(pond.head().metrics.get("ran", {}))
            found.append(
                {name: sorted(map(repr, pond.sql(f"FROM {name}").fetchall())) for name in ("t", *"abcdefg")}
            )
        found.append(sorted(map(repr, pond.errors().to_pylist())))
    return found, ran


@pytest.mark.parametrize("parallelism", [1, 3])
def test_no_switch_changes_a_result(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", 8)
    wanted, ran = outcome(tmp_path / "on", parallelism, "", monkeypatch)
    assert {"fused_scans", "shared_projections", "local_lookup"} <= ran
    assert ("single_task" in ran) == ("batched_aggregates" in ran) == (parallelism == 1)
    rng = random.Random(parallelism)
    subset = ",".join(rng.sample(NAMES, len(NAMES) // 2))
    for number, off in enumerate(["all", rng.choice(NAMES), subset]):
        found, ran = outcome(tmp_path / f"{number}", parallelism, off, monkeypatch)
        assert found == wanted, f"without {off}"
        assert ran.isdisjoint(NAMES if off == "all" else off.split(",")), off

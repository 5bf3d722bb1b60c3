"""Parts of a plan: the same views, counts and errors whichever way its steps are dealt to tasks (law 3)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import tuning
from millpond.engine.inline import InlineEngine
from millpond.engine.task.plan_parts import parts
from millpond.operators.filter_rows import FilterRows
from millpond.plan.nodes import Plan
from tests.sampling import first

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, k int, x int);
    CREATE TABLE u (k int, x int);
"""
VIEWS = {
    "a": "SELECT k, count(*) AS n, sum(x) AS total FROM t GROUP BY k",
    "b": "SELECT n, count(*) AS groups FROM a GROUP BY n",
    "c": "SELECT t.id, u.x FROM t JOIN u ON u.k = t.k",
    "d": "SELECT DISTINCT x % 3 AS r FROM u",
    "e": "SELECT id FROM t WHERE CAST(CASE WHEN x = 3 THEN 'three' ELSE '1' END AS int) = 1",
    "f": "SELECT x, max(id) AS last FROM t GROUP BY x",
    "g": "SELECT k, x FROM u WHERE x > 2",
    "h": "SELECT k, x FROM t ORDER BY x DESC, id LIMIT 3",
    "j": "SELECT k, sum(id) AS ids FROM t "
    "WHERE CAST(CASE WHEN x = 3 THEN 'three' ELSE '1' END AS int) = 1 GROUP BY k",
    "i": "SELECT k, min(x) AS least FROM u GROUP BY k",
}


def change(random: random.Random) -> str:
    some = ", ".join(
        f"({random.randrange(12)}, {random.randrange(6)})" for _ in range(random.randrange(1, 9))
    )
    keyed = ", ".join(
        f"({i}, {random.randrange(4)}, {random.randrange(9)})"
        for i in random.sample(range(30), random.randrange(1, 9))
    )
    return random.choice(
        (
            f"INSERT INTO u VALUES {some}",
            f"INSERT INTO t VALUES {keyed}",
            f"DELETE FROM t WHERE id % 5 = {random.randrange(5)}",
            f"DELETE FROM u WHERE k = {random.randrange(12)}",
            f"UPDATE t SET x = x + 1 WHERE k = {random.randrange(4)}",
        )
    )


def played(path: Path, seed: int, parallelism: int) -> tuple[list[Any], list[list[int]]]:
    """Every view, the errors and the counts after every change, and how many tasks it took."""
    chance = random.Random(seed)
    found: list[Any] = []
    tasks = []
    for part in range(2):
        with millpond.open(path, engine="inline", parallelism=parallelism, durable=False) as pond:
            if part == 0:
                pond.sql(TABLES + ";".join(f"CREATE MATERIALIZED VIEW {v} AS {q}" for v, q in VIEWS.items()))
                pond.sql("INSERT INTO t VALUES (1, 1, 3), (2, 2, 3), (3, 1, 4); FLUSH")
            for _ in range(8):
                pond.sql(change(chance) + "; FLUSH")
                shown = {view: sorted(pond.read(view).to_pylist(), key=str) for view in (*VIEWS, "t", "u")}
                errors = sorted(pond.errors().to_pylist(), key=str)
                counts = {k: v for k, v in pond.head().counts.items() if v}
                found.append((shown, errors, counts))
                tasks.append(pond.head().metrics.get("tasks") or [])
    return found, tasks


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_parts_of_a_plan_give_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    expected, _ = played(tmp_path / "whole", seed, 1)
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 2000)
    monkeypatch.setattr(InlineEngine, "default_parallelism", 3)
    monkeypatch.setattr(tuning, "PLAN_PARTS_US", 0)
    found, tasks = played(tmp_path / "apart", seed, 3)
    assert found == expected
    assert any(set(t) == {3} for t in tasks), "three parts were run"
    assert any(errors for _, errors, _ in expected), "rows fail on the way"


def plan_of(path: Path, text: str) -> Plan:
    with millpond.open(path, engine="inline", durable=False) as pond:
        pond.sql(text)
        return pond.plan


def test_every_step_is_kept_once_and_parts_hold_all_they_read(tmp_path: Path) -> None:
    views = ";".join(f"CREATE MATERIALIZED VIEW {v} AS {q}" for v, q in VIEWS.items())
    plan = plan_of(tmp_path / "pond", TABLES + views)
    for count in range(1, 6):
        found = parts(plan, count)
        assert Counter(step for part in found for step in part.keeps) == Counter(list(plan.nodes))
        for part in found:
            assert part.keeps <= part.steps
            assert all(source in part.steps for step in part.steps for source in plan.nodes[step].inputs)
    assert len(parts(plan, 2)) == 2
    in_parts = [part for part in parts(plan, 3) if "t.rows" in part.steps]
    assert len(in_parts) > 1, "a table's own rows are found by every part that reads them"


def test_what_hangs_together_stays_one_part(tmp_path: Path) -> None:
    chain = ";".join(
        f"CREATE MATERIALIZED VIEW v{n} AS SELECT k, count(*) AS x FROM {f'v{n - 1}' if n else 'u'} GROUP BY k"
        for n in range(4)
    )
    assert len(parts(plan_of(tmp_path / "pond", TABLES + chain), 2)) == 1


def test_views_of_one_shape_are_dealt_to_one_part(tmp_path: Path) -> None:
    shapes = ("sum(x)", "min(x)", "max(x)", "count(*)", "avg(x)", "count(DISTINCT x)")
    views = ";".join(
        f"CREATE MATERIALIZED VIEW v{n:02} AS SELECT k, {shapes[n % 6]} AS a FROM u WHERE x > {n} GROUP BY k"
        for n in range(24)
    )  # in the order of their names every part would have all shapes
    found = parts(plan_of(tmp_path / "pond", TABLES + views), 2)
    assert len(found) == 2
    kept = [{int(s[1:3]) for s in part.keeps if s.startswith("v")} for part in found]
    assert set.union(*kept) == set(range(24))
    assert not {n % 6 for n in kept[0]} & {n % 6 for n in kept[1]}


def test_code_of_users_runs_once(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        rows = pond.table("u", {"k": int, "x": int})
        for source in (rows, rows.filter(lambda row: row["x"] > 1)):
            for n in range(4):
                source.filter(f"x > {n}").key_by("k").aggregate(n="count(*)").view(f"v{len(pond.plan.views)}")
        found = parts(pond.plan, 2)
        assert len(found) == 2
        code = [step for step, node in pond.plan.nodes.items() if isinstance(node.operator, FilterRows)]
        assert code and all(sum(step in part.steps for part in found) == 1 for step in code)


def test_functions_of_users_run_once(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.function("odd", lambda x: x % 2 == 1, arguments=[int], returns=bool)
        pond.sql(TABLES)
        pond.sql("CREATE VIEW w AS SELECT k, x FROM u WHERE odd(x)")
        for n, what in enumerate(("count(*)", "sum(x)", "min(x)", "max(x)")):
            for source in ("u", "w"):
                pond.sql(
                    f"CREATE MATERIALIZED VIEW {source}{n} AS SELECT k, {what} AS a FROM {source} GROUP BY k"
                )
        found = parts(pond.plan, 2)
        assert len(found) == 2
        code = [step for step, node in pond.plan.nodes.items() if getattr(node.operator, "functions", ())]
        assert code and all(sum(step in part.steps for part in found) == 1 for step in code)

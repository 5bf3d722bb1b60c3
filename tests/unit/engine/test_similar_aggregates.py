"""Views that are alike, computed at once: the same as each alone, through deletes, merges and restarts (law 3)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import tuning
from millpond.engine.task import similar_aggregates
from tests.sampling import first

SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, k int, s text, x int, f double, d decimal(12, 2));
    CREATE TABLE u (k int, s text, x int);
"""
SHAPES = (
    "SELECT k, count(*) AS n, sum(x) AS total FROM t WHERE x > {0} GROUP BY k",
    "SELECT x AS y, count(*) AS c, sum(id) AS ids FROM t WHERE k <> {0} GROUP BY x",
    "SELECT s, k, count(s) AS n FROM t WHERE x <> {0} GROUP BY s, k",
    "SELECT s, k % ({0} + 2) AS r, count(x) AS n FROM u GROUP BY 1, 2",
    "SELECT k, sum(f) AS f, avg(x) AS mean FROM t WHERE id % 5 <> {0} GROUP BY k",
    "SELECT DISTINCT s, x FROM u WHERE x <> {0}",
    "SELECT k, sum(d) AS d FROM t WHERE x < 5 + {0} GROUP BY k",
    "SELECT k, count(*) AS n, sum(CAST(s AS int)) AS total FROM t WHERE x <= {0} GROUP BY k",
)
TEXTS = ("NULL", "'1'", "'2'", "'one'")
FLOATS = ("NULL", "0.1", "-0.0", "1e300", "0.7")
VIEWS = {f"v{shape}_{n}": text.format(n) for shape, text in enumerate(SHAPES) for n in range(3)}


def change(chance: random.Random) -> str:
    def some(limit: int) -> str:
        return "NULL" if chance.random() < 0.1 else str(chance.randrange(limit))

    keyed = ", ".join(
        f"({i}, {some(4)}, {chance.choice(TEXTS)}, {some(9)}, {chance.choice(FLOATS)}, {some(100)})"
        for i in chance.sample(range(30), chance.randrange(1, 12))
    )
    loose = ", ".join(
        f"({some(5)}, 's{chance.randrange(3)}', {some(9)})" for _ in range(chance.randrange(1, 9))
    )
    return chance.choice(
        (
            f"INSERT INTO t VALUES {keyed}",
            f"INSERT INTO t VALUES {keyed}",
            f"INSERT INTO u VALUES {loose}",
            f"DELETE FROM t WHERE id % 4 = {chance.randrange(4)}",
            f"DELETE FROM u WHERE k = {chance.randrange(5)}",
            f"UPDATE t SET x = x + 1, k = {chance.randrange(4)} WHERE id % 3 = {chance.randrange(3)}",
        )
    )


def played(path: Path, seed: int) -> list[Any]:
    """Every view, every error and every change that a subscriber hears of, after every statement."""
    chance = random.Random(seed)
    found: list[Any] = []
    for sitting in range(3):
        with millpond.open(path, engine="inline", parallelism=1, durable=False, checks=seed == 0) as pond:
            if sitting == 0:
                pond.sql(SETUP + ";".join(f"CREATE MATERIALIZED VIEW {v} AS {q}" for v, q in VIEWS.items()))
            for _ in range(7):
                pond.sql(change(chance) + "; FLUSH")
                shown = {v: sorted(pond.read(v).to_pylist(), key=str) for v in VIEWS if v in pond.plan.views}
                errors = sorted(pond.errors().to_pylist(), key=str)
                counts = {name: n for name, n in pond.head().counts.items() if n}
                found.append((shown, errors, counts))
            pond._runner.drain(settle=True)  # type: ignore[union-attr]
            if sitting == 1:
                pond.compact()
                pond.sql("DROP MATERIALIZED VIEW v0_1")
    return found


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_views_that_are_alike_are_what_each_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    taken: list[bool] = []
    apply = similar_aggregates.apply

    def counted(*given: Any) -> Any:
        stack = apply(*given)
        taken.append(stack is not None)
        return stack

    monkeypatch.setattr(similar_aggregates, "apply", counted)
    found = played(tmp_path / "alike", seed)
    assert sum(taken) > 20
    monkeypatch.setattr(tuning, "BATCHED_AGGREGATES_ROWS_MAX", -1)
    taken.clear()
    expected = played(tmp_path / "alone", seed)
    assert not taken
    assert found == expected


def test_a_value_that_cannot_be_said_is_told_by_its_own_view(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=1, durable=False) as pond:
        rows = pond.table("t", {"id": int, "k": int, "x": int}, key="id")
        for n, name in enumerate(("first", "second")):
            rows.filter(f"id >= {n}").key_by("k").aggregate(id=name, **{f"{name}_sum": "sum(x)"}).view(name)
        pond.insert("t", [{"id": i, "k": 1, "x": 2**62} for i in range(2)])
        pond.drain()
        pond.insert("t", [{"id": 2, "k": 1, "x": 2**62}])
        pond.drain()
        told = {row["step"]: row["reason"] for row in pond.errors().to_pylist()}
        assert set(told) == {"first", "second"}
        assert all(reason.startswith(f"{step}_sum:") for step, reason in told.items())


def test_what_is_counted_may_be_of_other_types(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=1, durable=False) as pond:
        pond.sql(SETUP)
        for name in ("id", "s", "x", "f", "d"):
            pond.sql(
                f"CREATE MATERIALIZED VIEW count_{name} AS SELECT k, count({name}) AS n FROM t GROUP BY k"
            )
        pond.sql("INSERT INTO t VALUES (1, 1, 'a', NULL, 1, NULL), (2, 1, 'b', NULL, NULL, NULL); FLUSH")
        found = {name: pond.read(f"count_{name}").to_pylist() for name in ("id", "s", "x", "f", "d")}
        assert {name: rows[0]["n"] for name, rows in found.items()} == {
            "id": 2,
            "s": 2,
            "x": 0,
            "f": 1,
            "d": 0,
        }

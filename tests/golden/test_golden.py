"""Ponds that older code wrote still open, read, continue and roll back.

Each folder beside this file holds a pond as one release wrote it, with what it must contain.  They are never
made again: code that cannot go on with them breaks its users' ponds.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.pond import Pond
from tests.golden.make import SECOND, VIEWS, at, contents, listed, orders, reading, readings

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in HERE.glob("v*"))
Expected = dict[str, Any]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def expected(version: str) -> Expected:
    found: Expected = json.loads((HERE / version / "expected.json").read_text())
    return found


@pytest.fixture
def golden(version: str, tmp_path: Path) -> Path:
    """A copy of the pond of one version."""
    folder = tmp_path / "pond"
    folder.mkdir()
    with tarfile.open(HERE / version / "pond.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def clock(expected: Expected) -> ManualClock:
    return ManualClock(expected["clock_us"])


@pytest.fixture
def pond(golden: Path, clock: ManualClock) -> Iterator[Pond]:
    with millpond.open(golden, engine="inline", clock=clock, checks=True, durable=False) as opened:
        yield opened


def read_at(pond: Pond, epoch: int | str, views: dict[str, Any]) -> dict[str, Any]:
    return {view: listed(pond.read(view, epoch=epoch)) for view in views}


def test_reading(pond: Pond, expected: Expected) -> None:
    first, last = expected["first"], expected["last"]
    assert contents(pond) == last
    assert read_at(pond, first["epoch"], first["views"]) == first["views"]
    assert read_at(pond, "monday", first["views"]) == first["views"]
    for name, rows in first["states"].items():
        found = pond.state(*name.split("."), epoch="monday")
        kept = [
            n
            for n in found.column_names
            if (found.schema.field(n).metadata or {}).get(b"millpond") != b"pickle"
        ]
        assert listed(found.select(kept)) == rows, name
    assert listed(pond.lookup("orders", 5)) == [[5, 9, "mug", "3.00", "2026-01-05 09:00:19"]]
    assert pond.sql("SELECT id FROM orders WHERE item = 'hat'").fetchall() == [(3,)]
    assert pond.diff("cities", "monday", last["epoch"]).to_pylist() == [{"city": "Rome", "_w": 1}]
    assert pond.state_rows("watch", "tags", epoch="monday")[1] == {"sensor": "s", "tags": {3}}
    assert pond.savepoints() == {"monday": first["epoch"]}
    assert "watch: KeyedProcess" in pond.explain()


def test_continuing(
    pond: Pond, expected: Expected, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDEN_DELIVERED", str(tmp_path / "delivered"))
    pond.drain()  # the entries that waited
    assert pond.sql("SELECT id, amount::text FROM orders WHERE id IN (5, 7)").fetchall() == [
        (5, "8.00"),
        (7, "30.00"),
    ]
    assert pond.lookup("tallies", "n").to_pylist() == [{"sensor": "n", "total": 98.5}]
    equals_duckdb(pond)

    clock.advance(120 * SECOND)
    pond.sql("DELETE FROM orders WHERE id = 1; UPDATE customers SET city = 'Rome' WHERE id = 2")
    pond.sql("INSERT INTO roads VALUES ('b', 'c'); DELETE FROM roads WHERE a = 'c' AND b = 'd'")
    orders("(8, 4, 'cup', 99.99, 70), (9, 1, 'pen', 12, 71)", pond)
    pond.sql("INSERT INTO bag VALUES ('be', 4)")
    readings(pond, reading("n", 101, 30.5), reading("w", 102, 50.0), reading("s", 3, 1.0))  # the last is late
    pond.drain()
    equals_duckdb(pond)
    said = [json.loads(line) for line in (tmp_path / "delivered").read_text().splitlines()]
    assert [rows for _, rows in said if rows] == [[["be", 4, 1]]], "the sink goes on from its cursor"
    assert listed(pond.read("medians")) == [["be", 2.0], ["to", 1.0]]
    assert listed(pond.read("tallies")) == [["n", 129.0], ["s", -225.0], ["w", 62.0]]
    assert listed(pond.read("lately")) == []
    assert [r[:3] for r in listed(pond.read("warmest"))] == [
        ["n", "2026-01-05 09:00:25", 31.0],
        ["n", "2026-01-05 09:01:01", 33.0],
        ["s", "2026-01-05 09:00:02", 35.0],
        ["s", "2026-01-05 09:00:26", 40.0],
        ["w", "2026-01-05 09:01:42", 50.0],
    ]
    new = [r for r in listed(pond.read("alerts")) if r not in expected["last"]["views"]["alerts"]]
    assert new == [
        ["n", "check", 5, 33.0, 19.7, [18.0, 33.0], [-1, 1, 2, 3]],
        ["n", "hot", 6, 33.0, 21.5, [33.0, 30.5], [-1, 1, 2, 3]],  # its time to live was over
        ["n", "silent", 5, 33.0, 19.7, [18.0, 33.0], [-1, 1, 2, 3]],
        ["s", "check", 2, 40.0, 37.5, [35.0, 40.0], [3, 4]],
        ["w", "check", 2, 12.0, 6.0, [0.0, 12.0], [0, 1]],
        ["w", "hot", 3, 50.0, 62 / 3, [12.0, 50.0], [0, 1, 5]],
        ["w", "silent", 2, 12.0, 6.0, [0.0, 12.0], [0, 1]],
    ]
    assert len(pond.late("probes.watermark")) == 2
    assert listed(pond.read("coldest"))[0] == ["n", str(at(101)), -5.0]


def test_rolling_back_and_on_again(pond: Pond, expected: Expected) -> None:
    pond.drain()
    pond.rollback("monday")
    assert read_at(pond, pond.epoch, expected["first"]["views"]) == expected["first"]["views"]
    equals_duckdb(pond)
    pond.drain()  # what was in the inbox since then is still there, and comes again
    pond.rollback(expected["last"]["epoch"])
    assert read_at(pond, pond.epoch, expected["last"]["views"]) == expected["last"]["views"]
    pond.sql("INSERT INTO orders VALUES (10, 1, 'pen', 1, '2026-01-05 10:00'); FLUSH")
    equals_duckdb(pond)


def test_changing_the_program(pond: Pond, expected: Expected) -> None:
    pond.sql("CREATE MATERIALIZED VIEW late_comer AS SELECT city, count(*) AS n FROM customers GROUP BY city")
    assert listed(pond.read("late_comer")) == [["Bern", 1], ["Oslo", 1], ["Rome", 1], [None, 1]]
    pond.sql("DROP MATERIALIZED VIEW totals; ALTER TABLE customers ADD COLUMN age int DEFAULT 7")
    assert pond.sql("SELECT DISTINCT age FROM customers").fetchall() == [(7,)]
    pond.rollback("monday")
    assert read_at(pond, pond.epoch, expected["first"]["views"]) == expected["first"]["views"]


def test_a_fork_and_a_replay(pond: Pond, expected: Expected, tmp_path: Path, clock: ManualClock) -> None:
    pond.fork(tmp_path / "fork", epoch="monday")
    with millpond.open(tmp_path / "fork", engine="inline", clock=clock, durable=False) as fork:
        assert read_at(fork, fork.epoch, expected["first"]["views"]) == expected["first"]["views"]
        fork.sql("INSERT INTO orders VALUES (10, 1, 'pen', 1, '2026-01-05 10:00'); FLUSH")
        equals_duckdb(fork)
    assert pond.replay(expected["last"]["epoch"]).same


# What DuckDB can say to the same text.
ASKED = [
    "totals",
    "named",
    "everyone",
    "idle",
    "cities",
    "best",
    "ranked",
    "best_each",
    "words",
    "above",
    "reach",
    "before_it",
]


def equals_duckdb(pond: Pond) -> None:
    """Views over tables are what DuckDB makes of the tables."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for table in ("customers", "orders", "bag", "roads"):
        duck.register(f"{table}_rows", pond.read(table))
        duck.execute(f"CREATE TABLE {table} AS SELECT * FROM {table}_rows")
    duck.execute("CREATE MACRO gross(net) AS (net * 1.19)::DECIMAL(12,2)")
    for text in VIEWS.split(";\n"):
        view, _, _ = text.partition(" AS")
        if view.split()[-1:] and view.split()[-1] in (*ASKED, "big"):
            duck.execute(text.replace("MATERIALIZED ", "").replace("max(at)", 'max("at")'))
    for view in ASKED:
        if view in pond.views():
            shown = duck.sql(f"SELECT * FROM {view}").to_arrow_table()
            assert listed(like_duckdb(pond.read(view), shown)) == listed(shown), view


def like_duckdb(rows: pa.Table, shown: pa.Table) -> pa.Table:
    """Averages of numerics are numerics in ponds whose views mean what PostgreSQL says; DuckDB gives floats."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type) and pa.types.is_floating(shown.schema.field(place).type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.float64()))
    return rows

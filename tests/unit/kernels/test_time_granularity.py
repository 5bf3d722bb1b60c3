"""Expressions of a time give the same for all times of their grain, and are computed once for it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from millpond import tuning
from millpond.kernels import time_granularity
from millpond.kernels.duck import PreparedQuery
from millpond.kernels.expression_kernel import bind, evaluate
from millpond.kernels.time_granularity import DAY_US, HOUR_US, MINUTE_US, SECOND_US

MICROS = pa.timestamp("us")
SCHEMA = pa.schema([("t", MICROS)])
FAR_US = 4 * 10**15
FUNCTIONS = [
    *(f"{name}(t)" for name in time_granularity._FUNCTIONS),
    *(f"date_part('{part}', t)" for part in time_granularity._PARTS),
    *(
        f"date_trunc('{part}', t)"
        for part in time_granularity._PARTS
        if part not in ("dow", "isodow", "doy", "era")
    ),
    *(f"strftime(t, '%{letter}')" for letter in time_granularity._FORMATS),
    *(f"strftime(t, '%-{letter}')" for letter in "dmyHIMSj"),
    "t::date",
]


def grain_of(sql: str, kind: pa.DataType = MICROS) -> int:
    return bind(pa.schema([("t", kind)]), sql).grain_us


def test_a_time_gives_what_the_begin_of_its_grain_gives() -> None:
    rng = random.Random(1)
    at = [rng.randrange(-FAR_US, FAR_US) for _ in range(300)]
    at += [
        n * unit + more
        for unit in (SECOND_US, MINUTE_US, HOUR_US, DAY_US)
        for n in (-1, 0, 1)
        for more in (-1, 1)
    ]
    times = pa.table([pa.array(at, pa.timestamp("us"))], schema=SCHEMA)
    for sql in FUNCTIONS:
        step = grain_of(sql)
        assert step, sql
        begins = pa.table([pa.array([n // step * step for n in at], pa.timestamp("us"))], schema=SCHEMA)
        exact, coarse = (evaluate(rows, (("x", sql),)) for rows in (times, begins))
        assert exact.errors is None and exact.rows.equals(coarse.rows), sql


@pytest.mark.parametrize(
    ("sql", "us"),
    [
        ("strftime(t, '%Y-%m-%d')", DAY_US),
        ("strftime('%d. um %H', t)", HOUR_US),
        ("CASE WHEN hour(t) < 3 THEN strftime(t, '%M') END", MINUTE_US),
        ("strftime(t::timestamp_ns, '%S')", SECOND_US),
        ("strftime(t, '%H:%M:%S.%f')", 0),
        ("hour(t + INTERVAL 1 MINUTE)", 0),
        ("strftime(t, '%Y') || t", 0),
        ("date_part('epoch', t)", 0),
        ("date_part('millisecond', t)", 0),
        ("epoch(t)", 0),
        ("dayname(t::timestamp_s)", 0),  # which rounds
    ],
)
def test_how_finely_a_time_is_looked_at(sql: str, us: int) -> None:
    assert grain_of(sql) == us


def test_zones_and_nanoseconds_are_looked_at_exactly() -> None:
    assert grain_of("hour(t)", pa.timestamp("ms")) == HOUR_US
    assert grain_of("hour(t)", pa.timestamp("us", "UTC")) == grain_of("hour(t)", pa.timestamp("ns")) == 0


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("spread_us", [DAY_US // 9, 30 * DAY_US, FAR_US])
def test_what_is_computed_by_grain(unit: str, spread_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(spread_us)
    micros = [rng.choice([-1, 1]) * spread_us // 2 + rng.randrange(spread_us // 7) for _ in range(2000)]
    rows = pa.table({"t": pa.array(micros, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)})
    asked = (
        ("day", "strftime(t, '%Y-%m-%d')"),
        ("hour", "CASE WHEN hour(t) < 12 THEN 'am' ELSE strftime(t, '%H') END"),
    )
    wanted = evaluate(rows, asked).rows
    most, run = 0, PreparedQuery.run

    def noted(self: PreparedQuery, *tables: pa.Table) -> pa.Table:
        nonlocal most
        most = max(most, tables[0].num_rows)
        return run(self, *tables)

    monkeypatch.setattr(PreparedQuery, "run", noted)
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    assert evaluate(rows, asked).rows.equals(wanted)
    assert most == 2000 if spread_us == FAR_US else most < 500


def test_only_what_rows_lie_in_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them may be times for which the expression fails."""
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    rows = pa.table({"t": pa.array([0, 2 * 3_600_000] * 20, pa.timestamp("ms"))})
    found = evaluate(rows, (("x", "CASE WHEN hour(t) = 1 THEN error('no') ELSE strftime(t, '%H') END"),))
    assert found.errors is None and found.rows["x"].to_pylist() == ["00", "02"] * 20


def test_times_without_a_grain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    for odd in (None, 2**63 - 1, -(2**63) + 1):
        rows = pa.table({"t": pa.array([5, odd] * 1000, pa.timestamp("us"))})
        found = evaluate(rows, (("x", "strftime(t, '%Y')"),)).rows["x"]
        assert found.to_pylist()[:2] == [
            "1970",
            evaluate(rows.slice(1, 1), (("x", "strftime(t, '%Y')"),)).rows["x"][0].as_py(),
        ]

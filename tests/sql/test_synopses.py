"""Sketches in views: the same after restarts and rescaling, merged across groups and windows, exact over changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError

QUERY = """
    select g, approx_count_distinct(s) as n, approx_quantile(x, 0.5) as med, approx_top_k(s, 2) as top,
        hll_sketch(s) as hll, bloom_sketch(s) as bloom, count_min_sketch(s) as cm, kll_sketch(x) as kll,
        approx_second_moment(s) as f2, approx_sample(x, 5) as some,
        hll_sketch(s) filter (where x >= 90) as high, approx_percentile(x, 0.9) as p90, count(*) as rows
    from t group by g
"""


def batches(count: int = 3) -> list[str]:
    draw = random.Random(3)
    return [
        ", ".join(
            f"({draw.randrange(3)}, {draw.randrange(100)}, 's{draw.randrange(40)}')" for _ in range(400)
        )
        for _ in range(count)
    ]


def built(folder: Path, disturbed: bool) -> dict[str, Any]:
    pond = millpond.open(folder, engine="inline")
    pond.sql("create table t (g int, x int, s text) append only")
    pond.sql(f"create materialized view v as {QUERY}")
    for number, rows in enumerate(batches()):
        pond.sql(f"insert into t values {rows}")
        pond.drain()
        if disturbed:
            pond.close()
            pond = millpond.open(folder, engine="inline")
            pond.rescale(1 + 2 * number)
            pond.drain()
    found: dict[str, Any] = pond.sql("select * from v order by g").arrow().to_pydict()
    pond.close()
    return found


def test_restarts_and_rescaling_change_nothing(tmp_path: Path) -> None:
    straight = built(tmp_path / "a", False)
    assert built(tmp_path / "b", True) == straight
    assert straight["n"] == [40, 40, 40]


@pytest.fixture
def pond(tmp_path: Path) -> Any:
    with millpond.open(tmp_path / "pond", engine="inline") as made:
        yield made


def one(pond: Any, sql: str) -> Any:
    return pond.sql(sql).arrow().to_pylist()[0]


def test_stored_sketches_are_read_and_merged(pond: Any) -> None:
    pond.sql("create table t (g int, x int, s text) append only")
    pond.sql(f"create materialized view v as {QUERY}")
    pond.sql(
        "create materialized view whole as"
        " select hll_estimate(hll_merge(hll)) as n, kll_quantile(kll_merge(kll), 0.5) as med from v"
    )
    for rows in batches(2):
        pond.sql(f"insert into t values {rows}")
    pond.drain()
    true = one(pond, "select count(distinct s) as n, quantile_disc(x, 0.5) as med from t")
    found = one(pond, "select * from whole")
    assert found["n"] == true["n"] and abs(found["med"] - true["med"]) <= 3
    read = one(
        pond,
        "select bloom_contains(bloom, 's3') as yes, bloom_contains(bloom, 'other') as no,"
        " count_min_estimate(cm, 's3') as c, kll_rank(kll, 49) as r, hll_estimate(high) as high,"
        " hll_estimate(null) as nothing, kll_quantile(kll, 0.9) - p90 as same from v where g = 1",
    )
    counts = one(
        pond,
        "select count(*) filter (where s = 's3') as c, count(distinct s) filter (where x >= 90) as high"
        " from t where g = 1",
    )
    assert read["yes"] and not read["no"] and read["nothing"] is None and read["same"] == 0
    assert read["c"] == counts["c"] and abs(read["high"] - counts["high"]) <= 1
    assert abs(read["r"] - 0.5) < 0.06


def test_sketches_of_windows_merge_to_longer_ones(pond: Any) -> None:
    pond.sql("create table t (at timestamp, who text, watermark for at as at) append only")
    pond.sql(
        "create materialized view minutes as select window_start, window_end, hll_sketch(who) as who"
        " from tumble(t, at, interval '1 minute') group by window_start, window_end emit on window close"
    )
    pond.sql(
        "create materialized view hours as select date_trunc('hour', window_start) as hour,"
        " hll_merge(who) as who from minutes group by 1"
    )
    rows = ", ".join(f"('2026-01-01 00:{m:02}:00', 'p{m * 7 % 50}')" for m in range(60))
    pond.sql(f"insert into t values {rows}, ('2026-01-01 02:00:00', 'end')")
    pond.drain()
    assert one(pond, "select hll_estimate(who) as n from hours where hour = '2026-01-01'")["n"] == 50


def test_rows_that_can_be_retracted_are_computed_exactly(pond: Any) -> None:
    pond.sql("create table t (g int, x int, s text)")
    pond.sql(
        "create materialized view v as select g, approx_count_distinct(s) as n, approx_quantile(x, 0.5) as med,"
        " approx_top_k(s, 1) as top, hll_estimate(hll_sketch(s)) as h,"
        " count_min_estimate(count_min_sketch(s), 'a') as c from t group by g"
    )
    pond.sql(
        "insert into t values (1, 1, 'a'), (1, 2, 'a'), (1, 3, 'b'), (1, 9, 'c'), (1, 9, 'c'), (1, 9, 'c')"
    )
    pond.sql("delete from t where x = 9")
    pond.drain()
    assert one(pond, "select * from v") == {"g": 1, "n": 2, "med": 2, "top": ["a"], "h": 2, "c": 2}


def test_python_aggregates(tmp_path: Path) -> None:
    from millpond.sources.memory import MemorySource

    source = MemorySource({"k": str, "x": int})
    source.push([{"k": "a", "x": x} for x in range(200)])
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        stream = pond.stream("rows", source)
        with pytest.raises(InvalidError, match="number from 0 to 1"):
            stream.key_by("k").aggregate(p="approx_quantile(x, 7)")
        with pytest.raises(InvalidError, match="takes a column and a constant"):
            stream.key_by("k").aggregate(p="approx_quantile(x)")
        stream.key_by("k").aggregate(
            n="approx_count_distinct(x % 50)",
            p90="approx_quantile(x, 0.9)",
            p10="approx_percentile(x, 0.1)",
            top="approx_top_k(x % 2, 1)",
            sketch="hll_sketch(x)",
            f2="approx_second_moment(x % 2)",
        ).view("v")
        changing = stream.key_by("x").aggregate(k="max(k)", n="count(*)")
        changing.key_by("k").aggregate(
            d="approx_count_distinct(x)", med="approx_quantile(x, 0.5)", total="sum(n)", s="hll_sketch(x)"
        ).view("w")
        pond.drain()
        (row,) = pond.read("v").to_pylist()
        assert (row["n"], row["p90"], row["p10"], row["top"], row["f2"]) == (50, 179.0, 19.0, [0], 20_000.0)
        (exact,) = pond.read("w").to_pylist()
        assert (exact["d"], exact["med"], exact["total"]) == (200, 99.0, 200)
        assert exact["s"] == row["sketch"]  # the same values, whatever the way
        text = pond.explain()
        assert "approximate p90: rank within 1.65 % for 99 % of all answers" in text
        assert "approximate n: standard error 1.6 %" in text


def test_a_function_of_the_same_name_is_the_users(pond: Any) -> None:
    pond.sql("create function hll_estimate(x int) returns int as $$ x + 1 $$")
    assert one(pond, "select hll_estimate(1) as n")["n"] == 2

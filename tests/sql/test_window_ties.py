"""Windows over rows that tie: every kind of frame, every EXCLUDE, every kind of function, after inserts and deletes.

The oracle asks DuckDB without windows: each row is joined with the rows of its frame, which are found by their
numbers and those of their groups of peers.  Rows that tie have the order of their first column.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from tests.sql.world import World

TABLES = {
    "t": (
        {"id": "INTEGER", "p": "INTEGER", "k": "INTEGER", "v": "INTEGER", "s": "VARCHAR", "x": "DOUBLE"},
        "id",
    )
}
STARTS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING")
ENDS = ("1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING")
PLACE = {
    "UNBOUNDED PRECEDING": -9,
    "2 PRECEDING": -2,
    "1 PRECEDING": -1,
    "CURRENT ROW": 0,
    "1 FOLLOWING": 1,
    "2 FOLLOWING": 2,
    "UNBOUNDED FOLLOWING": 9,
}
BOUNDS = [(a, b) for a in STARTS for b in ENDS if PLACE[a] <= PLACE[b]]
KINDS = ("ROWS", "RANGE", "GROUPS")
EXCLUDES = ("NO OTHERS", "CURRENT ROW", "GROUP", "TIES")
DIRECTIONS = [f"{way} NULLS {nulls}" for way in ("ASC", "DESC") for nulls in ("FIRST", "LAST")]

FUNCTIONS = {  # what is called over a window, and over the rows of a frame
    "first_value(v)": "first(b.v order by b.n)",
    "last_value(v)": "last(b.v order by b.n)",
    "nth_value(v, 2)": "list(b.v order by b.n)[2]",
    "first_value(s ignore nulls)": "first(b.s order by b.n) filter (where b.s is not null)",
    "last_value(v ignore nulls)": "last(b.v order by b.n) filter (where b.v is not null)",
    "nth_value(v, 2 ignore nulls)": "(list(b.v order by b.n) filter (where b.v is not null))[2]",
    "nth_value(k, 2)": "list(b.k order by b.n)[2]",
    "list(v)": "list(b.v order by b.n) filter (where b.n is not null)",
    "string_agg(s, ';')": "string_agg(b.s, ';' order by b.n)",
    "list(s order by v)": "list(b.s order by b.v, b.n) filter (where b.n is not null)",
    "list(v) filter (where s <> 'a')": "list(b.v order by b.n) filter (where b.s <> 'a')",
    "sum(v)": "sum(b.v)",
    "count(*)": "count(b.n)",
    "count(v) filter (where v > 1)": "count(b.v) filter (where b.v > 1)",
    "count(distinct v)": "count(distinct b.v)",
    "max(s)": "max(b.s)",
    "avg(v)": "avg(b.v)",
    "sum(x)": "sum(b.x)",  # of floats: each partition is computed alone
}


def edge(kind: str, bound: str, is_start: bool, direction: str) -> str:
    """Is row b behind the start of the frame of row a, or before its end?"""
    if bound.startswith("UNBOUNDED"):
        return "true"
    how, far = (">=" if is_start else "<="), PLACE[bound]
    if kind == "ROWS":
        return f"b.n {how} a.n + {far}"
    if kind == "GROUPS" or far == 0:
        return f"b.g {how} a.g + {far}"
    sign = -1 if "DESC" in direction else 1
    outside = is_start == ("LAST" in direction)  # are rows of NULL on this side of all others?
    return (
        f"case when a.k is null then b.g {how} a.g when b.k is null then {outside}"
        f" else {sign} * b.k {how} {sign} * a.k + {far} end"
    )


def functions(bounds: tuple[str, str]) -> dict[str, str]:
    """All of them; some of the queries without sums of floats, so that they compute many partitions at once."""
    return {
        call: text for call, text in FUNCTIONS.items() if call != "sum(x)" or BOUNDS.index(bounds) % 4 == 0
    }


def modelled(kind: str, bounds: tuple[str, str], exclude: str, direction: str) -> str:
    """The query without windows."""
    numbered = (
        f"select *, row_number() over (partition by p order by k {direction}, id) n,"
        f" dense_rank() over (partition by p order by k {direction}) g from t"
    )
    left = {
        "NO OTHERS": "true",
        "CURRENT ROW": "b.n <> a.n",
        "GROUP": "b.g <> a.g",
        "TIES": "(b.g <> a.g or b.n = a.n)",
    }
    asked = [edge(kind, bounds[0], True, direction), edge(kind, bounds[1], False, direction), left[exclude]]
    listed = ", ".join(f"{text} f{n}" for n, text in enumerate(functions(bounds).values()))
    return (
        f"with numbered as ({numbered}) select a.id, {listed} from numbered a left join numbered b"
        f" on a.p is not distinct from b.p and {' and '.join(asked)} group by a.id"
    )


def asked(kind: str, bounds: tuple[str, str], exclude: str, direction: str) -> str:
    frame = f"{kind} between {bounds[0]} and {bounds[1]} exclude {exclude}"
    listed = ", ".join(f"{call} over w f{n}" for n, call in enumerate(functions(bounds)))
    return f"select id, {listed} from t window w as (partition by p order by k {direction} {frame})"


def change(world: World, rng: random.Random) -> None:
    """Rows come, take the place of others, and go: ties are made and broken."""
    schema = world.con.sql("from t").to_arrow_table().schema
    fresh = {}
    for _ in range(rng.randint(3, 7)):
        fresh[key] = {
            "id": (key := rng.randrange(16)),
            "p": rng.choice([1, 1, 2, None]),
            "k": rng.choice([None, 1, 1, 2, 4, 4]),
            "v": rng.choice([None, 1, 2, 3, 4]),
            "s": rng.choice([None, "a", "b", "c"]),
            "x": rng.choice([0.25, 1.5, -2.0, None]),
        }
    world.put("t", pa.Table.from_pylist(list(fresh.values()), schema=schema))
    held = world.con.sql("from t order by id").to_arrow_table()
    gone = rng.sample(range(held.num_rows), min(held.num_rows, rng.randint(0, 3)))
    world.take("t", held.take(pa.array(sorted(gone), pa.int64())))


def sampled(kind: str, exclude: str) -> list[int]:
    """Some numbers of bounds, others for each kind of frame and each EXCLUDE."""
    shuffled = random.Random(10).sample(range(len(BOUNDS)), len(BOUNDS))
    first = 2 * (KINDS.index(kind) * len(EXCLUDES) + EXCLUDES.index(exclude))
    return [shuffled[n % len(shuffled)] for n in range(first, first + 2)]


def test_the_sample_has_all_bounds_and_each_of_them_in_each_kind_of_frame() -> None:
    found = [
        (kind, exclude, number) for kind in KINDS for exclude in EXCLUDES for number in sampled(kind, exclude)
    ]
    assert {number for _, _, number in found} == set(range(len(BOUNDS)))
    for kind in KINDS:
        numbers = {number for k, _, number in found if k == kind}
        assert {BOUNDS[n][0] for n in numbers} == {*STARTS} and {BOUNDS[n][1] for n in numbers} == {*ENDS}
        assert {n % len(DIRECTIONS) for n in numbers} == set(range(len(DIRECTIONS)))
        assert {call for n in numbers for call in functions(BOUNDS[n])} == {*FUNCTIONS}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("exclude", EXCLUDES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_function_over_every_frame(kind: str, exclude: str, whole: bool, tmp_path: Path) -> None:
    rng = random.Random(f"{kind} {exclude}")
    world = World(tmp_path / "pond", TABLES, durable=False)
    for number in range(len(BOUNDS)) if whole else sampled(kind, exclude):
        said = (kind, BOUNDS[number], exclude, DIRECTIONS[number % 4])
        world.view(f"v{number}", asked(*said), modelled(*said))
    for epoch in range(3):
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()


# Whole queries with one answer for rows that tie; DuckDB answers them as they are.
DETERMINED = (
    "select id, nth_value(k, 2) over (order by k), last_value(k) over (order by k desc), first_value(k) over (order by k nulls first) from t",
    "select id, nth_value(k, 2) over (partition by p order by k range between 1 preceding and 1 following) from t",
    "select id, last_value(k) over (order by k range between 1 preceding and current row exclude ties) from t",
    "select id, count(*) over (order by k, s groups between 1 preceding and current row exclude group) from t",
    "select id, rank() over w, dense_rank() over w, percent_rank() over w, cume_dist() over w from t window w as (partition by p order by k)",
    "select id, rank() over (order by k rows between 1 preceding and current row) from t",
    "select id, count(*) over (order by k + v), sum(v) over (partition by p % 2 order by k * 2 range between 2 preceding and 1 following) from t",
    "select id, sum(v) over (), count(*) over (range current row), list_sort(list(v) over (range between current row and unbounded following)) from t",
    "select id, count(*) over (partition by p range between unbounded preceding and current row exclude ties) from t",
    "select k, row_number() over (order by k), ntile(3) over (order by k) from (select k from t)",
    "select k, lag(k) over (order by k), lead(k, 2, -1) over (order by k) from (select k from t)",
    "select k, count(*) over w from (select k from t) window w as (order by k rows between 2 preceding and 1 following exclude group)",
    "select k, nth_value(k, 2) over w from (select k from t) window w as (order by k rows between 2 preceding and 1 following exclude ties)",
    "select k, sum(k) over w from (select k from t where k is not null) window w as (order by k rows between k preceding and current row)",
    "select id, last_value(k) over w2 from t window w as (partition by p), w2 as (w order by k desc nulls last)",
    "select id from t qualify dense_rank() over (partition by p order by k) <= 2",
    "select id from t qualify rank() over (partition by p order by k desc nulls last) <= 2",
    "select id, r from (select id, rank() over (partition by p order by k, s) r from t) where r <= 2",
    "select id from t qualify last_value(k) over (order by k) = k and nth_value(k, 3) over (order by k) is not null",
    "select id, count(*) over (order by d range between interval 1 day preceding and current row exclude group) from (select *, date '2024-01-01' + k d from t)",
    "select id, last_value(d) over (order by d desc range between interval 2 day preceding and interval 1 day following) from (select *, date '2024-01-01' + k d from t)",
    "select id, nth_value(m, 2) over (order by m range between 0.5 preceding and 1.5 following) from (select *, k::decimal(8,2) / 2 m from t)",
    "select id, first_value(k) over (order by k range between 1.5 preceding and current row) from t",
    "select id, sum(distinct v) over (partition by p order by k), count(distinct s) over (order by k groups 1 preceding) from t",
    "select id, median(v) over (order by k groups between 1 preceding and 1 following), bool_or(v > 2) over (order by k) from t",
    "select id, max(v) over (order by k groups between v % 2 preceding and 1 following) from t where v is not null",
    "select id, array_sort(list(v) over (order by k)), list_sort(list(v) over (order by k groups current row exclude current row)) from t",
    "select id, lag(k ignore nulls) over (order by k), last_value(k ignore nulls) over (order by k nulls first) from (select k, k id from t)",
)  # fmt: skip


@pytest.mark.parametrize("twin", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["shaken", "both"])
@pytest.mark.parametrize("part", range(4))
def test_what_ties_determine_is_what_the_batch_says(part: int, twin: bool, tmp_path: Path) -> None:
    """In a pond that is restarted, compacted and rescaled between epochs, and in one left alone."""
    rng = random.Random(part)
    world = World(tmp_path / "pond", TABLES, parallelism=2, durable=False)
    for number, query in enumerate(DETERMINED):
        if number % 4 == part:
            world.view(f"v{number}", query)
    world.check("empty")
    if twin:
        world.twin(tmp_path / "twin")
    for epoch in range(5 if twin else 3):
        change(world, rng)
        world.check(f"epoch {epoch}")
        world.shake(rng)
    world.close()


@pytest.mark.parametrize(
    "call",
    [
        "sum(x) OVER (PARTITION BY p ORDER BY k)",
        "avg(x) OVER (PARTITION BY p ORDER BY id ROWS BETWEEN 30 PRECEDING AND CURRENT ROW)",
        "stddev(x) OVER (PARTITION BY p)",
        "mode(k) OVER (PARTITION BY p ORDER BY id)",
        "string_agg(k::text, ',') OVER (PARTITION BY p ORDER BY k)",
        "arg_max(id, k) OVER (PARTITION BY p ORDER BY k)",
        "any_value(id) OVER (PARTITION BY p ORDER BY k)",
        "first_value(id) OVER (PARTITION BY p ORDER BY k ROWS 1 PRECEDING)",
        "sum(x) OVER (PARTITION BY p ORDER BY k ROWS BETWEEN 5 PRECEDING AND 5 FOLLOWING EXCLUDE TIES)",
    ],
)
def test_the_answer_for_a_partition_does_not_depend_on_the_others(call: str) -> None:
    """What an epoch takes back is what an earlier one gave, whatever other partitions each of them computed."""
    rng = random.Random(call)
    with millpond.open("memory://", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, p INTEGER, k INTEGER, x DOUBLE)")
        pond.sql(f"CREATE MATERIALIZED VIEW v AS SELECT id, {call} AS f FROM t")
        rows = 0
        for epoch in range(5):
            parts = rng.sample(range(12), 12 if epoch == 0 else rng.randint(1, 5))
            fresh = [p for p in parts for _ in range(rng.randint(10, 70) if epoch == 0 else 1)]
            listed = [
                f"({rows + n}, {p}, {rng.randrange(4)}, {rng.uniform(-1e3, 1e3)!r})"
                for n, p in enumerate(fresh)
            ]
            rows += len(fresh)
            pond.sql(f"INSERT INTO t VALUES {', '.join(listed)}; FLUSH")
            assert pond.sql("SELECT count(*), count(DISTINCT id) FROM v").fetchall() == [(rows, rows)]

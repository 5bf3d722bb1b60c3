"""WITH RECURSIVE as a view equals DuckDB's batch after every epoch, under inserts, updates and deletes (law 1)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond import tuning
from millpond.errors import InvalidError
from millpond.operators.iterate import Iterate
from tests.sql.world import World

COLUMNS = {"id": "INTEGER", "a": "INTEGER", "b": "INTEGER"}
TABLES = {"e": (COLUMNS, "id"), "t": (COLUMNS, "id")}
SCHEMA = pa.schema([(name, pa.int32()) for name in COLUMNS])
TEXT = re.sub(r"^--.*$", "", (Path(__file__).parent / "recursive.sql").read_text(), flags=re.M)
QUERIES = [q.strip() for q in TEXT.split(";") if q.strip()]

CLOSURE = "with recursive r(a, b) as (select a, b from e union select r.a, e.b from r join e on r.b = e.a) select * from r"
PEOPLE_USE = {
    "closure": CLOSURE,
    "reachable": "with recursive r(n) as (select 1 union select e.b from r, e where e.a = r.n) select * from r",
    "components": """
        with recursive links(x, y) as (select a, b from e union select b, a from e),
            r(n, label) as (select x, x from links union select y, label from r join links on x = n)
        select n, min(label) from r group by n""",
    "hops": """
        with recursive r(n, d) as (
            select 1, 0 union select e.b, d + 1 from r join e on e.a = r.n where d < 6)
        select n, min(d) from r group by n""",
    "paths": """
        with recursive r(n, d) as (
            select a, 1 from e union all select e.b, d + 1 from r join e on e.a = r.n where d < 4)
        select n, d, count(*) from r group by all""",
    "materials": """
        with recursive parts(part, sub, n, d) as (
            select a, b, 1 + id % 3, 1 from e
            union all select parts.part, e.b, parts.n * (1 + e.id % 3), d + 1
            from parts join e on e.a = parts.sub where d < 5)
        select part, sub, sum(n), count(*) from parts group by part, sub""",
    "joined": """
        with recursive r(a, b) as (
            select e.a, e.b from e join t on t.a = e.a union select r.a, e.b from r join e on r.b = e.a)
        select t.id, r.b from r join t on t.b = r.a where r.b > 1""",
}  # fmt: skip


def edges(rows: Iterable[tuple[int, int | None, int | None]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=SCHEMA)


def change(world: World, rng: random.Random, ids: int = 18, nodes: int = 8) -> None:
    """Some edges come, some go, some go elsewhere; cycles and loops are common, NULL is there."""
    for table in TABLES:
        fresh = {rng.randrange(ids) for _ in range(rng.randrange(6))}
        ends = [
            (n, None if rng.random() < 0.1 else rng.randrange(nodes), rng.randrange(nodes))
            for n in sorted(fresh)
        ]
        world.put(table, edges(ends))
        held = world.con.sql(f"from {table} order by id").to_arrow_table()
        gone = (
            sorted({rng.randrange(held.num_rows) for _ in range(rng.randrange(4))}) if held.num_rows else []
        )
        if gone:
            world.take(table, held.take(pa.array(gone)))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_what_people_use_recursion_for(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds together, or one after the other: the answer is one."""
    rng = random.Random(seed)
    most = (tuning.RECURSION_ONE_WAVE_ROWS_MAX, 0, 5)[seed % 3]
    monkeypatch.setattr(tuning, "RECURSION_ONE_WAVE_ROWS_MAX", most)
    world = World(tmp_path / "pond", TABLES, parallelism=2, durable=False)
    for name, query in PEOPLE_USE.items():
        world.view(name, query)
    for epoch in range(8 if seed else 4):
        change(world, rng, nodes=6)
        if epoch % 3 == 1:
            world.shake(rng)
        world.check(f"epoch {epoch}")
    world.close()


@pytest.mark.parametrize("first", range(0, len(QUERIES), 12))
def test_everything_that_can_stand_in_a_recursion(first: int, tmp_path: Path) -> None:
    rng = random.Random(first)
    world = World(tmp_path / "pond", TABLES, durable=False)
    for number, query in enumerate(QUERIES[first : first + 12], first):
        world.view(f"v{number}", query)
    for epoch in range(3):
        change(world, rng, nodes=6)
        if epoch == 1:
            world.shake(rng)
        world.check(f"epoch {epoch}")
    assert world.pond.errors().num_rows == 0
    world.close()


def test_a_delete_splits_a_component_and_a_cycle_does_not_hold_itself(tmp_path: Path) -> None:
    """Rows around a cycle derive each other; without an edge that leads there they are gone."""
    world = World(tmp_path / "pond", TABLES)
    for name in ("closure", "reachable", "components", "hops"):
        world.view(name, PEOPLE_USE[name])
    bridge = edges([(10, 1, 4)])
    world.put("e", edges([(1, 0, 1), (2, 1, 0), (3, 1, 2), (4, 4, 5), (5, 5, 6), (6, 6, 4), (7, 7, 6)]))
    world.put("e", bridge)
    world.check("joined")
    assert set(world.rows("components")) == {(n, 0) for n in (0, 1, 2, 4, 5, 6, 7)}
    assert (6, 3) in world.rows("hops")
    world.take("e", bridge)
    world.check("split")
    assert set(world.rows("reachable")) == {(0,), (1,), (2,)}
    assert {label for _, label in world.rows("components")} == {0, 4}
    world.put("e", edges([(11, 2, 7)]))  # another way around
    world.check("joined again")
    assert (4, 4) in world.rows("hops")
    world.close()


def test_views_on_recursive_views(tmp_path: Path) -> None:
    """One recursion over another, a view filled later, and a sub-plan that both share."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True) as pond:
        pond.sql(f"""
            CREATE TABLE e (id int PRIMARY KEY, a int, b int);
            CREATE MATERIALIZED VIEW reach AS {CLOSURE};
            CREATE MATERIALIZED VIEW far AS SELECT a, count(*) AS n FROM reach GROUP BY a;
            INSERT INTO e VALUES (1, 1, 2), (2, 2, 3), (3, 3, 1), (4, 3, 4);
            FLUSH;
            CREATE VIEW climb AS WITH RECURSIVE c(n) AS (
                SELECT min(n) FROM far UNION ALL SELECT n + 1 FROM c WHERE n < 6) SELECT n FROM c;
            CREATE MATERIALIZED VIEW steps AS SELECT count(*) AS n FROM climb;
        """)
        assert sorted(pond.sql("SELECT * FROM far").fetchall()) == [(1, 4), (2, 4), (3, 4)]
        assert pond.sql("SELECT n FROM steps").fetchone() == (3,)
        pond.sql("DELETE FROM e WHERE id = 3; FLUSH")
        assert sorted(pond.sql("SELECT * FROM far").fetchall()) == [(1, 3), (2, 2), (3, 1)]
        assert pond.sql("SELECT n FROM steps").fetchone() == (6,)
        pond.sql(f"CREATE MATERIALIZED VIEW again AS SELECT a FROM ({CLOSURE}) WHERE b = 4; FLUSH")
        assert sorted(pond.sql("SELECT a FROM again").fetchall()) == [(1,), (2,), (3,)]
        plan = pond._builder.plan
        assert sum(isinstance(node.operator, Iterate) for node in plan.nodes.values()) == 2
        explained = [line.strip() for (line,) in pond.sql("EXPLAIN reach").fetchall()]
        assert "each round 0-join: Join kind inner of last, input1" in explained


def test_a_table_gains_a_column_and_the_past_comes_back(tmp_path: Path) -> None:
    """A recursion reads what it knew; a rollback brings its rounds back with its rows."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql(f"CREATE TABLE e (a int, b int); CREATE MATERIALIZED VIEW v AS {CLOSURE};")
        pond.sql("INSERT INTO e VALUES (1, 2), (2, 3); FLUSH; ALTER TABLE e ADD COLUMN c int DEFAULT 7")
        epoch = pond.epoch
        pond.sql("INSERT INTO e VALUES (3, 1, 5); FLUSH; DELETE FROM e WHERE a = 1; FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(2, 1), (2, 3), (3, 1)]
        pond.rollback(epoch)
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1, 2), (1, 3), (2, 3)]
        pond.sql("INSERT INTO e VALUES (3, 4, 5); FLUSH")
        assert (1, 4) in pond.sql("SELECT * FROM v").fetchall()


def test_a_recursion_over_a_stream_says_that_it_keeps_all(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE e (a int, b int) APPEND ONLY")
        made = pond.sql(f"CREATE MATERIALIZED VIEW v AS {CLOSURE}")
        assert any("a recursion keeps every row of e for ever" in text for text in made.warnings)


@pytest.mark.parametrize("union", ["UNION", "UNION ALL"])
def test_a_recursion_without_end_is_told_and_stops_nobody(union: str, tmp_path: Path) -> None:
    """Rows after the last round are error rows; when the cause goes, so do they, and all is exact (law 9)."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, rounds_max=20) as pond:
        pond.sql(f"""
            CREATE TABLE e (a int, b int);
            CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r(n, d) AS (
                SELECT 1, 0 {union} SELECT e.b, d + 1 FROM r JOIN e ON e.a = r.n) SELECT * FROM r;
            CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM e;
            INSERT INTO e VALUES (1, 2), (2, 3); FLUSH
        """)
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1, 0), (2, 1), (3, 2)]
        pond.sql("INSERT INTO e VALUES (3, 1); FLUSH")
        assert pond.sql("SELECT count(*), max(d) FROM v").fetchone() == (21, 20)
        assert pond.sql("SELECT n FROM other").fetchone() == (3,)
        (error,) = pond.errors().to_pylist()
        assert error["step"] == "v.recursion" and "not over after 20 rounds" in error["reason"]
        assert error["row"] == '{"n":1,"d":21}'
        pond.sql("DELETE FROM e WHERE a = 2; FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1, 0), (2, 1)]
        assert pond.errors().num_rows == 0


def test_what_cannot_be_computed_is_left_out(tmp_path: Path) -> None:
    """An error inside is a row in errors(), taken back with its cause."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True) as pond:
        pond.sql("""
            CREATE TABLE e (a int, s text);
            CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r(n) AS (
                SELECT 1 UNION SELECT CAST(e.s AS int) FROM r JOIN e ON e.a = r.n) SELECT * FROM r;
            INSERT INTO e VALUES (1, '2'), (2, 'x'), (2, '3'), (3, '1'); FLUSH
        """)
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1,), (2,), (3,)]
        (error,) = pond.errors("v").to_pylist()
        assert '"x"' in error["reason"]
        pond.sql("DELETE FROM e WHERE a = 1; FLUSH")
        assert pond.sql("SELECT * FROM v").fetchall() == [(1,)]
        assert pond.errors().num_rows == 0


def test_copies_beyond_counting_are_told(tmp_path: Path) -> None:
    """A cycle that doubles its rows with every round would overflow any count."""
    copies = {"recursion_copies_max": 2**31}
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, rounds_max=80, **copies) as pond:
        pond.sql("""
            CREATE TABLE e (a int);
            CREATE MATERIALIZED VIEW v AS
                WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r JOIN e ON e.a = r.n)
                SELECT sum(n) AS total FROM r;
            INSERT INTO e VALUES (1), (1); FLUSH
        """)
        assert pond.sql("SELECT total FROM v").fetchone() == (2**32 - 1,)
        (error,) = pond.errors().to_pylist()
        assert "more than 2147483648 times in one round" in error["reason"]
        pond.sql("DELETE FROM e; FLUSH")
        assert pond.sql("SELECT total FROM v").fetchone() == (1,)
        assert pond.errors().num_rows == 0


DOUBLING = """WITH RECURSIVE r(n) AS (
    SELECT a::bigint FROM e UNION ALL SELECT (r.n * 2 + e.a) % 1000003 FROM r, e) SELECT n FROM r"""


def test_rows_that_multiply_are_refused_when_the_view_is_created(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", recursion_rows_max=20_000) as pond:
        pond.sql("CREATE TABLE e (a int); INSERT INTO e VALUES (1), (2); FLUSH")
        with pytest.raises(InvalidError) as told:
            pond.sql(f"CREATE MATERIALIZED VIEW v AS {DOUBLING}")
        assert "the recursion of view 'v' gives more than 20000 rows in one epoch" in str(told.value)
        assert pond.views() == ["e"]
        pond.sql("INSERT INTO e VALUES (3); FLUSH")
        assert pond.sql("SELECT count(*) FROM e").fetchone() == (3,)


def test_copies_that_multiply_are_refused_when_the_view_is_created(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k int); INSERT INTO t VALUES (1), (2); FLUSH")
        with pytest.raises(InvalidError) as told:
            pond.sql(
                "CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r AS ("
                "SELECT * FROM t UNION ALL SELECT r.k FROM r JOIN t ON true) SELECT count(*) AS n FROM r"
            )
        assert "the recursion of view 'v' gives a row more than 1000000 times" in str(told.value)
        assert "recursion_copies_max" in str(told.value) and pond.views() == ["t"]


def test_rows_that_multiply_later_stop_the_view_and_nothing_else(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, recursion_rows_max=20_000) as pond:
        pond.sql("""
            CREATE TABLE e (a int);
            CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r(n) AS (
                SELECT 1 UNION ALL SELECT (r.n * 2 + e.a) % 1000003 FROM r, e) SELECT n FROM r;
            CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM v;
            CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM e
        """)
        assert pond.sql("SELECT n FROM counted").fetchone() == (1,)
        pond.sql("INSERT INTO e VALUES (1), (2); FLUSH")
        assert pond.sql("SELECT * FROM v").fetchall() == []
        assert pond.sql("SELECT n FROM counted").fetchone() == (0,)
        assert pond.sql("SELECT n FROM other").fetchone() == (2,)
        (error,) = pond.errors("v").to_pylist()
        assert error["step"] == "v.recursion" and error["weight"] == 1
        assert "the recursion of view 'v' gives more than 20000 rows" in error["reason"]
        assert "recursion_rows_max" in error["reason"]
        pond.sql("DELETE FROM e; FLUSH")  # it stays stopped until it is created again
        assert pond.sql("SELECT count(*) FROM v").fetchone() == (0,) and pond.errors("v").num_rows == 1
        pond.sql("DROP MATERIALIZED VIEW v CASCADE")
        assert pond.errors().num_rows == 0
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {DOUBLING}")
        assert pond.sql("SELECT count(*) FROM v").fetchone() == (0,) and pond.errors().num_rows == 0


def test_error_rows_come_once_with_a_weight(tmp_path: Path) -> None:
    """Each round doubles the copies: 2^19 of each would come next."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, rounds_max=18) as pond:
        pond.sql("CREATE TABLE e (a int); INSERT INTO e VALUES (1), (2); FLUSH")
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r(n) AS ("
            "SELECT a FROM e UNION ALL SELECT r.n FROM r, e) SELECT n FROM r"
        )
        errors = pond.errors("v").sort_by("row").to_pylist()
        assert [(e["row"], e["weight"]) for e in errors] == [('{"n":1}', 2**19), ('{"n":2}', 2**19)]
        assert all("of view 'v' is not over after 18 rounds (rounds_max)" in e["reason"] for e in errors)
        assert pond.sql("SELECT count(*) FROM v").fetchone() == (2 * (2**19 - 1),)
        pond.sql("DELETE FROM e; FLUSH")
        assert pond.errors().num_rows == 0 and pond.sql("SELECT count(*) FROM v").fetchone() == (0,)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("with recursive r(a, b) using key (a) as (select a, b from e union select r.a, e.b from r join e on r.b = e.a)"
         " select * from r", "this query cannot be a materialized view"),
        ("with recursive r(n) as (select a from e union select k from r, lateral (with recursive s(k) as "
         "(select n union select k + 1 from s where k < 3) select k from s)) select * from r",
         "cannot hold another recursion over it"),
        ("with recursive r(n, i) as (select a, interval 1 day from e union select n, i from r) select * from r",
         "UNION in WITH RECURSIVE cannot take values of type INTERVAL"),
        ("with recursive r(n) as (select a from e union select n + random()::int from r) select * from r", "random"),
    ],
)  # fmt: skip
def test_what_is_refused(query: str, why: str, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES)
    with pytest.raises(InvalidError, match=re.escape(why)) as told:
        world.view("v", query)
    if "RECURSIVE" in why or "recursion" in why:
        assert "^^^^^^^^^" in str(told.value) and "hint" in str(told.value)
    world.close()

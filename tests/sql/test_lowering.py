"""Every query as a view over changing tables equals DuckDB's batch after every epoch (law 1)."""

from __future__ import annotations

import datetime
import decimal
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.operators.join import Join
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import TopN
from tests.sql.world import World

TABLES = {
    "t": (
        {
            "id": "INTEGER", "a": "INTEGER", "b": "VARCHAR", "ts": "TIMESTAMP", "d": "DECIMAL(10,2)",
            "f": "DOUBLE", "l": "INTEGER[]",
        },
        "id",
    ),
    "u": ({"id": "INTEGER", "a": "INTEGER", "c": "DOUBLE", "s": "VARCHAR"}, "id"),
}  # fmt: skip
QUERIES = Path(__file__).parent / "queries"  # a file for each kind of clause
AT_ONCE = 24  # queries that are views of one pond


def queries(path: Path) -> list[str]:
    text = re.sub(r"^--.*$", "", path.read_text(), flags=re.M)
    return [q.strip() for q in text.split(";") if q.strip()]


GROUPS = [
    (path.stem, first)
    for path in sorted(QUERIES.glob("*.sql"))
    for first in range(0, len(queries(path)), AT_ONCE)
]


def row(table: str, rng: random.Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    found = {"id": rng.randrange(12), "a": maybe(rng.randrange(4))}
    if table == "u":
        return {**found, "c": maybe(rng.choice([0.5, 1.0, 2.5])), "s": maybe(rng.choice(["x", "q"]))}
    start = datetime.datetime(2024, 1, 1)
    return {
        **found,
        "b": maybe(rng.choice(["x", "xy", "z"])),
        "ts": maybe(start + datetime.timedelta(hours=rng.randrange(50))),
        "d": maybe(decimal.Decimal(rng.randrange(-500, 500)) / 100),
        "f": maybe(rng.choice([0.5, 1.5, -2.0, 3.25])),
        "l": maybe([rng.randrange(3) for _ in range(rng.randrange(3))]),
    }


def change(world: World, rng: random.Random, most: int = 6) -> None:
    """Some rows put, some of them over others, and sometimes one taken."""
    for name in TABLES:
        schema = world.con.sql(f"from {name}").to_arrow_table().schema
        fresh = {r["id"]: r for r in (row(name, rng) for _ in range(rng.randrange(most)))}
        world.put(name, pa.Table.from_pylist(list(fresh.values()), schema=schema))
        held = world.con.sql(f"from {name} order by id").to_arrow_table()
        if held.num_rows and rng.random() < 0.5:
            world.take(name, held.slice(rng.randrange(held.num_rows), 1))


@pytest.mark.parametrize("twin", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["shaken", "both"])
@pytest.mark.parametrize(("name", "first"), GROUPS)
def test_views_are_the_batch_queries(name: str, first: int, twin: bool, tmp_path: Path) -> None:
    """In a pond that is restarted, compacted and rescaled between epochs, and in one left alone (laws 3 and 4)."""
    rng = random.Random(f"{name} {first}")
    world = World(tmp_path / "pond", TABLES, parallelism=rng.choice([1, 3]))
    for number, query in enumerate(queries(QUERIES / f"{name}.sql")[first : first + AT_ONCE], first):
        world.view(f"v{number}", query)
    world.check("empty")
    if twin:
        world.twin(tmp_path / "twin")
    for epoch in range(3 if twin else 2):
        if epoch:
            world.shake(rng)
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()


REFUSED = re.findall(
    r"^-- (?P<why>.*)\n(?P<query>(?:[^-].*\n?)+)", (Path(__file__).parent / "refused.sql").read_text(), re.M
)


@pytest.mark.parametrize(("why", "query"), REFUSED)
def test_what_cannot_be_kept_is_refused(why: str, query: str, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES)
    with pytest.raises(InvalidError, match=re.escape(why)) as told:
        world.view("v", query.strip().rstrip(";"))
    assert "in the query" in str(told.value) or "in the expression" in str(told.value)
    world.close()


@pytest.mark.parametrize(
    ("query", "n", "ties"),
    [
        ("select id from t qualify row_number() over (partition by a order by id) <= 2", 2, False),
        ("select * from (select id, rank() over (partition by a order by f) r from t) where r < 4 and id > 1", 3, True),
        ("select * from (select id, row_number() over (order by id desc) r from t) where 3 >= r and r > 1", 3, False),
        ("select id from t qualify rank() over (partition by a+1, b order by f desc nulls last) = 1", 1, True),
        ("select id, r from (select id, row_number() over (partition by a order by f, id) r from t) where r between 2 and 3", 3, False),
    ],
)  # fmt: skip
def test_bounded_ranks_are_a_top_n(query: str, n: int, ties: bool, tmp_path: Path) -> None:
    """Such a view costs the change, not the size of the partition (law 5)."""
    world = World(tmp_path / "pond", TABLES)
    world.view("v", query)
    operators = [node.operator for node in world.pond._builder.plan.nodes.values()]
    assert not any(isinstance(o, PerKey) for o in operators)
    (last,) = [o for o in operators if isinstance(o, TopN) and o.buckets is None]
    assert (last.n, last.with_ties) == (n, ties)
    rng = random.Random(n)
    for epoch in range(6):
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()


def test_joins_keep_only_what_is_read(tmp_path: Path) -> None:
    """What only a condition below a join looks at is no part of its state."""
    world = World(tmp_path / "pond", TABLES)
    world.view("v", "select t.id from t join u on t.a = u.a where u.c > 1 and t.f > 0 and t.b <> u.s")
    world.view("w", "select id from t where exists (select * from u where u.a = t.a and u.c > t.f)")
    joins = [n.operator for n in world.pond._builder.plan.nodes.values() if isinstance(n.operator, Join)]
    assert [(j.left_on, {c for _, side, c in j.columns if side == 0}) for j in joins[:1]] == [
        (("a",), {"id", "a", "b"})
    ]
    assert {c for _, side, c in joins[0].columns if side == 1} == {"a", "s"}
    assert {c for _, side, c in joins[1].columns if side == 0} <= {"a", "c", "f"}
    rng = random.Random(1)
    for epoch in range(4):
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()

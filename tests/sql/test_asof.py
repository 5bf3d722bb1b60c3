"""ASOF joins of every kind, over rows that change (law 1)."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sampling import first
from tests.sql.world import World

TABLES = {
    "l": ({"id": "INTEGER", "k": "INTEGER", "t": "INTEGER", "x": "HUGEINT"}, "id"),
    "r": ({"id": "INTEGER", "k": "INTEGER", "t": "INTEGER", "y": "VARCHAR"}, "id"),
}
KINDS = ("", "left", "right", "full")


def change(world: World, chance: random.Random) -> None:
    """Rows come, change and go; on the right no two have one key and time, so that there is one answer."""
    for name in TABLES:
        made = {}
        for _ in range(chance.randrange(6)):
            n = chance.randrange(20)
            k = None if chance.random() < 0.1 else n % 3
            t = None if chance.random() < 0.1 else (n if name == "r" else chance.randrange(20))
            made[n] = {
                "id": n,
                "k": k,
                "t": t,
                "xy"[name == "r"]: n if name == "l" else f"y{chance.randrange(9)}",
            }
        schema = world.con.sql(f"from {name}").to_arrow_table().schema
        world.put(name, pa.Table.from_pylist(list(made.values()), schema=schema))
        held = world.con.sql(f"from {name} order by id").to_arrow_table()
        if held.num_rows and chance.random() < 0.6:
            world.take(name, held.slice(chance.randrange(held.num_rows), 1))


@pytest.mark.parametrize("parallelism", first(1, [3, 1]))
def test_every_kind_is_the_batch_query(parallelism: int, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES, parallelism=parallelism)
    for number, kind in enumerate(KINDS):
        for sign in (">=", ">", "<=", "<"):
            name = f"v{number}_{('>=', '>', '<=', '<').index(sign)}"
            world.view(name, f"select * from l asof {kind} join r on l.k = r.k and l.t {sign} r.t")
    world.view(
        "narrow", "select r.y, count(*) from l asof full join r on l.k = r.k and l.t >= r.t group by r.y"
    )
    world.view(
        "by_lists",
        "select l.id, r.id from l asof left join r on [l.k] = [r.k] and l.x % 2 = r.t % 2 and l.t < r.t",
    )
    world.view("right_only", "select r.id from l asof right join r on l.k = r.k and l.t >= r.t")
    chance = random.Random(parallelism)
    for epoch in range(4):
        change(world, chance)
        if epoch == 2:
            world.pond.compact()
        world.check(f"epoch {epoch}")
    world.close()


def test_of_equals_on_the_right_one_is_taken_and_the_others_are_alone(tmp_path: Path) -> None:
    """The first by all columns, whatever order they come in (law 3)."""
    world = World(tmp_path / "pond", TABLES)
    world.view("v", "select l.id, r.id, r.y from l asof full join r on l.k = r.k and l.t >= r.t")
    schema = world.con.sql("from r").to_arrow_table().schema
    world.put(
        "l",
        pa.table({"id": [1], "k": [1], "t": [5], "x": [0]}).cast(
            world.con.sql("from l").to_arrow_table().schema
        ),
    )
    for n, y in ((3, "b"), (2, "a"), (4, "a")):
        world.pond.insert("r", pa.Table.from_pylist([{"id": n, "k": 1, "t": 4, "y": y}], schema=schema))
        world.pond.drain()
    assert set(world.rows("v")) == {(1, 2, "a"), (None, 3, "b"), (None, 4, "a")}
    world.close()

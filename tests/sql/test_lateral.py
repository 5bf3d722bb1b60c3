"""Lateral rows that a row makes by itself need no join, and cost the change (laws 1 and 5)."""

from __future__ import annotations

import random
from pathlib import Path

from millpond.operators.distinct import Distinct
from millpond.operators.join import Join
from tests.sql.test_lowering import TABLES, change
from tests.sql.world import World

IN_PLACE = [
    "select t.id, u.e from t, lateral (select unnest([t.a, t.id + 1]) as e) as u where u.e > 1",
    "select t.id, u.e from t, unnest(t.l) as u(e)",
    "select t.id, t.b, u.e, k from t, unnest(t.l) as u(e), lateral (select u.e + t.id as k) v where u.e <> t.a",
    "select * from t, unnest(l) with ordinality as u(e, n)",
    "select t.id, r.x from t, range(t.a) as r(x)",
    "select t.id, s.* from t cross join lateral (select t.a + 1 as p, upper(t.b) as q) s",
    "select t.id, s.* from t left join lateral (select t.a + 1 as p) s on true",
    "select t.id, s.* from t, lateral (select x, x * 2 as y from (select unnest(t.l) as x) where x > 0) s",
    "select u.e, count(*) as n from t, unnest(l) as u(e) group by u.e",
    "select id, (select list_transform(q.l, lambda x: x + q.a) from (select t.l, t.a) as q(l, a)) as m from t",
]
BY_JOIN = [
    "select t.id, u.e from t left join lateral (select unnest(t.l) as e) u on true",
    "select t.id, x.m from t, lateral (select max(c) as m from u where u.a = t.a) x",
    "select t.id, (select max(e) from unnest(t.l) as v(e)) as m from t",
    "select t.id, x.e from t, lateral (select distinct unnest(t.l) as e) x",
    "select t.id, x.e from t, lateral (select unnest(t.l) as e limit 1) x",
    "select t.id, v.e, w.s from t, unnest(l) as v(e) join u w on w.a = v.e",
]


def test_lateral_rows_are_the_batch_queries(tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES, parallelism=2)
    for number, query in enumerate([*IN_PLACE, *BY_JOIN]):
        before = set(world.pond._builder.plan.nodes)
        world.view(f"v{number}", query)
        fresh = [n.operator for s, n in world.pond._builder.plan.nodes.items() if s not in before]
        joins = any(isinstance(operator, Join | Distinct) for operator in fresh)
        assert joins == (query in BY_JOIN), query
    rng = random.Random(5)
    for epoch in range(6):
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()

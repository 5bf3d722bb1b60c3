"""Rows joined to the extreme of their own group: the batch query (law 1), by a ranking where that is the same."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.operators.join import Join
from millpond.operators.top_n import TopN
from tests.sampling import first
from tests.sql.world import plain

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64()), ("n", pa.int64())])

RANKED = {
    "most": "select t.* from t join (select k, max(x) x from t group by k) m on t.k = m.k and t.x = m.x",
    "least": "select t.n, m.lowest from t join (select s, k, min(n) lowest from t group by all) m"
    " on m.lowest = t.n and t.s = m.s and m.k = t.k",
    "turned": "select t.k, t.n, m.x from (select k, max(x) x from t group by k) m join t on t.x = m.x and t.k = m.k",
    "named": "with c as (select k + 1 as g, n as y from t) select c.y, m.g from c"
    " join (select g, max(y) most from c group by g) m on c.g = m.g and c.y = m.most",
    "strings": "select t.k, t.s from t join (select k, max(s) s from t group by k) m using (k, s)",
}
JOINED = {
    "one_twice": "select m.s, m.most, t.k, t.s as t_s from (select s g, s, max(s) most from t group by s) m"
    " join t on m.g = t.s and t.s = m.most and t.s = m.s",
    "other_rows": "select t.* from t join (select k, max(x) x from t where n > 2 group by k) m on t.k = m.k and t.x = m.x",
    "other_column": "select t.* from t join (select k, max(n) n from t group by k) m on t.k = m.k and t.x = m.n",
    "fewer_groups": "select t.* from t join (select k, s, max(n) n from t group by k, s) m on t.k = m.k and t.n = m.n",
    "not_all": "select t.* from t join (select k, max(n) n from t group by k) m on t.n = m.n",
    "more": "select t.n, m.c from t join (select k, max(n) n, count(*) c from t group by k) m on t.k = m.k and t.n = m.n",
    "above": "select t.n from t join (select k, max(x) x from t group by k) m on t.k = m.k and t.x = m.x and t.n > m.k",
    "outer_one": "select t.n, m.x from t left join (select k, max(x) x from t group by k) m on t.k = m.k and t.x = m.x",
    "of_all": "select t.* from t join (select max(n) n from t) m on t.n = m.n",
    "changing": "select u.* from u join (select k, max(x) x from u group by k) m on u.k = m.k and u.x = m.x",
    "nulls_too": "select t.n from t join (select k, max(n) n from t group by k) m"
    " on t.k is not distinct from m.k and t.n = m.n",
}  # fmt: skip


@pytest.mark.parametrize("seed", first(1, [2, 1]))
def test_views_are_the_batch_queries(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    con = duckdb.connect()
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=rng.choice([1, 2, 3]), checks=True)
    columns = "k bigint, s varchar, x double, n bigint"
    pond.sql(f"CREATE TABLE t ({columns}) APPEND ONLY; CREATE TABLE u ({columns})")
    con.execute(f"create table t ({columns}); create table u ({columns})")
    queries = {**RANKED, **JOINED}
    for name, query in list(queries.items())[:: 2 if seed == 2 else 1]:  # the others are filled later
        pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for epoch in range(5):
        for table in ("t", "u"):
            rows = pa.Table.from_pylist([_row(rng) for _ in range(rng.choice([1, 12, 40]))], SCHEMA)
            pond.insert(table, rows)
            con.execute(f"insert into {table} from rows")
        if epoch % 2:
            gone = rng.randrange(6)
            pond.sql(f"DELETE FROM u WHERE n = {gone}")
            con.execute(f"delete from u where n = {gone}")
        pond.drain()
        if epoch == 2:
            for name in queries.keys() - set(pond.views()):
                pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {queries[name]}")
            pond.rescale(rng.choice([1, 2, 3]))
        for name in queries.keys() & set(pond.views()):
            found = plain(tuple(row.values()) for row in pond.read(name).to_pylist())
            assert found == plain(con.sql(queries[name]).fetchall()), (name, epoch)
    ranked, joined = _steps(pond, TopN), _steps(pond, Join)
    assert set(RANKED) <= ranked and not set(RANKED) & joined
    assert set(JOINED) <= joined and not set(JOINED) & ranked
    pond.close()


def _row(rng: random.Random) -> dict[str, object]:
    return {
        "k": rng.choice([1, 2, 3, None]),
        "s": rng.choice(["a", "b", None]),
        "x": rng.choice([0.0, -0.0, 1.5, float("nan"), None, -3.0]),
        "n": rng.choice([None, *range(6)]),
    }


def _steps(pond: millpond.Pond, kind: type) -> set[str]:
    """The views with such a step."""
    return {step.split(".")[0] for step, node in pond.plan.nodes.items() if isinstance(node.operator, kind)}

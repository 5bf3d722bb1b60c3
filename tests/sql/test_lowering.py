"""Every query as a view over changing tables equals DuckDB's batch after every epoch (law 1)."""

from __future__ import annotations

import collections
import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.flow.stream import Stream
from millpond.sql.bind import Binder
from millpond.sql.expressions import Column
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation

TABLES = {
    "t": {
        "id": "INTEGER", "a": "INTEGER", "b": "VARCHAR", "ts": "TIMESTAMP", "d": "DECIMAL(10,2)", "f": "DOUBLE",
        "l": "INTEGER[]",
    },
    "u": {"id": "INTEGER", "a": "INTEGER", "c": "DOUBLE", "s": "VARCHAR"},
}  # fmt: skip

QUERIES = [q.strip() for q in (Path(__file__).parent / "queries.sql").read_text().split(";") if q.strip()]


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


def plain(rows: list[tuple[Any, ...]]) -> collections.Counter[tuple[Any, ...]]:
    def shown(value: Any) -> Any:
        if isinstance(value, float | decimal.Decimal | int) and not isinstance(value, bool):
            return float(round(value, 9))
        return None if value is None else str(value)

    return collections.Counter(tuple(shown(v) for v in r) for r in rows)


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_a_view_is_the_batch_query(number: int, tmp_path: Path) -> None:
    query = QUERIES[number]
    rng = random.Random(number)
    con = duckdb.connect()
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=rng.choice([1, 3]), checks=True)
    binder, relations, schemas = Binder(), {}, {}
    for name, columns in TABLES.items():
        con.execute(f"create table {name} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
        schemas[name] = con.sql(f"select * from {name}").to_arrow_table().schema
        step = pond.table(name, schemas[name], key="id").step
        relations[name] = Relation(step, tuple(Column(c, k) for c, k in columns.items()))
        binder.table(name, relations[name].columns)
    lowering = Lowering(pond._builder, binder, relations, "v")
    found = lowering.lower(binder.plan(query))
    found = lowering.exact(found, [f"o{n}" for n in range(len(found.columns))])
    Stream(pond._builder, found.step).view("v")

    live: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in TABLES}
    for epoch in range(5):
        for name, rows in live.items():
            fresh = {r["id"]: r for r in (row(name, rng) for _ in range(rng.randrange(6)))} if epoch else {}
            if fresh:
                pond.insert(name, list(fresh.values()))
                rows.update(fresh)
            if rows and rng.random() < 0.5:
                pond.delete(name, [rows.pop(rng.choice(list(rows)))])
        pond.drain()
        for name, rows in live.items():
            con.execute(f"delete from {name}")
            con.register("fresh", pa.Table.from_pylist(list(rows.values()), schema=schemas[name]))
            con.execute(f"insert into {name} select * from fresh")
        wanted = plain(con.execute(query).fetchall())
        given = plain([tuple(r.values()) for r in pond.read("v").to_pylist()])
        assert given == wanted, f"epoch {epoch}: {query}\nerrors: {pond.errors().to_pylist()[:3]}"
    pond.close()

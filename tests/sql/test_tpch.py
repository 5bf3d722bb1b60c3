"""All 22 queries of TPC-H as views at once over one set of tables that change (law 1)."""

from __future__ import annotations

import decimal
import io
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pc_csv
import pytest

import millpond
from millpond.operators.join import Join
from tests.sql.fuzz import postgres
from tests.sql.world import World

KEYS: dict[str, str | list[str]] = {
    "region": "r_regionkey", "nation": "n_nationkey", "supplier": "s_suppkey", "part": "p_partkey",
    "customer": "c_custkey", "partsupp": ["ps_partkey", "ps_suppkey"], "orders": "o_orderkey",
    "lineitem": ["l_orderkey", "l_linenumber"],
}  # fmt: skip
TEXT = re.sub(r"^--.*$", "", (Path(__file__).parent / "tpch.sql").read_text(), flags=re.M)
QUERIES = {f"q{n}": q.strip() for n, q in enumerate(TEXT.split(";"), 1)}


def generated(folder: Path, scale: float) -> dict[str, pa.Table]:
    tool = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if tool is None:
        pytest.skip("tpchgen-cli is not installed; it is one of the dev dependencies")
    subprocess.run(
        [tool, "parquet", "-s", str(scale), "--output-dir", str(folder)], check=True, capture_output=True
    )
    con, found = duckdb.connect(), {}
    for name, key in KEYS.items():  # below scale 0.01 some suppliers offer a part twice
        on = ", ".join([key] if isinstance(key, str) else key)
        query = f"select distinct on ({on}) * from '{folder}/{name}.parquet' order by all"
        found[name] = con.sql(query).to_arrow_table()
    return found


def columns_of(rows: pa.Table) -> dict[str, str]:
    con = duckdb.connect()
    con.register("rows", rows)
    relation = con.sql("select * from rows")
    return {c: str(t) for c, t in zip(relation.columns, relation.types, strict=True)}


ALL = ("insert", "update", "update", "delete")


@pytest.mark.parametrize(
    ("scale", "rounds"),
    [
        (0.002, ("insert", "update", "delete")),
        pytest.param(0.01, ("all of it",), marks=pytest.mark.slow),
        pytest.param(0.01, ALL, marks=pytest.mark.slow),
    ],
    ids=["small", "one round", "four rounds"],
)
def test_all_queries_at_once(scale: float, rounds: Sequence[str], tmp_path: Path) -> None:
    """Equal to batch after each refresh; one round of all kinds of changes, or one round for each."""
    data = generated(tmp_path / "data", scale)
    world = World(tmp_path / "pond", {n: (columns_of(data[n]), KEYS[n]) for n in KEYS}, parallelism=2)
    for name, query in QUERIES.items():
        world.view(name, query)
    joins = [n for n in world.pond._builder.plan.nodes.values() if isinstance(n.operator, Join)]
    crossed = [n.step for n in joins if not n.operator.left_on]
    assert all(step.split(".")[0] in ("q11", "q16", "q22") for step in crossed), (
        "only single values are crossed"
    )

    rng = random.Random(7)
    held_back: dict[str, pa.Table] = {}
    for name, rows in data.items():
        few = rng.sample(range(rows.num_rows), rows.num_rows // 20)
        held_back[name] = rows.take(pa.array(few, pa.int64()))
        world.put(name, rows.filter(pa.array([n not in set(few) for n in range(rows.num_rows)])))
    world.check("loaded")
    for number, what in enumerate(rounds):
        for name, rows in data.items():
            if name in ("region", "nation") and number != 2:
                continue
            few = rng.sample(range(rows.num_rows), max(2, rows.num_rows // 50))
            some = rows.take(pa.array(few, pa.int64()))
            half = some.num_rows // 2
            if what in ("insert", "all of it"):
                world.put(name, held_back[name])
            if what in ("update", "all of it"):
                world.put(name, shuffled(name, some.slice(0, half) if what != "update" else some, rng))
            if what in ("delete", "all of it"):
                world.take(name, some.slice(half) if what != "delete" else some)
        world.check(f"round {number}: {what}")
    world.close()


def shuffled(name: str, rows: pa.Table, rng: random.Random) -> pa.Table:
    """Updates: the same keys with the values of other rows."""
    keys = KEYS[name] if isinstance(KEYS[name], list) else [KEYS[name]]
    order = list(range(rows.num_rows))
    rng.shuffle(order)
    other = rows.take(pa.array(order))
    return pa.table([rows[c] if c in keys else other[c] for c in rows.column_names], schema=rows.schema)


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    try:
        found = postgres.Server()
    except postgres.Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


def with_numeric(
    folder: Path, data: dict[str, pa.Table], names: Sequence[str], also: Callable[[str, bytes, str], None]
) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of views over columns of type `numeric`; `also` gets each table, its rows and its name."""
    read = {word for name in names for word in re.findall(r"\w+", QUERIES[name])}
    with millpond.open(folder, engine="inline", parallelism=2) as pond:
        for table, rows in data.items():
            if table not in read:
                continue
            kinds = {"VARCHAR": "text"}
            types = {
                c: "numeric" if t.startswith("DECIMAL") else kinds.get(t, t)
                for c, t in columns_of(rows).items()
            }
            key = KEYS[table]
            listed = ", ".join(f"{c} {t}" for c, t in types.items())
            create = f"CREATE TABLE {table} ({listed}, PRIMARY KEY ({key if isinstance(key, str) else ', '.join(key)}))"
            text = io.BytesIO()
            pc_csv.write_csv(rows, text, pc_csv.WriteOptions(include_header=False))
            also(create, text.getvalue(), table)
            pond.sql(create)
            pond.sql(f"COPY {table} FROM STDIN (FORMAT csv)", stdin=text.getvalue())
        pond.sql("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}" for name in names))
        pond.sql("FLUSH")
        for name in names:
            errors = pond.errors(name)
            assert errors is None or len(errors) == 0, name
        return {name: shown(pond.sql(f"SELECT * FROM {name}").fetchall()) for name in names}


def shown(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows in order; a quotient has 16 digits after the point here, in PostgreSQL 16 significant ones."""
    return sorted((tuple(map(rounded, row)) for row in rows), key=repr)


def rounded(value: Any) -> Any:
    if isinstance(value, decimal.Decimal | int | float):
        return decimal.Decimal(str(value)).quantize(decimal.Decimal("1e-9")).normalize() + 0
    return value


def test_plain_numeric_columns(tmp_path: Path) -> None:
    few = {name: rows.slice(0, 400) for name, rows in generated(tmp_path / "data", 0.002).items()}
    con, names = duckdb.connect(), ("q1", "q6", "q14")
    for name, rows in few.items():
        con.register(name, rows)
    found = with_numeric(tmp_path / "pond", few, names, lambda *_: None)
    for name in names:
        assert found[name] == shown(con.sql(QUERIES[name]).fetchall()), name


@pytest.mark.slow
def test_plain_numeric_columns_as_in_postgresql(server: postgres.Server, tmp_path: Path) -> None:
    con: Any = server.con
    con.execute("DROP SCHEMA IF EXISTS tpch CASCADE; CREATE SCHEMA tpch; SET search_path = tpch")

    def also(create: str, rows: bytes, table: str) -> None:
        con.execute(create)
        with con.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            copy.write(rows)

    found = with_numeric(tmp_path / "pond", generated(tmp_path / "data", 0.002), list(QUERIES), also)
    for name, query in QUERIES.items():
        assert found[name] == shown(con.execute(query).fetchall()), name

"""TPC-H as 22 views at once: what a refresh costs against computing all of them again.

Law: one set of tables that change by inserts, updates and deletes together; after each refresh every view
equals DuckDB's answer over the same tables.  A refresh counts from its first row sent to the commit with all
views; recomputing counts the 22 queries alone, over tables that are there (DuckDB: its own, in memory;
Spark: Parquet).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import data, report
from benchmarks.measure import tree
from millpond.engine.spark.session import make_session
from millpond.state.manifest import history

ROOT = Path(__file__).parents[1]
KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "customer": ("c_custkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
CHANGING = tuple(name for name in KEYS if name not in ("region", "nation"))
TEXT = re.sub(r"^--.*$", "", (ROOT / "tests/sql/tpch.sql").read_text(), flags=re.M)
QUERIES = {f"q{n}": text.strip() for n, text in enumerate(TEXT.split(";"), 1) if text.strip()}
FRACTIONS = (0.0001, 0.001, 0.01)
SPARE = 0.05  # of the rows are not loaded: they come as inserts
CHUNK = 500_000  # rows of one entry of the inbox
SLOW_STEPS = 12  # that are told


@dataclass(frozen=True)
class Cost:
    what: str
    rows: int  # that changed, or all
    seconds: float
    cpu_seconds: float  # of this process and all below it


class Meter:
    """Wall and processor time of a block."""

    def __enter__(self) -> Meter:
        self._cpu = sum(tree(os.getpid()).values())
        self._at = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._at
        self.cpu_seconds = sum(tree(os.getpid()).values()) - self._cpu

    def cost(self, what: str, rows: int) -> Cost:
        return Cost(what, rows, self.seconds, self.cpu_seconds)


# ---------------------------------------------------------------- the data


def generated(scale: float) -> Path:
    folder = data.scratch() / f"tpch-{scale:g}"
    if not folder.exists():
        tool = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            made = Path(place, "made")
            subprocess.run(
                [tool, "parquet", "-s", str(scale), "--output-dir", str(made)],
                check=True,
                capture_output=True,
            )
            made.rename(folder)
    return folder


class Tables:
    """The tables in DuckDB, as all refreshes so far left them, and what is still to come."""

    def __init__(self, folder: Path, cores: int, seed: int) -> None:
        self.con = duckdb.connect(config={"threads": cores})
        self.rng = random.Random(seed)
        self.spare: dict[str, pa.Table] = {}
        for name, key in KEYS.items():
            on = ", ".join(key)  # below scale 0.01 some suppliers offer a part twice
            once = f"select distinct on ({on}) * from '{folder}/{name}.parquet' order by {on}"
            self.con.execute(f"create table {name} as {once}")
            if name in CHANGING:
                marked = f"hash({on}) % 10000 < {int(SPARE * 10000)}"
                self.spare[name] = self.con.sql(f"from {name} where {marked}").to_arrow_table()
                self.con.execute(f"delete from {name} where {marked}")

    def rows(self, name: str) -> pa.Table:
        return self.con.sql(f"from {name}").to_arrow_table()

    def count(self) -> int:
        return sum(self._count(name) for name in KEYS)

    def _count(self, name: str) -> int:
        return int(self.con.sql(f"select count(*) from {name}").fetchall()[0][0])

    def refresh(self, fraction: float) -> dict[str, tuple[pa.Table, pa.Table]]:
        """By table: rows to put (new ones, and old keys with other values) and rows to delete."""
        found = {}
        for name in CHANGING:
            part = max(1, int(self._count(name) * fraction / 3))
            fresh, self.spare[name] = self.spare[name].slice(0, part), self.spare[name].slice(part)
            seed = self.rng.randrange(2**31)
            some = self.con.sql(
                f"from {name} using sample {2 * part} rows (reservoir, {seed})"
            ).to_arrow_table()
            put = pa.concat_tables([fresh, self._mixed(name, some.slice(0, part))])
            gone = some.slice(part)
            self._without(name, put)
            self._without(name, gone)
            self.con.register("fresh", put)
            self.con.execute(f"insert into {name} from fresh")
            found[name] = (put, gone)
        return found

    def _mixed(self, name: str, rows: pa.Table) -> pa.Table:
        """Updates: the same keys with the values of other rows."""
        order = list(range(rows.num_rows))
        self.rng.shuffle(order)
        other = rows.take(pa.array(order, pa.int64()))
        columns = [rows[c] if c in KEYS[name] else other[c] for c in rows.column_names]
        return pa.table(columns, schema=rows.schema)

    def _without(self, name: str, rows: pa.Table) -> None:
        self.con.register("fresh", rows)
        same = " and ".join(f"fresh.{k} = {name}.{k}" for k in KEYS[name])
        self.con.execute(f"delete from {name} where exists (select 1 from fresh where {same})")

    def recompute(self) -> tuple[Cost, dict[str, float]]:
        apart = {}
        with Meter() as meter:
            for name, query in QUERIES.items():
                started = time.perf_counter()
                self.con.execute(query).fetchall()
                apart[name] = time.perf_counter() - started
        return meter.cost("DuckDB, 22 queries", self.count()), apart


# ---------------------------------------------------------------- one run


def run(
    scale: float, cores: int, repeats: int, spark: bool, verify: bool, engine: str, console: Console
) -> None:
    folder = generated(scale)
    tables = Tables(folder, cores, seed=7)
    session = None
    if spark or engine == "spark":
        session = make_session(extra={"spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"})
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="tpch-", dir=data.scratch()) as place:
        settings: dict[str, Any] = {"parallelism": cores, "epoch_rows_max": 4_000_000, "target_ms": 60_000}
        settings |= {"spark": session} if engine == "spark" else {"engine": "inline"}
        with millpond.open(Path(place, "pond"), **settings) as pond:
            costs += loaded(pond, tables, console)
            check(pond, tables, "after the load", console)
            apart: list[dict[str, float]] = []
            steps: Counter[str] = Counter()
            for fraction in FRACTIONS:
                mine, theirs = [], []
                for _ in range(repeats):
                    changes = tables.refresh(fraction)
                    cost, us = refreshed(pond, changes, f"refresh of {fraction:.2%}")
                    mine.append(cost)
                    console.print(
                        f"{cost.what}: {cost.rows:,} rows, {cost.seconds:.2f} s, CPU {cost.cpu_seconds:.2f} s"
                    )
                    if fraction == FRACTIONS[-1]:
                        steps.update(us)
                    batch, each = tables.recompute()
                    theirs.append(batch)
                    apart.append(each)
                    if verify:
                        check(pond, tables, cost.what, console)
                costs += [best(mine), best(theirs)]
            check(pond, tables, "at the end", console)
            told(steps, pond, console)
        if spark:
            costs.append(on_spark(session, tables, Path(place), console))
    show(costs, console)
    kept = {"scale": scale, "cores": cores, "engine": engine, "costs": [asdict(c) for c in costs]}
    path = report.keep("tpch", {**kept, "step_us": dict(steps.most_common(60)), "duckdb_s": apart[-1]})
    console.print(f"written: benchmarks/results/{path.name}")


def best(costs: Sequence[Cost]) -> Cost:
    return min(costs, key=lambda cost: cost.seconds)


def loaded(pond: millpond.Pond, tables: Tables, console: Console) -> list[Cost]:
    """The tables, then all views over them at once."""
    found = []
    made = []
    for name, key in KEYS.items():
        relation = tables.con.sql(f"from {name}")
        listed = [f"{c} {t}" for c, t in zip(relation.columns, relation.types, strict=True)]
        made.append(f"CREATE TABLE {name} ({', '.join(listed)}, PRIMARY KEY ({', '.join(key)}))")
    pond.sql(";".join(made))
    with Meter() as meter:
        for name in KEYS:
            rows = tables.rows(name)
            for start in range(0, rows.num_rows, CHUNK):
                pond.insert(name, rows.slice(start, CHUNK))
        pond.drain()
    found.append(meter.cost("load of the tables", tables.count()))
    console.print(f"tables: {meter.seconds:.1f} s")
    with Meter() as meter:
        pond.sql(";".join(f"CREATE MATERIALIZED VIEW {n} AS {text}" for n, text in QUERIES.items()))
    found.append(meter.cost("backfill of 22 views", tables.count()))
    console.print(f"views: {meter.seconds:.1f} s")
    pond.compact()
    return found


def refreshed(
    pond: millpond.Pond, changes: Mapping[str, tuple[pa.Table, pa.Table]], what: str
) -> tuple[Cost, Counter[str]]:
    before = pond.epoch
    with Meter() as meter:
        for name, (put, gone) in changes.items():
            pond.insert(name, put)
            pond.delete(name, gone)
        pond.drain()
    us: Counter[str] = Counter()
    for epoch in range(before + 1, pond.epoch + 1):
        us.update(history.read_manifest(pond.store, epoch).metrics.get("steps_us", {}))
    rows = sum(put.num_rows + gone.num_rows for put, gone in changes.values())
    return meter.cost(what, rows), us


def check(pond: millpond.Pond, tables: Tables, when: str, console: Console) -> None:
    """Every view equals DuckDB's answer (law 1); floats to ten digits."""
    for name, query in QUERIES.items():
        found, wanted = (
            rounded(pond.sql(f"SELECT * FROM {name}").fetchall()),
            rounded(tables.con.execute(query).fetchall()),
        )
        if found != wanted:
            less, more = list((wanted - found).items())[:3], list((found - wanted).items())[:3]
            raise RuntimeError(f"{when}: {name} differs: missing {less}, too many {more}")
    console.print(f"{when}: all {len(QUERIES)} views are right")


def rounded(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(float(f"{v:.10g}") if isinstance(v, float) else v for v in row) for row in rows)


def on_spark(session: Any, tables: Tables, place: Path, console: Console) -> Cost:
    """The same queries by Spark SQL over Parquet, warm; their answers are near DuckDB's."""
    session.conf.set("spark.sql.shuffle.partitions", "4")
    for name in KEYS:
        tables.con.execute(f"copy {name} to '{place}/{name}.parquet' (format parquet)")
        session.read.parquet(f"{place}/{name}.parquet").createOrReplaceTempView(name)
    texts = {n: sqlglot.transpile(q, read="duckdb", write="spark")[0] for n, q in QUERIES.items()}
    for name, text in texts.items():
        mine, theirs = session.sql(text).collect(), tables.con.execute(QUERIES[name]).fetchall()
        if len(mine) != len(theirs):
            raise RuntimeError(f"{name}: Spark has {len(mine)} rows, DuckDB {len(theirs)}")
    with Meter() as meter:
        for text in texts.values():
            session.sql(text).collect()
    return meter.cost("Spark SQL, 22 queries", tables.count())


# ---------------------------------------------------------------- telling


def told(steps: Counter[str], pond: millpond.Pond, console: Console) -> None:
    """Where a large refresh spends its time, by view and by step."""
    table = Table("step", "operator", "ms", title=f"the slowest steps at {FRACTIONS[-1]:.0%}")
    for step, us in steps.most_common(SLOW_STEPS):
        node = pond.plan.nodes.get(step)
        table.add_row(step, type(node.operator).__name__ if node else "", f"{us / 1000:.0f}")
    console.print(table)


def show(costs: Sequence[Cost], console: Console) -> None:
    batch = {c.what.split(",")[0]: c for c in costs if "22 queries" in c.what}
    table = Table(
        "what", "rows", "s", "CPU s", *(f"of {name}'s" for name in batch), *(f"CPU of {n}'s" for n in batch)
    )
    for one in costs:
        ratios = [f"{one.seconds / b.seconds:.2f}x" for b in batch.values()]
        cpu = [f"{one.cpu_seconds / b.cpu_seconds:.2f}x" for b in batch.values()]
        table.add_row(
            one.what, f"{one.rows:,}", f"{one.seconds:.2f}", f"{one.cpu_seconds:.2f}", *ratios, *cpu
        )
    console.print(table)
    refreshes = [c for c in costs if c.what.startswith("refresh")]
    for name, peer in batch.items():
        console.print(f"break-even with {name}: {break_even(refreshes, peer)}")


def break_even(refreshes: Sequence[Cost], peer: Cost) -> str:
    """The share of rows at which a refresh costs as much as the batch, between the measured ones."""
    share = np.array([c.rows / peer.rows for c in refreshes])
    cost = np.maximum.accumulate([c.seconds for c in refreshes])
    if peer.seconds <= cost[0]:
        return f"below {share[0]:.3%} of the rows"
    if peer.seconds >= cost[-1]:
        return f"above {share[-1]:.3%} of the rows"
    return f"at {float(np.exp(np.interp(peer.seconds, cost, np.log(share)))):.3%} of the rows"

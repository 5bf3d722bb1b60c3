"""Reading a view: scans against DuckDB over the same rows in Parquet, and lookups by key.

Law: both sides answer the same question over the same rows with the same threads, in turns, and their answers
are equal before anything is timed.  What counts is the ratio within one run.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report

ROUNDS = 9
LOOKUPS = 300
VIEW = """
    SELECT id, count(*) AS n, sum(price) AS total, min(price) AS low, max(price) AS high, avg(score) AS mean,
        max(at) AS newest, max(name) AS name
    FROM sales GROUP BY id
"""
SCANS = {
    "2 of 8 columns, filter and sum": "SELECT count(*), sum(total) FROM {0} WHERE low > 500",
    "3 of 8 columns, narrow filter": "SELECT sum(total), max(newest) FROM {0} WHERE high BETWEEN 100 AND 101",
    "text: filter, group and sum": "SELECT name, count(*), sum(total) FROM {0} WHERE name LIKE 'n_1%' "
    "GROUP BY name ORDER BY name",
    "all columns, aggregated": "SELECT sum(id), sum(n), sum(total), min(low), max(high), sum(mean), "
    "max(newest), max(name) FROM {0}",
    "all rows, as Arrow": "SELECT * FROM {0}",
}


@dataclass(frozen=True)
class Scan:
    view: str
    query: str
    millpond_ms: float  # best of all rounds
    duckdb_ms: float
    first_ms: float  # of a process that has read nothing yet

    @property
    def ratio(self) -> float:
        return self.millpond_ms / self.duckdb_ms


@dataclass(frozen=True)
class Lookup:
    how: str
    processes: int
    p50_ms: float
    p99_ms: float


def run(rows: int, cores: int, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="reads-") as place:
        folder = Path(place)
        fill(folder, rows)
        scans = measure_scans(folder, "compacted", cores)
        lookups = measure_lookups(folder, rows)
        change(folder, rows, rows // 100)
        scans += measure_scans(folder, "1 % changed since", cores)
        lookups += measure_lookups(folder, rows, kinds=("SELECT … WHERE id = ?",))
    show(scans, lookups, console)
    figures = {"scans": [asdict(s) for s in scans], "lookups": [asdict(one) for one in lookups]}
    path = report.keep("reads", {"rows": rows, "cores": cores, **figures})
    console.print(f"written: benchmarks/results/{path.name}")


# ---------------------------------------------------------------- the view


def fill(folder: Path, rows: int) -> None:
    """A view of so many keys, compacted, and an index on it."""
    (folder / "in").mkdir()
    write(folder, "a", f"range({rows}) r(id)")
    with opened(folder) as pond:
        pond.sql(f"CREATE SOURCE sales WITH (connector = 'files', path = '{folder}/in', format = 'parquet')")
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        pond.sql("CREATE INDEX by_price ON v (high)")
        pond.drain()
        pond.compact()


def change(folder: Path, rows: int, changed: int) -> None:
    """Some keys change, in three epochs that are not compacted."""
    with opened(folder, compact=False) as pond:
        for part in range(3):
            write(
                folder,
                f"b{part}",
                f"(select (random() * {rows - 1})::bigint as id from range({changed // 3})) r(id)",
            )
            pond.drain()


def write(folder: Path, name: str, ids: str) -> None:
    made = duckdb.connect()
    made.execute(
        f"""COPY (SELECT id, (hash(id) % 100000)::bigint AS price, (hash(id, 1) % 1000) / 8.0 AS score,
            timestamp '2026-01-01' + to_seconds((hash(id, 2) % 9000000)::bigint) AS at,
            'n' || (hash(id, 3) % 1000) AS name FROM {ids})
            TO '{folder}/.{name}.parquet' (FORMAT parquet)"""
    )
    (folder / f".{name}.parquet").rename(folder / "in" / f"{name}.parquet")


def opened(folder: Path, **settings: Any) -> millpond.Pond:
    options = {"epoch_rows_max": 2_000_000, "target_ms": 60_000, "catch_up_ms": 60_000}
    return millpond.open(folder / "pond", engine="inline", parallelism=2, **{**options, **settings})


# ---------------------------------------------------------------- scans


def measure_scans(folder: Path, state: str, cores: int) -> list[Scan]:
    parquet = folder / f"{state.split()[0]}.parquet"
    found = []
    with opened(folder) as pond:
        pq.write_table(pond.read("v"), parquet, row_group_size=122_880)
        peer = duckdb.connect(config={"threads": cores})
        for name, query in SCANS.items():
            ours, theirs = query.format("v"), query.format(f"'{parquet}'")
            mine, other = pond.sql(ours).arrow(), peer.sql(theirs).to_arrow_table()
            same(mine, other, name)
            del mine, other
            first = in_process(first_ms, folder, ours)
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                times[0].append(timed(partial(asked, pond, ours)))
                times[1].append(timed(partial(peers, peer, theirs)))
            found.append(Scan(state, name, min(times[0]), min(times[1]), first))
    return found


def same(mine: Any, other: Any, name: str) -> None:
    con = duckdb.connect()
    con.register("mine", mine)
    con.register("other", other)
    more = con.sql(
        "SELECT count(*) FROM ((FROM mine EXCEPT ALL FROM other) UNION ALL (FROM other EXCEPT ALL FROM mine))"
    )
    if more.fetchall() != [(0,)]:
        raise RuntimeError(f"{name}: the answers differ")


def asked(pond: millpond.Pond, query: str) -> Any:
    return pond.sql(query).arrow()


def peers(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    return con.sql(query).to_arrow_table()


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def first_ms(folder: Path, query: str) -> float:
    """In a process of its own: the pond is open, and nothing was read."""
    with opened(folder) as pond:
        pond.sql("SELECT 1")
        return timed(partial(asked, pond, query))


# ---------------------------------------------------------------- lookups

KINDS = ("SELECT … WHERE id = ?", "SELECT … WHERE high = ? (index)", "pond.lookup")


def measure_lookups(folder: Path, rows: int, kinds: tuple[str, ...] = KINDS) -> list[Lookup]:
    with opened(folder) as pond:
        epoch = pond.epoch
    found = []
    for kind in kinds:
        for processes in (1, 4):
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                parts = pool.starmap(lookups_ms, [(folder, kind, rows, epoch, n) for n in range(processes)])
            every = sorted(ms for part in parts for ms in part)
            found.append(Lookup(kind, processes, statistics.median(every), every[int(len(every) * 0.99)]))
    return found


def lookups_ms(folder: Path, kind: str, rows: int, epoch: int, seed: int) -> list[float]:
    """One after the other, each of another key, all at one epoch."""
    rng = random.Random(seed)
    with opened(folder) as pond:

        def ask(key: int) -> None:
            if kind == KINDS[2]:
                found = pond.lookup("v", key, epoch=epoch).num_rows
            else:
                column = "id" if kind == KINDS[0] else "high"
                found = len(
                    pond.sql(
                        f"SELECT * FROM v AS OF EPOCH {epoch} WHERE {column} = ?", params=[key]
                    ).fetchall()
                )
            if not found:
                raise RuntimeError(f"{kind}: {key} was not found")

        if kind == KINDS[1]:
            keys = [int(k) for (k,) in pond.sql("SELECT high FROM v LIMIT 2000").fetchall()]
            keys = [rng.choice(keys) for _ in range(LOOKUPS + 20)]
        else:
            keys = [rng.randrange(rows) for _ in range(LOOKUPS + 20)]
        for key in keys[:20]:
            ask(key)
        return [timed(partial(ask, key)) for key in keys[20:]]


def in_process(call: Callable[..., Any], *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


# ---------------------------------------------------------------- telling


def show(scans: list[Scan], lookups: list[Lookup], console: Console) -> None:
    table = Table("view", "query", "millpond ms", "duckdb, parquet ms", "ratio", "first read ms")
    for one in scans:
        times = (one.millpond_ms, one.duckdb_ms)
        table.add_row(
            one.view, one.query, *(f"{t:.1f}" for t in times), f"{one.ratio:.2f}x", f"{one.first_ms:.0f}"
        )
    console.print(table)
    table = Table("lookup", "processes", "p50 ms", "p99 ms")
    for found in lookups:
        table.add_row(found.how, str(found.processes), f"{found.p50_ms:.2f}", f"{found.p99_ms:.2f}")
    console.print(table)

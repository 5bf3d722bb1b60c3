"""`python -m benchmarks serving`: the server beside PostgreSQL with the same rows, on this machine.

Law: both servers hold the same rows, are read by the same client program, one after the other, and their
answers are equal before anything is timed.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.serving import freshness, idle, point_reads, scans
from benchmarks.serving.freshness import Freshness
from benchmarks.serving.point_reads import PointReads
from benchmarks.serving.postgres_peer import NotInstalledError, postgres
from benchmarks.serving.scans import ScanRate
from benchmarks.serving.servers import ServedPond, served

CONNECTIONS = (1, 16, 64)
RATE = 10_000  # events a second
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int, at timestamp, price decimal(12,2))"
OURS = "INSERT INTO t SELECT i, 'name ' || i, i % 1000, timestamp '2026-01-01' + to_seconds(i), i * 1.25 FROM range({0}) r(i)"  # noqa: E501
THEIRS = "INSERT INTO t SELECT i, 'name ' || i, i % 1000, timestamp '2026-01-01' + i * interval '1 second', i * 1.25 FROM generate_series(0, {0} - 1) r(i)"  # noqa: E501
CHECK = "SELECT count(*), sum(id), sum(n), max(name), max(at), sum(price) FROM t"
PIPELINE = f"""
CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid', rate = {RATE});
CREATE MATERIALIZED VIEW by_auction AS SELECT auction, count(*) AS bids, max(price) AS price FROM bid GROUP BY auction;
"""  # noqa: E501


@dataclass(frozen=True)
class Epochs:
    """The epochs of the pipeline while some connections read."""

    readers: int
    count: int
    p50_ms: float
    events_per_s: float
    cpu_share: float  # of one core, of the server with its pipeline


@dataclass
class Figures:
    reads: list[PointReads]
    epochs: list[Epochs]
    scans: list[ScanRate]
    freshness: list[Freshness]
    idle: idle.IdleConnections | None = None


def run(
    console: Console, rows: int, seconds: float, connections: Sequence[int] = CONNECTIONS, processes: int = 0
) -> Figures:
    """Measure everything, print tables, and keep the figures."""
    idle.allow_files(8192)
    found = Figures([], [], [], [])
    with tempfile.TemporaryDirectory(prefix="serving-") as place, contextlib.ExitStack() as ends:
        pond = Path(place) / "pond"
        ours = ends.enter_context(served(pond, processes))
        with psycopg.connect(ours.pg, autocommit=True) as con:
            con.execute(TABLE)
            con.execute(OURS.format(rows))
            mine = con.execute(CHECK).fetchall()
        peer = _peer(ends, console, rows, mine)
        for count in connections:
            if peer is not None:
                found.reads.append(_reads("PostgreSQL", "idle", peer, rows, count, seconds))
            found.reads.append(_reads("millpond", "idle", ours.pg, rows, count, seconds, ours))
        if peer is not None:
            found.scans.append(scans.by_psql("PostgreSQL", peer, rows))
        found.scans += [scans.by_psql("millpond", ours.pg, rows), scans.by_flight(ours.flight, rows)]
        found.freshness += _freshness(pond, ours)
        found.idle = idle.measure(ours, 1000)
        with _pipeline(ours) as con:
            time.sleep(3)
            with _epochs(ours, con, 0, found.epochs):
                time.sleep(2 * seconds)
            for count in connections:
                with _epochs(ours, con, count, found.epochs):
                    load = f"{RATE} events/s"
                    found.reads.append(_reads("millpond", load, ours.pg, rows, count, 2 * seconds, ours))
    show(found, console)
    path = report.keep("serving", {"rows": rows, "seconds": seconds, "processes": processes, **_plain(found)})
    console.print(f"written: benchmarks/results/{path.name}")
    return found


def _peer(ends: contextlib.ExitStack, console: Console, rows: int, mine: list[Any]) -> str | None:
    try:
        address = ends.enter_context(postgres())
    except NotInstalledError as error:
        console.print(f"without PostgreSQL: {error}")
        return None
    with psycopg.connect(address, autocommit=True) as con:
        con.execute(TABLE)
        con.execute(THEIRS.format(rows))
        con.execute("VACUUM ANALYZE t")
        theirs = con.execute(CHECK).fetchall()
    if theirs != mine:
        raise RuntimeError(f"the servers have different rows: {mine} and {theirs}")
    return address


def _reads(
    name: str,
    load: str,
    address: str,
    rows: int,
    count: int,
    seconds: float,
    server: ServedPond | None = None,
) -> PointReads:
    before = 0.0 if server is None else server.cpu_s()
    p50, p99, per_s, number = point_reads.measure(address, rows, count, seconds)
    cpu = None if server is None else (server.cpu_s() - before) * 1000 / number
    return PointReads(name, load, count, p50, p99, per_s, cpu)


def _freshness(pond: Path, ours: ServedPond) -> list[Freshness]:
    with psycopg.connect(ours.pg, autocommit=True) as con:
        con.execute("CREATE TABLE watched (at bigint PRIMARY KEY)")
        con.execute("INSERT INTO watched VALUES (0)")
        con.execute("SELECT * FROM watched").fetchall()
    with served(pond) as other:
        return [
            freshness.measure("SUBSCRIBE", pond, ours.pg, freshness.subscribing(ours.pg)),
            freshness.measure("events over HTTP", pond, ours.pg, freshness.by_events(ours.http)),
            freshness.measure("SUBSCRIBE, another process", pond, ours.pg, freshness.subscribing(other.pg)),
            freshness.measure("events, another process", pond, ours.pg, freshness.by_events(other.http)),
        ]


@contextlib.contextmanager
def _pipeline(ours: ServedPond) -> Iterator[Any]:
    with psycopg.connect(ours.pg, autocommit=True) as con:
        con.execute(PIPELINE)
        yield con


@contextlib.contextmanager
def _epochs(ours: ServedPond, con: Any, readers: int, found: list[Epochs]) -> Iterator[None]:
    """Note the epochs that are committed during the block."""
    first = con.execute("SELECT max(epoch) FROM millpond.epochs").fetchone()[0]
    started, cpu = time.monotonic(), ours.cpu_s()
    yield
    lasted, cpu = time.monotonic() - started, ours.cpu_s() - cpu
    rows = con.execute(
        "SELECT ms, rows FROM millpond.epochs WHERE epoch > %s AND kind = 'epoch' AND rows > 0", [first]
    ).fetchall()
    if not rows:
        raise RuntimeError("the pipeline has stopped")
    p50 = statistics.median(ms for ms, _ in rows)
    found.append(Epochs(readers, len(rows), p50, sum(n for _, n in rows) / lasted, cpu / lasted))


def _plain(found: Figures) -> dict[str, Any]:
    return {
        "reads": [asdict(one) for one in found.reads],
        "epochs": [asdict(one) for one in found.epochs],
        "scans": [asdict(one) for one in found.scans],
        "freshness": [asdict(one) for one in found.freshness],
        "idle": None if found.idle is None else asdict(found.idle),
    }


def show(found: Figures, console: Console) -> None:
    """One table for all figures: what was measured, with its aim."""
    table = Table("figure", "server", "p50 ms", "p99 ms", "a second", "CPU ms", "aim")
    for one in found.reads:
        cpu = "" if one.cpu_ms is None else f"{one.cpu_ms:.2f}"
        peer = [r.p50_ms for r in found.reads if (r.server, r.connections) == ("PostgreSQL", one.connections)]
        aim = "" if one.server != "millpond" else "p50 < 3 ms" + (f", < {3 * peer[0]:.2f}" if peer else "")
        name = f"point reads, {one.connections} connections, {one.load}"
        table.add_row(
            name, one.server, f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.per_s:,.0f}", cpu, aim
        )
    alone = next((e.p50_ms for e in found.epochs if e.readers == 0), None)
    for epoch in found.epochs:
        aim = "" if not epoch.readers or alone is None else f"< {alone * 1.1:.0f} ms"
        name = f"epochs of the pipeline, {epoch.readers} readers"
        rate = f"{epoch.events_per_s:,.0f} events"
        cpu = f"{epoch.cpu_share:.0%} of a core"
        table.add_row(name, "millpond", f"{epoch.p50_ms:.1f}", "", rate, cpu, aim)
    for scan in found.scans:
        aim = {"pgwire": "250,000", "flight": "3,000,000"}[scan.protocol] if scan.server == "millpond" else ""
        name = f"scan of {scan.rows:,} rows, {scan.protocol}"
        table.add_row(name, scan.server, "", "", f"{scan.per_s:,.0f} rows", "", aim)
    for fresh in found.freshness:
        name = f"commit to row, {fresh.how}"
        table.add_row(name, "millpond", f"{fresh.p50_ms:.1f}", f"{fresh.max_ms:.0f} (max)", "", "", "< 50 ms")
    if found.idle is not None:
        name = f"{found.idle.connections:,} idle connections"
        shown = f"{found.idle.more_mb:.0f} MB more than {found.idle.before_mb:.0f}"
        table.add_row(name, "millpond", shown, "", f"login {found.idle.login_ms:.1f} ms", "", "< 200 MB")
    console.print(table)

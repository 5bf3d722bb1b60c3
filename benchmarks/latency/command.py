"""The command line that every contender of the latency benchmark shares, and what it makes of its sights.

Law: a contender is ready before the feed begins, and is measured from the end of the warm-up until the feed
ends. A result counts from the moment at which the event that closes its window was due: the first that is
four seconds behind the window's end, which is the watermark of every system.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.latency import age, feed
from benchmarks.latency.age import Delays, Sight
from benchmarks.latency.feed import Fed, Feed
from benchmarks.latency.outcome import Latency
from benchmarks.measure import Sampler, usage
from benchmarks.nexmark import compare, queries
from benchmarks.nexmark.queries import ON_CLOSE, Query

DELAY_MS = 4_000  # of the watermark behind the newest event
WINDOW_STEP_S = {"q5": 2.0, "q7": 10.0, "q8": 10.0}  # from the end of one to that of the next
SETTLE_S = 20.0  # what a contender gets after the feed to show its last results


@dataclass(frozen=True)
class Asked:
    query: Query
    feed: Feed
    warm_s: int
    cores: int
    out: Path

    @property
    def staged(self) -> Path:
        return feed.ensure(self.feed)

    @property
    def windowed(self) -> bool:
        return self.query.check == "closed"


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--query", required=True)
    made.add_argument("--rate", type=int, required=True, help="events a second")
    made.add_argument("--seconds", type=int, required=True, help="that are measured")
    made.add_argument("--warm", type=int, required=True, help="seconds of the feed before they are")
    made.add_argument("--tick-ms", type=int, default=100, help="how often files appear")
    made.add_argument("--cores", type=int, default=2)
    made.add_argument("--out", type=Path, required=True)
    return made


def asked(arguments: argparse.Namespace) -> Asked:
    (query,) = queries.choose(arguments.query)
    wanted = Feed(arguments.rate, arguments.warm + arguments.seconds, arguments.tick_ms)
    return Asked(query, wanted, arguments.warm, arguments.cores, arguments.out)


def text(system: str, query: Query) -> str:
    """What the system is asked: as in the throughput runs, but that every window shows when it has closed."""
    found = queries.text(system, query.name)
    if system == "millpond" and query.check == "closed" and not found.endswith(ON_CLOSE):
        return f"{found}\n{ON_CLOSE}"
    return found


def last_closed(job: Asked) -> float:
    """When the last window that the feed closes was due to close, in seconds after the feed began.

    What ends within half a second of the feed's end may stay open: a table's newest event is a bit older.
    """
    step = WINDOW_STEP_S[job.query.name]
    return (job.feed.seconds - DELAY_MS / 1000 - 0.5) // step * step + DELAY_MS / 1000


def of_files(ticks: float, wanted: Feed) -> float:
    """When the newest event of so many whole ticks was due, in seconds after the feed began."""
    return (wanted.first_event(int(ticks)) - 1) / wanted.rate


@dataclass(frozen=True)
class Shown:
    """Rows of the view, and when each came to be seen, in seconds of the wall clock."""

    rows: pa.Table
    at: Sequence[float]


def closings(query: Query, wanted: Feed, shown: Shown, start: float) -> list[Sight]:
    """One sight for each window: the last of its rows, against when its closing event was due."""
    if not shown.rows.num_rows:
        return []
    connection = duckdb.connect()
    connection.register("shown", shown.rows.append_column("seen_at", pa.array(shown.at, pa.float64())))
    names = {name: kind for name, kind in zip(shown.rows.schema.names, shown.rows.schema.types, strict=True)}
    typed = ", ".join(
        f'CAST("{name}" AS TIMESTAMP) AS "{name}"' if _is_time(name) else f'"{name}"' for name in names
    )
    found = connection.sql(
        f"SELECT epoch_ms({query.ends}) AS ended, max(seen_at) FROM"
        f" (SELECT {typed}, seen_at FROM shown) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return [Sight(at - start, wanted.due_s(ended + DELAY_MS)) for ended, at in found]


def _is_time(name: str) -> bool:
    return name in ("date_time", "starttime", "endtime")


def wrong(query: Query, staged: Path, rows: pa.Table) -> tuple[str, ...]:
    """What is wrong with the rows of all windows that the feed closed."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in query.reads:
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{staged / table / '*.parquet'}')"
        )
    return tuple(compare.differences(connection, query, rows))


def outcome(
    job: Asked,
    name: str,
    system: str,
    committed: str,
    fed: Fed,
    sampler: Sampler,
    startup_seconds: float,
    sights: Sequence[Sight],
    shown: Shown | None,
    settings: Mapping[str, str],
    emitted: Sequence[Sight] | None = None,
    emitted_results: Sequence[Sight] | None = None,
) -> Latency:
    """Sights are in seconds after the feed began."""
    start, end = float(job.warm_s), float(job.feed.seconds)
    used = usage(sampler.samples, fed.start + start, fed.start + end)
    results: Delays | None = None
    if shown is not None:
        results = age.delays(closings(job.query, job.feed, shown, fed.start), start, end)
    return Latency(
        name=name,
        system=system,
        query=job.query.name,
        rate=job.feed.rate,
        seconds=job.feed.seconds - job.warm_s,
        tick_ms=job.feed.tick_ms,
        cores=job.cores,
        committed=committed,
        age=age.summary(sights, start, end),
        results=results,
        emitted=None if emitted is None else age.summary(emitted, start, end),
        emitted_results=None if emitted_results is None else age.delays(emitted_results, start, end),
        feed_late_ms=fed.late_ms,
        startup_seconds=startup_seconds,
        cpu_seconds=used.cpu_seconds,
        other_cpu_seconds=used.other_cpu_seconds,
        peak_rss_anon_bytes=used.peak_rss_anon_bytes,
        wrong=() if shown is None else wrong(job.query, job.staged, shown.rows),
        settings=settings,
    )

"""DuckDB, one shot over the whole input: not incremental, nothing durable; the limit, and the oracle.

Law: a run computes every row of the answer and hands none of them over. The best of three runs counts: the
first also pays for opening the files.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb

from benchmarks.measure import Sampler, confine, usage
from benchmarks.nexmark import command, compare, events, queries
from benchmarks.nexmark.queries import Query
from benchmarks.outcome import Outcome

TRIES = 3


def discarded(connection: duckdb.DuckDBPyConnection, query: Query) -> None:
    """All rows are made, a chunk at a time, and let go."""
    for _ in connection.sql(queries.text("duckdb", query.name)).to_arrow_reader(65_536):
        pass


def measured(query: Query, folder: Path, cores: int) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        connection = compare.connect(folder, cores)
        started = time.time()
        spans: list[tuple[float, float]] = []
        for _ in range(TRIES):
            start = time.time()
            discarded(connection, query)
            spans.append((start, time.time()))
    start, end = min(spans, key=lambda span: span[1] - span[0])
    used = usage(sampler.samples, start, end)
    return Outcome(
        name="duckdb",
        system=f"DuckDB {duckdb.__version__}, one batch",
        rows=events.count(folder),
        cores=cores,
        startup_seconds=started - began,
        run_seconds=end - start,
        cpu_seconds=used.cpu_seconds,
        other_cpu_seconds=used.other_cpu_seconds,
        load_before=load,
        peak_rss_bytes=used.peak_rss_bytes,
        peak_rss_anon_bytes=used.peak_rss_anon_bytes,
        checkpoints=None,
        settings={"threads": str(cores), "best of": str(TRIES)},
        query=query.name,
    )


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    for query, place in command.asked(arguments):
        if arguments.verify:
            command.hand_over(compare.expected(compare.connect(arguments.input), query), place)
        else:
            measured(query, arguments.input, arguments.cores).write(place)


if __name__ == "__main__":
    main()

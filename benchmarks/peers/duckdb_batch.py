"""DuckDB, one shot over the whole input: not incremental, nothing durable; the limit, and the oracle.

The best of three runs counts: the first also pays for opening the files.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.measure import Sampler, confine, usage
from benchmarks.outcome import Outcome
from benchmarks.peers import command

TRIES = 3


def aggregate(connection: duckdb.DuckDBPyConnection, folder: Path) -> pa.Table:
    """(auction, n, total), in no order."""
    return connection.sql(
        "SELECT auction, count(*) AS n, CAST(sum(price) AS BIGINT) AS total "
        "FROM read_parquet(?) GROUP BY auction",
        params=[[str(path) for path in data.files(folder)]],
    ).to_arrow_table()


def measured(folder: Path, cores: int) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        connection = duckdb.connect(config={"threads": cores})
        started = time.time()
        spans: list[tuple[float, float]] = []
        for _ in range(TRIES):
            start = time.time()
            aggregate(connection, folder)
            spans.append((start, time.time()))
    start, end = min(spans, key=lambda span: span[1] - span[0])
    used = usage(sampler.samples, start, end)
    return Outcome(
        name="duckdb",
        system=f"DuckDB {duckdb.__version__}, one batch",
        rows=data.count(folder),
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
    )


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    if arguments.verify:
        pq.write_table(aggregate(duckdb.connect(), arguments.input), arguments.verify)
    else:
        measured(arguments.input, arguments.cores).write(arguments.out)


if __name__ == "__main__":
    main()

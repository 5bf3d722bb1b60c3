"""All rows of a table: by the PostgreSQL protocol with psql, and by Flight."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

SCAN = "SELECT id, name, n, at, price FROM t"
ROUNDS = 3
_BY_FLIGHT = """
import sys, time
from adbc_driver_flightsql import dbapi
with dbapi.connect(sys.argv[1], autocommit=True) as con, con.cursor() as cursor:
    for _ in range(int(sys.argv[3])):
        started = time.perf_counter()
        cursor.execute(sys.argv[2])
        rows = cursor.fetch_arrow_table().num_rows
        print(rows, time.perf_counter() - started)
"""


@dataclass(frozen=True)
class ScanRate:
    server: str
    protocol: str
    rows: int
    per_s: float  # the best of some rounds


def by_psql(server: str, address: str, rows: int) -> ScanRate:
    program = shutil.which("psql")
    if program is None:
        raise RuntimeError("psql is not installed (Debian: postgresql-client)")
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        done = subprocess.run(
            [program, "-X", "-A", "-t", "-q", "-o", "/dev/null", "-c", SCAN, address],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        best = min(best, time.perf_counter() - started)
        if done.returncode:
            raise RuntimeError(f"psql failed: {done.stderr[-500:]}")
    return ScanRate(server, "pgwire", rows, rows / best)


def by_flight(address: str, rows: int) -> ScanRate:
    arguments = [address, SCAN, str(ROUNDS)]
    done = subprocess.run(
        [sys.executable, "-c", _BY_FLIGHT, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the Flight client failed: {done.stderr[-500:]}")
    took = [line.split() for line in done.stdout.splitlines()]
    if {int(count) for count, _ in took} != {rows}:
        raise RuntimeError(f"Flight gave {took}, not {rows} rows")
    return ScanRate("millpond", "flight", rows, rows / min(float(seconds) for _, seconds in took))

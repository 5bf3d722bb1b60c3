"""Cold start on S3: the first epoch of a process with an empty disk cache, beside one with a warm cache.

Law: both read the same keys, and the view has counted every row in the end.  Requests and bytes are counted
by a proxy between the process and the S3 server, which also adds the latency.  The server is `versitygw` if
it is installed, else moto.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from tests.link import Link, link_to

KEYS = {"access_key_id": "cold", "secret_access_key": "start"}
BUCKET = "pond"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
EPOCHS = 9  # of which the median is taken
MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
server._thread.join()
"""


@dataclass(frozen=True)
class Start:
    cache: str
    keys: int  # in the state
    rows: int  # of the first epoch, each of another key
    latency_ms: float
    open_s: float  # until the pond is taken over
    epoch_s: float  # from there to the commit of the first epoch
    requests: int
    fetched_mb: float

    @property
    def seconds(self) -> float:
        return self.open_s + self.epoch_s


@dataclass(frozen=True)
class Epoch:
    latency_ms: float
    ms: float  # median


def run(console: Console, keys: int, rows: list[int], latency_ms: float, turns: int) -> list[Start]:
    """Measure, print two tables and store the figures."""
    found: list[Start] = []
    epochs: list[Epoch] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        endpoint = stack.enter_context(_server(folder))
        link = stack.enter_context(link_to(endpoint))
        (folder / "in").mkdir()
        pq.write_table(_rows(np.arange(keys), 1), folder / "in" / "0.parquet")
        state = _child(folder, link, "prepare", keys)
        console.print(f"{keys:,} keys, {state['mb']:.0f} MB of runs")
        link.latency_s = latency_ms / 1000
        for number, count in enumerate(count for count in rows for _ in range(turns)):
            some = np.random.default_rng(number).choice(keys, count, replace=False)
            for cache in ("cold", "warm"):
                if cache == "cold":
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                pq.write_table(_rows(some, 0), folder / "in" / f"{number + 1}-{cache}.parquet")
                before, bytes_before = len(link.requests), link.bytes
                did = _child(folder, link, "start", keys)
                found.append(
                    Start(
                        cache,
                        keys,
                        count,
                        latency_ms,
                        did["open_s"],
                        did["epoch_s"],
                        len(link.requests) - before,
                        (link.bytes - bytes_before) / 1e6,
                    )
                )
        counted = _child(folder, link, "count", keys)["rows"]
        assert counted == keys + sum(start.rows for start in found), counted
        for latency in (0.0, latency_ms):
            link.latency_s = latency / 1000
            did = _child(folder, link, "epochs", keys)
            epochs.append(Epoch(latency, did["ms"]))
    _print(console, found, epochs)
    report.keep("cold-start", {"starts": [asdict(s) for s in found], "epochs": [asdict(e) for e in epochs]})
    return found


def _rows(keys: Any, value: int) -> pa.Table:
    return pa.table({"k": np.sort(keys), "v": np.full(len(keys), value)}, schema=SCHEMA)


def _print(console: Console, found: list[Start], epochs: list[Epoch]) -> None:
    table = Table("rows", "cache", "open, s", "first epoch, s", "both, s", "requests", "MB")
    for rows in dict.fromkeys(s.rows for s in found):
        for cache in ("cold", "warm"):
            some = [s for s in found if (s.rows, s.cache) == (rows, cache)]
            mid = [
                statistics.median(getattr(s, name) for s in some)
                for name in ("open_s", "epoch_s", "seconds", "requests", "fetched_mb")
            ]
            table.add_row(
                f"{rows:,}", cache, *(f"{m:.2f}" for m in mid[:3]), f"{mid[3]:.0f}", f"{mid[4]:.1f}"
            )
    console.print(table)
    plain, slow = epochs
    trips = (slow.ms - plain.ms) / (slow.latency_ms - plain.latency_ms)
    console.print(
        f"an epoch of count and sum: {plain.ms:.0f} ms without latency, "
        f"{slow.ms:.0f} ms with {slow.latency_ms:.0f} ms: {trips:.1f} round trips one after the other"
    )


# ---------------------------------------------------------------- in a process of its own


def _child(folder: Path, link: Link, what: str, keys: int) -> dict[str, Any]:
    arguments = [str(folder), link.endpoint, what, str(keys)]
    before = len(link.requests)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cold_start", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    made = [path for _, _, path in link.requests[before:] if "/lease" not in path]
    return {**found, "requests": len(made)}


def _open(folder: Path, endpoint: str) -> millpond.Pond:
    options = {"endpoint": endpoint, "region": "us-east-1", "cache": str(folder / "cache"), **KEYS}
    pond = millpond.open(
        f"s3://{BUCKET}/cold", engine="inline", store_options=options, compact=False, lease_ms=60_000
    )
    stream = pond.stream("in", FileSource(str(folder / "in"), schema=SCHEMA))
    stream.key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
    return pond


def _main(folder: Path, endpoint: str, what: str, keys: int) -> dict[str, Any]:
    if what == "epochs":
        return _epochs(folder, endpoint)
    began = time.perf_counter()
    with _open(folder, endpoint) as pond:
        took: list[float] = []
        pond.on_epoch(lambda manifest: took.append(time.perf_counter()))
        opened = time.perf_counter()
        pond.drain()
        if what == "count":
            return {"rows": pond.sql("SELECT sum(n) FROM g").fetchall()[0][0]}
        if what == "prepare":
            pond.compact()
            assert pond.sql("SELECT count(*), sum(n) FROM g").fetchall() == [(keys, keys)]
            runs = pond.sql("SELECT sum(bytes) FROM millpond.tables").fetchall()
            return {"mb": runs[0][0] / 1e6}
        return {
            "open_s": opened - began,
            "epoch_s": took[0] - opened,
            "cache": pond.head().metrics.get("cache"),
        }


def _epochs(folder: Path, endpoint: str) -> dict[str, Any]:
    """The median time of small epochs on a pond that is open."""
    options = {"endpoint": endpoint, "region": "us-east-1", "cache": str(folder / "cache"), **KEYS}
    source = MemorySource(SCHEMA)
    with millpond.open(
        f"s3://{BUCKET}/{time.time_ns()}",
        engine="inline",
        store_options=options,
        compact=False,
        lease_ms=600_000,
    ) as pond:
        pond.stream("in", source).key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
        took, ended = list[float](), list[float]()
        pond.on_epoch(lambda manifest: ended.append(time.perf_counter()))
        for n in range(EPOCHS):
            source.push([{"k": n % 3, "v": n}])
            began = time.perf_counter()
            pond.drain()
            took.append((ended[-1] - began) * 1e3)
    return {"ms": statistics.median(took[2:])}


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """An S3 server with an empty bucket."""
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    keys = ("--access", KEYS["access_key_id"], "--secret", KEYS["secret_access_key"])
    real = shutil.which("versitygw")
    command = (
        [real, "--port", f"127.0.0.1:{port}", *keys, "posix", str(folder / "buckets")]
        if real
        else [sys.executable, "-c", MOTO, str(port)]
    )
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        if not real:
            import boto3

            names = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
            boto3.client("s3", endpoint_url=endpoint, **names).create_bucket(Bucket=BUCKET)
        yield endpoint
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    print(json.dumps(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))))

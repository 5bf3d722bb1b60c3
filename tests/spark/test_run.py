"""`millpond run` on Spark: Ctrl-C goes to the whole group of processes, and still ends it after the epoch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import millpond

FILE = """
import pyarrow as pa
from millpond.sources.nexmark import NexmarkSource

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64())])

def half(row):
    yield {"auction": row.auction, "price": row.price // 2}

def pipeline(pond):
    bids = pond.stream("bids", NexmarkSource("bid", events_per_second_live=20_000))
    bids.flat_map(half, SCHEMA).key_by("auction").aggregate(n="count(*)", half="sum(price)").view("n")
"""


def test_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "live.py").write_text(FILE)
    pond = tmp_path / "pond"
    args = [
        sys.executable,
        "-m",
        "millpond",
        "run",
        str(tmp_path / "live.py"),
        "--pond",
        str(pond),
        "-o",
        "json",
    ]
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        until = time.monotonic() + 120
        while not (pond / "manifests").is_dir() or len(list((pond / "manifests").iterdir())) < 5:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    done = json.loads(out)
    assert done["ended"] == "interrupted", err
    with millpond.open(pond, engine="inline") as after:
        assert after.epoch == done["epoch"]
        assert sum(after.read("n")["n"].to_pylist()) == done["rows"]
        assert after.replay(done["epoch"]).same  # the file's code is in the pond, by value

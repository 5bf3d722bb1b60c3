"""Millpond as a follower: count, sum and newest file by key, on Spark, every commit synced to disk.

It tells of every epoch when its commit has returned. A line `rescale N` on its standard input changes the
parallelism while it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import millpond
from benchmarks.measure import confine
from benchmarks.recovery.follower import Follower, Seen, ours, told
from benchmarks.recovery.staged import SCHEMA
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.sources.files import FileSource
from millpond.state.manifest.manifest import Manifest

VIEW = "by_auction"


class MillpondFollower(Follower):
    name = "millpond"
    system = f"Millpond {millpond.__version__}"
    committed = "the epoch's manifest is synced to disk and any reader finds the view"
    rescales = True

    def command(self, parallelism: int) -> tuple[Sequence[str], Mapping[str, str]]:
        how = (str(self.work), str(self.folder), str(self.place / "told"), str(self.cores), str(parallelism))
        return ours(__name__, *how), {}

    def seen(self) -> Seen:
        return told(self.place / "told")


def define(pond: millpond.Pond, folder: Path) -> None:
    rows = pond.stream("bids", FileSource(str(folder), schema=SCHEMA))
    by_auction = rows.key_by("auction").aggregate(
        n="count(*)", total="sum(price)", newest="max(number)", id=VIEW
    )
    by_auction.view(VIEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("work", "folder", "told"):
        parser.add_argument(name, type=Path)
    parser.add_argument("cores", type=int)
    parser.add_argument("parallelism", type=int)
    asked = parser.parse_args()
    confine(asked.cores)
    with asked.told.open("w", buffering=1) as out:

        def seen(manifest: Manifest) -> None:
            files = (manifest.positions.get("bids") or {"files": 0})["files"]
            line = {"at": time.time(), "newest": files - 1, "parallelism": manifest.parallelism}
            out.write(json.dumps(line) + "\n")

        session = make_session(f"local[{asked.cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        out.write(json.dumps({"ready": time.time()}) + "\n")
        pond = millpond.open(
            asked.work / "pond", spark=session, parallelism=asked.parallelism, on_epoch=seen, poll_ms=10
        )
        define(pond, asked.folder)
        pond.start()
        for line in sys.stdin:
            word, _, number = line.partition(" ")
            if word == "rescale":
                pond.rescale(int(number))
            else:
                break
        pond.close()
        session.stop()


if __name__ == "__main__":
    main()

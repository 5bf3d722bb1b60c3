"""The process that runs the demo's pipeline: ``python -m millpond.cli.demo.child POND FEED ENGINE``.

It runs until its stdin ends, so it never outlives the demo.
"""

from __future__ import annotations

import sys
import threading

import millpond
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.demo.pipeline import define
from millpond.pond import EngineName
from millpond.state.manifest import history

PARALLELISM = 2
READY = "ready"  # said on stdout once Spark is up
LEASE_MS = 1_000  # so that a recovering process need not wait long to be sure that the other is dead
POLL_S = 0.02


def main(path: str, feed: DemoFeed, engine: EngineName, stop: threading.Event) -> None:
    pond = millpond.open(
        path,
        engine,
        parallelism=PARALLELISM,
        lease_ms=LEASE_MS,
        epoch_rows_max=feed.slice_events,
        retain_epochs=100_000,
    )
    head = history.read_head(pond.store)
    with pond:
        # The first look at the engine starts Spark; the feed begins after that.  So few rows would be one
        # task's, and here all that a rescale allows are to be seen.
        pond.engine.single_task_rows_max = 0
        clock = feed.clock({} if head is None else head.positions)
        define(pond, feed, clock)
        print(READY, flush=True)
        while not stop.wait(POLL_S):
            clock.next_slice()
            pond.drain()


def stop_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    over = threading.Event()
    threading.Thread(target=stop_at_end_of_input, args=(over,), daemon=True).start()
    main(sys.argv[1], DemoFeed.decode(sys.argv[2]), "inline" if sys.argv[3] == "inline" else "spark", over)

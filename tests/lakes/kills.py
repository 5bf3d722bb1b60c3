"""Kills processes that deliver to a lake between random steps, then compares the tables with the view."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import millpond
from tests.killed_workers import kill_workers

Rows = Sequence[dict[str, Any]]
SIGNS = {"insert": 1, "update_after": 1, "delete": -1, "update_before": -1}

WORKER = """
import random, sys, time
import millpond
from millpond.errors import MillpondError
{setup}
folder, seed = sys.argv[1:]
rng = random.Random(int(seed))
while True:
    try:
        with millpond.open(folder + "/pond", engine="inline", durable=False, take_over=True) as pond:
            table = pond.table("orders", {{"who": int, "n": int}})
            attach(table.key_by("who").aggregate(n="sum(n)", c="count(*)").view("totals"), folder)
            for _ in range(rng.randint(1, 20)):
                rows = [{{"who": rng.randint(0, 9), "n": rng.randint(0, 99)}} for _ in range(20)]
                pond.insert("orders", rows)
                pond.drain()
                print("fed", flush=True)
    except MillpondError as error:
        print("lost", type(error).__name__, flush=True)
        time.sleep(rng.random() * {away_s})  # so that the other can finish an epoch
"""


def kill_and_compare(
    folder: Path,
    setup: str,
    read: Callable[[Path], tuple[Rows, Rows | None]],
    *,
    kills: int,
    workers: int,
    seed: int,
    away_s: float = 0.02,
) -> None:
    """Kill workers, which take the pond over from each other; then compare (changelog, upserts) with the view.

    A worker that lost the pond takes it back after a pause of at most `away_s`: about as long as a delivery takes.
    """
    rng = random.Random(seed)
    script = WORKER.format(setup=setup, away_s=away_s)

    kill_workers(script, lambda: [str(folder), str(rng.randint(0, 999))], kills, workers, rng, pause_s=0.3)
    names: dict[str, Any] = {}
    exec(setup, names)
    with millpond.open(folder / "pond", engine="inline", durable=False, take_over=True) as pond:
        table = pond.table("orders", {"who": int, "n": int})
        view = table.key_by("who").aggregate(n="sum(n)", c="count(*)").view("totals")
        names["attach"](view, str(folder))
        pond.drain()
        held = Counter((r["who"], r["n"], r["c"]) for r in pond.read("totals").to_pylist())
    assert held, "nothing was delivered"
    log, upserted = read(folder)
    ids = Counter((row["_epoch"], row["_n"]) for row in log)
    assert max(ids.values()) == 1, f"changes are there twice: {[i for i in ids if ids[i] > 1][:5]}"
    total: Counter[tuple[Any, ...]] = Counter()
    for row in log:
        total[row["who"], row["n"], row["c"]] += SIGNS[row["_op"]]
    assert {row: n for row, n in total.items() if n} == held
    if upserted is not None:
        assert Counter((r["who"], r["n"], r["c"]) for r in upserted) == held

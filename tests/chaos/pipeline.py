"""A pipeline that a chaos test runs in a process of its own, and kills.

    python -m tests.chaos.pipeline POND ITEMS MASTER

Where MILLPOND_CHAOS_END names a file, items come until the file says how many there are.
It prints "epoch N position P" after every commit, and "done" once every sink has received
everything.  Its input is the same in every process: the items are made from their number.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import millpond
from millpond.errors import UnavailableError
from millpond.sources.memory import MemorySource
from tests.chaos.targets import Targets, attach

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("name", pa.string())])
ROWS = 3_000
LEASE_MS = 2000
SLOW = 0.15  # seconds that a task of the slow step takes, so that a kill meets it
END = "MILLPOND_CHAOS_END"  # the file that will say how many items there are
AHEAD = 8  # items that a source has and the pond has not read
DRAINS = 10  # a sink whose target is away is tried again, up to a minute apart


def item(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    keys, values = rng.integers(0, 500, ROWS), rng.integers(-1000, 1000, ROWS)
    names = [f"n{v % 37}" for v in values]
    return pa.table({"k": keys, "v": values, "name": names}, schema=SCHEMA)


def slowly(rows: pa.Table) -> pa.Table:
    time.sleep(SLOW)
    return rows


def build(pond: millpond.Pond, items: int, slow: bool = True, targets: Targets | None = None) -> MemorySource:
    """Define the pipeline over a source that has the first items."""
    source = MemorySource(SCHEMA)
    source.push(*(item(n) for n in range(items)))
    stream = pond.stream("in", source)
    if slow:
        stream = stream.map_batches(slowly, SCHEMA, id="slow")
    by_key = stream.key_by("k").aggregate(
        n="count(*)", total="sum(v)", names="count(distinct name)", id="by_key"
    )
    by_names = by_key.key_by("names").aggregate(keys="count(*)", most="max(n)", id="by_names")
    top = stream.key_by("name").top_n(3, "v desc", id="top")
    views = {"by_key": by_key.view("by_key"), "by_names": by_names.view("by_names"), "top": top.view("top")}
    if targets is not None:
        attach(views, targets)
    return source


def expected(items: int) -> dict[str, str]:
    """Batch queries over `input`, by view."""
    return {
        "by_key": """
            select k, count(*) n, sum(v)::bigint total, count(distinct name) "names"
            from input group by k""",
        "by_names": """
            select "names", count(*) keys, max(n) most
            from (select count(*) n, count(distinct name) "names" from input group by k)
            group by all""",
        "top": """
            select k, v, name from input
            qualify row_number() over (partition by name order by v desc, k) <= 3""",
    }


def check(pond: millpond.Pond, items: int) -> None:
    """Every view equals the batch answer over all items."""
    import duckdb

    input = pa.concat_tables([item(n) for n in range(items)])
    for view, query in expected(items).items():
        got = _rows(pond.read(view).to_pylist())
        answer = duckdb.sql(query)
        assert answer is not None
        want = _rows(answer.to_arrow_table().to_pylist())
        assert got == want, f"{view}: {len(got)} rows, batch has {len(want)}"
    del input


def _rows(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(r[k] for k in sorted(r)) for r in rows)


def feed(pond: millpond.Pond, source: MemorySource, end: Path) -> None:
    """Push items a little ahead of the pond, until the file says how many there are."""
    pushed = 0
    while (last := _number_in(end)) is None or pushed < last:
        wanted = _position(pond) + AHEAD
        wanted = wanted if last is None else min(wanted, last)
        source.push(*(item(n) for n in range(pushed, wanted)))
        pushed = max(pushed, wanted)
        pond.start()  # once it has what the pond has read in an earlier life; raises what ended the run
        time.sleep(0.05)
    pond.stop()


def _position(pond: millpond.Pond) -> int:
    return 0 if pond.status.epoch is None else int(pond.head().positions.get("in", 0))


def _number_in(file: Path) -> int | None:
    return int(file.read_text()) if file.exists() else None


def drain(pond: millpond.Pond) -> None:
    """Run to the end of the input, and until every sink has received everything."""
    for attempt in range(1, DRAINS + 1):
        try:
            pond.drain()
            return
        except UnavailableError as error:
            print(f"drain {attempt}: {error}", flush=True)
            if attempt == DRAINS:
                raise
            time.sleep(1)


def main(path: str, items: int, master: str) -> None:
    from millpond.engine.spark.session import make_session

    def tell(manifest: Any) -> None:
        print(f"epoch {manifest.epoch} position {manifest.positions.get('in', 0)}", flush=True)

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("millpond").setLevel(logging.INFO)
    conf = json.loads(os.environ.get("MILLPOND_CHAOS_CONF", "{}"))
    store = json.loads(os.environ.get("MILLPOND_CHAOS_STORE", "{}"))
    extra = {"spark.speculation": "true", "spark.task.maxFailures": "20", **conf}
    session = make_session(master, extra=extra)
    print("session", flush=True)
    with millpond.open(
        path,
        spark=session,
        parallelism=3,
        epoch_rows_max=2 * ROWS,
        on_epoch=tell,
        lease_ms=LEASE_MS,
        standby=bool(os.environ.get("MILLPOND_CHAOS_STANDBY")),
        store_options=store,
    ) as pond:
        pond.on_wait(lambda what: print("waiting:", what, flush=True))
        end, targets = os.environ.get(END), Targets.of_environment()
        source = build(pond, items if end is None else 0, targets=targets)
        if end is not None:
            feed(pond, source, Path(end))
        drain(pond)
    print("done", flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

"""All of Nexmark in one pond over its generator, compared with the batch answers."""

from __future__ import annotations

import collections
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark import compare, queries
from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sources.nexmark import NexmarkSource
from millpond.sources.nexmark_events import Kind, NexmarkConfig, generate
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.query import lower_query
from millpond.sql.lowering.relation import Relation
from millpond.sql.text.emit_clause import Emission

EVENTS = 6000
CONFIG = NexmarkConfig(events_per_second=200)  # half a minute, and no two events at one time
KINDS: tuple[Kind, ...] = ("person", "auction", "bid")
SIDE = pa.table({"key": pa.array(range(10_000), pa.int64()), "value": [f"side-{n}" for n in range(10_000)]})


class Ticking:
    """A clock that goes on by three seconds whenever somebody looks at it."""

    def __init__(self) -> None:
        self.at_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        self.at_us += 3_000_000
        return self.at_us


def names() -> list[str]:
    return list(queries.QUERIES)


def batch(events: int = EVENTS, config: NexmarkConfig = CONFIG) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("set timezone = 'UTC'")
    for kind in KINDS:
        con.register("rows", generate(kind, 0, events, config))
        con.execute(f"create table {kind} as from rows")
    con.register("rows", SIDE)
    con.execute("create table side_input as from rows")
    return con


def define(pond: Pond, con: duckdb.DuckDBPyConnection) -> None:
    """The sources and every query as a view of its own name."""
    binder, relations = Binder(), {}
    for table in (*KINDS, "side_input"):
        found = con.sql(f"from {table}")
        columns = tuple(StepColumn(n, str(k)) for n, k in zip(found.columns, found.types, strict=True))
        if table == "side_input":
            step = pond.table(table, SIDE.schema, key="key").step
        else:
            source: Any = NexmarkSource(table, EVENTS, CONFIG)  # type: ignore[arg-type]
            step = pond.stream(table, source, event_time="date_time", delay="4s").step
        relations[table] = Relation(step, columns)
        binder.table(table, columns)
    for name in names():
        text = queries.text("millpond", name)
        asked = text.removesuffix(queries.ON_CLOSE).strip()
        view = lower_query(pond._builder, binder, relations, name, asked, Emission(on_close=text != asked))
        Stream(pond._builder, view.step).view(name)
    pond.insert("side_input", SIDE)


def differences(pond: Pond, con: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    found = {n: compare.differences(con, queries.QUERIES[n], pond.read(n)) for n in names()}
    return {name: wrong for name, wrong in found.items() if wrong}


def by_the_clock(pond: Pond, con: duckdb.DuckDBPyConnection) -> int:
    """q12 has no batch answer: each bid must be counted once, in the window of the epoch that read it.

    The number of such windows.
    """
    wanted: collections.Counter[int] = collections.Counter()
    before = 0
    for epoch in range(pond.epoch + 1):
        with pond.at(epoch) as moment:
            read = int(moment.manifest.counts.get("rows/bid", 0))
            wanted[moment.manifest.now_us // 10_000_000 * 10_000_000] += read - before
            before = read
    con.register("by_clock", pond.read("q12"))
    windows = con.sql(
        "select epoch_us(starttime), sum(bid_count)::bigint from by_clock"
        " where endtime = starttime + interval 10 second group by 1"
    ).fetchall()
    assert dict(windows) == {at: n for at, n in wanted.items() if n}
    each = "select bidder, sum(bid_count)::bigint from by_clock group by 1"
    assert con.sql(f"{each} except all select bidder, count(*) from bid group by 1").fetchall() == []
    assert (
        con.sql("select sum(bid_count) from by_clock").fetchall()
        == con.sql("select count(*) from bid").fetchall()
    )
    return len(windows)

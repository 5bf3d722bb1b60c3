"""What a soak runs: Nexmark with disorder and late rows, into views whose state does not grow with time.

Law: after the last event every view equals the batch query over the events less those that were late, for
windows that the watermark closed (law 1). The events are made again from their numbers; the late ones are
read from the pond.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from benchmarks.nexmark.queries import ON_CLOSE
from millpond.clock import Clock, SystemClock
from millpond.flow.stream import Stream
from millpond.sources.nexmark import NexmarkSource
from millpond.sources.nexmark_events import Kind, NexmarkConfig, generate
from millpond.sql.binding.catalog import Catalog
from millpond.sql.lowering.query import lower_query
from millpond.sql.text.emit_clause import Emission

DELAY_S = 4.0
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "person": ("id", "name", "date_time"),
    "auction": ("id", "seller", "date_time"),
    "bid": ("auction", "bidder", "price", "channel", "date_time"),
}
CHUNK = 2_000_000  # events that are made again at once


@dataclass(frozen=True)
class Soak:
    """Events within groups of `disorder_s` come in any order, and the watermark waits four seconds."""

    rate: int = 10_000
    seconds: int = 3_600
    disorder_s: float = 4.04
    seed: int = 1

    @property
    def events(self) -> int:
        return self.rate * self.seconds

    @property
    def config(self) -> NexmarkConfig:
        group = max(2, round(self.rate * self.disorder_s))
        return NexmarkConfig(
            seed=self.seed,
            events_per_second=self.rate,
            out_of_order=group + (group % 953 == 0),
        )


@dataclass(frozen=True)
class View:
    name: str
    text: str  # of Millpond
    batch: str  # the same of DuckDB
    ends: str | None  # when a row's window ends, if it is one of a window


_HOPS = """SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - to_seconds(2 * k) AS starttime
    FROM bid, range(5) AS hops(k)"""
_CHANNELS = """SELECT channel, count(*) AS bids, sum(price) AS total, max(price) AS highest
    FROM bid GROUP BY channel"""
VIEWS = (
    View(
        "hot",
        """WITH counted AS (
            SELECT auction, count(*) AS num, window_start, window_end
            FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
            GROUP BY auction, window_start, window_end
        ), highest AS (
            SELECT max(num) AS num, window_end FROM counted GROUP BY window_end
        )
        SELECT c.auction, c.num, c.window_start AS starttime, c.window_end AS endtime
        FROM counted AS c JOIN highest AS h ON c.window_end = h.window_end AND c.num = h.num
        EMIT ON WINDOW CLOSE""",
        f"""WITH counted AS (
            SELECT auction, count(*) AS num, starttime FROM ({_HOPS}) GROUP BY auction, starttime
        )
        SELECT auction, num, starttime, starttime + INTERVAL 10 SECOND AS endtime FROM counted
        QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
        "endtime",
    ),
    View(
        "highest",
        """WITH placed AS (
            SELECT auction, price, bidder, date_time, window_end
            FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
        ), highest AS (
            SELECT max(price) AS price, window_end FROM placed GROUP BY window_end
        )
        SELECT b.auction, b.price, b.bidder, b.date_time
        FROM placed AS b JOIN highest AS h ON b.window_end = h.window_end AND b.price = h.price
        EMIT ON WINDOW CLOSE""",
        """SELECT auction, price, bidder, date_time FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECOND, date_time))""",
        "time_bucket(INTERVAL 10 SECOND, date_time) + INTERVAL 10 SECOND",
    ),
    View(
        "new_sellers",
        """SELECT p.window_start AS starttime, p.window_end AS endtime, count(*) AS people
        FROM (
            SELECT id, name, window_start, window_end FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
            GROUP BY id, name, window_start, window_end
        ) AS p JOIN (
            SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
            GROUP BY seller, window_start, window_end
        ) AS a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
        GROUP BY p.window_start, p.window_end
        EMIT ON WINDOW CLOSE""",
        """SELECT starttime, starttime + INTERVAL 10 SECOND AS endtime, count(*) AS people FROM (
            SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.date_time) AS starttime
            FROM person AS p JOIN auction AS a ON p.id = a.seller AND
                time_bucket(INTERVAL 10 SECOND, p.date_time) = time_bucket(INTERVAL 10 SECOND, a.date_time)
        ) GROUP BY starttime""",
        "endtime",
    ),
    View(
        "bidders",
        """SELECT window_end, count(*) AS bidders, max(bids) AS most FROM (
            SELECT bidder, window_end, count(*) AS bids
            FROM TUMBLE(bid, date_time, INTERVAL '30 seconds') GROUP BY bidder, window_end
        ) AS one GROUP BY window_end
        EMIT ON WINDOW CLOSE""",
        """SELECT window_end, count(*) AS bidders, max(bids) AS most FROM (
            SELECT bidder, time_bucket(INTERVAL 30 SECOND, date_time) + INTERVAL 30 SECOND AS window_end,
                count(*) AS bids FROM bid GROUP BY ALL
        ) GROUP BY window_end""",
        "window_end",
    ),
    View(
        "channels",
        _CHANNELS,
        _CHANNELS,
        None,
    ),
)


def define(pond: millpond.Pond, wanted: Soak, clock: Clock | None = None) -> None:
    for kind in COLUMNS:
        source = NexmarkSource(
            kind, wanted.events, wanted.config, wanted.rate, clock if clock is not None else SystemClock()
        )
        pond.stream(kind, source, event_time="date_time", delay=f"{int(DELAY_S)}s")
    for view in VIEWS:
        text = view.text.strip()
        catalog = Catalog(pond.plan)
        found = lower_query(
            pond._builder,
            catalog.binder,
            catalog.relations(),
            view.name,
            text.removesuffix(ON_CLOSE).strip(),
            Emission(on_close=text.endswith(ON_CLOSE)),
        )
        Stream(pond._builder, found.step).view(view.name)


def late_counts(pond: millpond.Pond) -> dict[str, int]:
    counts = pond.head().counts
    return {kind: int(counts.get(f"late/{kind}.watermark", 0)) for kind in COLUMNS}


def accounted(wanted: Soak, late: dict[Kind, pa.Table], place: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the events that count: all of them but the late ones, as multisets."""
    connection = duckdb.connect(str(place / "batch.duckdb"), config={"threads": 2})
    connection.execute("SET TimeZone = 'UTC'")
    for kind, columns in COLUMNS.items():
        (place / kind).mkdir()
        for first in range(0, wanted.events, CHUNK):
            last = min(first + CHUNK, wanted.events)
            rows = generate(kind, first, last, wanted.config, list(columns))
            pq.write_table(rows, place / kind / f"{first:012d}.parquet")
        names = ", ".join(columns)
        connection.register("came_late", late[kind].select(list(columns)))
        connection.execute(
            f"CREATE VIEW every_{kind} AS SELECT * FROM read_parquet('{place / kind / '*.parquet'}')"
        )
        connection.execute(
            f"CREATE TABLE {kind} AS SELECT {names} FROM every_{kind} ANTI JOIN came_late USING ({names})"
        )
        connection.execute(
            f"INSERT INTO {kind} (SELECT {names} FROM every_{kind} SEMI JOIN came_late USING ({names}))"
            f" EXCEPT ALL (SELECT {names} FROM came_late)"
        )
        connection.unregister("came_late")
    return connection


def differences(pond: millpond.Pond, wanted: Soak, place: Path) -> dict[str, str]:
    """What is wrong, by view; nothing when all is right."""
    late: dict[Kind, pa.Table] = {kind: pond.late(f"{kind}.watermark") for kind in COLUMNS}
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    connection = accounted(wanted, late, place)
    # A window of two tables closes by the slower of them.
    newest = ", ".join(f"(SELECT max(date_time) FROM {kind})" for kind in COLUMNS)
    closed = f"least({newest}) - INTERVAL {int(DELAY_S)} SECOND"
    wrong: dict[str, str] = {}
    for view in VIEWS:
        connection.register("found_rows", pond.read(view.name))
        bound = f"WHERE {view.ends} <= {closed}" if view.ends else ""
        kinds = connection.sql(f"SELECT * FROM ({view.batch}) LIMIT 0")
        typed = ", ".join(
            f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(kinds.columns, kinds.types, strict=True)
        )
        for side, text in (("wanted", view.batch), ("found", "FROM found_rows")):
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {side} AS SELECT * FROM (SELECT {typed} FROM ({text})) {bound}"
            )
        for what, one, other in (("missing", "wanted", "found"), ("too many", "found", "wanted")):
            rows = connection.sql(f"FROM {one} EXCEPT ALL FROM {other}").fetchall()
            if rows:
                wrong[view.name] = f"{len(rows)} rows {what}, such as {rows[0]}"
        ((checked,),) = connection.sql("SELECT count(*) FROM wanted").fetchall()
        if not checked:
            wrong.setdefault(view.name, "the batch answer is empty: the soak is too short to tell")
    connection.close()
    return wrong

"""Makes a golden pond: a small pond as this code writes it, and what it must contain.

Run it once for each version of the catalog's format and of run files, with the code of that version::

    python tests/golden/make.py v2
    python tests/golden/make.py v2-runs-3

The pond is checked in as an archive, and `test_golden.py` opens, reads, continues and rolls back a copy with
today's code.  It runs as a script, so the user code in it is stored by value.  A golden pond is never made again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import millpond
from millpond import AggregatingState, ListState, MapState, Process, ReducingState, ValueState
from millpond.clock import ManualClock
from millpond.sinks.callback import CallbackSink

HERE = Path(__file__).parent
START = datetime(2026, 1, 5, 9)
START_US = 1_767_603_600_000_000
SECOND = 1_000_000

SQL = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, item text, amount decimal(10,2), at timestamp);
CREATE TABLE bag (word text, n int);
CREATE TABLE roads (a text, b text, PRIMARY KEY (a, b));
CREATE TABLE readings (
    sensor text, at timestamp, celsius double precision,
    kelvin double precision GENERATED ALWAYS AS (celsius + 273.15),
    WATERMARK FOR at AS at - INTERVAL '10 seconds'
) APPEND ONLY;
CREATE TABLE clicks (who text, page text, seen AS PROCTIME()) APPEND ONLY;
CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid', events = 300, seed = 7);
CREATE FUNCTION gross(net DECIMAL(12,2)) RETURNS DECIMAL(12,2) RETURN net * 1.19;
"""

VIEWS = """
CREATE VIEW big AS SELECT * FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals AS
    SELECT customer, count(*) AS n, sum(amount) AS total, avg(amount) AS mean, min(item) AS first_item, max(at) AS last,
        count(DISTINCT item) AS items, string_agg(item, ',' ORDER BY id) AS all_items
    FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW named AS
    SELECT o.id, c.name, o.item, gross(o.amount) AS gross FROM orders o LEFT JOIN customers c ON c.id = o.customer;
CREATE MATERIALIZED VIEW everyone AS
    SELECT c.name, o.id FROM customers c FULL JOIN orders o ON o.customer = c.id;
CREATE MATERIALIZED VIEW idle AS
    SELECT name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id);
CREATE MATERIALIZED VIEW cities AS SELECT DISTINCT city FROM customers WHERE city IS NOT NULL;
CREATE MATERIALIZED VIEW best AS SELECT id, amount FROM big ORDER BY amount DESC LIMIT 2;
CREATE MATERIALIZED VIEW ranked AS
    SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS r,
        sum(amount) OVER (PARTITION BY customer ORDER BY id) AS running FROM orders;
CREATE MATERIALIZED VIEW best_each AS
    SELECT customer, id FROM (
        SELECT customer, id, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS r FROM orders) WHERE r <= 1;
CREATE MATERIALIZED VIEW words AS
    SELECT word, n FROM bag WHERE n > 1 UNION ALL SELECT item, 0 FROM orders EXCEPT SELECT 'cup', 0;
CREATE MATERIALIZED VIEW above AS SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders);
CREATE MATERIALIZED VIEW reach AS
    WITH RECURSIVE r(a, b) AS (
        SELECT a, b FROM roads UNION SELECT r.a, roads.b FROM r JOIN roads ON r.b = roads.a)
    SELECT * FROM r;
CREATE MATERIALIZED VIEW before_it AS
    SELECT b.id, a.id AS earlier FROM orders b ASOF JOIN orders a ON b.customer = a.customer AND b.at > a.at;
CREATE MATERIALIZED VIEW lately AS SELECT id FROM orders WHERE at > now() - INTERVAL '1 minute' AND at <= now();
CREATE MATERIALIZED VIEW per_ten AS
    SELECT window_start, sensor, count(*) AS n, max(celsius) AS most
    FROM TUMBLE(readings, at, INTERVAL '10 seconds') GROUP BY window_start, window_end, sensor EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW hops AS
    SELECT window_start, count(*) AS n FROM HOP(readings, at, INTERVAL '10 seconds', INTERVAL '20 seconds')
    GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW visits AS
    SELECT sensor, window_start, window_end, count(*) AS n FROM SESSION(readings, at, INTERVAL '15 seconds', sensor)
    GROUP BY sensor, window_start, window_end;
CREATE MATERIALIZED VIEW priced AS
    SELECT k.who, c.city FROM clicks k JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.name = k.who;
CREATE MATERIALIZED VIEW click_windows AS
    SELECT who, window_start, count(*) AS n FROM TUMBLE(clicks, seen, INTERVAL '10 seconds') GROUP BY who, window_start;
CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n, sum(price) AS total FROM bid;
CREATE MATERIALIZED VIEW shouted AS SELECT id, shout(item) AS item, spread(customer) AS s FROM orders GROUP BY id, item;
CREATE MATERIALIZED VIEW spreads AS SELECT item, spread(customer) AS s FROM orders GROUP BY item;
CREATE MATERIALIZED VIEW letters AS SELECT o.id, l.letter FROM orders o, letters_of(o.item) AS l;
CREATE INDEX by_item ON orders (item);
"""


def shout(text: str) -> str:
    return text.upper() + "!"


def letters_of(text: str) -> Any:
    yield from ({"letter": letter} for letter in text)


class Spread:
    """The largest value less the smallest, of those that are there."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def accumulate(self, value: int) -> None:
        self.values.append(value)

    def retract(self, value: int) -> None:
        self.values.remove(value)

    def finish(self) -> int:
        return max(self.values) - min(self.values) if self.values else 0


class Watch(Process):
    """States of every kind, time to live, and timers by both clocks."""

    seen = ValueState(int, default=0)
    hot = ValueState(bool, ttl="30s")
    recent = ListState(float)
    pages = MapState(str, int)
    most = ReducingState(max, float)
    mean = AggregatingState(  # type: ignore[var-annotated]
        lambda: (0.0, 0), lambda a, x: (a[0] + x, a[1] + 1), lambda a: a[0] / a[1]
    )
    tags = ValueState(default=set)

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.celsius < -273:
            raise ValueError(f"colder than possible: {row.celsius}")
        self.seen.value += 1
        self.recent.append(row.celsius)
        self.recent.keep(2)
        self.pages["even" if int(row.celsius) % 2 == 0 else "odd"] = self.seen.value
        self.most.add(row.celsius)
        self.mean.add(row.celsius)
        self.tags.value.add(int(row.celsius) // 10)
        ctx.set_timer("silent", row.at + timedelta(seconds=20))
        ctx.set_timer("check", after=60, clock="processing")
        if row.celsius > self.limit and not self.hot.value:
            self.hot.value = True
            return self._said("hot", ctx)
        return None

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        return self._said(timer.name, ctx)

    def _said(self, what: str, ctx: Any) -> dict[str, Any]:
        return {
            "sensor": ctx.key.sensor,
            "what": what,
            "seen": self.seen.value,
            "most": self.most.value,
            "mean": self.mean.value,
            "recent": list(self.recent),
            "tags": sorted(self.tags.value),
        }


def tally(row: Any, total: Any = ValueState(float, default=0.0)) -> dict[str, Any]:
    total.value += row.celsius
    return {"sensor": row.sensor, "total": total.value}


def inverse(row: Any) -> dict[str, Any]:
    return {"sensor": row.sensor, "inverse": 100 / row.celsius}


def colder(a: Any, b: Any) -> dict[str, Any]:
    return {"at": max(a.at, b.at), "celsius": min(a.celsius, b.celsius)}


def deliver(id: str, delta: pa.Table) -> None:
    """Appends each epoch to the file that GOLDEN_DELIVERED names; nothing without one."""
    place = os.environ.get("GOLDEN_DELIVERED")
    if place is not None:
        with open(place, "a") as out:
            rows = sorted([r["word"], r["n"], r["_w"]] for r in delta.to_pylist())
            out.write(json.dumps([int(id.rsplit(":", 1)[1]), rows]) + "\n")


def functions(pond: millpond.Pond) -> None:
    pond.function("shout", shout)
    pond.function("letters_of", letters_of, kind="table", returns={"letter": str})
    pond.function("spread", Spread, arguments=[int], returns=int)


def flow(pond: millpond.Pond) -> None:
    """Steps that Python defines."""
    readings = pond.stream_of("probes").select("sensor", "at", "celsius")
    said = {
        "sensor": str,
        "what": str,
        "seen": int,
        "most": float,
        "mean": float,
        "recent": list[float],
        "tags": list[int],
    }
    by_sensor = readings.key_by("sensor")
    by_sensor.process(Watch(30.0), said, id="watch").view("alerts")
    by_sensor.process(tally, {"sensor": str, "total": float}, latest=True, id="tally").view("tallies")
    by_sensor.reduce(colder, id="colder").view("coldest")
    readings.map(inverse, {"sensor": str, "inverse": float}, id="inverse").view("inverses")
    readings.filter(lambda row: row.celsius > 20, id="warm").key_by("sensor").top_n(
        2, "celsius desc", id="top"
    ).view("warmest")
    readings.flat_map(lambda row: [{"s": row.sensor}] * 2, {"s": str}, id="twice").aggregate(
        n="count(*)"
    ).view("doubled")
    readings.late().view("too_late")


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def reading(sensor: str, second: float, celsius: float) -> dict[str, Any]:
    return {"sensor": sensor, "at": at(second), "celsius": celsius}


def make(path: Path) -> dict[str, Any]:
    """The pond, and what it must contain, by epoch."""
    clock = ManualClock(START_US)
    pond = millpond.open(path, engine="inline", parallelism=2, clock=clock, checks=True)
    expected: dict[str, Any] = {}
    pond.sql("""
        CREATE TABLE probes (sensor text, at timestamp, celsius double,
            WATERMARK FOR at AS at - INTERVAL '10 seconds') APPEND ONLY
    """)
    with pond.changing():
        flow(pond)
    pond.drain()
    pond.sql(SQL)
    functions(pond)
    pond.sql(VIEWS)
    with pond.changing():
        bag = pond.stream_of("bag")
        bag.view("said").sink("told", CallbackSink(deliver))
        bag.key_by("word").apply(
            sql="select word, median(n) as m from input group by word", id="medians"
        ).view("medians")

    pond.sql(
        "INSERT INTO customers VALUES (1, 'ann', 'Oslo'), (2, 'bob', 'Bern'), (3, 'cid', NULL), (4, 'dan', 'Oslo')"
    )
    pond.sql("INSERT INTO roads VALUES ('a', 'b'), ('b', 'c'), ('c', 'a'), ('c', 'd')")
    orders("(1, 1, 'pen', 20, 0), (2, 2, 'cup', 5.5, 1), (3, 1, 'hat', 7.25, 2)", pond)
    pond.sql("INSERT INTO bag VALUES ('to', 1), ('be', 2), ('be', 2), ('or', 3)")
    pond.drain()
    readings(pond, reading("n", 1, 21.5), reading("s", 2, 35.0), reading("n", 9, -5.0))
    pond.sql("INSERT INTO clicks (who, page) VALUES ('ann', '/'), ('bob', '/x')")
    pond.drain()
    expected["first"] = contents(pond)
    pond.savepoint("monday")
    pond.flush()

    clock.advance(20 * SECOND)
    pond.sql("UPDATE orders SET amount = amount * 2 WHERE customer = 1; DELETE FROM roads WHERE a = 'b'")
    orders("(4, 4, 'pen', 11, 18), (5, 9, 'mug', 3, 19)", pond)
    pond.sql("UPDATE customers SET city = 'Rome' WHERE id = 1")
    pond.sql("INSERT INTO clicks (who, page) VALUES ('ann', '/y')")
    readings(pond, reading("n", 25, 31.0), reading("s", 26, 40.0), reading("w", 27, 0.0))
    pond.drain()
    readings(
        pond, reading("n", 3, 99.0), reading("n", 31, 18.0), reading("s", 33, -300.0)
    )  # late; impossible
    pond.delete("bag", [{"word": "none", "n": 0}])  # meets no row: an error row
    pond.sql("DELETE FROM bag WHERE word = 'or'")
    pond.drain()
    clock.advance(45 * SECOND)  # timers by processing time, and rows that are no longer recent
    pond.drain()
    pond.compact()
    orders("(2, 2, 'cup', 6.5, 65), (6, 3, 'pen', 1.75, 64)", pond)
    readings(pond, reading("w", 60, 12.0), reading("n", 61, 33.0))
    pond.drain()
    expected["last"] = contents(pond)
    pond.close()

    with millpond.open(path, engine="inline", clock=clock) as waiting:  # nobody runs it: the entries wait
        orders("(7, 2, 'hat', 30, 66)", waiting)
        waiting.sql("UPDATE orders SET amount = 8 WHERE id = 5")
    expected["clock_us"] = clock.now_us()
    return expected


def orders(values: str, pond: millpond.Pond) -> None:
    """Rows of orders; the last value of each is its second."""
    pond.sql(
        f"INSERT INTO orders SELECT id, customer, item, amount, TIMESTAMP '{START}' + to_seconds(second) "
        f"FROM (VALUES {values}) AS v(id, customer, item, amount, second)"
    )


def readings(pond: millpond.Pond, *rows: dict[str, Any]) -> None:
    values = ", ".join(f"('{r['sensor']}', '{r['at']}', {r['celsius']})" for r in rows)
    pond.sql(f"INSERT INTO readings (sensor, at, celsius) VALUES {values}")
    pond.insert("probes", rows)


def contents(pond: millpond.Pond) -> dict[str, Any]:
    """All that can be read of the newest epoch, as JSON."""
    states = {}
    for info in (s for s in pond.states() if s.step in ("watch", "tally")):
        found = pond.state(info.step, info.state)
        kept = [
            n
            for n in found.column_names
            if (found.schema.field(n).metadata or {}).get(b"millpond") != b"pickle"
        ]
        states[f"{info.step}.{info.state}"] = listed(found.select(kept))
    return {
        "epoch": pond.epoch,
        "views": {view: listed(pond.read(view)) for view in pond.views()},
        "states": states,
        "errors": sorted([r["step"], r["reason"].splitlines()[0]] for r in pond.errors().to_pylist()),
        "late": listed(pond.late("probes.watermark")),
    }


def listed(table: pa.Table) -> list[Any]:
    """Rows in the order of their text, with what JSON has no word for as text."""
    rows = json.loads(json.dumps(table.to_pylist(), default=str))
    return sorted((list(row.values()) for row in rows), key=json.dumps)


def packed(folder: Path, archive: Path) -> None:
    """The folder as one compressed file, which says nothing of who made it or when."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz") as out:
        for path in sorted(folder.rglob("*")):
            out.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)


def main(version: str) -> None:
    out = HERE / version
    if out.exists():
        sys.exit(f"{out} exists; a golden pond is made once")
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        pond = Path(folder) / "pond"
        expected = make(pond)
        for left in ("pins", ".tmp"):
            shutil.rmtree(pond / left, ignore_errors=True)
        packed(pond, out / "pond.tar.xz")
    (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

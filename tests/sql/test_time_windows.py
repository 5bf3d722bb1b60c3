"""TUMBLE, HOP and SESSION over changing tables and streams; windows shown once, when they are over (law 1)."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.flow.stream import Stream
from millpond.operators.aggregate import Aggregate
from millpond.sources.memory import MemorySource
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.query import lower_query
from millpond.sql.lowering.relation import Relation
from millpond.sql.text.emit_clause import Emission
from tests.sql.test_lowering import TABLES, change
from tests.sql.world import World

TUMBLE = """(select *, time_bucket(interval 7 hour, ts, timestamp '1970-01-01') window_start,
  time_bucket(interval 7 hour, ts, timestamp '1970-01-01') + interval 7 hour window_end from {} where ts is not null)"""
HOP = """(select q.*, s window_start, s + interval 6 hour window_end
  from {} q, unnest(generate_series(time_bucket(interval 2 hour, ts, timestamp '1970-01-01') - interval 4 hour, ts,
                                    interval 2 hour)) x(s) where ts is not null)"""
SESSION = """(select * exclude (n, gap), min(ts) over (partition by {key} n) window_start,
    max(ts) over (partition by {key} n) + interval 3 hour window_end
  from (select *, sum(gap) over ({by} order by ts range unbounded preceding) n
    from (select *, case when ts - lag(ts) over ({by} order by ts) <= interval 3 hour then 0 else 1 end gap
      from {rows} where ts is not null)))"""

CASES = [
    ("select window_start, window_end, count(*), sum(f) from {} group by all", "tumble(t, ts, interval 7 hour)",
     TUMBLE.format("t")),
    ("select w.window_end, w.id, w.b from {} w where w.a > 0", "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '7' HOUR)",
     TUMBLE.format("t")),
    ("select a, window_start, max(f) from {} group by all", "hop(t, ts, interval 2 hour, interval 6 hour)",
     HOP.format("t")),
    ("select x.id, y.id from {} x join {} y using (window_start) where x.id < y.id",
     "tumble((select id, ts from t where a > 0), ts, interval 7 hour)",
     TUMBLE.format("(select id, ts from t where a > 0)")),
    ("with c as (select id, a, ts from t where id > 2) select * from {}", "hop(c, ts, interval 2 hour, interval 6 hour)",
     HOP.format("c")),
    ("select a, window_start, window_end, count(*), min(id) from {} group by all",
     "session(t, ts, interval 3 hour, a)", SESSION.format(key="a,", by="partition by a", rows="t")),
    ("select window_start, count(*) from {} group by all",
     "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '7' HOUR))", TUMBLE.format("t")),
    ("select id, window_end from {}", "SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), INTERVAL '3' HOUR)",
     SESSION.format(key="a, b,", by="partition by a, b", rows="t")),
    ("select id, window_start, window_end from {}",
     "session(t partition by a, ts, interval 3 hour, interval 20 minute)", SESSION.format(key="a,", by="partition by a", rows="t")),
    ("select id, window_start, window_end from {}", "session(t, ts, interval 3 hour)",
     SESSION.format(key="", by="", rows="t")),
    ("select id, m, window_end from {}", "session((select *, a % 2 m from t), ts, interval 3 hour, m, b)",
     SESSION.format(key="m, b,", by="partition by m, b", rows="(select *, a % 2 m from t)")),
    ("select w.id from {} w where extract(hour from w.window_start) > 4 * w.a", "tumble(t, ts, interval 7 hour)",
     TUMBLE.format("t")),
    ("select w.id, w.window_end from {} w where extract(hour from w.window_end) > 4 * w.a and 1 = 1 and w.b <> 'q'",
     "session(t, ts, interval 3 hour)", SESSION.format(key="", by="", rows="t")),
]  # fmt: skip


def test_windows_over_tables(tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES, parallelism=2)
    for number, (query, ours, theirs) in enumerate(CASES):
        world.view(f"v{number}", query.replace("{}", ours), query.replace("{}", theirs))
    rng = random.Random(3)
    for epoch in range(6):
        change(world, rng)
        world.check(f"epoch {epoch}")
    world.close()


ON_CLOSE = {
    "counted": "select window_start, window_end, k, count(*) n, max(v) m from tumble(s, at, interval 10 second) group by all",
    "apart": "select window_end, k from tumble(s, at, interval 10 second) group by window_end, k",
    "best": """with c as (select k, count(*) n, window_end from hop(s, at, interval 5 second, interval 10 second)
      group by k, window_end) select window_end, max(n) n from c group by window_end""",
    "values": """select t.k, t.v, t.window_end from tumble(s, at, interval 10 second) t
      join (select window_end, max(v) v from tumble(s, at, interval 10 second) group by window_end) m
      on t.window_end = m.window_end and t.v = m.v""",
}


def test_windows_are_shown_once_when_they_are_over(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us")), ("v", pa.int64())])
    source = MemorySource(schema)
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True)
    stream = pond.stream("s", source, event_time="at", delay="4s")
    columns = (StepColumn("k", "VARCHAR"), StepColumn("at", "TIMESTAMP"), StepColumn("v", "BIGINT"))
    binder = Binder()
    binder.table("s", columns)
    relations = {"s": Relation(stream.step, columns)}
    for name, query in ON_CLOSE.items():
        found = lower_query(pond._builder, binder, relations, name, query, emission=Emission(on_close=True))
        assert pond._builder.shape(found.step).append_only, f"{name} takes nothing back"
        Stream(pond._builder, found.step).view(name)

    start, rng, rows = datetime.datetime(2024, 1, 1), random.Random(1), []
    for epoch in range(6):
        fresh = [
            {
                "k": rng.choice("xy"),
                "at": start + datetime.timedelta(seconds=epoch * 7 + rng.randrange(8)),
                "v": rng.randrange(100),
            }
            for _ in range(12)
        ]
        source.push(fresh)
        rows += fresh
        pond.drain()
        bound = max(r["at"] for r in rows) - datetime.timedelta(seconds=4)
        expected = tumbled(rows, bound)
        given = {(r["window_end"], r["k"], r["n"], r["m"]) for r in pond.read("counted").to_pylist()}
        assert given == expected, f"epoch {epoch}"
        assert {(r["window_end"], r["k"]) for r in pond.read("apart").to_pylist()} == {
            e[:2] for e in expected
        }
        assert {r["window_end"] for r in pond.read("values").to_pylist()} == {e[0] for e in expected}
        assert all(r["window_end"] <= bound for r in pond.read("best").to_pylist())
    assert given, "some windows are over"
    pond.close()


def tumbled(rows: list[dict[str, Any]], bound: datetime.datetime) -> set[tuple[Any, ...]]:
    groups: dict[tuple[Any, str], list[int]] = {}
    for row in rows:
        second = row["at"].second - row["at"].second % 10
        end = row["at"].replace(second=second) + datetime.timedelta(seconds=10)
        groups.setdefault((end, row["k"]), []).append(row["v"])
    return {(end, k, len(v), max(v)) for (end, k), v in groups.items() if end <= bound}


def test_the_offset_of_a_session_must_be_an_interval_of_days(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k int, at timestamp, WATERMARK FOR at AS at) APPEND ONLY")
        with pytest.raises(InvalidError, match="the offset of a window must be of days or less"):
            pond.sql(
                "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n"
                " FROM SESSION(t, at, INTERVAL '1 hour', k, INTERVAL '1 month') GROUP BY k, window_start, window_end"
            )


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select count(*) from t", "EMIT ON WINDOW CLOSE needs windows"),
        ("select window_end, count(*) from tumble(t, ts, interval 1 hour) group by 1", "EMIT ON WINDOW CLOSE needs windows"),
    ],
)  # fmt: skip
def test_windows_that_never_close_are_refused(query: str, why: str, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", TABLES)
    with pytest.raises(InvalidError, match=why):
        world.view("v", query, emission=Emission(on_close=True))
    world.close()


@pytest.mark.parametrize("time", ["at", "ts"])  # DuckDB reserves the first
def test_a_syntax_error_behind_a_window_shows_its_place(time: str) -> None:
    query = f"SELECT 'é', count(*) AS n FROM HOP(t, {time}, INTERVAL '1 s', INTERVAL '1 minute') GROP BY 1"
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(f"CREATE TABLE t ({time} timestamp) APPEND ONLY")
        for text in (query, f"CREATE MATERIALIZED VIEW v AS {query}"):
            with pytest.raises(InvalidError) as told:
                pond.sql(text)
            assert 'syntax error at or near "BY"' in told.value.message
            lines = str(told.value).splitlines()
            place = next(n for n, line in enumerate(lines) if "^" in line)
            assert lines[place - 1][lines[place].index("^") :].startswith("BY 1")


def test_windows_with_gaps_are_allowed_with_a_warning() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (at timestamp, WATERMARK FOR at AS at) APPEND ONLY")
        for n, end in enumerate(("", "EMIT ON WINDOW CLOSE", "EMIT EARLY EVERY 1 ROW")):
            hop = f"HOP(t, at, INTERVAL '{n + 2} minutes', INTERVAL '1 minute')"
            query = f"SELECT window_end, count(*) AS n FROM {hop} GROUP BY window_start, window_end {end}"
            (told,) = pond.sql(f"CREATE MATERIALIZED VIEW v{n} AS {query}").warnings
            assert "rows between two windows" in told


@pytest.mark.parametrize(
    "call",
    [
        "TUMBLE(m, window_start, INTERVAL '1 hour')",
        "HOP(m, window_end, INTERVAL '30 minutes', INTERVAL '1 hour')",
        "CUMULATE(m, window_start, INTERVAL '30 minutes', INTERVAL '1 hour')",
        "CALENDAR(m, window_start, 'day')",
        "SESSION(m, window_start, INTERVAL '5 minutes')",
        "TUMBLE((SELECT * FROM TUMBLE(t, at, INTERVAL '1 minute')), window_start, INTERVAL '1 hour')",
    ],
)
@pytest.mark.parametrize("end", ["", "EMIT ON WINDOW CLOSE", "EMIT EARLY EVERY 1 ROW"])
def test_windows_of_windows_need_other_names(call: str, end: str) -> None:
    """Without them `window_start` would be that of the rows, silently."""
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (at timestamp, v int, WATERMARK FOR at AS at) APPEND ONLY")
        pond.sql("CREATE VIEW m AS SELECT * FROM TUMBLE(t, at, INTERVAL '1 minute')")
        grouped = f"SELECT window_start, sum(v) AS v FROM {call} GROUP BY window_start, window_end {end}"
        with pytest.raises(InvalidError, match="have a column 'window_start' already") as told:
            pond.sql(f"CREATE MATERIALIZED VIEW v AS {grouped}")
        assert "^" in str(told.value)


def test_windows_of_windows() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (at timestamp, v int, WATERMARK FOR at AS at) APPEND ONLY")
        minutes = "SELECT window_start AS minute, sum(v) AS v FROM TUMBLE(t, at, INTERVAL '1 minute') GROUP BY window_start, window_end"
        hours = f"TUMBLE(({minutes}) AS m, minute, INTERVAL '1 hour')"
        pond.sql(
            f"CREATE MATERIALIZED VIEW h AS SELECT window_start, max(v) AS v FROM {hours} GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
        )
        pond.sql("INSERT INTO t VALUES ('2024-01-01 10:00:10', 1), ('2024-01-01 10:00:20', 2); FLUSH")
        pond.sql("INSERT INTO t VALUES ('2024-01-01 10:01:10', 2), ('2024-01-01 11:01:00', 2); FLUSH")
        assert pond.sql("FROM h").fetchall() == [(datetime.datetime(2024, 1, 1, 10), 3)]


@pytest.mark.parametrize("groups", ["k, window_start, window_end", "window_end", "k, window_start", "k"])
@pytest.mark.parametrize("seed", range(2))
def test_windows_that_overlap_a_lot_follow_changes_of_a_table(groups: str, seed: int) -> None:
    """A view is what the query returns at once, after inserts, updates and deletions (law 1)."""
    rng = random.Random(f"{seed} {groups}")
    hop = "HOP(t, at, INTERVAL '1 second', INTERVAL '12 seconds', INTERVAL '300 milliseconds')"
    aggregates = "count(*) AS n, sum(v) AS total, avg(v) AS mean, count(v) AS given, stddev_pop(v) AS spread"
    query = f"SELECT {groups}, {aggregates} FROM {hop} GROUP BY {groups}"
    with millpond.open("memory://", engine="inline", checks=True, parallelism=3) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k text, v int, at timestamp)")
        pond.sql(f"CREATE MATERIALIZED VIEW w AS {query}")
        operators = [node.operator for node in pond.plan.nodes.values()]
        assert [o.spread is not None for o in operators if isinstance(o, Aggregate)] == [True]
        for _ in range(4):
            for _ in range(rng.randint(1, 6)):
                number, second = rng.randrange(12), rng.choice([0, 0.5, 3, 3.2, 11, 40])
                at = f"TIMESTAMP '2024-01-01' + INTERVAL '{second} seconds'"
                k, v = rng.choice(["'a'", "'b'", "NULL"]), rng.choice(["1", "-7", "2000000000", "NULL"])
                change = rng.choice(["insert", "insert", "update", "delete"])
                if change == "insert":
                    pond.sql(f"INSERT INTO t VALUES ({number}, {k}, {v}, {at}) ON CONFLICT (id) DO NOTHING")
                elif change == "update":
                    pond.sql(f"UPDATE t SET v = {v}, at = {at} WHERE id = {number}")
                else:
                    pond.sql(f"DELETE FROM t WHERE id = {number}")
            pond.sql("FLUSH")
            shown = sorted(map(rounded, pond.sql("SELECT * FROM w").fetchall()), key=str)
            assert shown == sorted(map(rounded, pond.sql(query).fetchall()), key=str)


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(float(f"{float(x):.9g}") if isinstance(x, float | Decimal) else x for x in row)

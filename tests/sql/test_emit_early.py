"""EMIT EARLY and LATE: panes of windows; when all windows have closed, a view is the batch query (law 1)."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from tests.sampling import first
from tests.sql.world import in_types_of, plain

START = datetime.datetime(2024, 3, 30, 22)  # before a change of the clocks in Berlin
OLD = f"window_start < TIMESTAMP '{START + datetime.timedelta(days=2)}'"
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
OURS = {
    "tumble": "TUMBLE(a, ts, INTERVAL '10 seconds', INTERVAL '3 seconds')",
    "hop": "HOP(a, ts, INTERVAL '5 seconds', INTERVAL '10 seconds', INTERVAL '1 second')",
    "cumulate": "CUMULATE(a, ts, INTERVAL '4 seconds', INTERVAL '12 seconds')",
    "calendar": "CALENDAR(a, ts, 'day', 'Europe/Berlin')",
    "session": "SESSION(a, ts, INTERVAL '3 seconds', k)",
}
LOCAL = "date_trunc('day', ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin')"
THEIRS = {
    "tumble": """(select *, s window_start, s + interval 10 second window_end from (
      select *, time_bucket(interval 10 second, ts, interval 3 second) s from a))""",
    "hop": """(select a.*, s window_start, s + interval 10 second window_end from a, unnest(generate_series(
      time_bucket(interval 5 second, ts, interval 1 second) - interval 5 second, ts, interval 5 second)) x(s))""",
    "cumulate": """(select a.*, time_bucket(interval 12 second, ts) window_start, e window_end
      from a, unnest(generate_series(time_bucket(interval 4 second, ts) + interval 4 second,
        time_bucket(interval 12 second, ts) + interval 12 second, interval 4 second)) x(e))""",
    "calendar": f"""(select *, {LOCAL} AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC' window_start,
      ({LOCAL} + interval 1 day) AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC' window_end from a)""",
    "session": """(select *, min(ts) over (partition by k, n) window_start,
      max(ts) over (partition by k, n) + interval 3 second window_end
      from (select *, sum(gap) over (partition by k order by ts range unbounded preceding) n
        from (select *, case when ts - lag(ts) over (partition by k order by ts) <= interval 3 second then 0 else 1 end gap
          from a)))""",
}  # fmt: skip
AGGREGATES = "count(*) n, sum(v) s, count(distinct v) d, median(v) m, max(window_end - ts) l"
QUERIES = {
    **{kind: f"select k, window_start, window_end, {AGGREGATES} from W group by k, window_start, window_end" for kind in OURS},
    "filtered": "select window_end, v % 2 odd, sum(v) + 1 s from W where v > 1 group by window_start, window_end, v % 2",
    "many": "select k, window_start, count(*) n from W group by window_end, k, window_start having count(*) > 1",
    "nested": "select window_start, max(n) m from (select k, window_start, window_end, count(*) n from W group by all) group by 1",
    "alone": "select window_start, window_end from W group by all",
    "once": "with w as (select k, window_start, window_end, v + 1 u from W) select window_start, avg(u) a from w group by window_start, window_end",
}  # fmt: skip
TRIGGERS = (
    "EARLY EVERY INTERVAL '5 seconds'",
    "EARLY EVERY 2 ROWS LATE EVERY INTERVAL '3 seconds'",
    "LATE EVERY 1 ROW",
    "EARLY EVERY 1 ROW LATE EVERY 3 ROWS",
)


def rows_of(found: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r) for r in found.fetchall())


class Feed:
    """Rows for a pond and for DuckDB, in epochs, with restarts."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.clock = ManualClock(1_700_000_000_000_000)
        self.pond = self.opened()
        self.pond.sql(
            "CREATE TABLE a (k text, ts timestamp, v bigint,"
            " WATERMARK FOR ts AS ts - INTERVAL '4 seconds') APPEND ONLY"
        )
        self.con = duckdb.connect()
        self.con.execute("create table a (k varchar, ts timestamp, v bigint)")
        self.now = 0.0

    def opened(self) -> millpond.Pond:
        tasks = self.rng.choice([1, 2, 3])
        return millpond.open(self.path, engine="inline", clock=self.clock, checks=True, parallelism=tasks)

    def restart(self) -> None:
        self.pond.close()
        self.pond = self.opened()

    def epoch(self) -> None:
        self.now += self.rng.choice([0, 2, 5, 11])
        self.send(
            (
                self.rng.choice("xyz"),
                self.now + self.rng.choice([0, 1, 2, 3, -3, -7, -12]),
                self.rng.randrange(6),
            )
            for _ in range(self.rng.choice([0, 4, 8]))
        )
        self.clock.advance(self.rng.choice([0, 1, 4]) * 1_000_000)
        self.pond.drain()

    def send(self, some: Any) -> None:
        fresh = [{"k": k, "ts": START + datetime.timedelta(seconds=max(at, 0)), "v": v} for k, at, v in some]
        if fresh:
            table = pa.Table.from_pylist(fresh, SCHEMA)
            self.pond.insert("a", table)
            self.con.register("fresh", table)
            self.con.execute("insert into a from fresh")

    def finish(self) -> None:
        """Let the watermark pass the end of every window, and its allowed lateness."""
        for days in (3, 4):
            self.send([("end", days * 86_400, 0)])
            self.clock.advance(10_000_000)
            self.pond.drain()
        self.con.execute("delete from a where k = 'end'")

    def run(self, epochs: int) -> None:
        for number in range(epochs):
            self.epoch()
            if number % 4 == 2:
                self.restart()
        self.finish()

    def close(self) -> None:
        self.pond.close()
        self.con.close()


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_closed_windows_are_the_batch_query(tmp_path: Path, seed: int) -> None:
    feed = Feed(tmp_path / "pond", seed)
    emit = f"EMIT {TRIGGERS[seed]} ALLOWED LATENESS INTERVAL '1 hour'"
    names = [*OURS] if seed % 2 else [name for name in QUERIES if name not in OURS]
    kinds = {name: name if name in OURS else feed.rng.choice([*OURS][:4]) for name in names}
    for name, kind in kinds.items():
        text = QUERIES[name].replace("from W", f"from {OURS[kind]} W")
        feed.pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {text} {emit}")
    feed.run(10)
    for name, kind in kinds.items():
        query = QUERIES[name]
        batch = query.replace("from W", f"from {THEIRS[kind]} W")
        wanted = plain(feed.con.execute(batch).fetchall())
        after = OLD if "window_start" in query.split(" from ")[0] else OLD.replace("start", "end")
        shown = feed.pond.sql(f"SELECT * FROM {name} WHERE {after}").arrow()
        given = plain(in_types_of(feed.con, batch, shown))
        assert given == wanted, f"seed {seed}, {name}: missing {wanted - given}, too many {given - wanted}"
    feed.pond.compact()
    held = [s for s in feed.pond.states() if "trigger" in s.step and s.state == "rows" and s.rows > 3]
    assert not held, "only the last row waits: the windows of all others have closed"
    feed.close()


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_every_row_is_in_one_discarded_pane_and_in_the_last_accumulated_one(
    tmp_path: Path, seed: int
) -> None:
    feed = Feed(tmp_path / "pond", seed)
    kind = ("tumble", "hop", "cumulate", "calendar")[seed]
    text = QUERIES["tumble"].replace("from W", f"from {OURS[kind]} W")
    emit = f"EMIT {TRIGGERS[seed]} ALLOWED LATENESS INTERVAL '1 hour'"
    for mode in ("accumulating", "discarding"):
        feed.pond.sql(f"CREATE MATERIALIZED VIEW {mode} AS {text} {emit} {mode}")
    feed.run(10)
    of_window = "select k, window_start, window_end"
    wanted = rows_of(feed.con.execute(f"{of_window}, count(*), sum(v) from {THEIRS[kind]} group by all"))
    news = f"{of_window}, sum(n), sum(s) from discarding where {OLD} group by all"
    assert rows_of(feed.pond.sql(news)) == wanted
    last = f"{of_window}, n, s from accumulating where {OLD}"
    assert rows_of(feed.pond.sql(last)) == wanted, "a view of accumulating panes holds the newest one"
    feed.close()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_view_holds_the_newest_accumulated_pane_and_readers_of_changes_get_each_once(
    tmp_path: Path, seed: int
) -> None:
    """Across restarts; the panes are those of the same windows in mode RETRACTING, without what they retract."""
    feed = Feed(tmp_path / "pond", seed)
    emit = f"EMIT {TRIGGERS[3 - seed]} ALLOWED LATENESS INTERVAL '1 hour'"
    tumbled = QUERIES["tumble"].replace("from W", f"from {OURS['tumble']} W")
    queries = {
        "direct": tumbled,
        "session": QUERIES["session"].replace("from W", f"from {OURS['session']} W"),
        "computed": f"select k, sum(v) + 1 s from {OURS['hop']} group by k, window_start, window_end having sum(v) > 2",
        "nested": f"select k, sum(n) n from ({tumbled}) group by k",
    }
    for name, text in queries.items():
        for mode in ("accumulating", "retracting"):
            feed.pond.sql(f"CREATE MATERIALIZED VIEW {name}_{mode} AS {text} {emit} {mode}")
        if name != "nested":
            feed.pond.sql(
                f"CREATE SINK {name}_sink FROM {name}_accumulating"
                f" WITH (connector = 'files', path = '{tmp_path / name}', mode = 'append')"
            )
    feed.pond.sql(
        "CREATE MATERIALIZED VIEW of_direct AS SELECT count(*) AS n, sum(s) AS s FROM direct_accumulating"
    )
    start = feed.pond.epoch
    every: dict[str, Counter[Any]] = {}
    feed.run(8)
    for name in queries:
        newest = rows_of(feed.pond.sql(f"FROM {name}_accumulating"))
        assert newest == rows_of(feed.pond.sql(f"FROM {name}_retracting")) and newest, name
        changes = [
            [
                (row[1], row[2:])
                for row in feed.pond.sql(f"SUBSCRIBE {name}_{mode} SINCE EPOCH {start}").fetchall()
            ]
            for mode in ("accumulating", "retracting")
        ]
        if name == "nested":
            assert Counter(changes[0]) == Counter(changes[1]), "sums of panes change as any other view"
            continue
        assert all(weight > 0 for weight, _ in changes[0]), "nothing is retracted"
        panes: Counter[Any] = Counter()
        for weight, row in changes[0]:
            panes[row] += weight
        shown = Counter(row for weight, row in changes[1] if weight > 0)
        assert not shown - panes, f"{name}: panes that no reader got: {shown - panes}"
        assert not newest - panes
        assert set(panes) == set(shown), "others are panes with the same contents as the one before"
        every[name] = panes
    assert (
        feed.pond.sql("FROM of_direct").fetchall()
        == feed.pond.sql("SELECT count(*), sum(s) FROM direct_accumulating").fetchall()
    ), "a view of the view agrees with it"
    feed.close()
    for name, panes in every.items():
        delivered = duckdb.sql(f"FROM read_parquet('{tmp_path / name}/*.parquet')")
        given: Counter[Any] = Counter(row[:5] for row in delivered.fetchall())
        assert given == Counter(row[:5] for row in panes.elements()), f"{name}: a sink gets each pane once"


def test_each_accumulated_pane_is_told_once(tmp_path: Path) -> None:
    """Pane by pane, also one that has the contents of the pane before it."""
    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    pond.sql(WATERMARK)
    emit = "EMIT EARLY EVERY 2 ROWS LATE EVERY 1 ROW ALLOWED LATENESS INTERVAL '1 minute' ACCUMULATING"
    pond.sql(
        f"CREATE MATERIALIZED VIEW v AS SELECT sum(v) AS s {TUMBLED} GROUP BY window_start, window_end {emit}"
    )
    seen, told = pond.epoch, []
    for rows in ([(1, 1)], [(2, 2)], [(15, 0)], [(3, 4)], [(80, 0)], [(4, 9)]):
        pond.insert(
            "a",
            pa.Table.from_pylist(
                [{"k": "x", "ts": START + datetime.timedelta(seconds=at), "v": v} for at, v in rows], SCHEMA
            ),
        )
        pond.drain()
        told.append([row[1:] for row in pond.sql(f"SUBSCRIBE v SINCE EPOCH {seen}").fetchall()])
        seen = pond.epoch
        held = pond.sql("FROM v").fetchall()
        pond.close()
        pond = millpond.open(tmp_path / "pond", engine="inline", checks=True, parallelism=2)
        assert pond.sql("FROM v").fetchall() == held
    assert told == [
        [],
        [(1, 3)],
        [(1, 3)],
        [(1, 7)],
        [(1, 0)],
        [],
    ]  # early, on time, late; the next window; too late
    assert sorted(held) == [(0,), (7,)]
    pond.close()


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_rows_behind_the_allowed_lateness_are_late(tmp_path: Path, seed: int) -> None:
    feed = Feed(tmp_path / "pond", seed)
    text = (
        "SELECT k, window_start, window_end, sum(v) s FROM TUMBLE(a, ts, INTERVAL '10 seconds') GROUP BY ALL"
    )
    emit = "EMIT EARLY EVERY 2 ROWS ALLOWED LATENESS INTERVAL '2 seconds'"
    feed.pond.sql(f"CREATE MATERIALIZED VIEW t AS {text} {emit}")
    in_time: Counter[tuple[str, int]] = Counter()
    bound: float | None = None
    for number in range(12):
        feed.now += feed.rng.choice([0, 2, 5, 11])
        fresh = [
            (
                feed.rng.choice("xyz"),
                max(feed.now + feed.rng.choice([0, 3, -4, -9, -14]), 0),
                feed.rng.randrange(6),
            )
            for _ in range(6)
        ]
        feed.send(fresh)
        feed.pond.drain()
        for k, at, v in fresh:
            if bound is None or at // 10 * 10 + 10 >= bound - 2:
                in_time[k, int(at // 10)] += v
        bound = (
            max(at - 4 for _, at, _ in fresh)
            if bound is None
            else max(bound, *(at - 4 for _, at, _ in fresh))
        )
        if number % 5 == 2:
            feed.restart()
    feed.finish()
    given = {
        (k, int((at - START).total_seconds() // 10)): s
        for k, at, _, s in feed.pond.sql("SELECT * FROM t WHERE k <> 'end'").fetchall()
    }
    assert given == dict(in_time)
    feed.close()


WATERMARK = "CREATE TABLE a (k text, ts timestamp, v bigint, WATERMARK FOR ts AS ts - INTERVAL '4 seconds') APPEND ONLY"
TUMBLED = "FROM TUMBLE(a, ts, INTERVAL '10 seconds')"
BY_WINDOW = f"SELECT count(*) AS n {TUMBLED} GROUP BY window_start, window_end"
REFUSED = {
    f"SELECT k {TUMBLED} EMIT EARLY EVERY 1 ROW": "needs an aggregate of each window",
    f"SELECT count(*) {TUMBLED} EMIT EARLY EVERY 1 ROW": "needs both window_start and window_end in GROUP BY",
    f"SELECT count(*) {TUMBLED} GROUP BY window_end EMIT EARLY EVERY 1 ROW": "needs both window_start and window_end",
    "SELECT count(*) FROM a EMIT EARLY EVERY 1 ROW": "needs an aggregate over windows that end",
    f"SELECT x.v {TUMBLED} x JOIN a y ON x.k = y.k EMIT EARLY EVERY 1 ROW": "cannot be followed by JOIN",
    f"SELECT DISTINCT k, window_end {TUMBLED} EMIT EARLY EVERY 1 ROW": "cannot be followed by DISTINCT",
    f"SELECT k, row_number() OVER (PARTITION BY window_end ORDER BY v) {TUMBLED} EMIT LATE EVERY 1 ROW": "EMIT LATE cannot be followed by",
    f"SELECT k, sum(v) {TUMBLED} GROUP BY window_start, GROUPING SETS ((window_end, k), (window_end)) EMIT EARLY EVERY 1 ROW": "several grouping sets",
    "SELECT count(*) FROM SESSION(a, ts, INTERVAL '1 day', k) GROUP BY window_start, window_end EMIT EARLY EVERY 1 ROW": "the groups of SESSION to be its keys",
    "SELECT count(*) FROM TUMBLE(b, ts, INTERVAL '1 day') GROUP BY window_start, window_end EMIT EARLY EVERY 1 ROW": "EMIT EARLY needs windows that end by a watermark, and those by 'ts' never end",
    f"SELECT e, count(*) FROM (SELECT v + 1 u, window_start s, window_end e {TUMBLED}) GROUP BY s, e EMIT EARLY EVERY 1 ROW": "needs the columns of the window as",
    f"{BY_WINDOW} EMIT EARLY EVERY 0 ROWS": "at least one row",
    f"{BY_WINDOW} EMIT EARLY EVERY 2": "ROWS should stand here",
    f"{BY_WINDOW} EMIT EARLY EVERY INTERVAL '1 month'": "must be of days or less",
    f"{BY_WINDOW} EMIT EARLY EVERY INTERVAL '0 seconds'": "must be positive",
    f"{BY_WINDOW} EMIT EARLY EVERY INTERVAL 'soon'": "this is no interval",
    f"{BY_WINDOW} EMIT LATE EVERY 1 ROW ALLOWED LATENESS 5": "an interval should stand here",
    f"{BY_WINDOW} EMIT LATE EVERY 1 ROW EARLY EVERY 2 ROWS": "this cannot stand in EMIT",
    f"{BY_WINDOW} EMIT EARLY EVERY 1 ROW RETRACTING DISCARDING": "this cannot stand in EMIT",
    f"{BY_WINDOW} EMIT ON WINDOW CLOSED": "this EMIT clause cannot be read",
    f"{BY_WINDOW} EMIT CHANGES": "EMIT CHANGES is not supported",
    f"{BY_WINDOW} EMIT AFTER WATERMARK": "this EMIT clause cannot be read",
    "SELECT * FROM CUMULATE(a, ts, INTERVAL '7 seconds', INTERVAL '1 minute')": "must be a multiple of its step",
    "SELECT * FROM CALENDAR(a, ts, 'fortnight')": "CALENDAR has no unit 'fortnight'",
    "SELECT * FROM CALENDAR(a, ts, 'day', 'Mars/Base')": "no time zone 'Mars/Base'",
    "SELECT * FROM CALENDAR(a, ts, k)": "the unit of CALENDAR must be a constant text",
    "SELECT * FROM TUMBLE(a, ts, INTERVAL '1 day', INTERVAL '1 month')": "the offset of a window must be of days or less",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_what_has_no_panes_is_refused_by_name(query: str) -> None:
    pond = millpond.open("memory://", engine="inline")
    pond.sql(WATERMARK)
    pond.sql("CREATE TABLE b (k text, ts timestamp)")
    with pytest.raises(InvalidError) as told:
        pond.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")
    assert REFUSED[query] in str(told.value)
    if "EMIT" in query:
        assert "^" in str(told.value), "the message shows the place"
    pond.close()


def test_a_view_without_rows_of_its_own_has_no_emit() -> None:
    pond = millpond.open("memory://", engine="inline")
    pond.sql(WATERMARK)
    with pytest.raises(InvalidError, match="only a materialized view can EMIT EARLY"):
        pond.sql(f"CREATE VIEW v AS {BY_WINDOW} EMIT EARLY EVERY 1 ROW")
    pond.close()


@pytest.mark.parametrize("clause", ["EMIT ON WINDOW CLOSE", "EMIT EARLY EVERY 1 ROW"])
def test_a_query_that_is_read_once_has_no_emit(clause: str) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(WATERMARK)
        with pytest.raises(InvalidError, match=r"^EMIT (ON|EARLY).* at the end of a materialized view"):
            pond.sql(f"{BY_WINDOW} {clause}")
        with pytest.raises(InvalidError, match="only a materialized view can EMIT"):
            pond.sql(f"CREATE VIEW v {clause} AS {BY_WINDOW}")
        assert pond.sql("SELECT emit.v FROM a emit").fetchall() == [], "it is a name elsewhere"


def test_the_query_of_a_sink_has_an_emit_clause(tmp_path: Path) -> None:
    """A sink gets each window once, also after a view that its query reads was replaced."""
    folder = tmp_path / "out"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE a (k text, at timestamp, v int, WATERMARK FOR at AS at) APPEND ONLY")
        some = "MATERIALIZED VIEW some AS SELECT k, at, v FROM a WHERE v > "
        pond.sql(f"CREATE {some} 0")
        query = "SELECT window_start, count(*) AS n FROM TUMBLE(some, at, INTERVAL '1 minute') GROUP BY window_start, window_end"
        to = f"WITH (connector = 'files', path = '{folder}', format = 'json')"
        pond.sql(f"CREATE SINK s AS {query} EMIT ON WINDOW CLOSE {to}")
        pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:00:01', 1); FLUSH")
        pond.sql(
            "INSERT INTO a VALUES ('x', '2024-01-01 00:00:02', 1), ('x', '2024-01-01 00:01:00', 1); FLUSH"
        )
        pond.sql(f"CREATE OR REPLACE {some} -1")
        pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:01:01', 1); FLUSH")
        pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:02:00', 1); FLUSH")
        pond.drain()
    lines = [line for path in sorted(folder.rglob("*.json")) for line in path.read_text().splitlines()]
    assert [json.loads(line)["n"] for line in lines] == [2, 2]


def test_equal_views_fire_by_themselves_and_survive_a_replaced_input(tmp_path: Path) -> None:
    """Panes depend on when a view was created, so views do not share triggers; EMIT stays with the view."""
    clock = ManualClock(1_700_000_000_000_000)
    pond = millpond.open(tmp_path / "pond", engine="inline", clock=clock, checks=True)
    pond.sql(WATERMARK)
    pond.sql("CREATE VIEW some AS SELECT * FROM a WHERE v > 0")
    emitted = f"{BY_WINDOW.replace('TUMBLE(a', 'TUMBLE(some')} EMIT EARLY EVERY INTERVAL '5 seconds'"
    pond.sql(f"CREATE MATERIALIZED VIEW one AS {emitted}")
    pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:00:01', 1); FLUSH")
    pond.sql(
        f"CREATE MATERIALIZED VIEW two AS {emitted}; CREATE MATERIALIZED VIEW three AS SELECT n * 2 AS m FROM one"
    )
    assert pond.sql("SELECT n FROM one").fetchall() == []
    clock.advance(5_000_000)
    pond.drain()
    assert [pond.sql(f"FROM {v}").fetchall() for v in ("one", "two", "three")] == [[(1,)], [(1,)], [(2,)]]
    assert "EMIT EARLY" in str(pond.sql("SHOW CREATE MATERIALIZED VIEW one").fetchall())
    pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:00:02', 1); FLUSH")
    assert pond.sql("FROM one").fetchall() == [(1,)], "no pane yet"
    clock.advance(5_000_000)
    pond.drain()
    assert pond.sql("FROM three").fetchall() == [(4,)]
    pond.close()


def test_the_name_of_the_rows_stays_usable() -> None:
    pond = millpond.open("memory://", engine="inline")
    pond.sql(WATERMARK)
    windows = "HOP(a, ts, INTERVAL '5 seconds', INTERVAL '10 seconds')"
    for number, query in enumerate(
        [
            f"SELECT a.k, a.window_start FROM {windows} WHERE a.v > 0",
            f"SELECT a.k FROM {windows.replace('(a', '(TABLE a')} GROUP BY a.k",
            f"SELECT w.k FROM {windows} AS w JOIN a ON a.k = w.k",
            f"SELECT w.k FROM {windows} w, a WHERE a.k = w.k",
            f"SELECT a.k FROM a, {windows} WHERE a.v = 1",
            f"SELECT count(*) FROM {windows}, {windows}",
            f"SELECT a.k FROM {windows} JOIN {windows} b ON a.window_start = b.window_start AND a.k = b.k",
            f"SELECT b.k, a.v FROM {windows} AS b JOIN {windows} ON a.window_start = b.window_start",
        ]
    ):
        pond.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    with pytest.raises(InvalidError, match='FROM-clause entry for table "a"'):
        pond.sql(f"CREATE MATERIALIZED VIEW either AS SELECT a.k FROM {windows} JOIN {windows} ON true")
    pond.sql("INSERT INTO a VALUES ('x', '2024-01-01 00:00:01', 1); FLUSH")
    assert pond.sql("SELECT k FROM v0").fetchall() == [("x",), ("x",)]
    assert pond.sql("FROM v1").fetchall() == [("x",)]
    assert pond.sql("FROM v5").fetchall() == [(4,)]
    assert pond.sql("FROM v6").fetchall() == [("x",), ("x",)]
    assert pond.sql("FROM v7").fetchall() == [("x", 1), ("x", 1)]
    pond.close()

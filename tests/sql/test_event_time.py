"""Event time in SQL: windows are shown once, when they are over; what is over leaves the state (laws 1, 5 and 8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import millpond
from millpond import tuning
from millpond.engine.inline import InlineEngine
from millpond.errors import InvalidError
from tests.sql.event_time import Streams

WINDOWED = {
    "counted": "select window_start, k, count(*) n, sum(v) s, max(v) m, count(distinct v) d from Ta group by window_start, window_end, k",
    "by_start": "select window_start, count(*) n from Ta group by window_start",
    "by_end": "select window_end, avg(v) n from Ha group by window_end having count(*) > 2",
    "slow": "select window_end, median(v) m, quantile_disc(v, 0.9) o, string_agg(k, ',' order by v, k) t from Ta group by window_end",
    "grouped": "select k, window_end from Ha group by all",
    "conditions": "select window_start, count(distinct k) n, count(distinct k) filter (where v > 3) a, count(distinct k) filter (where v < 2) b from Ha group by window_start, window_end",
    "apart": "select distinct k, window_start from Ta",
    "only_rows": "select k, v from Ta where v > 1",
    "computed": "select window_end, unnest([k, 'z']) u from Ta",
    "top": """select window_end, k, v, n from (select *, row_number() over (partition by window_end order by v desc, k, ts) n
      from Ta) where n <= 2""",
    "over": "select window_end, k, v, sum(v) over (partition by window_end) s from Ta",
    "best_bid": """select t.k, t.v from Ta t join (select window_end, max(v) v from Ta group by 1) m
      on t.window_end = m.window_end and t.v = m.v""",
    "with_best": """select t.k, t.v, m.v most from Ta t left join (select window_end, max(v) v from Ta where v < 4 group by 1) m
      on t.window_end = m.window_end and t.v = m.v""",
    "with_last": """select t.k, t.v, m.n from Ta t join (select window_end, count(*) n from Ta group by 1) m
      on t.window_start = m.window_end""",
    "hottest": """with c as (select k, count(*) n, window_start, window_end from Ha group by k, window_start, window_end)
      select c.k, c.n, c.window_end from c join (select max(n) n, window_end from c group by 2) h
      on c.window_end = h.window_end and c.n = h.n""",
    "both": """select x.k, x.window_start from (select k, window_start, window_end from Ta group by all) x
      join (select k, window_start, window_end from Tb group by all) y
      on x.k = y.k and x.window_start = y.window_start and x.window_end = y.window_end""",
    "paired": "select x.k, x.v, y.v w, x.window_end e from Ta x left join Tb y on x.window_end = y.window_end and x.k = y.k",
    "all_of": "select x.v, y.v w from Ta x full join Tb y on x.window_start = y.window_start and x.k = y.k and x.v < y.v",
    "alone": "select k, v, window_end from Ta x where not exists (select 1 from Tb y where y.window_end = x.window_end and y.k = x.k)",
    "sessions": "select k, window_start, window_end, count(*) n, sum(v) s from Sa group by all",
    "session_starts": """select window_start, k, max(v) m, avg(v) a, count(*) filter (where v > 2) c, min(ts) t, stddev_pop(v) d
      from Sa group by k, window_start""",
    "session_ends": "select window_end e, sum(v * 1.5) s, count(distinct v) d from Sb group by window_end, k",
    "session_lengths": "select k, max(window_end - ts) l from Sa group by k, window_start, window_end",
    "overlapping": "select k, count(*) n, sum(v) s from Ha group by k",
    "session_rows": "select k, v, window_start from Sa",
    "session_medians": "select k, window_end, median(v) m from Sb group by all",
    "all_rows": "select count(*) n, sum(v) s from Ta",
    "growing": "select k, window_start, window_end, count(*) n, sum(v) s, count(distinct v) d from Ca group by all",
    "growing_medians": "select window_end, median(v) m from Cb group by window_start, window_end",
    "growing_rows": "select k, v, window_end from Ca",
    "grown": "select x.window_end e, x.n - y.n as more from (select window_start, window_end, count(*) n from Ca group by all) x "
    "join (select window_start, window_end, count(*) n from Ca group by all) y on x.window_start = y.window_end",
    "slid": """select k, window_start, window_end, count(*) n, sum(v) s, avg(v) a, min(v) lo, max(k) hi, stddev_pop(v) d,
      count(*) filter (where v > 2) c from La group by all""",
    "slid_hottest": """with c as (select k, count(*) n, window_start, window_end from La group by k, window_start, window_end)
      select c.k, c.n, c.window_end from c join (select max(n) n, window_end from c group by 2) h
      on c.window_end = h.window_end and c.n = h.n""",
    "days": "select window_start, window_end, k, count(*) n, max(v) m from Da group by all",
    "day_rows": "select k, v, window_start from Da",
    "day_tops": "select window_end, k, v, rank() over (partition by window_end order by v) n from Db",
    "sets": "select k, window_end, count(*) n from Ta group by grouping sets ((k, window_end), (k))",
    "either": "select k, window_end from Ta union all select k, window_end from Tb",
    "without": "select k, window_end from Ta except select k, window_end from Tb",
    "named": "select window_end, name, count(*) n from Ta t join d on d.k = t.k group by all",
    "follow": """select x.window_end, x.n - y.n as more from (select window_start, window_end, count(*) n from Ta group by all) x
      join (select window_end, count(*) n from Ta group by all) y on x.window_start = y.window_end""",
    "most": "select window_end, count(*) n from Ta group by 1 order by n desc, 1 limit 2",
    "some": "select window_end, (select max(name) from d) m, count(*) filter (where v > 2) n from Tb group by 1",
}  # fmt: skip
FINAL = {
    "rows": "select k, ts, v + 1 as w from Ra where v > 1",
    "sums": """select k, ts, v, sum(v) over (partition by k order by ts, v rows between 2 preceding and current row) s,
      count(*) over (partition by k order by ts) n, lag(v) over (partition by k order by ts, v) l, max(v) over (order by ts) m from Rb""",
    "firsts": "select k, v, ts from (select *, row_number() over (partition by k order by ts, v) n from Ra) where n <= 2",
    "ahead": """select k, ts, v, m, l from (select *, lead(true, 2) over (partition by k order by ts, v) c,
      max(v) over (partition by k order by ts, v rows between 1 preceding and 2 following) m, lead(v) over (partition by k order by ts, v) l
      from Rb) where c""",
    "next": "select ts, v, n from (select *, lag(v, -1) over (order by ts, k, v) n, lead(true) over (order by ts, k, v) c from Ra) where c",
    "elements": "select k, ts, unnest([v, v + 1]) e from Ra where v > 1",
    "again": "with r as (select k, ts, v * 2 as d from Ra) select k, d, rank() over (partition by k order by ts) n from r where d > 2",
}  # fmt: skip

TIMED = {
    "near": "select x.k, x.v, y.v w from a x join b y on x.k = y.k and y.ts between x.ts and x.ts + interval '5 seconds'",
    "near_left": """select x.k, x.v, y.v w from a x left join b y
      on x.k = y.k and y.ts >= x.ts - interval '3 seconds' and y.ts < x.ts + interval '4 seconds'""",
    "near_full": "select x.v, y.v w from a x full join b y on x.k = y.k and y.ts = x.ts and x.v <> y.v",
    "met": "select x.k, x.ts, x.v from a x where exists (select 1 from b y where y.k = x.k and y.ts between x.ts and x.ts + interval '2 seconds')",
    "unmet": "select x.k, x.v from a x where not exists (select 1 from b y where y.k = x.k and y.ts > x.ts and y.ts < x.ts + interval '6 seconds')",
    "product": "select x.k, y.k l from a x, b y where y.ts > x.ts - interval '2 seconds' and x.ts >= y.ts",
    "since": "select x.v, y.v w from a x join b y on x.k = y.k and y.ts >= x.ts",
    "same_time": "select x.v, y.v w from a x join b y on x.ts = y.ts and x.k = y.k",
    "counted_pairs": "select x.k, count(*) n from a x join b y on x.k = y.k and y.ts between x.ts and x.ts + interval '5 seconds' group by 1",
    "times": "select distinct k, ts from a",
    "latest": "select ts, k, v from (select *, row_number() over (partition by ts order by v desc, k) n from a) where n = 1",
    "pairs_of_three": """select x.v, y.v w, z.v u from a x join b y on x.k = y.k and y.ts between x.ts and x.ts + interval '3 seconds'
      join a z on z.k = y.k and z.ts between y.ts and y.ts + interval '3 seconds'""",
}  # fmt: skip


def test_windows_are_given_when_they_are_over(tmp_path: Path) -> None:
    """Each view is the batch query over the rows that were on time, of the windows that are over."""
    run(Streams(tmp_path / "pond", 1, {}, WINDOWED, later=0.3), epochs=4)


def test_views_of_windows_and_of_joins_in_time(tmp_path: Path) -> None:
    some = dict(list(WINDOWED.items())[::2])
    run(Streams(tmp_path / "pond", 2, {**some, **TIMED}, {}, later=0.3), epochs=3)


SLICED = {
    **{name: WINDOWED[name] for name in ("by_end", "grown", "slid", "slid_hottest")},
    "slid_ends": "select window_end e, upper(k) || '!' u, sum(v * 2) s from Lb group by e, u having count(*) > 1",
    "slid_starts": "select window_start, max(ts) t, count(v) n from La group by window_start",
    "slid_pairs": """select x.n, y.n m, x.window_end from (select window_end, count(*) n from La group by 1) x
      join (select window_end, count(*) n from Lb group by 1) y on x.window_end = y.window_end""",
    "slid_some": "select window_end e, k, sum(v) s from Lb where v > 2 and k <> 'x' group by window_end, k",
    "growing_some": "select window_end e, count(*) n from Ca where v % 2 = 0 group by window_end",
    "growing_ends": "select window_end e, k, min(v) lo, max(ts) hi, sum(v) s from Ca group by window_end, k",
}


def test_windows_that_share_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SLICED_WINDOWS_MIN", 2)
    streams = Streams(tmp_path / "pond", 5, {}, SLICED, later=0.3)
    told = streams.pond.explain()
    assert told.count("SlidingAggregate") >= 7
    for name in ("slid_some", "growing_some"):  # below WHERE
        assert f"{name}.group: SlidingAggregate" in told
    run(streams, epochs=5)


@pytest.mark.parametrize(
    ("seed", "parts"), [(4, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((3, 1), (5, 2)))]
)
def test_few_rows_are_one_tasks_and_more_are_shared(
    seed: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch is one task's or that of three, as its rows and those that wait are many."""
    monkeypatch.setattr(InlineEngine, "single_task_rows_max", 300)
    monkeypatch.setattr(InlineEngine, "default_parallelism", parts)
    monkeypatch.setattr(tuning, "PLAN_PARTS_US", 0)
    monkeypatch.setattr(tuning, "PLAN_PART_SHARE_MAX", 1.0)
    some = dict(list(WINDOWED.items())[seed % 3 :: 3])
    streams = Streams(tmp_path / "pond", seed, dict(list(TIMED.items())[::3]), some, checks=False)
    streams.pond.rescale(3)
    tasks = []
    for number in range(4):
        streams.epoch(rows=8 if number % 3 else 1000)
        streams.check(f"epoch {number}")
        tasks.append(streams.pond.head().metrics.get("tasks", [0])[-1])
    streams.close()
    assert {parts, 3} <= set(tasks), tasks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_event_time_at_length(seed: int, tmp_path: Path) -> None:
    shown = {f"all_{name}": query for name, query in {**WINDOWED, **TIMED}.items()}
    run(Streams(tmp_path / "pond", seed, shown, WINDOWED, later=0.3), epochs=30)


def run(streams: Streams, epochs: int) -> None:
    for number in range(epochs):
        streams.epoch()
        streams.check(f"epoch {number}")
        streams.disturb()
        if number == epochs // 2:
            streams.define_rest()
            streams.check(f"filled after epoch {number}")
    streams.close()


BOUNDED = {
    name: {**WINDOWED, **TIMED}[name]
    for name in (
        *("counted", "slow", "apart", "top", "over", "best_bid", "hottest", "both", "paired", "sessions"),
        *("unmet", "session_medians", "near", "near_left", "near_full", "times", "met", "counted_pairs"),
        *("latest", "alone", "all_of", "follow", "with_best", "same_time", "product", "pairs_of_three"),
    )
}


def held(epochs: int, streams: Streams) -> tuple[dict[str, int], dict[str, int]]:
    """The rows of state after a quarter of a long stream, and at its end."""
    streams.rng.seed(5)
    early: dict[str, int] = {}
    for number in range(1, epochs + 1):
        streams.now += 4
        streams.push(8)
        if number == epochs // 4:
            early = streams.states()
    return early, streams.states()


@pytest.mark.parametrize(("epochs", "every"), [(20, 6), pytest.param(200, 1, marks=pytest.mark.slow)])
def test_state_does_not_grow_with_the_stream(epochs: int, every: int, tmp_path: Path) -> None:
    views = dict(list(BOUNDED.items())[::every])
    closing = {f"on_close_{n}": q for n, q in views.items() if q == WINDOWED.get(n)}
    streams = Streams(tmp_path / "pond", 5, {f"all_{n}": q for n, q in views.items()}, closing)
    early, late = held(epochs, streams)
    assert sum(late.values()) < 2 * sum(early.values())
    # A table by itself may hold a few rows now and none then.
    assert {t: n for t, n in late.items() if n > 2 * early.get(t, 0) + 60} == {}
    streams.check("at the end")
    streams.close()


STREAM = """
    CREATE TABLE a (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;
    CREATE TABLE b (k int, ts timestamp) APPEND ONLY;
    CREATE TABLE d (k int PRIMARY KEY, n text);
"""


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select a.k from a join b using (k)", "a join keeps every row of a and b for ever; bound the join in time"),
        ("select a.k from a join d using (k)", "a join keeps every row of a for ever"),
        ("select distinct k from b", "DISTINCT keeps every different row of b for ever; give the rows a WATERMARK FOR"),
        ("select k, median(k) m from b group by k", "computed from all rows of a key keeps every row of b"),
        ("select window_end, count(*) n from SESSION(b, ts, INTERVAL '1 minute', k) group by 1", "keeps every row of b"),
        ("select distinct k, window_end from TUMBLE(a, ts, INTERVAL '1 minute')", None),
        ("select x.k from a x join a y on x.k = y.k and y.ts between x.ts and x.ts + INTERVAL '1 minute'", None),
        ("select window_end, median(k) m from TUMBLE(a, ts, INTERVAL '1 minute') group by 1", None),
        ("select k, count(*) n, max(ts) m from b group by k", None),
        ("select d.k, e.n from d join d e on d.n = e.n", None),
    ],
)  # fmt: skip
def test_state_that_never_ends_is_told(query: str, told: str | None, tmp_path: Path) -> None:
    """A warning, not an error; the last statement of a text tells those of all."""
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        assert pond.sql(STREAM).warnings == []
        found = pond.sql(f"CREATE MATERIALIZED VIEW v AS {query}; FLUSH").warnings
        assert len(found) == (told is not None) and (told is None or told in found[0])


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) n from a",
        "select window_end, count(*) n from TUMBLE(b, ts, INTERVAL '1 minute') group by 1",
        "select x.k from TUMBLE(a, ts, INTERVAL '1 minute') x join TUMBLE(b, ts, INTERVAL '1 minute') y using (window_end)",
    ],
)  # fmt: skip
def test_windows_without_a_watermark_cannot_close(query: str, tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(STREAM)
        with pytest.raises(InvalidError, match="needs windows that end by a watermark"):
            pond.sql(f"CREATE MATERIALIZED VIEW v AS {query} EMIT ON WINDOW CLOSE")


def test_all_windows_of_a_query_close_those_of_plain_views_too(tmp_path: Path) -> None:
    """What never ends is named; a materialized view below shows its windows as they are."""
    windows = "SELECT window_end AS e, count(*) AS n FROM TUMBLE({}, ts, INTERVAL '10 seconds') GROUP BY 1"
    query = "SELECT x.k, (SELECT sum(w.n) FROM w WHERE w.e = x.window_end) AS n FROM TUMBLE(a, ts, INTERVAL '10 seconds') x"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(STREAM)
        pond.sql(f"CREATE VIEW w AS {windows.format('b')}")
        with pytest.raises(InvalidError, match="and those by 'ts' never end") as told:
            pond.sql(f"CREATE MATERIALIZED VIEW v AS {query} EMIT ON WINDOW CLOSE")
        assert "from a MATERIALIZED VIEW" in str(told.value)
        pond.sql(f"DROP VIEW w; CREATE MATERIALIZED VIEW w AS {windows.format('b')}")
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {query} EMIT ON WINDOW CLOSE")
        pond.sql(
            "INSERT INTO b VALUES (1, '2024-01-01 00:00:01'); INSERT INTO a VALUES (1, '2024-01-01 00:00:01')"
        )
        assert pond.sql("FLUSH; SELECT * FROM v").fetchall() == []
        pond.sql("INSERT INTO a VALUES (2, '2024-01-01 00:00:18')")
        assert pond.sql("FLUSH; SELECT * FROM v").fetchall() == [(1, 1)]
        pond.sql("INSERT INTO b VALUES (3, '2024-01-01 00:00:02')")
        assert pond.sql("FLUSH; SELECT * FROM v").fetchall() == [(1, 2)]


def test_rows_are_looked_up_when_they_come_and_shown_when_their_window_is_over(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(STREAM)
        pond.sql("""
            CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c
            FROM TUMBLE(a, ts, INTERVAL '10 seconds') AS t JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = t.k
            GROUP BY window_end, n EMIT ON WINDOW CLOSE
        """)
        pond.sql(
            "INSERT INTO d VALUES (1, 'one'); FLUSH; INSERT INTO a VALUES (1, '2024-01-01 00:00:01'); FLUSH"
        )
        pond.sql("INSERT INTO d VALUES (1, 'two'); FLUSH")
        assert pond.sql("SELECT * FROM v").fetchall() == []
        pond.sql("INSERT INTO a VALUES (1, '2024-01-01 00:00:15'); FLUSH")
        assert pond.sql("SELECT * FROM v").fetchall() == [("one", 1)]


def test_late_rows_of_a_source_are_kept_apart(tmp_path: Path) -> None:
    """The rows of a source are not kept, those that came too late are (law 8)."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("k,ts\n1,2024-01-01 00:00:01\n2,2024-01-01 00:01:00\n")
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(f"""
            CREATE SOURCE s (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
            WITH (connector = 'files', path = '{folder}', format = 'csv');
            CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '10 seconds')
            GROUP BY window_end EMIT ON WINDOW CLOSE;
            FLUSH
        """)
        (folder / "2.csv").write_text("k,ts\n3,2024-01-01 00:00:02\n4,2024-01-01 00:00:55\n")
        pond.sql("FLUSH")
        assert pond.sql("SELECT k FROM s_late").fetchall() == [(3,)]
        assert [row[:2] for row in pond.sql("SHOW LATE")] == [("s_late", 1)]
        assert pond.sql("SELECT n FROM v").fetchall() == [(1,)]


def test_rows_are_given_once_the_watermark_has_passed_them(tmp_path: Path) -> None:
    """EMIT ON WINDOW CLOSE without windows: rows are final, and come in the order of their time."""
    streams = Streams(tmp_path / "pond", 7, {}, FINAL)
    for number in range(10):
        streams.epoch()
        streams.check(f"epoch {number}")
        streams.disturb()
    for name in FINAL:
        epochs = [(e, w) for e, w, *_ in streams.pond.sql(f"SUBSCRIBE {name}").fetchall()]
        assert epochs and all(weight > 0 for _, weight in epochs), f"{name} changed a row"
    streams.close()


def test_rows_come_out_in_the_order_of_their_time(tmp_path: Path) -> None:
    """EMIT ON WINDOW CLOSE: within an epoch too, for readers of changes and for sinks."""
    closed = {
        "counted": "select k, window_end, count(*) n from Ta group by k, window_start, window_end",
        "sliding": "select window_end, k, window_start, sum(v) s from Ha group by window_start, window_end, k",
    }
    asked = {**{name: FINAL[name] for name in ("rows", "sums")}, **closed}
    streams = Streams(tmp_path / "pond", 11, {}, asked)
    folders = {name: tmp_path / name for name in ("rows", "counted", "sliding")}
    for name, folder in folders.items():
        streams.pond.sql(
            f"CREATE SINK {name}_out FROM {name} WITH (connector = 'files', path = '{folder}', format = 'json',"
            " mode = 'append')"
        )
    first = streams.pond.head().epoch
    for seconds in (3, 3, 25, 3, 3, 25):
        streams.push(40)
        streams.now += seconds
    for name in asked:
        time = "window_end" if name in closed else "ts"
        columns = streams.pond.view(name).arrow().column_names
        place = columns.index(time)
        since = streams.pond.sql(f"SUBSCRIBE {name} SINCE EPOCH {first}").fetchall()
        given = [row[2 + place] for row in since]
        assert len({row[0] for row in since}) < len(set(given)), "no epoch has several times"
        assert given == sorted(given), f"{name} since {first}"
        whole = [row[2 + place] for row in streams.pond.sql(f"SUBSCRIBE {name}").fetchall()]
        assert whole == sorted(given), f"{name} from its first row"
        if name in folders:
            files = sorted(p for p in folders[name].iterdir() if p.suffix == ".json")
            written = [json.loads(line)[time] for file in files for line in file.read_text().splitlines()]
            rows = sum(weight for _, weight, *_ in since)
            assert len(written) == rows and written == sorted(written), f"the sink of {name}"
    streams.close()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select k, lead(v, v) over (partition by k order by ts) from a", "cannot read all rows after the current one"),
        ("select k, lag(v, null) over (partition by k order by ts) from a", "cannot read all rows after the current one"),
        ("select sum(v) over (order by ts rows between current row and unbounded following) from a", "rows after the current one"),
        ("select sum(v) over (order by ts range between current row and interval 1 second following) from a", "rows after the current one"),
        ("select sum(v) over (order by ts rows between 3 preceding and (-1) preceding) from a", "rows after the current one"),
        ("select ntile(2) over (order by ts) from a", "rows after the current one"),
        ("select sum(v) over (partition by k order by v) from a", "OVER needs ORDER BY the time column"),
        ("select sum(v) over (partition by k order by ts desc) from a", "OVER needs ORDER BY the time column"),
        ("select sum(v) over (partition by k) from a", "OVER needs ORDER BY the time column"),
        ("select k, v from (select *, row_number() over (order by v) n from a) where n <= 2", "OVER needs ORDER BY"),
        ("select k from a where ts > now() - interval '1 day'", "needs windows that end"),
        ("select distinct k from a", "needs windows that end"),
        ("select x.k from a x join a y on x.ts = y.ts", "needs windows that end"),
        ("select * from d", "needs windows that end"),
    ],
)  # fmt: skip
def test_rows_that_later_ones_change_are_never_final(query: str, why: str, tmp_path: Path) -> None:
    streams = Streams(tmp_path / "pond", 1, {}, {})
    with pytest.raises(InvalidError, match=why) as told:
        streams.pond.sql(f"CREATE MATERIALIZED VIEW refused AS {query} EMIT ON WINDOW CLOSE")
    assert "^" in str(told.value)
    streams.close()

"""proctime(): a row has the recorded time of the epoch that read it, and keeps it (laws 1 and 3)."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.pond import Pond

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
TEXT = """
    CREATE TABLE log (k int, seen AS PROCTIME()) APPEND ONLY;
    CREATE SOURCE bid (p_time AS PROCTIME()) WITH (connector = 'nexmark', type = 'bid', events = 400);
    CREATE MATERIALIZED VIEW held AS SELECT k, seen, proctime() AS here, proctime() + INTERVAL 1 DAY AS later
      FROM log WHERE k > 0;
    CREATE MATERIALIZED VIEW per_window AS SELECT k, count(*) AS n, window_start, window_end
      FROM TUMBLE(log, seen, INTERVAL '10 seconds') GROUP BY k, window_start, window_end;
    CREATE MATERIALIZED VIEW hops AS SELECT count(*) AS n, window_start
      FROM HOP((SELECT * FROM log WHERE k > 1), proctime(), INTERVAL '5 seconds', INTERVAL '10 seconds')
      GROUP BY window_start;
    CREATE MATERIALIZED VIEW sessions AS SELECT k, count(*) AS n, window_start
      FROM SESSION(log, proctime(), INTERVAL '10 seconds', k) GROUP BY k, window_start;
    CREATE MATERIALIZED VIEW twice AS SELECT a.k FROM log a JOIN log b ON a.seen = b.seen AND a.k = b.k;
    CREATE MATERIALIZED VIEW recent AS SELECT k, seen FROM log WHERE seen > now() - INTERVAL '30 seconds'
"""


def utc(us: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)


def rows(pond: Pond, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in pond.sql(sql).arrow().to_pylist())


def test_rows_keep_the_time_of_the_epoch_that_read_them(tmp_path: Path) -> None:
    """Against a model in Python, with restarts, compactions, other parallelism and a clock that jumps."""
    rng, clock = random.Random(5), ManualClock(START)
    settings: dict[str, Any] = {"engine": "inline", "clock": clock, "checks": True}
    pond = millpond.open(tmp_path / "pond", parallelism=2, **settings)
    pond.sql(TEXT)
    came: list[tuple[int, int]] = []  # (k, when)
    for number in range(12):
        clock.advance(rng.choice([0, 1, SECOND, 4 * SECOND, 25 * SECOND]))
        fresh = [rng.randrange(4) for _ in range(rng.randrange(4))]
        if fresh:
            pond.sql(f"INSERT INTO log (k) VALUES {', '.join(f'({k})' for k in fresh)}")
        clock.advance(rng.choice([0, 700_000]))  # between the statement and its epoch
        pond.sql("FLUSH")
        pond.drain()
        came += [(k, clock.now_us()) for k in fresh]
        check(pond, came, clock.now_us())
        if number % 4 == 1:
            pond.compact()
        if number % 4 == 3:
            pond.close()
            pond = millpond.open(tmp_path / "pond", parallelism=rng.randint(1, 5), **settings)
            check(pond, came, pond.head().now_us)
    clock.advance(100 * SECOND)
    pond.sql("CREATE MATERIALIZED VIEW of_log AS SELECT k, seen, proctime() AS here FROM log")
    seen = rows(pond, "SELECT k, seen, here FROM of_log")
    with pond.at(max(s.epoch for s in pond.epochs() if s.kind == "change")) as moment:
        when = moment.now
    assert seen == Counter((k, utc(at), when) for k, at in came), "old rows came to it just now"
    pond.close()


def check(pond: Pond, came: list[tuple[int, int]], now_us: int) -> None:
    assert rows(pond, "SELECT k, seen FROM log") == Counter((k, utc(at)) for k, at in came)
    day = 86_400 * SECOND
    held = Counter((k, utc(at), utc(at), utc(at + day)) for k, at in came if k > 0)
    assert rows(pond, "SELECT * FROM held") == held
    windows = Counter((k, at // (10 * SECOND) * 10 * SECOND) for k, at in came)
    wanted = Counter((k, n, utc(at), utc(at + 10 * SECOND)) for (k, at), n in windows.items())
    assert rows(pond, "SELECT k, n, window_start, window_end FROM per_window") == wanted
    hops = Counter(
        start
        for k, at in came
        if k > 1
        for start in (at // (5 * SECOND) * 5 * SECOND - back for back in (0, 5 * SECOND))
        if start > at - 10 * SECOND
    )
    assert rows(pond, "SELECT n, window_start FROM hops") == Counter((n, utc(at)) for at, n in hops.items())
    same = Counter(came)
    twice: Counter[tuple[Any, ...]] = Counter()
    for (k, _), n in same.items():
        twice[(k,)] += n * n
    assert rows(pond, "SELECT k FROM twice") == twice
    recent = Counter((k, utc(at)) for k, at in came if at > now_us - 30 * SECOND)
    assert rows(pond, "SELECT k, seen FROM recent") == recent
    assert sum(n for (_, n, _) in rows(pond, "SELECT k, n, window_start FROM sessions")) == len(came)


def test_views_of_a_source_agree_on_what_comes_from_now_on(tmp_path: Path) -> None:
    clock = ManualClock(START)
    pond = millpond.open(tmp_path / "pond", engine="inline", clock=clock, checks=True, epoch_rows_max=50)
    one = "SELECT p_time, auction, bidder FROM bid"
    pond.sql(TEXT)
    pond.sql(f"CREATE MATERIALIZED VIEW one AS {one}; CREATE MATERIALIZED VIEW other AS {one}")
    pond.drain()
    read = rows(pond, "FROM one")
    assert read == rows(pond, "FROM other")
    assert sum(read.values()) > 0
    assert {at for at, _, _ in read} <= {utc(clock.now_us())}
    plan = pond.plan
    assert plan.nodes["one.proctime"].inputs == plan.nodes["other.proctime"].inputs, "each has its own"
    pond.sql("ALTER MATERIALIZED VIEW one RENAME TO first")
    clock.advance(SECOND)
    pond.sql(f"CREATE MATERIALIZED VIEW one AS {one}")
    assert {at for at, _, _ in rows(pond, "FROM one")} == {utc(clock.now_us())}, (
        "old rows came to it just now"
    )
    assert rows(pond, "FROM first") == read
    pond.close()


CLOSING = """
    CREATE TABLE log (k int, seen AS PROCTIME()) APPEND ONLY;
    CREATE MATERIALIZED VIEW tumbled AS SELECT k, count(*) AS n, window_start
      FROM TUMBLE(log, seen, INTERVAL '10 seconds') GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW hopped AS SELECT count(*) AS n, window_start
      FROM HOP((SELECT k + 1 AS j FROM log WHERE k > 1), proctime(), INTERVAL '5 seconds', INTERVAL '10 seconds')
      GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW sessions AS SELECT k, count(*) AS n, window_start, window_end
      FROM SESSION(log, seen, INTERVAL '10 seconds', k) GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE
"""


def test_windows_by_processing_time_close_by_the_clock(tmp_path: Path) -> None:
    """Each window is shown once, when the clock has reached its end, also without other input."""
    rng, clock = random.Random(11), ManualClock(START)
    settings: dict[str, Any] = {"engine": "inline", "clock": clock, "checks": True}
    pond = millpond.open(tmp_path / "pond", parallelism=2, **settings)
    pond.sql(CLOSING)
    came: list[tuple[int, int]] = []  # (k, when)
    for number in range(14):
        clock.advance(rng.choice([0, 1, SECOND, 4 * SECOND, 10 * SECOND, 25 * SECOND]))
        fresh = [rng.randrange(4) for _ in range(rng.randrange(4))]
        if fresh:
            pond.sql(f"INSERT INTO log (k) VALUES {', '.join(f'({k})' for k in fresh)}; FLUSH")
        pond.drain()
        came += [(k, clock.now_us()) for k in fresh]
        check_closed(pond, came, clock.now_us())
        if number % 4 == 3:
            pond.close()
            pond = millpond.open(tmp_path / "pond", parallelism=rng.randint(1, 3), **settings)
    for view in ("tumbled", "hopped", "sessions"):
        changes = pond.sql(f"SUBSCRIBE {view}").fetchall()
        assert changes, "some windows have closed"
        assert all(weight > 0 for _, weight, *_ in changes), f"{view} changed a window"
    pond.close()


def check_closed(pond: Pond, came: list[tuple[int, int]], now_us: int) -> None:
    size = 10 * SECOND
    tumbled = Counter((k, at // size * size) for k, at in came if at // size * size + size <= now_us)
    wanted = Counter((k, n, utc(at)) for (k, at), n in tumbled.items())
    assert rows(pond, "SELECT * FROM tumbled") == wanted
    hops = Counter(
        start
        for k, at in came
        if k > 1
        for start in (at // (5 * SECOND) * 5 * SECOND - back for back in (0, 5 * SECOND))
        if start > at - size and start + size <= now_us
    )
    assert rows(pond, "SELECT * FROM hopped") == Counter((n, utc(at)) for at, n in hops.items())
    sessions: dict[int, list[list[int]]] = {}
    for k, at in sorted(came):
        if k in sessions and at - sessions[k][-1][-1] <= size:
            sessions[k][-1].append(at)
        else:
            sessions.setdefault(k, []).append([at])
    over = [(k, s) for k, own in sessions.items() for s in own if s[-1] + size < now_us]
    wanted = Counter((k, len(s), utc(s[0]), utc(s[-1] + size)) for k, s in over)
    assert rows(pond, "SELECT * FROM sessions") == wanted


REFUSED = {
    "CREATE TABLE x (a int PRIMARY KEY, p AS PROCTIME())": "needs an APPEND ONLY table",
    "CREATE TABLE x (a int, p date AS PROCTIME()) APPEND ONLY": "holds an instant",
    "CREATE SOURCE x (a int DEFAULT 1) WITH (connector = 'files', path = 'x')": "neither keys nor defaults",
    "CREATE MATERIALIZED VIEW x AS SELECT id, proctime() FROM t": "no one time at which they came",
    "CREATE MATERIALIZED VIEW x AS SELECT * FROM TUMBLE(t, proctime(), INTERVAL '1 hour')": "no one time",
    "CREATE MATERIALIZED VIEW x AS SELECT * FROM TUMBLE(log, now(), INTERVAL '1 hour')": "proctime() is the time",
    "CREATE MATERIALIZED VIEW x AS SELECT count(*) FROM log GROUP BY date_trunc('hour', proctime())": "put it into",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_where_it_would_be_wrong_it_is_refused(statement: str, tmp_path: Path) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE log (k int, seen AS PROCTIME()) APPEND ONLY")
    with pytest.raises(InvalidError) as told:
        pond.sql(statement)
    assert REFUSED[statement] in str(told.value)
    pond.close()


def test_the_time_in_statements_is_that_of_the_statement(tmp_path: Path) -> None:
    clock = ManualClock(START)
    pond = millpond.open(tmp_path / "pond", engine="inline", clock=clock)
    pond.sql("""
        CREATE TABLE t (id int, at timestamptz DEFAULT now(), d date);
        CREATE VIEW fresh AS SELECT id FROM t WHERE at > now() - INTERVAL '1 minute';
        INSERT INTO t (id, d) VALUES (1, current_date)
    """)
    clock.advance(90 * SECOND)
    pond.sql("INSERT INTO t SELECT 2, now() - INTERVAL '10 seconds', today(); FLUSH")
    assert rows(pond, "SELECT * FROM t") == Counter(
        [
            (1, utc(START), utc(START).date()),
            (2, utc(START + 80 * SECOND), utc(START).date()),
        ]
    )
    assert rows(pond, "SELECT now(), proctime(), current_timestamp, current_date") == Counter(
        [(*[utc(clock.now_us())] * 3, utc(START).date())]
    )
    assert rows(pond, "SELECT id FROM fresh") == Counter([(2,)])
    pond.sql("UPDATE t SET at = now() WHERE id = 1; FLUSH")
    assert rows(pond, "SELECT id FROM fresh") == Counter([(1,), (2,)])
    clock.advance(61 * SECOND)
    assert rows(pond, "SELECT id FROM fresh") == Counter()
    pond.sql("INSERT INTO t (id) SELECT id + 10 FROM t")  # executed in its turn, at the time of the statement
    said = clock.now_us()
    clock.advance(SECOND)
    pond.sql("FLUSH")
    assert rows(pond, "SELECT at FROM t WHERE id > 10") == Counter({(utc(said),): 2})
    assert pond.replay(max(s.epoch for s in pond.epochs() if s.rows)).same
    pond.close()

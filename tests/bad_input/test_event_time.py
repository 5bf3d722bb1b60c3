"""Bad times and bad windows: every row is in the view, in late() or in errors(), or counted (law 9)."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import triggers, watermarks, windows
from millpond.errors import InvalidError
from millpond.kernels import limited_calls
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark

D = datetime.datetime
FIRST, LAST = D(1, 1, 1), D(9999, 12, 31, 23, 59, 59, 999999)
BERLIN = [D(2024, 3, 31, 0, 59, 59), D(2024, 3, 31, 1), D(2024, 10, 27, 0, 30), D(2024, 10, 27, 1, 30)]
TIMES = [None, FIRST, LAST, *BERLIN, D(1970, 1, 1), D(1969, 12, 31, 23, 59, 59, 999999), D(2024, 1, 1)]


def raises(row: Any) -> Any:
    raise ValueError("no windows")


def endless(row: Any) -> Iterator[Any]:
    while True:
        yield row.at, row.at + datetime.timedelta(hours=1)


KINDS: dict[str, Any] = {  # windows, and in how many of them the plain rows are
    "tumbling": windows.tumbling("1h"),
    "sliding": windows.sliding("1h", "30m"),
    "sliding often": windows.sliding("1h", "5m"),
    "gaps": windows.sliding("20m", "1h"),
    "sessions": windows.sessions("1h"),
    "gap of the row": windows.sessions("v"),
    "day": windows.calendar("day", "Europe/Berlin"),
    "year": windows.calendar("year", "Asia/Tokyo"),
    "everything": windows.everything(),
    "raises": windows.custom(raises),
    "endless": windows.custom(endless),
    "backwards": windows.custom(lambda row: [(row.at, row.at - datetime.timedelta(seconds=1))]),
    "empty": windows.custom(lambda row: [(row.at, row.at)]),
    "none": windows.custom(lambda row: []),
    "no window": windows.custom(lambda row: "x"),
}


def define(pond: Pond, source: MemorySource, kind: str, how: str) -> None:
    timed = {} if how == "no watermark" else {"event_time": "at", "delay": "0s"}
    stream = pond.stream("s", source, **timed)  # type: ignore[arg-type]
    options: dict[str, Any] = {"time": "at"} if how == "no watermark" else {}
    if how == "trigger":
        trigger = after_watermark(early=after_count(1), late=after_count(1))
        options = {"trigger": trigger, "allowed_lateness": "1h", "panes": True}
    windowed = stream.key_by("id").window(KINDS[kind], **options)
    windowed.aggregate(n="count(*)").view("held")
    windowed.late().view("late")


@pytest.mark.parametrize("how", ["plain", "trigger", "no watermark"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_accounted_for(kind: str, how: str, tmp_path: Path) -> None:
    """In two epochs with a restart between them: the second one comes behind a watermark of the year 9999."""
    source = MemorySource({"id": int, "v": int, "at": D})
    rows = [{"id": n, "v": 3600 if n % 3 else -1, "at": at} for n, at in enumerate(TIMES)]
    for part in (rows, [{**row, "id": row["id"] + len(rows)} for row in rows]):
        source.push(part)
        pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
        define(pond, source, kind, how)
        pond.drain()
        pond.close()
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        held = {row["id"] for row in pond.read("held").to_pylist()}
        late = {row["id"] for row in pond.read("late").to_pylist()}
        errors = pond.errors().to_pylist()
        counts = pond.head().counts
    failed = {int(row["row"].partition('"id":')[2].partition(",")[0]) for row in errors}
    outside = sum(n for name, n in counts.items() if name.startswith("no_window/"))
    assert len(held | late | failed) + outside == 2 * len(TIMES)
    assert not held & failed and not late & failed
    assert {0, len(TIMES)} <= failed, "rows without a time"
    assert len(errors) == len(failed), "each is told once"
    if how == "no watermark":
        assert not late
    if kind in ("raises", "endless", "backwards", "empty", "no window"):
        assert not held and all(row["reason"] for row in errors)
    elif kind in ("gaps", "none"):
        assert outside
    else:
        assert held and len(held | late) >= len(TIMES)


def test_a_function_that_does_not_return_stops_the_epoch_with_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_calls, "CALL_SECONDS_MAX", 0.2)

    def hangs(row: Any) -> Any:
        while row.v:
            pass
        return [(row.at, row.at + datetime.timedelta(hours=1))]

    source = MemorySource({"id": int, "v": int, "at": D})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        stream = pond.stream("s", source).key_by("id").window(windows.custom(hangs), time="at")
        stream.aggregate(n="count(*)").view("held")
        source.push([{"id": 1, "v": 0, "at": D(2024, 1, 1)}])
        pond.drain()
        source.push([{"id": 7, "v": 1, "at": D(2024, 1, 1)}])
        with pytest.raises(InvalidError, match=r"has not returned within 0\.2 s") as told:
            pond.drain()
        assert "id=7" in (told.value.detail or "")
        assert pond.read("held").num_rows == 1, "the epoch before it stands"


SQL = {
    "tumble": "TUMBLE(t, ts, INTERVAL '1 hour')",
    "hop": "HOP(t, ts, INTERVAL '30 minutes', INTERVAL '1 hour')",
    "hop often": "HOP(t, ts, INTERVAL '5 minutes', INTERVAL '1 hour')",
    "gaps": "HOP(t, ts, INTERVAL '1 hour', INTERVAL '20 minutes')",
    "cumulate": "CUMULATE(t, ts, INTERVAL '30 minutes', INTERVAL '1 hour')",
    "calendar": "CALENDAR(t, ts, 'day', 'Europe/Berlin')",
    "session": "SESSION(t, ts, INTERVAL '1 hour', id)",
}


@pytest.mark.parametrize(
    "emit", ["", "EMIT ON WINDOW CLOSE", "EMIT EARLY EVERY 1 ROW ALLOWED LATENESS INTERVAL '1 hour'"]
)
@pytest.mark.parametrize("kind", SQL)
def test_every_row_is_accounted_for_in_sql(kind: str, emit: str, tmp_path: Path) -> None:
    mark = ", WATERMARK FOR ts AS ts"
    settings: dict[str, Any] = {"engine": "inline", "checks": True}
    with millpond.open(tmp_path / "pond", **settings) as pond:
        pond.sql(f"CREATE TABLE t (id int, ts timestamp{mark}) APPEND ONLY")
        keys = "id, window_start, window_end"
        pond.sql(
            f"CREATE MATERIALIZED VIEW held AS SELECT {keys}, count(*) n FROM {SQL[kind]} GROUP BY {keys} {emit}"
        )
    for first in (0, len(TIMES)):
        with millpond.open(tmp_path / "pond", **settings) as pond:
            rows = ", ".join(
                f"({n}, {'NULL' if at is None else repr(at.isoformat())})"
                for n, at in enumerate(TIMES, first)
            )
            pond.sql(f"INSERT INTO t VALUES {rows}; FLUSH")
    with millpond.open(tmp_path / "pond", **settings) as pond:
        pond.finish("t")
        pond.drain()
        held = {row[0] for row in pond.sql("SELECT id FROM held").fetchall()}
        late = {row[0] for row in pond.sql("SELECT id FROM t_late").fetchall()}
        errors = pond.errors().to_pylist()
        failed = {int(row["row"].partition('"id":')[2].partition(",")[0]) for row in errors}
        outside = sum(n for name, n in pond.head().counts.items() if name.startswith("no_window/"))
        assert pond.sql("SELECT count(*) FROM t").fetchone() == (2 * len(TIMES),), "the table has all rows"
    told = len(held | late | failed)
    if kind == "gaps":  # windows that judge lateness themselves also count rows that the table lists as late
        assert told <= 2 * len(TIMES) <= told + outside
    else:
        assert told == 2 * len(TIMES), (held, late, failed)
    assert {0, len(TIMES)} <= failed and held
    assert bool(outside) == (kind == "gaps")


@pytest.mark.parametrize("kind", sorted(SQL.keys() - {"gaps"}))
def test_times_beyond_the_calendar_are_error_rows(kind: str) -> None:
    """DuckDB has such times."""
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int, ts timestamp) APPEND ONLY")
        pond.sql(
            f"CREATE MATERIALIZED VIEW held AS SELECT id, count(*) FROM {SQL[kind]} GROUP BY id, window_end"
        )
        pond.sql("INSERT INTO t VALUES (1, '0044-03-15 (BC)'), (2, '20000-01-01'), (3, '2024-01-01'); FLUSH")
        assert {id for id, _ in pond.sql("FROM held").fetchall()} == {3}
        assert {json.loads(row["row"])["id"] for row in pond.errors("held").to_pylist()} == {1, 2}


REFUSED = {
    "FROM TUMBLE(t, ts, INTERVAL '0 seconds')": "positive",
    "FROM TUMBLE(t, ts, INTERVAL '-1 hour')": "positive",
    "FROM HOP(t, ts, INTERVAL '0 seconds', INTERVAL '1 hour')": "positive",
    "FROM HOP(t, ts, INTERVAL '1 hour', INTERVAL '-1 hour')": "positive",
    "FROM SESSION(t, ts, INTERVAL '0 seconds', id)": "positive",
    "FROM CUMULATE(t, ts, INTERVAL '0 seconds', INTERVAL '1 hour')": "positive",
    "FROM TUMBLE(t, ts, NULL)": "",
    "FROM TUMBLE(t, id, INTERVAL '1 hour')": "",
    "FROM TUMBLE(u, ts, INTERVAL '1 hour') EMIT EARLY EVERY 1 ROW ALLOWED LATENESS INTERVAL '1 hour'": "watermark",
    "FROM TUMBLE(u, ts, INTERVAL '1 hour') EMIT ON WINDOW CLOSE": "watermark",
    "FROM TUMBLE(t, ts, INTERVAL '1 hour') EMIT EARLY EVERY 1 ROW ALLOWED LATENESS INTERVAL '-1 hour'": "",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_windows_without_meaning_are_refused_in_sql(query: str) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int, ts timestamp, WATERMARK FOR ts AS ts) APPEND ONLY")
        pond.sql("CREATE TABLE u (id int, ts timestamp) APPEND ONLY")
        before, emit, after = query.partition(" EMIT")
        grouped = (
            f"SELECT window_start, count(*) AS n {before} GROUP BY window_start, window_end{emit}{after}"
        )
        with pytest.raises(InvalidError) as told:
            pond.sql(f"CREATE MATERIALIZED VIEW v AS {grouped}")
        assert REFUSED[query] in str(told.value)


@pytest.mark.parametrize("text", ["1e40", 10**30, -(10**30), datetime.timedelta.max])
def test_durations_beyond_the_calendar_are_refused(text: Any) -> None:
    for make in (windows.tumbling, windows.sessions, lambda d: windows.tumbling("1h", offset=d)):
        if isinstance(text, str):
            text = float(text)
        with pytest.raises(InvalidError, match=r"years|positive"):
            make(text)


# -- functions whose failure stops the epoch ----------------------------------------------------------


def merges(row: Any) -> Any:
    return [(row.at, row.at + datetime.timedelta(hours=1))]


def waits(*given: Any) -> Any:
    while True:
        pass


def fails(*given: Any) -> Any:
    raise ValueError("not today")


def forever(given: Any) -> Iterator[Any]:
    while True:
        yield given[0]


def watermark_of(function: Any) -> dict[str, Any]:
    return {"delay": watermarks.custom(function)}


def trigger_of(on_rows: Any, fires: Any) -> dict[str, Any]:
    return {"trigger": triggers.custom(on_rows, fires)}


def merge_of(function: Any) -> dict[str, Any]:
    return {"windows": windows.custom(merges, function)}


STOPPING: dict[str, tuple[dict[str, Any], str]] = {
    "a watermark that fails": (watermark_of(fails), "custom watermark failed\n.*ValueError: not today"),
    "a watermark that waits": (watermark_of(waits), "custom watermark has not returned within 0.2 s"),
    "a watermark in the year 31709": (watermark_of(lambda rows, state: (10**18, state)), "not a time"),
    "a trigger that fails": (trigger_of(fails, lambda n, e: True), "on_rows of a custom trigger failed"),
    "a trigger that waits": (trigger_of(lambda n, e: n, waits), "fires of a custom trigger has not returned"),
    "a trigger of a huge number": (trigger_of(lambda n, e: 2**80, fails), "whole number of at most 62 bits"),
    "a merge that fails": (
        merge_of(fails),
        "merge function of custom windows failed\n.*ValueError: not today",
    ),
    "a merge that waits": (merge_of(waits), "merge function of custom windows has not returned"),
    "a merge without end": (merge_of(forever), "more than 1 windows"),
    "a merge of no windows": (merge_of(lambda given: 5), "TypeError: 'int' object is not iterable"),
}


@pytest.mark.parametrize("what", STOPPING)
def test_a_function_that_fails_or_waits_stops_the_epoch_with_its_name(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not an internal error, and it is not retried."""
    monkeypatch.setattr(limited_calls, "CALL_SECONDS_MAX", 0.2)
    options, message = STOPPING[what]
    source = MemorySource({"id": int, "at": D})
    source.push([{"id": 1, "at": D(2024, 1, 1)}])

    given = {"delay": "0s", "windows": windows.custom(merges), "trigger": None, **options}
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        stream = pond.stream("s", source, event_time="at", delay=given["delay"])
        windowed = stream.key_by("id").window(given["windows"], trigger=given["trigger"])
        windowed.aggregate(n="count(*)").view("v")
        with pytest.raises(InvalidError, match=f"(?s){message}") as caught:
            pond.drain()
    assert caught.value.step is not None

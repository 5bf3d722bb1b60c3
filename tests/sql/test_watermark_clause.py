"""WATERMARK FOR with strategies and options, and SHOW WATERMARKS."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.kernels.watermark_strategies import Percentile, Slack
from millpond.operators.watermark import Watermark

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("clause", "made"),
    [
        ("at - INTERVAL '5 seconds'", Watermark("at", 5 * SECOND)),
        ("at", Watermark("at", 0)),
        ("monotonous()", Watermark("at", 0)),
        ("slack(1000)", Watermark("at", 0, Slack(1000))),
        ("percentile(0.99)", Watermark("at", 0, Percentile(0.99))),
        ("percentile(0.9, INTERVAL '10 minutes')", Watermark("at", 0, Percentile(0.9, 600 * SECOND))),
        (
            "at - INTERVAL '1 second' IDLE INTERVAL '30 seconds' MAX DRIFT INTERVAL '1 minute'",
            Watermark("at", SECOND, None, 30 * SECOND, 60 * SECOND),
        ),
        ("slack(5) PUNCTUATION (k = 'beat')", Watermark("at", 0, Slack(5), punctuation="k = 'beat'")),
    ],
)
def test_the_clause_makes_the_watermark(tmp_path: Path, clause: str, made: Watermark) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.sql(f"CREATE TABLE t (k text, at timestamp, WATERMARK FOR at AS {clause}) APPEND ONLY")
        assert pond.plan.nodes["t.watermark"].operator == made


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("slack('many')", "number"),
        ("slack(1.5)", "whole number"),
        ("percentile(2)", "share"),
        ("percentile()", "takes other values"),
        ("monotonous(1)", "takes nothing"),
        ("at - INTERVAL '1 second' IDLE", "interval"),
        ("at IDLE INTERVAL '-1 second'", "positive"),
        ("slack(1) - INTERVAL '1 second'", "nothing more"),
        ("at PUNCTUATION (nope = 1)", "nope"),
    ],
)
def test_wrong_clauses_are_refused(tmp_path: Path, clause: str, message: str) -> None:
    with (
        millpond.open(tmp_path, engine="inline", durable=False) as pond,
        pytest.raises(InvalidError, match=message),
    ):
        pond.sql(f"CREATE TABLE t (k text, at timestamp, WATERMARK FOR at AS {clause}) APPEND ONLY")


def test_an_idle_table_does_not_stop_a_union_and_show_watermarks_says_so(tmp_path: Path) -> None:
    clock = ManualClock(0)
    with millpond.open(tmp_path, engine="inline", durable=False, clock=clock) as pond:
        for name in ("a", "b"):
            pond.sql(
                f"CREATE TABLE {name} (at timestamp,"
                " WATERMARK FOR at AS at IDLE INTERVAL '30 seconds') APPEND ONLY"
            )
        pond.sql("CREATE VIEW both AS SELECT at FROM a UNION ALL SELECT at FROM b")
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) AS n"
            " FROM TUMBLE(both, at, INTERVAL '10 seconds') GROUP BY 1 EMIT ON WINDOW CLOSE"
        )
        pond.sql("INSERT INTO a VALUES ('2024-01-01 00:00:05'), ('2024-01-01 00:00:50')")
        pond.drain()
        assert pond.sql("SELECT n FROM v").fetchall() == []
        shown = {(r[0], r[1]): r for r in pond.sql("SHOW WATERMARKS").fetchall()}
        assert shown["a.watermark", None][3] == datetime.datetime(2024, 1, 1, 0, 0, 50)
        assert shown["b.watermark", None][3] is None
        assert shown["a.watermark", None][9] == 2  # rows wait in windows
        clock.advance(30 * SECOND)
        pond.drain()
        assert pond.sql("SELECT n FROM v").fetchall() == [(1,)]
        shown = {(r[0], r[1]): r for r in pond.sql("SHOW WATERMARKS").fetchall()}
        assert shown["b.watermark", None][7] == "idle"
        assert shown["b.watermark", None][3] == datetime.datetime(2024, 1, 1, 0, 0, 50)


def test_explain_says_which_watermark_bounds_a_step_and_what_it_releases(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.sql(
            "CREATE TABLE t (at timestamp, WATERMARK FOR at AS slack(7) IDLE INTERVAL '30 seconds') APPEND ONLY"
        )
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) AS n"
            " FROM TUMBLE(t, at, INTERVAL '10 seconds') GROUP BY 1 EMIT ON WINDOW CLOSE"
        )
        text = pond.explain()
        assert "watermark by partition of t: 7 rows may overtake, idle after 30 s" in text
        assert "bounded by t.watermark" in text
        assert "by window_end, behind t.watermark" in text


def test_rows_announce_the_watermark_in_a_column(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False, parallelism=2) as pond:
        pond.sql("""
            CREATE TABLE t (at timestamp, complete timestamp, WATERMARK FOR at AS complete) APPEND ONLY;
            CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) n FROM TUMBLE(t, at, INTERVAL '10 seconds')
                GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
            INSERT INTO t VALUES ('2024-01-01 00:00:03', NULL), ('2024-01-01 00:00:50', NULL); FLUSH
        """)
        assert pond.sql("SELECT count(*) FROM v").fetchone() == (0,)
        pond.sql("INSERT INTO t VALUES ('2024-01-01 00:00:05', '2024-01-01 00:00:10'); FLUSH")
        assert pond.sql("SELECT n FROM v").fetchall() == [(2,)]
        assert "announced in complete" in pond.explain()
        pond.sql("INSERT INTO t VALUES ('2024-01-01 00:00:06', NULL); FLUSH")
        assert pond.sql("SELECT count(*) FROM t_late").fetchone() == (1,)
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.sql("INSERT INTO t VALUES ('2024-01-01 00:00:52', '2024-01-01 00:01:00'); FLUSH")
        assert sorted(pond.sql("SELECT n FROM v").fetchall()) == [(2,), (2,)]


def test_heartbeats_from_another_table(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.sql("""
            CREATE TABLE beats (at timestamp, WATERMARK FOR at AS at) APPEND ONLY;
            CREATE TABLE t (at timestamp, WATERMARK FOR at AS at - INTERVAL '1 hour'
                IDLE INTERVAL '1 day' HEARTBEATS FROM beats) APPEND ONLY;
            CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) n FROM TUMBLE(t, at, INTERVAL '10 seconds')
                GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
            INSERT INTO t VALUES ('2024-01-01 00:00:03'); FLUSH;
            INSERT INTO beats VALUES ('2024-01-01 00:00:10'); FLUSH
        """)
        pond.drain()
        assert pond.sql("SELECT n FROM v").fetchall() == [(1,)]
        assert "heartbeats of beats.watermark" in pond.explain()
        with pytest.raises(InvalidError, match="needs a watermark"):
            pond.sql(
                "CREATE TABLE plain (at timestamp) APPEND ONLY;"
                "CREATE TABLE u (at timestamp, WATERMARK FOR at AS at HEARTBEATS FROM plain) APPEND ONLY"
            )
        with pytest.raises(InvalidError, match="no table or source named 'nobody'"):
            pond.sql(
                "CREATE TABLE u (at timestamp, WATERMARK FOR at AS at HEARTBEATS FROM nobody) APPEND ONLY"
            )


def test_nothing_follows_emit_on_window_close(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (at timestamp, WATERMARK FOR at AS at) APPEND ONLY")
        with pytest.raises(InvalidError, match="nothing can follow EMIT ON WINDOW CLOSE"):
            pond.sql("""CREATE MATERIALIZED VIEW v AS SELECT window_end, count(*) n
                FROM TUMBLE(t, at, INTERVAL '10 seconds') GROUP BY window_start, window_end
                EMIT ON WINDOW CLOSE ALLOWED LATENESS INTERVAL '1 minute'""")


def by_count(batch: pa.Table, state: Any) -> tuple[Any, Any]:
    """The watermark is the newest time that three rows have reached."""
    newest = sorted([*(state or []), *(t.timestamp() for t in batch["at"].to_pylist())])[-3:]
    bound = None if len(newest) < 3 else datetime.datetime.fromtimestamp(newest[0], datetime.UTC)
    return None if bound is None else bound.replace(tzinfo=None), newest


def test_a_function_of_the_user_is_the_strategy(tmp_path: Path) -> None:
    source = "CREATE TABLE t (at TIMESTAMP, v INT, WATERMARK FOR at AS by_count()) APPEND ONLY"
    view = (
        "CREATE MATERIALIZED VIEW n AS SELECT window_end AS e, count(*) AS n"
        " FROM TUMBLE(t, at, INTERVAL '10 seconds') GROUP BY window_end EMIT ON WINDOW CLOSE"
    )
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        with pytest.raises(InvalidError, match="no function named 'by_count'"):
            pond.sql(source)
        pond.function("by_count", by_count, kind="watermark")
        pond.sql(source)
        pond.sql(view)
        pond.sql("INSERT INTO t VALUES ('2026-01-01 00:00:01', 1), ('2026-01-01 00:01:00', 2); FLUSH")
        assert pond.read("n").num_rows == 0, "two rows are not enough"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:  # the function and its state are stored
        pond.sql("INSERT INTO t VALUES ('2026-01-01 00:00:20', 3); FLUSH")
        assert pond.sql("SELECT n FROM n").fetchall() == []
        pond.sql("INSERT INTO t VALUES ('2026-01-01 00:00:40', 4); FLUSH")
        assert pond.sql("SELECT n FROM n").fetchall() == [(1,)]
        assert [row[:2] for row in pond.sql("SHOW FUNCTIONS").fetchall()] == [("by_count", "watermark")]


def test_functions_that_are_no_strategy(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.function("plus", lambda a: a + 1, arguments=[int], returns=int)
        with pytest.raises(InvalidError, match="not a function of watermarks"):
            pond.sql("CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS plus()) APPEND ONLY")
        with pytest.raises(InvalidError, match="leave returns"):
            pond.function("by_count", by_count, kind="watermark", returns=int)
        pond.function("by_count", by_count, kind="watermark")
        with pytest.raises(InvalidError, match="by_count"):
            pond.sql("SELECT by_count()")


def test_a_table_has_one_watermark() -> None:
    with (
        millpond.open("memory://", engine="inline") as pond,
        pytest.raises(InvalidError, match="one watermark"),
    ):
        pond.sql("CREATE TABLE t (at TIMESTAMP, b TIMESTAMP, WATERMARK FOR at AS at, WATERMARK FOR b AS b)")


def test_what_others_take_their_heartbeats_from_is_not_dropped(tmp_path: Path) -> None:
    hour = "INTERVAL '1 hour'"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE beats (at TIMESTAMP, WATERMARK FOR at AS monotonous()) APPEND ONLY")
        pond.sql(
            f"CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS at - {hour} HEARTBEATS FROM beats) APPEND ONLY"
        )
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        with pytest.raises(InvalidError, match="'beats' cannot be dropped"):
            pond.sql("DROP TABLE beats")
        pond.sql("ALTER TABLE beats RENAME TO pulses")
        pond.sql(
            "INSERT INTO t VALUES ('2026-01-01 00:00:01'); INSERT INTO pulses VALUES ('2026-01-01'); FLUSH"
        )
        pond.drain()
        told = [row[3] for row in pond.sql("SHOW WATERMARKS").fetchall() if row[:2] == ("t.watermark", None)]
        assert told == [datetime.datetime(2026, 1, 1)]
        pond.sql("DROP TABLE t; DROP TABLE pulses")

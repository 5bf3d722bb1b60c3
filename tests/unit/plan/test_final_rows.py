"""Which queries over windows that close never take a row back, and sinks that append their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.plan.final_rows import is_final

BIDS = "TUMBLE(bid, at, INTERVAL '1 minute')"
ASKS = "TUMBLE(ask, at, INTERVAL '1 minute')"
SAME = "a.auction = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end"
COUNTS = "SELECT window_start, window_end, auction, count(*) AS n FROM {} GROUP BY 1, 2, 3"

FINAL = {
    "aggregate": f"SELECT window_start, window_end, max(price) AS m FROM {BIDS} GROUP BY 1, 2",
    "list": f"SELECT window_start, window_end, string_agg(price::text, ',') AS l FROM {BIDS} GROUP BY 1, 2",
    "left": f"SELECT a.auction, b.price FROM {BIDS} a LEFT JOIN {ASKS} b ON {SAME}",
    "full": f"SELECT a.auction, b.auction AS other FROM {BIDS} a FULL JOIN {ASKS} b ON {SAME}",
    "full join of aggregates": f"SELECT a.n, b.n AS m FROM ({COUNTS.format(BIDS)}) a"
    f" FULL JOIN ({COUNTS.format(ASKS)}) b ON a.window_start = b.window_start AND a.window_end = b.window_end",
    "top": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY price) r"
    f" FROM {BIDS}) t WHERE r <= 2",
    "over windows": f"SELECT auction, sum(price) OVER (PARTITION BY window_start, window_end) AS s FROM {BIDS}",
    "over rows": "SELECT auction, sum(price) OVER (PARTITION BY auction ORDER BY at) AS s FROM bid",
    "over rows ahead": "SELECT auction, lead(price) OVER (PARTITION BY auction ORDER BY at) AS s FROM bid",
    "of a view": "SELECT * FROM (SELECT *, rank() OVER (PARTITION BY window_end ORDER BY n DESC) AS r"
    f" FROM ({COUNTS.format(BIDS)})) t WHERE r = 1",
}
CHANGING = {
    "top of all windows": f"SELECT window_end, count(*) AS n FROM {BIDS} GROUP BY 1 ORDER BY n DESC LIMIT 1",
    "sum over windows": f"SELECT auction, sum(n) AS n FROM ({COUNTS.format(BIDS)}) GROUP BY auction",
    "join by another column": f"SELECT a.auction, b.price FROM {BIDS} a LEFT JOIN {ASKS} b ON a.auction + 1 = b.auction",
}


@pytest.fixture
def pond() -> Iterator[millpond.Pond]:
    with millpond.open("memory://", engine="inline", checks=True) as pond:
        for name in ("bid", "ask"):
            pond.sql(
                f"CREATE TABLE {name} (auction int, price int, at timestamp, WATERMARK FOR at AS at) APPEND ONLY"
            )
        yield pond


def changes(pond: millpond.Pond) -> list[int]:
    """The weights of all changes of the view, over windows that close one table at a time."""
    for minute in range(4):
        for name in ("bid", "ask"):
            rows = ", ".join(
                f"({n % 2}, {7 * n % 5}, '2024-01-01 00:0{minute}:{10 * n:02}')" for n in range(1 + minute)
            )
            pond.sql(f"INSERT INTO {name} VALUES {rows}; FLUSH")
    found = [r["_w"] for delta in pond.changes("v", since=0) for r in delta.table.to_pylist()]
    assert len(found) > 2
    return found


@pytest.mark.parametrize("query", FINAL)
def test_rows_of_windows_that_close_can_be_appended(query: str, pond: millpond.Pond, tmp_path: Path) -> None:
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {FINAL[query]} EMIT ON WINDOW CLOSE")
    assert is_final(pond.plan, pond.plan.views["v"].step)
    options = f"connector = 'files', path = '{tmp_path}', mode = 'append', format = 'json'"
    pond.sql(f"CREATE SINK s FROM v WITH ({options})")
    assert min(changes(pond)) > 0


@pytest.mark.parametrize("query", CHANGING)
def test_what_is_computed_over_several_windows_changes(query: str, pond: millpond.Pond) -> None:
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {CHANGING[query]} EMIT ON WINDOW CLOSE")
    assert not is_final(pond.plan, pond.plan.views["v"].step)
    assert min(changes(pond)) < 0


@pytest.mark.parametrize("query", FINAL)
def test_windows_that_are_shown_while_they_fill_change(query: str, pond: millpond.Pond) -> None:
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {FINAL[query]}")
    assert not is_final(pond.plan, pond.plan.views["v"].step)

"""What ponds, streams and results show of themselves, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.flow.stream import ViewHandle
from millpond.pond import Pond


@pytest.fixture
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as pond:
        yield pond


@pytest.fixture
def orders(pond: Pond) -> ViewHandle:
    return pond.table("orders", {"who": str, "n": int})


def test_a_stream_shows_columns_key_and_steps(orders: ViewHandle) -> None:
    large = orders.filter("n > 2")
    assert repr(large) == "Stream('orders.rows.filter': who string, n int64; from orders, orders.rows)"
    assert repr(large.key_by("who")).startswith(
        "KeyedStream('orders.rows.filter': who string, n int64; key who;"
    )
    totals = large.key_by("who").aggregate(total="sum(n)").view("totals")
    assert repr(totals).startswith("ViewHandle('totals': who string, total int64; key who; from orders,")


def test_a_stream_in_html_is_escaped(orders: ViewHandle) -> None:
    shown = orders.with_columns(**{"<i>": "n"})._repr_html_()
    assert "&lt;i&gt; int64" in shown and "<i>" not in shown
    assert "<th>key</th><td>who</td>" in orders.key_by("who")._repr_html_()


def test_a_pond_shows_where_it_is_and_how_far(pond: Pond, orders: ViewHandle) -> None:
    assert ", state new, epoch none, views orders)" in repr(pond)
    pond.insert("orders", {"who": "ann", "n": 1})
    epoch = pond.drain()
    assert f"state stopped, epoch {epoch}, views orders)" in repr(pond)
    assert "<th>views</th><td>orders</td>" in pond._repr_html_()
    pond.close()
    assert repr(pond).endswith(", state closed)")


def test_a_pond_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "p", engine="inline") as pond:
        pond.table("t", {"a": int})
        pond.drain()
    for manifest in (tmp_path / "p" / "manifests").iterdir():
        manifest.write_bytes(b"broken")
    assert "state unreadable: " in repr(millpond.open(tmp_path / "p", engine="inline"))


def test_a_result_shows_its_first_rows(pond: Pond) -> None:
    made = pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
    assert repr(made) == "Result('CREATE_TABLE', columns=[])"
    pond.sql("INSERT INTO t SELECT i::int, '<b>' FROM range(1, 31) AS r(i); FLUSH")
    found = pond.sql("SELECT * FROM t ORDER BY id")
    assert repr(found).splitlines()[:3] == [" id | s", "----+-----", " 1  | <b>"]
    assert repr(found).endswith("\n(20 of 30 rows)")
    assert "<td>&lt;b&gt;</td>" in found._repr_html_() and "<b>" not in found._repr_html_()
    assert found.fetchone() == (1, "<b>")  # a preview takes no row away

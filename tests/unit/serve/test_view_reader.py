"""A view as a value to be read: at the newest epoch, or at one that was chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond


@pytest.fixture
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as pond:
        orders = pond.table("orders", {"who": str, "n": int})
        orders.key_by("who").aggregate(total="sum(n)").view("totals")
        pond.insert("orders", {"who": "ann", "n": 5})
        pond.drain()
        yield pond


def test_it_reads_the_newest_epoch_or_the_chosen_one(pond: Pond) -> None:
    view, before = pond.view("totals"), pond.epoch
    pond.insert("orders", {"who": "ann", "n": 1})
    pond.drain()
    assert view.arrow().to_pylist() == [{"who": "ann", "total": 6}]
    assert view.at(before).arrow().to_pylist() == [{"who": "ann", "total": 5}]
    assert view.at(before).at(None).arrow() == view.arrow() == pond.read("totals")
    with pond.at(before) as moment:
        assert moment.view("totals").arrow() == pond.read("totals", epoch=before)


def test_a_view_that_is_not_there_is_refused_at_once(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="no view named 'total'"):
        pond.view("total")


def test_it_shows_its_columns_and_epoch(pond: Pond) -> None:
    pond.savepoint("<b>")
    view = pond.view("totals")
    assert repr(view) == "ViewReader('totals', newest epoch: who string, total int64)"
    assert view.schema == view.arrow().schema
    assert "epoch &#x27;&lt;b&gt;&#x27;" in view.at("<b>")._repr_html_()


def test_columns_have_the_names_that_sql_gave_them(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); ALTER TABLE t RENAME COLUMN n TO amount; FLUSH")
    assert pond.view("t").columns == pond.read("t").column_names

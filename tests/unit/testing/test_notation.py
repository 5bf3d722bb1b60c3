"""Values as text: what is shown can be read back, for every type."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.testing.notation import (
    ExpectedValue,
    expected_values,
    fit,
    micros_of,
    moment,
    row_values,
    show,
    show_row,
)

TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
VALUES: dict[str, tuple[Any, Any]] = {
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary()),
    "ts": (pa.timestamp("us"), TIMES),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), TIMES.map(lambda t: t.replace(tzinfo=dt.UTC))),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "length": (pa.duration("us"), st.timedeltas(dt.timedelta(0), dt.timedelta(days=9999))),
    "price": (pa.decimal128(20, 4), st.decimals(-(10**12), 10**12, places=4)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(-5, 5) | st.none())),
    "struct": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": st.text("ab \"'", max_size=5)})),
    "any": (None, st.recursive(st.integers() | st.text('ab "#', max_size=5), st.lists, max_leaves=5)),
}
KINDS = {name: kind for name, (kind, _) in VALUES.items()}


@given(st.fixed_dictionaries({}, optional={n: v | st.none() for n, (_, v) in VALUES.items()}))
def test_a_row_is_read_as_it_is_shown(row: dict[str, Any]) -> None:
    shown = {name: show(fit(value, KINDS[name]), KINDS[name]) for name, value in row.items()}
    if not shown:
        return
    line = show_row(shown)
    assert "\n" not in line
    again = row_values(line, KINDS, "it")
    assert {name: show(value, KINDS[name]) for name, value in again.items()} == shown
    assert expected_values(line, KINDS, "it") == {name: ExpectedValue(text) for name, text in shown.items()}


def test_times_without_a_day_are_on_one_day() -> None:
    assert moment("00:00:01") == dt.datetime(2024, 1, 1, 0, 0, 1)
    assert moment("12:30") == dt.datetime(2024, 1, 1, 12, 30)
    assert moment("25:00:00.25") == dt.datetime(2024, 1, 2, 1, 0, 0, 250_000)
    assert moment("2024-01-01T02:00:00+02:00") == dt.datetime(2024, 1, 1)
    assert micros_of("1970-01-01T00:00:01") == 1_000_000
    with pytest.raises(InvalidError, match="not a time: 'soon'"):
        moment("soon")


def test_text_is_not_taken_for_numbers_nor_numbers_for_text() -> None:
    assert fit("00:00:01", pa.timestamp("us")) == dt.datetime(2024, 1, 1, 0, 0, 1)
    assert fit("1.50", pa.decimal128(10, 2)) == decimal.Decimal("1.50")
    assert fit("5s", pa.duration("us")) == dt.timedelta(seconds=5)
    for value, kind in (("5", pa.int64()), (5, pa.string()), ("x", pa.float64())):
        with pytest.raises((TypeError, pa.ArrowException)):
            fit(value, kind)


def test_untyped_values_are_shown_as_json_or_as_python_shows_them() -> None:
    assert show({"b", "a"}, None) == '["a", "b"]'
    assert (
        show({"k": (1, 2.5), "at": dt.datetime(2024, 1, 1, 0, 0, 5)}, None)
        == '{"k": [1, 2.5], "at": "00:00:05"}'
    )
    assert show(range(3), None) == '"range(0, 3)"'

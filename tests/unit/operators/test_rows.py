"""Rows as Python people expect them: read in many ways, changed in none; and what functions may give back."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from millpond.kernels.python_rows import Row, arrow_values, python_rows, row_values
from millpond.operators.flat_map import FlatMap
from millpond.operators.operator import Shape
from tests.unit.operators.harness import OperatorRun, row_counts, rows


def a_row() -> Any:
    return python_rows(pa.table({"x": [1], "odd name": ["a"], "def": [None]}))[0]


def test_a_row_cannot_be_changed() -> None:
    row = a_row()
    said = r"rows are read-only; make a new one: row.as_dict\(\) \| \{...\}"
    with pytest.raises(AttributeError, match=said):
        row.x = 2
    with pytest.raises(AttributeError, match=said):
        row.new = 2
    with pytest.raises(AttributeError, match=said):
        del row.x
    with pytest.raises(TypeError, match=said):
        row["x"] = 2
    with pytest.raises(TypeError, match=said):
        row[0] = 2
    with pytest.raises(TypeError, match=said):
        del row["x"]
    assert row == (1, "a", None)
    assert row.as_dict() | {"x": 2} == {"x": 2, "odd name": "a", "def": None}


@pytest.mark.parametrize("through", [pickle, cloudpickle])
def test_a_row_is_pickled_and_comes_back(through: Any) -> None:
    row = through.loads(through.dumps(a_row()))
    assert row == a_row() and type(row) is type(a_row())
    assert row["odd name"] == "a"
    assert copy.deepcopy(row).as_dict() == row.as_dict()


@dataclass
class Item:
    b: str
    a: int


class Pair(NamedTuple):
    b: str
    a: int


Other = namedtuple("Other", ["b", "a"])


@pytest.mark.parametrize(
    "item",
    [
        {"a": 1, "b": "x"},
        {"b": "x", "a": 1},
        OrderedDict(b="x", a=1),
        MappingProxyType({"b": "x", "a": 1}),
        (1, "x"),
        [1, "x"],
        Item("x", 1),
        Pair("x", 1),
        Other("x", 1),
        python_rows(pa.table({"a": [1], "b": ["x"]}))[0],
        python_rows(pa.table({"b": ["x"], "a": [1]}))[0],
    ],
)
def test_what_has_names_is_read_by_name(item: Any) -> None:
    assert row_values(item, ("a", "b")) == (1, "x")
    assert type(row_values(item, ("a", "b"))) is tuple


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a": 1}, "row has columns a; declared a, b"),
        ({"a": 1, "c": 1}, "row has columns a, c; declared a, b"),
        ({"a": 1, "b": 1, "c": 1}, "row has columns a, b, c; declared a, b"),
        (namedtuple("Wrong", ["a", "c"])(1, 2), "row has columns a, c; declared a, b"),
        ((1, 2, 3), "row has 3 values; declared a, b"),
        ("ab", "rows must be dicts or tuples, not str"),
        (None, "rows must be dicts or tuples, not NoneType"),
        (Item, "rows must be dicts or tuples, not type"),
    ],
)
def test_other_things_are_no_rows(item: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        row_values(item, ("a", "b"))


@dataclass
class Point:
    x: int
    y: float


POINT = pa.struct([("x", pa.int64()), ("y", pa.float64())])


def test_dataclasses_inside_values_are_taken_apart() -> None:
    point = {"x": 1, "y": 2.0}
    assert arrow_values([Point(1, 2.0), None, point], POINT).to_pylist() == [point, None, point]
    assert arrow_values([[Point(1, 2.0)], []], pa.list_(POINT)).to_pylist() == [[point], []]
    named = arrow_values([{"a": Point(1, 2.0)}], pa.map_(pa.string(), POINT))
    assert named.to_pylist() == [[("a", point)]]
    assert arrow_values([Pair("x", 1)], None).to_pylist() == [{"b": "x", "a": 1}]


def test_a_value_is_not_cut_to_fit() -> None:
    assert arrow_values([1, 2.0, None, Decimal("3.0"), np.float32(4)], pa.int8()).to_pylist() == [
        1,
        2,
        None,
        3,
        4,
    ]
    for value in (1.5, float("nan"), float("inf"), np.float64(1.5), np.float32(0.5), Decimal("1.5")):
        with pytest.raises(ValueError, match="not a whole number"):
            arrow_values([1, value], pa.int64())
    now = datetime(2026, 1, 1, 5)
    assert arrow_values([now.date(), None], pa.date32()).to_pylist() == [now.date(), None]
    for value, kind in ((now, pa.date32()), (1.5, pa.timestamp("us")), (1.5, pa.duration("us"))):
        with pytest.raises(ValueError, match=" is no "):
            arrow_values([value], kind)


def test_maps_are_dicts_unless_a_key_is_there_twice() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.map_(pa.int64(), pa.int8())))
    given = [{"a": [{1: 2}], "b": None}, None, {}]
    column = arrow_values(given, kind)
    assert [row.m for row in python_rows(pa.table({"m": column}))] == given
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))
    assert [row.m for row in python_rows(pa.table({"m": twice}))] == [[("a", 1), ("a", 2)]]
    inside = pa.array([{"m": [("a", 1)]}], pa.struct([("m", twice.type)]))
    assert [row.s for row in python_rows(pa.table({"s": inside}))] == [{"m": {"a": 1}}]


def test_nothing_is_lost_inside_values() -> None:
    for bad, kind, message in (
        ([1, 1.5], pa.list_(pa.int64()), "1.5 is not a whole number"),
        ({"a": 0.5}, pa.map_(pa.string(), pa.int8()), "0.5 is not a whole number"),
        ({"x": 1, "z": 2}, POINT, "'z' is not a field of struct"),
        ([{"x": 1.5}], pa.list_(POINT), "1.5 is not a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            arrow_values([None, bad], kind)
    assert arrow_values([{"x": 1}], POINT).to_pylist() == [{"x": 1, "y": None}]
    assert arrow_values([(1, 2.0)], POINT).to_pylist() == [{"x": 1, "y": 2.0}]
    assert arrow_values([{1}, (2,), []], pa.list_(pa.int8())).to_pylist() == [[1], [2], []]
    assert arrow_values([[("a", 1)]], pa.map_(pa.string(), pa.int8())).to_pylist() == [[("a", 1)]]


SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def test_a_map_gives_one_row_for_each() -> None:
    def given(row: Row) -> Any:
        return {
            "dict": {"k": 0, "s": row.s},
            "tuple": (1, row.s),
            "row": row,
            "dataclass": Item("x", 1),
            "none": None,
            "list": [{"k": 1, "s": "x"}],
            "write": lambda: setattr(row, "k", 3),
        }[row.s]

    run = OperatorRun(
        FlatMap(lambda row: given(row)() if row.s == "write" else given(row), SCHEMA, one=True),
        [Shape(SCHEMA, append_only=False)],
    )
    run.epoch(
        rows(
            SCHEMA,
            "+ 5 dict",
            "+2 6 tuple",
            "+ 7 row",
            "+ 8 dataclass",
            "+ 9 none",
            "+ 10 list",
            "+ 11 write",
        )
    )
    assert row_counts(run.output) == {(0, "dict"): 1, (1, "tuple"): 2, (7, "row"): 1}
    reasons = sorted(reason.partition(" (")[0] for _, reason in row_counts(run.errors))
    assert reasons == [
        "AttributeError: rows are read-only; make a new one: row.as_dict() | {...}",
        "TypeError: must return a row, returned None; filter() and flat_map() leave rows out",
        "ValueError: row has 1 values; declared k, s",
        "ValueError: row has columns b, a; declared k, s",
    ]
    run.epoch(rows(SCHEMA, "-2 6 tuple", "- 9 none"))
    assert row_counts(run.output) == {(0, "dict"): 1, (7, "row"): 1}
    assert run.errors.num_rows == 3

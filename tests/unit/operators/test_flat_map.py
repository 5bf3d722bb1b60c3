"""FlatMap: row by row in Python, one bad row alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import UnavailableError
from millpond.kernels.python_rows import Row, python_rows, row_type
from millpond.operators.flat_map import FlatMap
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)
OUT = pa.schema([("letter", pa.string()), ("n", pa.int64())])


def letters(row: Row) -> Iterator[dict[str, Any]]:
    for letter in row.s or "":
        yield {"n": row["k"], "letter": letter}


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), parallelisms())
def test_it_is_the_function_over_all_rows(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(FlatMap(letters, OUT), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against("select unnest(string_split(s, '')) as letter, k as n from input0 where s <> ''")
    assert run.errors.num_rows == 0


def test_rows_are_read_by_name_by_place_and_unpacked() -> None:
    row: Any
    (row,) = python_rows(pa.table({"count": [3], "index": ["a"], "odd name": [None]}))
    assert (row.count, row.index, row["odd name"], row[0], row[-1], len(row)) == (3, "a", None, 3, None, 3)
    count, *_ = row
    assert count == 3
    assert row.as_dict() == {"count": 3, "index": "a", "odd name": None}
    assert repr(row) == "Row(count=3, index='a', odd name=None)"
    with pytest.raises(AttributeError, match="no column 'cuont'; columns are count, index"):
        _ = row.cuont
    with pytest.raises(KeyError, match="columns are count"):
        _ = row["x"]
    with pytest.raises(AttributeError):
        row.count = 4
    assert row_type(("a",)) is row_type(("a",))


def test_nanoseconds_are_cut_to_what_python_has() -> None:
    (row,) = python_rows(pa.table({"t": pa.array([1_001], pa.timestamp("ns"))}))
    assert row.t.microsecond == 1


KINDS = pa.schema(
    [
        ("i", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("l", pa.list_(pa.int64())),
    ]
)


@settings(max_examples=10, deadline=None)
@given(deltas(KINDS, epochs=1))
def test_python_sees_what_arrow_holds(given_deltas: list[pa.Table]) -> None:
    table = given_deltas[0].select(KINDS.names)
    for some in (table, table.slice(1), pa.concat_tables([table, table.slice(1)])):
        found = [row.as_dict() for row in python_rows(some)]
        assert [list(map(repr, row.values())) for row in found] == [
            list(map(repr, row.values())) for row in some.to_pylist()
        ]


def careful(row: Row) -> Any:
    if row.s == "raise":
        raise ValueError("not this one")
    if row.s == "half":
        return (1 / (2 - n) and {"letter": "a", "n": n} for n in range(5))
    if row.s == "none":
        return None
    if row.s == "dict":
        return {"letter": "a", "n": 1}
    if row.s == "keys":
        return [{"letter": "a"}]
    if row.s == "short":
        return [("a",)]
    if row.s == "scalar":
        return [1]
    if row.s == "type":
        return [("fine", 1), ("b", "not a number")]
    if row.s == "wide":
        return [("b", 2**70)]
    return [(row.s, row.k)]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("raise", "ValueError: not this one (test_flat_map.py:{raise_line})"),
        ("half", "ZeroDivisionError: division by zero (test_flat_map.py:{half_line})"),
        ("none", "TypeError: must return an iterable of rows, returned NoneType (test_flat_map.py:{first})"),
        ("dict", "TypeError: must return an iterable of rows, returned dict (test_flat_map.py:{first})"),
        ("keys", "ValueError: row has columns letter; declared letter, n (test_flat_map.py:{first})"),
        ("short", "ValueError: row has 1 values; declared letter, n (test_flat_map.py:{first})"),
        ("scalar", "TypeError: rows must be dicts or tuples, not int (test_flat_map.py:{first})"),
        ("type", "column 'n' must be int64: "),
        ("wide", "column 'n' must be int64: "),
    ],
)
def test_a_bad_row_is_an_error_with_the_users_line_and_no_other(word: str, reason: str) -> None:
    run = OperatorRun(FlatMap(careful, OUT), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 ok", f"+2 2 {word}", "+ 3 fine"))
    assert row_counts(run.output) == {("ok", 1): 1, ("fine", 3): 1}
    ((row, found),) = row_counts(run.errors)
    assert json.loads(row) == {"k": 2, "s": word}
    assert run.errors.column("_w").to_pylist() == [2]
    first = careful.__code__.co_firstlineno
    expected = reason.format(raise_line=first + 2, half_line=first + 4, first=first)
    assert found.startswith(expected), found
    assert f"(test_flat_map.py:{first}" in found or "raise" in word or "half" in word
    run.epoch(rows(SCHEMA, f"-2 2 {word}"))
    assert run.errors.num_rows == 0


def test_an_error_of_ours_stops_the_epoch() -> None:
    def away(row: Row) -> Any:
        raise UnavailableError("the server is away")

    with pytest.raises(UnavailableError):
        OperatorRun(FlatMap(away, OUT), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_it_is_stored_and_comes_back() -> None:
    suffix = "!"
    operator = FlatMap(lambda row: [(row.s + suffix, row.k)], OUT)
    run = OperatorRun(codec.loads(codec.dumps(operator)), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 a"))
    assert row_counts(run.output) == {("a!", 1): 1}

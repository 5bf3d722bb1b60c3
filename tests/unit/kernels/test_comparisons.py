"""Comparisons with constants give what a query gives, and are asked without one (law 1)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.kernels import expression_kernel
from millpond.kernels.expressions import bind

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int8()), ("c", pa.uint32()), ("f", pa.float64())])
COLUMNS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sampled_from([-(2**63), -129, -1, 0, 1, 7, 127, 128, 2**31, 2**32, 2**63 - 1])


def written(number: int) -> str:
    return f"CAST({number} AS BIGINT)" if number % 2 and number > -(2**62) else str(number)


COMPARED = st.tuples(COLUMNS, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), NUMBERS, st.booleans()).map(
    lambda t: f"({written(t[2])} {t[1]} {t[0]})" if t[3] else f"({t[0]} {t[1]} {written(t[2])})"
)
CONDITIONS = st.recursive(
    COMPARED,
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=4,
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([-(2**63), -1, 0, 1, 7, 8, 2**31, 2**63 - 1]),
        st.none() | st.sampled_from([-128, -1, 0, 1, 7, 127]),
        st.none() | st.sampled_from([0, 1, 7, 127, 128, 2**31, 2**32 - 1]),
    ),
    max_size=30,
)


def in_chunks(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], SCHEMA.field(place).type) for place in range(3)]
    table = pa.table(columns, names=["a", "b", "c"])
    return pa.concat_tables([table.slice(0, 9), table.slice(9, 0), table.slice(9)])


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, condition=CONDITIONS, then=st.sampled_from([1, 300, 2**40]))
def test_what_is_compared_is_what_a_query_gives(
    rows: list[tuple[Any, ...]], condition: str, then: int
) -> None:
    table = in_chunks(rows)
    for text in (condition, f"CASE WHEN {condition} THEN {then} END"):
        found = bind(table.schema, text)
        assert found.plain is not None
        wanted = expression_kernel.project(table, [("x", replace(found, plain=None))]).rows
        assert expression_kernel.project(table, [("x", found)]).rows.equals(wanted)
    asked = expression_kernel.compile_predicate(table.schema, condition)
    assert asked.plain is not None
    assert expression_kernel.keep(table, asked).rows.equals(
        expression_kernel.keep(table, replace(asked, plain=None)).rows
    )


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, column=COLUMNS, number=NUMBERS.filter(lambda n: n > 0), call=st.booleans())
def test_a_remainder_is_what_a_query_gives(
    rows: list[tuple[Any, ...]], column: str, number: int, call: bool
) -> None:
    table = in_chunks(rows)
    text = f"mod({column}, {written(number)})" if call else f"{column} % {written(number)}"
    found = bind(table.schema, text)
    assert found.plain is not None
    wanted = expression_kernel.project(table, [("x", replace(found, plain=None))]).rows
    assert expression_kernel.project(table, [("x", found)]).rows.equals(wanted)


def test_no_query_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [1, None, 12_000]})
    bound = [(n, bind(rows.schema, s)) for n, s in (("x", "a < 10"), ("y", "CASE WHEN a >= 10 THEN 1 END"))]
    monkeypatch.setattr(expression_kernel, "_prepared", None)
    assert expression_kernel.project(rows, bound).rows.to_pydict() == {
        "x": [True, None, False],
        "y": [None, None, 1],
    }


@pytest.mark.parametrize(
    "text",
    [
        "f < 1",
        "a < 1.5",
        "a < b",
        "a < 9223372036854775808",
        "a + 1 < 5",
        "b < CAST(300 AS TINYINT)",
        "a < TRY_CAST(7 AS BIGINT)",
        "NOT (a < 1)",
        "CASE WHEN a < 1 THEN 1 ELSE 0 END",
        "CASE WHEN a < 1 THEN 1 WHEN a < 5 THEN 2 END",
        "CASE WHEN a < 1 THEN b END",
        "a IS DISTINCT FROM 1",
        "a % 0",
        "a % -7",
        "a % b",
        "f % 7",
        "7 % a",
        "a % 7 + 1",
    ],
)
def test_all_else_is_asked(text: str) -> None:
    assert bind(SCHEMA, text).plain is None


def test_a_long_condition_goes_with_its_plan() -> None:
    found = bind(SCHEMA, " OR ".join(f"a = {n}" for n in range(600)), boolean=True)
    assert found.plain is not None
    assert pickle.loads(pickle.dumps(found)).plain == found.plain
    rows = in_chunks([(n, 0, 0) for n in range(-5, 5)])
    assert expression_kernel.keep(rows, found).rows.column("a").to_pylist() == [0, 1, 2, 3, 4]

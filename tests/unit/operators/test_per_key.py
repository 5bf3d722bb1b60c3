"""PerKey: the generic computation, which others are measured against."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from millpond import tuning
from millpond.errors import InternalError, InvalidError
from millpond.kernels.python_rows import Row
from millpond.operators.operator import Shape
from millpond.operators.per_key import PerKey
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)

MEDIAN = "select k, median(x) as m, count(*) as n, count(s) as c from input group by k"
FIRST = "select * from input qualify row_number() over (partition by k order by s, x desc nulls last) <= 2"
FLOATS = "select k, sum(x) as total, avg(x) as mean, list(s) as texts from input group by k"


@pytest.mark.parametrize(
    ("sql", "exact"),
    [(MEDIAN, True), (FIRST, True), ("select distinct k, s from input", True), (FLOATS, False)],
)
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA, epochs=5), parallelism=parallelisms())
def test_a_query_per_key_is_the_query(
    sql: str, exact: bool, given_deltas: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(PerKey(("k",), sql=sql), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        ordered = "(select * from input0 order by k, x, s)"
        run.check_against(sql.replace("input", ordered), close=None if exact else 1e-9)
        if number % 2:
            run.compact()


def spread(key: Row, table: pa.Table) -> pa.Table:
    """Longest text and number of rows, and one row more for keys with a NaN."""
    texts = [s for s in table.column("s").to_pylist() if s is not None]
    longest = max(texts, key=lambda s: (len(s), s), default=None)
    count = 1 + any(x != x for x in table.column("x").to_pylist() if x is not None)
    return pa.table(
        {"k": [key.k] * count, "longest": [longest] * count, "n": [table.num_rows] * count}, schema=OUT
    )


OUT = pa.schema([("k", pa.int64()), ("longest", pa.string()), ("n", pa.int64())])
SPREAD = """
with g as (select k, max_by(s, (len(s), s)) as longest, count(*) as n, bool_or(isnan(x)) as odd
           from input0 group by k)
select k, longest, n from g union all select k, longest, n from g where odd
"""


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA, epochs=5), parallelisms())
def test_a_function_per_key_is_the_function(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(PerKey(("k",), OUT, spread), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(SPREAD)
        if number % 2:
            run.compact()
    assert run.errors.num_rows == 0


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA, epochs=4), parallelisms())
def test_the_global_group_is_one_key(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(
        PerKey((), sql="select count(*) as n, max(k) as k from input"), [SHAPE], parallelism=parallelism
    )
    for delta in given_deltas:
        run.epoch(delta)
        run.check_against("select count(*) as n, max(k) as k from input0 having count(*) > 0")


def test_only_touched_keys_are_looked_at() -> None:
    seen: list[Any] = []

    def look(key: Row, table: pa.Table) -> pa.Table:
        seen.append((key.k, table.num_rows))
        return pa.table({"k": [key.k], "n": [table.num_rows]})

    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    run = OperatorRun(PerKey(("k",), schema, look), [Shape(SCHEMA, append_only=True)], parallelism=1)
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 2 1 a", "+ 3 1 a"))
    seen.clear()
    out = run.epoch(rows(SCHEMA, "+2 2 5 b"))
    assert set(seen) == {(2, 1), (2, 3)}
    assert row_counts(out) == {(2, 1): -1, (2, 3): 1}


def test_rows_come_in_one_total_order_and_weights_as_copies() -> None:
    seen: list[list[Any]] = []

    def look(key: Row, table: pa.Table) -> pa.Table:
        seen.append([tuple(row.values()) for row in table.to_pylist()])
        return pa.table({"n": [table.num_rows]})

    run = OperatorRun(PerKey(("k",), pa.schema([("n", pa.int64())]), look), [SHAPE], parallelism=1)
    run.epoch(rows(SCHEMA, "+2 1 2 b", "+ 1 -0.0 z", "+ 1 0.0 a", "+ 1 NULL c"))
    expected = [(1, 0.0, "a"), (1, 0.0, "z"), (1, 2.0, "b"), (1, 2.0, "b"), (1, None, "c")]
    assert seen and all(rows_seen == expected for rows_seen in seen)
    assert "-0.0" not in repr(seen)


def fussy(key: Row, table: pa.Table) -> pa.Table:
    if "bad" in table.column("s").to_pylist():
        raise ValueError("cannot count this")
    return pa.table({"n": [table.num_rows]})


def test_a_key_that_fails_is_an_error_until_it_does_not() -> None:
    run = OperatorRun(PerKey(("k",), pa.schema([("n", pa.int64())]), fussy), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 2 1 bad", "+ 3 1 c", "+ 3 2 c"))
    assert row_counts(run.output) == {(1,): 1, (2,): 1}
    line = fussy.__code__.co_firstlineno + 2
    reason = f"ValueError: cannot count this (test_per_key.py:{line})"
    assert row_counts(run.errors) == {('{"k":2}', reason): 1}
    run.epoch(rows(SCHEMA, "+ 2 2 a"))
    assert row_counts(run.errors) == {('{"k":2}', reason): 1}
    run.epoch(rows(SCHEMA, "- 2 1 bad"))
    assert run.errors.num_rows == 0
    assert row_counts(run.output) == {(1,): 2, (2,): 1}


@pytest.mark.parametrize("key", [("k",), ()])
def test_a_query_that_fails_on_a_key_leaves_the_others(key: tuple[str, ...]) -> None:
    run = OperatorRun(PerKey(key, sql="select k, sum(s::int) as n from input group by k"), [SHAPE])
    run.epoch(rows(SCHEMA, *[f"+ {k} 0 {k}" for k in range(20)], "+ 7 0 bad"))
    (found,) = row_counts(run.errors)
    assert json.loads(found[0]) == ({"k": 7} if key else {})
    assert "Could not convert string 'bad'" in found[1]
    assert run.output.num_rows == (19 if key else 0)
    run.epoch(rows(SCHEMA, "- 7 0 bad"))
    assert run.errors.num_rows == 0
    run.check_against("select k, sum(s::int) as n from input0 group by k")


def test_many_keys_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "PER_KEY_KEYS_PER_QUERY", 3)
    run = OperatorRun(PerKey(("k",), sql=MEDIAN), [SHAPE], parallelism=1)
    run.epoch(rows(SCHEMA, *[f"+ {k} {k} a" for k in range(20)]))
    run.check_against(MEDIAN.replace("input", "input0"))


def test_a_result_of_another_schema_is_refused() -> None:
    run = OperatorRun(PerKey(("k",), OUT, lambda key, table: table), [SHAPE], step="mine")
    with pytest.raises(InvalidError, match="other columns") as caught:
        run.epoch(rows(SCHEMA, "+ 1 1 a"))
    assert caught.value.step == "mine"


def test_a_retraction_that_meets_no_row_is_our_bug() -> None:
    with pytest.raises(InternalError, match="negative weight"):
        OperatorRun(PerKey(("k",), sql=MEDIAN), [SHAPE]).epoch(rows(SCHEMA, "- 1 1 a"))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (PerKey(("q",), sql=MEDIAN), "no column 'q'"),
        (PerKey(("k",)), "either a query or a function"),
        (PerKey(("k",), OUT, spread, MEDIAN), "either a query or a function"),
        (PerKey(("k",), None, spread), "schema of the function's result is missing"),
        (PerKey(("k",), sql="select k, from from input"), "not a SQL query"),
        (PerKey(("k",), sql="select kk from input"), "kk"),
        (PerKey(("k",), sql="select k, now() as t from input"), "another value"),
        (PerKey(("k",), sql="select k, random() as t from input"), "another value"),
        (PerKey(("k",), sql="select k, current_date as t from input"), "another value"),
        (PerKey(("k",), sql="select k as _k from input"), "cannot be called"),
        (PerKey(("k",), sql="select 1 as a; select 2 as a"), "one query"),
        (PerKey(("k",), sql="drop table input"), "."),
    ],
)
def test_wrong_computations_are_refused(operator: PerKey, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        operator.bind("p", (SHAPE,))
    assert caught.value.step == "p"


def test_a_wrong_query_is_shown_with_its_place() -> None:
    with pytest.raises(InvalidError) as caught:
        PerKey(("k",), sql="select k,\n  median(xx) as m from input").bind("p", (SHAPE,))
    assert "      median(xx) as m from input\n             ^^" in str(caught.value.detail)


def test_a_query_may_have_braces_and_its_own_with() -> None:
    sql = "with t as (select k, {'n': count(*)} as st from input group by k) select k, st.n as n from t"
    run = OperatorRun(PerKey(("k",), sql=sql), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 1 1 b"))
    assert row_counts(run.output) == {(1, 2): 1}


def test_it_is_stored_and_comes_back() -> None:
    for operator in (PerKey(("k",), sql=MEDIAN), PerKey((), OUT, lambda key, table: pc.sum(table))):
        again = codec.loads(codec.dumps(operator))
        assert (again.key, again.sql, again.schema) == (operator.key, operator.sql, operator.schema)
    binding = PerKey(("k",), sql=MEDIAN).bind("p", (SHAPE,))
    assert codec.loads(codec.dumps(binding)) == binding


def test_a_query_can_break_ties_by_the_place_of_a_row() -> None:
    """The place is the number of a row in the order of all columns; it is no part of the state."""
    sql = "select k, s, row_number() over (partition by k order by x, place) as n from input"
    run = OperatorRun(PerKey(("k",), sql=sql, place="place"), [SHAPE], parallelism=1)
    out = run.epoch(rows(SCHEMA, "+ 1 0.5 c", "+ 1 0.5 a", "+ 2 0.5 z", "+ 1 0.5 b", "+ 1 0.5 b"))
    want = {(1, "a", 1): 1, (1, "b", 2): 1, (1, "b", 3): 1, (1, "c", 4): 1, (2, "z", 1): 1}
    assert row_counts(out) == want


def test_plans_of_before_have_neither_of_the_newer_fields() -> None:
    """The catalog of an older version does not know these fields."""
    raw = json.loads(codec.dumps(PerKey(("k",), sql=MEDIAN)))["value"]
    del raw["fields"]["place"], raw["fields"]["alone"]
    assert codec.decode(raw) == PerKey(("k",), sql=MEDIAN)

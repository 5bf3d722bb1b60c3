"""Kernels: typed when built, canonical when run, one bad row alone."""

from __future__ import annotations

import json
import math
import multiprocessing
import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.kernels import duck, expressions
from millpond.kernels.expression_kernel import (
    Evaluated,
    columns_of,
    compile_expressions,
    compile_predicate,
    evaluate,
    keep,
    rows_as_json,
)
from millpond.kernels.expressions import bind

SCHEMA = pa.schema(
    [
        ("price", pa.int64()),
        ("name", pa.string()),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.int64())),
        ("ts", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("x", pa.int32())])),
    ]
)


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def kept(rows: pa.Table, predicate: str) -> Evaluated:
    return keep(rows, compile_predicate(rows.schema, predicate))


# ---------------------------------------------------------------- when built


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("price", pa.int64()),
        ("price + 1", pa.int64()),
        ("price / 2", pa.float64()),
        ("upper(name)", pa.string()),
        ("price::hugeint", pa.decimal128(38, 0)),
        ("list_sum(tags)", pa.decimal128(38, 0)),
        ("[price::hugeint]", pa.list_(pa.field("l", pa.decimal128(38, 0)))),
        ("null", pa.int32()),
        ("name::json", pa.string()),
        ("ts + interval 1 day", pa.timestamp("us", "UTC")),
        ("ts::date", pa.date32()),
        ("st.x", pa.int32()),
        ("list_transform(tags, lambda x: x + price)", pa.list_(pa.field("l", pa.int64()))),
        ("price -- a comment", pa.int64()),
        ("1.5", pa.decimal128(2, 1)),
    ],
)
def test_expressions_are_typed(sql: str, kind: pa.DataType) -> None:
    assert compile_expressions(SCHEMA, {"x": sql}) == pa.schema([("x", kind)])


def test_a_bare_column_keeps_its_arrow_type() -> None:
    odd = pa.schema([("d", pa.dictionary(pa.int8(), pa.string())), ("t", pa.timestamp("ns"))])
    assert compile_expressions(odd, {"e": "d", "u": '"t"'}).types == odd.types


@pytest.mark.parametrize(
    ("sql", "message", "caret", "hint"),
    [
        ("price * pric", "there is no column 'pric'", "        ^^^^", "did you mean price?"),
        ("price +", "ends too early", "       ^", None),
        ("price + )", 'syntax error at or near ")"', "        ^", None),
        ("'é' || nofn(name)", "there is no scalar function 'nofn'", "       ^^^^^^^^^^", "did you mean"),
        ("price +\n  nam", "there is no column 'nam'", "  ^^^", "did you mean name?"),
        ("abs(name, price)", "no function matches", "^^^^^^^^^^^^^^^^", "cast the arguments"),
        ("cast(name as foo)", "there is no type 'foo'", "             ^^^", "did you mean"),
        ("sum(price)", "an aggregate cannot stand", None, "aggregate step"),
        ("1 + row_number() over ()", "a window function", "    ^^^^^^^^^^^^^^^^^^^^", "over step"),
        ("(select 1)", "a subquery", "^^^^^^^^^^", "join"),
        ("exists (select 1)", "a subquery", None, "join"),
        ("columns(*)", "a star", None, "name the columns"),
        ("price + ?", "a parameter", "        ^", "the value"),
        ("unnest(tags)", "unnest gives many rows", "^^^^^^^^^^^^", "flat map"),
        ("now()", "now reads the clock", "^^^^^", "time column"),
        ("current_date", "current_date reads the clock", "^^^^^^^^^^^^", "time column"),
        ("age(ts)", "age reads the clock", "^^^^^^^", "time column"),
        ("random() + 1", "cannot be used on input that retracts", "^^^^^^^^", "append-only"),
        ("1) from input where (1", "is not one SQL expression", None, "one expression"),
        ("", "empty expression", None, None),
        ("-- nothing", "empty expression", None, None),
        ("interval 1 day", "cannot be stored", "^^^^^^^^^^^^^^", "cast"),
        ("union_value(k := 1)", "cannot be stored", "^^^^^^^^^^^^^^^^^^^", "cast"),
        ("current_localtime()", "reads the clock", "^^^^^^^^^^^^^^^^^^^", "time column"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(
    sql: str, message: str, caret: str | None, hint: str | None
) -> None:
    with pytest.raises(InvalidError) as caught:
        compile_expressions(SCHEMA, {"total": sql}, step="bids")
    error = caught.value
    assert message in error.message
    assert error.message[0].islower() or error.message[0] == "'"
    assert error.step == "bids"
    assert "'total'" in str(error.detail)
    if caret is not None:
        lines = str(error.detail).split("\n")
        assert f"    {caret}" in lines
        assert lines[lines.index(f"    {caret}") - 1].strip() in sql
    if hint is not None:
        assert hint in str(error.hint)


def test_volatile_functions_are_let_over_append_only_input() -> None:
    assert compile_expressions(SCHEMA, {"u": "uuid()"}, append_only=True).types == [pa.string()]


def test_a_condition_must_be_boolean() -> None:
    with pytest.raises(InvalidError, match="true or false, this one is BIGINT"):
        compile_predicate(SCHEMA, "price")
    assert compile_predicate(SCHEMA, "null").type == pa.bool_()


def test_columns_read_are_known() -> None:
    assert columns_of(SCHEMA, "list_transform(tags, lambda name: name + price)") >= {"tags", "price"}
    assert columns_of(SCHEMA, "case when Price > 1 then st.x end") == {"price", "st"}
    assert columns_of(SCHEMA, "1") == frozenset()


def test_columns_that_differ_in_case_only_are_refused_where_they_matter() -> None:
    with pytest.raises(InvalidError, match="differ only in case"):
        compile_expressions(pa.schema([("a", pa.int64()), ("A", pa.int64())]), {"x": "a + 1"})


# ---------------------------------------------------------------- when run


def test_passed_columns_are_not_copied_and_hidden_ones_are_carried() -> None:
    given_table = table(x=[1, 2], s=["a", "b"], _w=[1, -1], _h=pa.array([5, 6], pa.uint64()))
    out = evaluate(given_table, (("t", "s"), ("y", "x * 2"), ("x", "x"))).rows
    assert out.column_names == ["t", "y", "x", "_w", "_h"]
    assert out.to_pylist()[1] == {"t": "b", "y": 4, "x": 2, "_w": -1, "_h": 6}
    for name, source in (("t", "s"), ("x", "x"), ("_w", "_w")):
        ours, theirs = out.column(name).chunk(0).buffers(), given_table.column(source).chunk(0).buffers()
        assert [b.address for b in ours if b] == [b.address for b in theirs if b]


def test_nothing_but_passed_columns_never_meets_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    given_table = table(x=[1, 2])
    evaluate(given_table, (("y", "x"),))
    monkeypatch.setattr(duck, "statement", None)
    monkeypatch.setattr("millpond.kernels.expression_kernel.statement", None)
    assert evaluate(given_table, (("y", "x"),)).rows.to_pylist() == [{"y": 1}, {"y": 2}]


def test_rows_keep_their_order_over_chunks() -> None:
    n = 300_000
    numbers = pa.chunked_array([np.arange(0, 7), np.arange(7, n)])
    out = evaluate(pa.table({"x": numbers}), (("y", "x + 1"), ("x", "x"))).rows
    assert (out.column("y").to_numpy() == out.column("x").to_numpy() + 1).all()
    some = evaluate(pa.table({"x": numbers}), (("y", "x + 1"), ("x", "x")), "x % 3 = 0").rows
    assert some.column("x").to_numpy().tolist() == list(range(0, n, 3))
    assert (some.column("y").to_numpy() == some.column("x").to_numpy() + 1).all()


def test_constants_come_once_per_row() -> None:
    assert evaluate(table(x=[1, 2]), (("one", "1"),)).rows.num_rows == 2
    assert evaluate(table(x=[1, 2]), (("one", "1"),), "x > 1").rows.num_rows == 1


def test_an_empty_table_gives_an_empty_table_of_the_same_schema() -> None:
    empty = SCHEMA.empty_table()
    out = evaluate(empty, (("y", "price + 1"), ("name", "name")), "price > 1").rows
    assert out.num_rows == 0
    assert out.schema == pa.schema([("y", pa.int64()), ("name", pa.string())])


def test_wide_integers_leave_as_decimals() -> None:
    out = evaluate(table(x=[2**62, 5]), (("y", "x::hugeint * 4"),)).rows
    assert out.column("y").to_pylist() == [Decimal(2**64), Decimal(20)]


def test_a_zero_is_a_zero_whatever_its_sign() -> None:
    out = evaluate(table(x=[0.0, -0.0, math.nan, -math.nan]), (("y", "x::varchar"),)).rows
    assert out.column("y").to_pylist() == ["0.0", "0.0", "nan", "nan"]


def test_a_filter_takes_null_for_no() -> None:
    given_table = table(x=[1, None, 3], b=[True, None, False])
    assert kept(given_table, "x > 1").rows.to_pylist() == [{"x": 3, "b": False}]
    assert kept(given_table, "b").rows.to_pylist() == [{"x": 1, "b": True}]
    assert kept(given_table, "null").rows.num_rows == 0


# ---------------------------------------------------------------- bad rows


def test_one_bad_row_stops_no_other() -> None:
    given_table = table(s=["1", "no", None, "4"], n=[1, 2, 3, 4], _w=[1, -1, 1, 2])
    found = evaluate(given_table, (("y", "s::int"), ("n", "n")))
    assert found.rows.to_pylist() == [
        {"y": 1, "n": 1, "_w": 1},
        {"y": None, "n": 3, "_w": 1},
        {"y": 4, "n": 4, "_w": 2},
    ]
    assert found.errors is not None
    (error,) = found.errors.to_pylist()
    assert json.loads(error["row"]) == {"s": "no", "n": 2}
    assert error["reason"] == (
        "Conversion Error: Could not convert string 'no' to INT32 when casting from source column s"
    )
    assert error["_w"] == -1


@pytest.mark.parametrize("other", ["s::int", "s::int + 1", "n * s::int"])
def test_one_bad_row_stops_no_other_where_a_part_of_the_expressions_repeats(other: str) -> None:
    """DuckDB computes such a part once, before it tries what holds it."""
    given_table = table(s=["1", "no", "4"], n=[1, 2, 3], _w=[1, 1, 1])
    found = evaluate(given_table, (("y", "s::int"), ("z", other), ("x", "s::int - 1")))
    assert found.rows.column("y").to_pylist() == [1, 4]
    assert found.errors is not None
    assert [json.loads(e["row"])["s"] for e in found.errors.to_pylist()] == ["no"]


def test_bad_rows_of_a_condition_and_of_what_follows_it() -> None:
    given_table = table(s=["1", "no", "4", "9"], n=["1", "2", "x", "x"])
    found = evaluate(given_table, (("y", "n::int"),), "s::int < 9")
    assert found.rows.to_pylist() == [{"y": 1}]
    assert found.errors is not None
    assert [json.loads(e["row"])["s"] for e in found.errors.to_pylist()] == ["no", "4"]


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_an_and_or_or_may_be_as_long_as_one_likes(word: str) -> None:
    """The last of them fails for every row that reaches it."""
    rows = pa.table({"a": pa.array([3, 400, -1, None])})
    one = "a + 0 <> {}" if word == "AND" else "a + 0 = {}"
    sql = f" {word} ".join([*(one.format(n) for n in range(500)), "error('reached')"])
    kept = keep(rows, compile_predicate(rows.schema, sql))
    assert kept.rows.column("a").to_pylist() == ([] if word == "AND" else [3, 400])
    values = evaluate(rows, (("x", sql),))
    assert values.rows.column("x").to_pylist() == [word == "OR"] * 2
    assert values.errors is not None and values.errors.num_rows == 2


def test_the_right_side_of_and_and_or_is_for_rows_that_reach_it() -> None:
    given_table = table(s=["1", "", "4", None])
    for predicate, expected in [
        ("s <> '' and s::int > 1", ["4"]),
        ("s = '' or s::int > 1", ["", "4"]),
        ("not (s = '' or s::int > 1)", ["1"]),
        ("not (s <> '' and s::int > 1)", ["1", ""]),
        ("(s = '' or s::int > 1) and (s <> '' and s::int > 2)", ["4"]),
    ]:
        found = kept(given_table, predicate)
        assert found.errors is None, predicate
        assert found.rows.column("s").to_pylist() == expected, predicate


def kleene(tree: Any, row: dict[str, bool | None]) -> bool | None:
    """Three-valued logic, the slow and plain way."""
    if isinstance(tree, str):
        return row[tree]
    verb, *operands = tree
    values = [kleene(operand, row) for operand in operands]
    if verb == "not":
        return None if values[0] is None else not values[0]
    stop = verb == "or"
    return stop if stop in values else None if None in values else not stop


def as_sql(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    verb, *operands = tree
    if verb == "not":
        return f"(not {as_sql(operands[0])})"
    return "(" + f" {verb} ".join(map(as_sql, operands)) + ")"


CONDITIONS = st.recursive(
    st.sampled_from(["a", "b", "c"]),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
        | st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(CONDITIONS)
def test_and_and_or_keep_their_three_values(tree: Any) -> None:
    truths = [True, False, None]
    values = [{"a": a, "b": b, "c": c} for a in truths for b in truths for c in truths]
    rows = pa.table({name: pa.array([v[name] for v in values], pa.bool_()) for name in "abc"})
    expected = [kleene(tree, row) for row in values]
    assert evaluate(rows, (("x", as_sql(tree)),)).rows.column("x").to_pylist() == expected
    assert kept(rows, as_sql(tree)).rows.num_rows == expected.count(True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["1", "2", "x", "y", "", None]), max_size=40), st.randoms())
def test_what_a_row_gives_does_not_depend_on_the_rows_beside_it(texts: list[str | None], random: Any) -> None:
    expressions = (("y", "10 / s::int"), ("s", "s"))

    def of(some: list[str | None]) -> list[str]:
        found = evaluate(pa.table({"s": pa.array(some, pa.string())}), expressions)
        errors = [] if found.errors is None else found.errors.to_pylist()
        return sorted(map(repr, [*found.rows.to_pylist(), *errors]))

    shuffled = random.sample(texts, len(texts))
    assert of(shuffled) == sorted(text for one in texts for text in of([one]))


def test_errors_that_duckdb_cannot_try_are_found_by_halves() -> None:
    given_table = table(n=list(range(100)))
    found = evaluate(
        given_table, (("y", "case when n % 40 = 7 then error('bad ' || n) else n::varchar end"),)
    )
    assert found.rows.num_rows == 97
    assert found.errors is not None
    assert [e["reason"] for e in found.errors.to_pylist()] == [
        f"Invalid Input Error: bad {n}" for n in (7, 47, 87)
    ]


def test_an_error_that_is_not_the_rows_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> pa.Table:
        raise duckdb.OutOfMemoryException("Out of Memory Error: no more")

    monkeypatch.setattr(duck.PreparedQuery, "run", broken)
    with pytest.raises(duckdb.OutOfMemoryException):
        evaluate(table(x=[1]), (("y", "x + 1"),))


def test_rows_as_json_is_one_line_of_every_type() -> None:
    rows = pa.table(
        {
            "f": [-0.0, math.nan],
            "t": pa.array([0, None], pa.timestamp("us")),
            "b": [b"\x00", b"z"],
            "l": [[1, None], None],
            "s": ["a\nb", "é"],
            "_w": [1, 1],
        }
    )
    one, two = rows_as_json(rows).to_pylist()
    assert json.loads(one) == {
        "f": 0.0,
        "t": "1970-01-01 00:00:00",
        "b": "\\x00",
        "l": [1, None],
        "s": "a\nb",
    }
    assert "\n" not in one
    assert json.loads(two)["s"] == "é"
    assert rows_as_json(pa.table({"_w": [1, 1]})).to_pylist() == ["{}", "{}"]


def strict(text: str) -> Any:
    """JSON as every parser reads it: Python's takes NaN and Infinity for numbers."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_rows_as_json_has_no_number_that_json_lacks() -> None:
    nested = pa.struct([("x", pa.float32()), ("l", pa.list_(pa.float64()))])
    rows = pa.table(
        {
            "f": [math.nan, math.inf, -math.inf, 1.5],
            "s": ['"NaN', "Infinity", "\\", "x"],
            "n": pa.array(
                [{"x": math.nan, "l": [math.inf, 2.0]}, {"x": -math.inf, "l": None}, None, None], nested
            ),
            "m": pa.array([[("k", math.nan)], [], None, None], pa.map_(pa.string(), pa.float64())),
        }
    )
    one, two, three, four = [strict(text) for text in rows_as_json(rows).to_pylist()]
    assert one == {"f": "NaN", "s": '"NaN', "n": {"x": "NaN", "l": ["Infinity", 2.0]}, "m": {"k": "NaN"}}
    assert two == {"f": "Infinity", "s": "Infinity", "n": {"x": "-Infinity", "l": None}, "m": {}}
    assert three == {"f": "-Infinity", "s": "\\", "n": None, "m": None}
    assert four["f"] == 1.5


# ---------------------------------------------------------------- processes and threads


def _in_child(queue: Any, parent: duckdb.DuckDBPyConnection) -> None:
    out = evaluate(table(x=[20]), (("y", "x + 1"),)).rows.to_pylist()
    queue.put((out, duck._session.kernel is parent))


def test_a_forked_child_has_connections_of_its_own() -> None:
    evaluate(table(x=[1]), (("y", "x + 1"),))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, duck._session.kernel))
    child.start()
    assert queue.get(timeout=30) == ([{"y": 21}], False)
    child.join(timeout=120)
    assert child.exitcode == 0
    assert evaluate(table(x=[2]), (("y", "x + 1"),)).rows.to_pylist() == [{"y": 3}]


def test_threads_do_not_meet() -> None:
    wrong = []

    def work(number: int) -> None:
        for i in range(30):
            out = evaluate(table(x=[number * 100 + i]), (("y", "x + 1"),)).rows.to_pylist()
            if out != [{"y": number * 100 + i + 1}]:
                wrong.append(out)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_statements_are_bounded_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    duck.close()
    monkeypatch.setattr(duck, "STATEMENTS_MAX", 3)
    for _ in range(2):
        for k in range(6):
            assert evaluate(table(x=[1]), (("y", f"x + {k}"),)).rows.to_pylist() == [{"y": 1 + k}]
    assert len(duck._session.statements) == 3


def test_kernels_cannot_reach_files() -> None:
    with pytest.raises(duckdb.Error):
        duck.binder().execute("select * from read_csv('/etc/hosts')").fetchall()


def test_rows_in_several_chunks_keep_their_order() -> None:
    """DuckDB was seen to give the rows of a short second chunk first, under a condition in three parts."""
    rows = pa.table(
        {
            "a": [f"Brand#{i % 5}{i % 7}" for i in range(127)],
            "b": [f"{'MEDIUM' if i % 3 else 'LARGE'} {i}" for i in range(127)],
            "c": pa.array([i * 7 % 50 for i in range(127)], pa.int32()),
        }
    )
    sql = "(a <> 'Brand#45') AND (b NOT LIKE 'MEDIUM 1%') AND (c IN (49, 14, 23, 45, 19, 3, 36, 9))"
    condition = compile_predicate(rows.schema, sql, append_only=True)
    wanted = keep(rows, condition).rows
    assert 0 < wanted.num_rows < 127
    for cut in (1, 59, 68, 126):
        parts = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
        assert keep(parts, condition).rows.combine_chunks().equals(wanted.combine_chunks()), cut


def test_a_failure_of_duckdb_itself_ends_neither_the_statement_nor_the_others() -> None:
    """DuckDB 2.0 fails when it joins by lists a second time, and its database with all its statements is gone."""
    schema = pa.schema([("side", pa.int32()), ("k", pa.list_(pa.string())), ("t", pa.int32())])
    left, right = (f"(select * from {{0}} where side = {n})" for n in range(2))
    text = f"select l.t, r.t as u from {left} l asof left join {right} r on l.k = r.k and l.t < r.t"
    rows = pa.Table.from_pylist([{"side": n, "k": ["a"], "t": n} for n in range(2)], schema=schema)
    other = lambda: duck.statement("other", lambda view: f"select t from {view}", schema)  # noqa: E731
    for _ in range(3):
        joined = duck.statement("by lists", text.format, schema)
        assert joined.run(rows).to_pylist() == [{"t": 0, "u": 1}]
        assert other().run(rows).num_rows == 2


def test_a_statement_that_always_fails_leaves_a_database_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("t", pa.int32())])
    rows = pa.table({"t": [1]}, schema)
    broken = duck.statement("broken", lambda view: f"select t from {view}", schema)

    def fail(*_: Any) -> Any:
        raise duckdb.InternalException("INTERNAL Error: for the test")

    monkeypatch.setattr(broken, "_run", fail)
    before = broken._con
    with pytest.raises(duckdb.InternalException, match="for the test"):
        broken.run(rows)
    after = duck.statement("broken", lambda view: f"select t from {view}", schema)
    assert after is not broken and after._con is not before and after.run(rows).to_pylist() == [{"t": 1}]


@pytest.mark.parametrize("sql", ["a IS NULL", "a IS NOT NULL AND b IS NULL", "b IS NULL AND s IS NULL"])
def test_whether_columns_are_null_is_told_without_a_query(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [1, None, 3, None], "b": [None, None, 0.5, 1.0], "s": ["x", None, None, None]})
    several = pa.concat_tables([rows, rows.slice(0, 2), rows.slice(0, 0), rows.slice(2)])
    condition = compile_predicate(rows.schema, sql)
    wanted = keep(several, replace(condition, absent=())).rows
    monkeypatch.setattr("millpond.kernels.expression_kernel._compute", None)  # would be called otherwise
    assert keep(several, condition).rows.equals(wanted)
    full = pa.table({"a": [1, 2], "b": [0.5, 1.0], "s": ["x", "y"]})
    assert keep(full, condition).rows.num_rows == 0


@pytest.mark.parametrize(
    "sql", ["a IS NULL OR b IS NULL", "a + 1 IS NULL", "a IS NULL AND b > 1", "NOT (a IS NULL)"]
)
def test_other_conditions_are_asked(sql: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    assert compile_predicate(schema, sql).absent == ()


def test_an_expression_is_bound_once_for_all_steps_and_refused_in_the_words_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = bind(SCHEMA, "price * 2 + 41", name="a", step="one")
    for step in ("one", "two"):
        with pytest.raises(InvalidError, match="'b'") as refused:
            bind(SCHEMA, "price *", name="b", step=step)
        assert refused.value.step == step
    monkeypatch.setattr(expressions, "binder", lambda: pytest.fail("bound again"))
    assert bind(SCHEMA, "price * 2 + 41", name="c", step="three") is first
    with pytest.raises(pytest.fail.Exception):
        bind(SCHEMA, "price * 2 + 41", name="c", step="three", append_only=True)

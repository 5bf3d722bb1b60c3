"""What is computed once for equal rows is what each of them would have given (law 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond import tuning
from millpond.kernels import distinct_row_cache, expression_kernel
from millpond.kernels.duck import PreparedQuery
from millpond.kernels.expression_kernel import compile_predicate, evaluate, keep

SIZE = 3000


@pytest.fixture
def rows() -> pa.Table:
    rng = np.random.default_rng(2)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        drawn = [values[n] for n in rng.integers(0, len(values), SIZE)]
        return pa.array(drawn, kind, mask=rng.random(SIZE) < 0.05)

    columns = {
        "url": some([f"https://x/{a}/{b}?id={a * b}" for a in range(9) for b in range(5)], pa.string()),
        "name": some(["apple", "Pear", "", "Zoë"], pa.string()),
        "since": some([n * 61_000_000 for n in range(50)], pa.timestamp("us")),
        "n": pa.array(rng.integers(0, 9, SIZE)),
        "own": pa.array([f"{n}" for n in range(SIZE)]),
        "f": pa.array(rng.random(SIZE)),
    }
    table = pa.table(columns)
    return pa.concat_tables([table.slice(0, 1100), table.slice(1100)])


ASKED = (
    ("dir", "split_part(url, '/', 4)"),
    ("file", "split_part(url, '/', 5)"),
    (
        "id",
        "CASE WHEN name = 'apple' OR url IS NULL THEN name ELSE regexp_extract(url, 'id=([0-9]*)', 1) END",
    ),
    ("minute", "strftime(since, '%H:%M')"),
    ("more", "n + 1"),
    ("half", "f / 2"),
    ("both", "own || name"),
    ("url", "url"),
)


def test_equal_rows_are_computed_once(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = evaluate(rows, ASKED).rows
    condition = compile_predicate(rows.schema, "lower(name) IN ('apple', 'pear') OR length(url) > 15")
    kept = keep(rows, condition).rows
    asked: dict[int, int] = {}
    run = PreparedQuery.run

    def noted(self: PreparedQuery, *tables: pa.Table) -> pa.Table:
        asked[tables[0].num_columns] = max(tables[0].num_rows, asked.get(tables[0].num_columns, 0))
        return run(self, *tables)

    monkeypatch.setattr(PreparedQuery, "run", noted)
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    assert evaluate(rows, ASKED).rows.equals(wanted)
    assert asked[1] <= 51, "the two parts of the url, and the minutes"
    asked.clear()
    assert keep(rows, condition).rows.equals(kept) and 0 < kept.num_rows < SIZE
    assert max(asked.values()) <= 46 * 5


def test_a_row_that_fails_is_an_error_row_all_the_same(
    rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (("number", "CASE name WHEN 'apple' THEN '1' WHEN '' THEN '2' ELSE name END::int"),)
    wanted = evaluate(rows, asked)
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    found = evaluate(rows, asked)
    assert found.rows.equals(wanted.rows) and found.errors is not None and wanted.errors is not None
    assert found.errors.equals(wanted.errors) and found.errors.num_rows > SIZE // 4


@pytest.mark.parametrize("sql", ["name || random()::text", "uuid()::text || name"])
def test_what_is_not_steady_is_computed_for_every_row(
    sql: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "DISTINCT_ROWS_MIN", 1)
    found = evaluate(rows.select(["name"]).filter(pc.is_valid(rows["name"])), (("x", sql),)).rows
    assert len(set(found["x"].to_pylist())) == found.num_rows


def test_rows_that_do_not_repeat_are_computed_as_they_are(rows: pa.Table) -> None:
    condition = compile_predicate(rows.schema, "length(own) > 2")
    fed = rows.select(["own"])
    assert distinct_row_cache.computed(fed, [condition], lambda _: fed) is None  # too few to look
    assert expression_kernel.keep(rows, condition).rows.num_rows == SIZE - 100

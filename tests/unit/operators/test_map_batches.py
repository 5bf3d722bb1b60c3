"""MapBatches: a function that knows nothing of weights."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError, UnavailableError
from millpond.operators.map_batches import MapBatches
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64())])
SHAPE = Shape(SCHEMA, append_only=False)
OUT = pa.schema([("y", pa.float64()), ("k", pa.int64())])


def double_and_split(table: pa.Table) -> pa.Table:
    """Rows with a key, doubled, once more with the key negated."""
    table = table.filter(pc.is_valid(table.column("k")))
    doubled = pc.multiply(table.column("x"), 2.0)
    one = pa.table({"y": doubled, "k": table.column("k")})
    two = pa.table({"y": doubled, "k": pc.negate(table.column("k"))})
    return pa.concat_tables([one, two])


SQL = """
select x * 2 as y, k from input0 where k is not null
union all select x * 2 as y, -k as k from input0 where k is not null
"""


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), parallelisms())
def test_it_is_the_function_over_all_rows(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(MapBatches(double_and_split, OUT), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(SQL)


def test_the_function_sees_the_users_columns_only_and_weights_apart() -> None:
    seen: list[list[dict[str, Any]]] = []

    def look(table: pa.Table) -> pa.Table:
        assert table.schema == SCHEMA
        seen.append(table.to_pylist())
        return table

    operator = MapBatches(look, SCHEMA)
    run = OperatorRun(operator, [SHAPE])
    delta = rows(SCHEMA, "+ 1 0.5", "- 2 -0.0", "+2 3 1", "+ 4 NaN")
    out = operator.apply(run, operator.bind("b", (SHAPE,)), (delta,)).out  # type: ignore[arg-type]
    assert out is not None
    assert [[row["k"] for row in batch] for batch in seen] == [[2], [1, 4], [3]]
    assert math.copysign(1, seen[0][0]["x"]) == 1  # one zero
    assert row_counts(out) == {(2, 0.0): -1, (1, 0.5): 1, (4, "NaN"): 1, (3, 1.0): 2}


def test_a_record_batch_and_another_order_of_columns_will_do() -> None:
    def given_as_batch(table: pa.Table) -> Any:
        return pa.record_batch(
            {"k": table.column("k").combine_chunks(), "y": pa.nulls(table.num_rows, pa.float64())}
        )

    run = OperatorRun(MapBatches(given_as_batch, OUT), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 2"))
    assert row_counts(run.output) == {(None, 1): 1}


def fails(table: pa.Table, *, text: str = "no such thing") -> pa.Table:
    if table.num_rows:
        raise ValueError(text)
    return table


def test_an_exception_names_the_step_and_the_users_line() -> None:
    run = OperatorRun(
        MapBatches(partial(fails, text="odd\nvalue"), OUT), [SHAPE], step="enrich", parallelism=1
    )
    with pytest.raises(InvalidError) as caught:
        run.epoch(rows(SCHEMA, "+ 1 2"))
    line = fails.__code__.co_firstlineno + 2
    assert caught.value.step == "enrich"
    assert caught.value.epoch == 1
    assert caught.value.message.startswith("fails failed on a batch of ")
    assert caught.value.detail == f"ValueError: odd value (test_map_batches.py:{line})"
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_ours_keeps_its_kind() -> None:
    def away(table: pa.Table) -> pa.Table:
        raise UnavailableError("the model server is away")

    with pytest.raises(UnavailableError):
        OperatorRun(MapBatches(away, OUT), [SHAPE]).epoch(rows(SCHEMA, "+ 1 2"))


@pytest.mark.parametrize(
    ("given_back", "message", "detail"),
    [
        (None, "must return an Arrow table", "it returned NoneType"),
        (pa.table({"y": [1.0]}), "other columns", "returned y; declared y, k"),
        (pa.table({"y": [1.0], "k": ["a"]}), "another type", "column 'k' is string, declared int64"),
    ],
)
def test_another_result_than_declared_is_refused(given_back: Any, message: str, detail: str) -> None:
    run = OperatorRun(MapBatches(lambda table: given_back, OUT), [SHAPE], step="enrich")
    with pytest.raises(InvalidError, match=message) as caught:
        run.epoch(rows(SCHEMA, "+ 1 2"))
    assert caught.value.detail == detail
    assert caught.value.step == "enrich"


def test_it_is_stored_and_comes_back() -> None:
    factor = 3.0
    operator = MapBatches(lambda t: t.set_column(1, "x", pc.multiply(t.column("x"), factor)), SCHEMA)
    again = codec.loads(codec.dumps(operator))
    run = OperatorRun(again, [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 2"))
    assert row_counts(run.output) == {(1, 6.0): 1}
    assert operator.requires(run.binding, frozenset()) == (frozenset({"k", "x"}),)

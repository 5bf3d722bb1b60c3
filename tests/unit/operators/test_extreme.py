"""The best row of every key against the batch query, and what that may touch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.delta import weights
from millpond.errors import InvalidError
from millpond.operators.extreme import Extreme
from millpond.operators.operator import Shape
from millpond.operators.per_key import PerKey
from millpond.ordering import Order
from millpond.plan import codec
from millpond.state.tables.table import RowsByKey, Table
from tests.unit.operators.churn import churn, summed
from tests.unit.operators.harness import OperatorRun, assert_same_rows, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("t", pa.bool_())])
SHAPE = Shape(SCHEMA, append_only=False)
MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

operators = st.builds(
    Extreme,
    st.sampled_from([(), ("k",), ("k", "t")]),
    st.lists(
        st.builds(Order, st.sampled_from(["x", "s"]), st.booleans(), st.booleans()),
        min_size=1,
        max_size=2,
        unique_by=lambda o: o.column,
    ).map(tuple),
    st.sampled_from([("s",), ("x", "s"), ("t",), ("k", "x")]),
)


def batch(extreme: Extreme) -> str:
    """DISTINCT ON, ties broken by the other columns the step looks at."""
    ordered = [o.column for o in extreme.order]
    shown = list(dict.fromkeys([*extreme.key, *extreme.columns]))
    rest = [c for c in dict.fromkeys([*shown, *ordered]) if c not in (*extreme.key, *ordered)]
    terms = [
        f"{o.column} {'desc' if o.descending else 'asc'} nulls {'first' if o.nulls_first else 'last'}"
        for o in (*extreme.order, *(Order(c) for c in rest))
    ]
    parts = f"partition by {', '.join(extreme.key)}" if extreme.key else ""
    number = f"row_number() over ({parts} order by {', '.join(terms)})"
    return f"select {', '.join(shown)} from input0 qualify {number} = 1"


def play(run: OperatorRun, sql: str, given_deltas: list[pa.Table], parallelism: int) -> None:
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + 3 * number) % 7 + 1)
        run.check_against(sql)
        if number % 3 == 1:
            run.compact()


@settings(max_examples=20 * MORE, deadline=None)
@given(operators, deltas(SCHEMA, epochs=6, rows_max=8), parallelisms())
def test_the_best_row_is_that_of_the_batch_query(
    extreme: Extreme, given_deltas: list[pa.Table], parallelism: int
) -> None:
    play(OperatorRun(summed(extreme), [SHAPE]), batch(extreme), given_deltas, parallelism)


@settings(max_examples=10 * MORE, deadline=None)
@given(operators, deltas(SCHEMA, epochs=6, rows_max=8, append_only=True), parallelisms())
def test_append_only_input_keeps_one_row_a_key(
    extreme: Extreme, given_deltas: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(summed(extreme), [Shape(SCHEMA, append_only=True)])
    assert [table.name for table in run.binding.tables] == ["step/best"]
    play(run, batch(extreme), given_deltas, parallelism)


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_many_keys_at_once(descending: bool, append_only: bool) -> None:
    extreme = Extreme(("k", "t"), (Order("x", descending, nulls_first=not descending),), ("s",))
    run = OperatorRun(summed(extreme), [Shape(SCHEMA, append_only=append_only)])
    source = churn(SCHEMA, [[None, *range(6)], [None, *range(9)], [None, *"abcdefgh"], [None, True]], 4)
    script = [next(source) for _ in range(6)]
    if append_only:
        script = [delta.filter(pa.array(weights(delta) > 0)) for delta in script]
    play(run, batch(extreme), script, 2)


@settings(max_examples=10 * MORE, deadline=None)
@given(operators.filter(lambda extreme: bool(extreme.key)), deltas(SCHEMA, rows_max=8))
def test_every_delta_is_that_of_the_generic_operator(extreme: Extreme, given_deltas: list[pa.Table]) -> None:
    fast = OperatorRun(summed(extreme), [SHAPE])
    slow = OperatorRun(PerKey(extreme.key, sql=batch(extreme).replace("input0", "input")), [SHAPE])
    for delta in given_deltas:
        assert_same_rows(row_counts(fast.epoch(delta)), row_counts(slow.epoch(delta)))


# ---------------------------------------------------------------- single cases

LATEST = Extreme(("k",), (Order("x", descending=True),), ("s",))


def test_a_better_row_takes_the_place_and_gives_it_back() -> None:
    run = OperatorRun(LATEST, [SHAPE])
    assert row_counts(run.epoch(rows(SCHEMA, "+ 1 1 a true", "+ 1 3 c true"))) == {(1, "c"): 1}
    assert row_counts(run.epoch(rows(SCHEMA, "+ 1 4 d true"))) == {(1, "c"): -1, (1, "d"): 1}
    assert run.epoch(rows(SCHEMA, "- 1 3 c true")).num_rows == 0
    assert row_counts(run.epoch(rows(SCHEMA, "- 1 4 d true"))) == {(1, "d"): -1, (1, "a"): 1}
    assert row_counts(run.epoch(rows(SCHEMA, "- 1 1 a true"))) == {(1, "a"): -1}
    assert run.state("best").num_rows == 0


def test_one_of_two_equal_best_rows_may_go() -> None:
    run = OperatorRun(LATEST, [SHAPE])
    run.epoch(rows(SCHEMA, "+2 1 1 a true", "+ 1 0 b true"))
    assert run.epoch(rows(SCHEMA, "- 1 1 a true")).num_rows == 0
    assert row_counts(run.epoch(rows(SCHEMA, "- 1 1 a true"))) == {(1, "a"): -1, (1, "b"): 1}


def test_a_change_of_the_order_alone_is_kept_and_not_sent() -> None:
    run = OperatorRun(LATEST, [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a true"))
    assert run.epoch(rows(SCHEMA, "+ 1 5 a true")).num_rows == 0
    assert row_counts(run.epoch(rows(SCHEMA, "+ 1 4 b true"))) == {}
    assert run.state("best").column("_x").to_pylist() == [5.0]


def test_an_output_that_nobody_reads_is_not_made() -> None:
    run = OperatorRun(LATEST, [SHAPE], wanted=False)
    assert run.epoch(rows(SCHEMA, "+ 1 1 a true")).num_rows == 0
    assert row_counts(run.view()) == {(1, "a"): 1}


def test_shape() -> None:
    binding = LATEST.bind("e", (SHAPE,))
    assert (binding.shape.key, binding.placed_by, binding.view) == (("k",), ("k",), "e/best")
    assert binding.shape.schema.names == ["k", "s"]
    assert LATEST.requires(binding, frozenset({"s"})) == (frozenset({"k", "s", "x"}),)
    assert codec.loads(codec.dumps(binding)) == binding
    with pytest.raises(InvalidError, match="no column named 'q'"):
        Extreme(("k",), (Order("q"),), ("s",)).bind("e", (SHAPE,))


# ---------------------------------------------------------------- cost


def test_a_hot_key_costs_its_change(monkeypatch: pytest.MonkeyPatch) -> None:
    run = OperatorRun(LATEST, [SHAPE], parallelism=1)
    size = 100_000
    numbers = np.arange(size)
    run.epoch(
        pa.table(
            {
                "k": np.full(size, 1),
                "x": numbers.astype(float),
                "s": pa.array(numbers).cast("string"),
                "t": numbers > 5,
            }
        )
    )
    asked: list[int] = []
    head = Table.head

    def counted(table: Table, *arguments: Any) -> RowsByKey:
        found = head(table, *arguments)
        asked.append(found.table.num_rows)
        return found

    monkeypatch.setattr(Table, "head", counted)
    run.epoch(rows(SCHEMA, "+ 1 3.5 new true", "- 1 7 7 true", f"+ 1 {size} new true"))
    assert asked == []  # the best row was not taken from
    out = run.epoch(rows(SCHEMA, f"- 1 {size} new true", f"- 1 {size - 1} {size - 1} true"))
    assert row_counts(out) == {(1, "new"): -1, (1, str(size - 2)): 1}
    assert asked == [3, 3]  # the harness plays an epoch twice


def test_senders_of_append_only_input_send_one_row_a_key() -> None:
    run = OperatorRun(LATEST, [Shape(SCHEMA, append_only=True)])
    delta = rows(SCHEMA, "+ 1 1 a true", "+ 1 3 c true", "+3 2 1 a true", "+ NULL NULL z true")
    sent = run.operator.prepare(run.binding, 0, delta)  # type: ignore[attr-defined]
    assert row_counts(sent) == {(1, "c", 3.0): 1, (2, "a", 1.0): 1, (None, "z", None): 1}

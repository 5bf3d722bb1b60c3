"""Top-n against window functions of the batch query, and what it may touch."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import hashing
from millpond.delta import weights
from millpond.errors import InvalidError
from millpond.operators.operator import Shape, by_key
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import BUCKET, TopN
from millpond.ordering import Order
from millpond.plan import codec
from millpond.state.runs.segment import Segment
from tests.unit.operators.churn import churn, summed
from tests.unit.operators.harness import OperatorRun, assert_same_rows, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)
MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

orders = st.lists(
    st.builds(Order, st.sampled_from(["x", "s"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=2,
    unique_by=lambda o: o.column,
).map(tuple)
operators = st.builds(
    TopN,
    st.sampled_from([(), ("k",), ("k", "s")]),
    orders,
    n=st.integers(1, 3),
    offset=st.sampled_from([0, 0, 0, 1, 2]),
    with_ties=st.booleans(),
    rank_column=st.sampled_from([None, "place"]),
)


def sort_key(orders_: tuple[Order, ...]) -> str:
    return ", ".join(
        f"{o.column} {'desc' if o.descending else 'asc'} nulls {'first' if o.nulls_first else 'last'}"
        for o in orders_
    )


def batch(top: TopN) -> str:
    """The same by window functions: row_number() breaks ties by all other columns, rank() keeps them."""
    used = {*top.key, *(o.column for o in top.order)}
    total = top.order + tuple(Order(name) for name in SCHEMA.names if name not in used)
    parts = f"partition by {', '.join(top.key)}" if top.key else ""
    number = f"row_number() over ({parts} order by {sort_key(total)})"
    rank = f"rank() over ({parts} order by {sort_key(top.order)})"
    shown = [*SCHEMA.names]
    if top.rank_column is not None:
        shown.append(f"{rank if top.with_ties else number} as {top.rank_column}")
    upto = rank if top.with_ties else number
    return (
        f"select {', '.join(shown)} from input0 "
        f"qualify {number} > {top.offset} and {upto} <= {top.offset + top.n}"
    )


def play(run: OperatorRun, sql: str, given_deltas: list[pa.Table], parallelism: int) -> None:
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + 3 * number) % 7 + 1)
        run.check_against(sql)
        if number % 3 == 1:
            run.compact()


@settings(max_examples=25 * MORE, deadline=None)
@given(operators, deltas(SCHEMA, epochs=6, rows_max=8), parallelisms())
def test_the_head_of_every_key_is_that_of_the_batch_query(
    top: TopN, given_deltas: list[pa.Table], parallelism: int
) -> None:
    play(OperatorRun(summed(top), [SHAPE]), batch(top), given_deltas, parallelism)


@pytest.mark.slow
@settings(max_examples=12 * MORE, deadline=None)
@given(operators, deltas(SCHEMA, epochs=6, rows_max=8, append_only=True), parallelisms())
def test_append_only_input_needs_no_more_than_the_heads(
    top: TopN, given_deltas: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(summed(top), [Shape(SCHEMA, append_only=True)])
    play(run, batch(top), given_deltas, parallelism)
    whole = replace(top, n=top.last, offset=0, rank_column=None)
    kept = row_counts(run.state("head").select([*SCHEMA.names, "_w"]))
    expected = OperatorRun(whole, [SHAPE])
    for delta in given_deltas:
        expected.epoch(delta)
    assert_same_rows(kept, row_counts(expected.output), "state", "heads")


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize("with_ties", [False, True])
@pytest.mark.parametrize("rank_column", [None, "place"])
def test_many_keys_at_once(rank_column: str | None, with_ties: bool, append_only: bool) -> None:
    order = (Order("x", descending=True), Order("s", nulls_first=True))[: 1 if with_ties else 2]
    top = TopN(("k",), order, 4, 2, with_ties=with_ties, rank_column=rank_column)
    run = OperatorRun(summed(top), [Shape(SCHEMA, append_only=append_only)])
    source = churn(SCHEMA, [[None, *range(6)], [None, *range(9)], [None, *"abcdefgh"]], 3)
    script = [next(source) for _ in range(6)]
    if append_only:
        script = [delta.filter(pa.array(weights(delta) > 0)) for delta in script]
    play(run, batch(top), script, 2)


@settings(max_examples=10 * MORE, deadline=None)
@given(operators, st.booleans(), st.integers(1, 3), st.data(), parallelisms())
def test_two_stages_give_what_one_gives(
    top: TopN, append_only: bool, buckets: int, data: st.DataObject, parallelism: int
) -> None:
    given_deltas = data.draw(deltas(SCHEMA, rows_max=8, append_only=append_only))
    first, second = top.split(buckets)
    one = OperatorRun(first, [Shape(SCHEMA, append_only=append_only)])
    two = OperatorRun(second, [one.binding.shape])
    for number, delta in enumerate(given_deltas):
        two.epoch(one.epoch(delta, parallelism=(parallelism + number) % 7 + 1))
        assert_same_rows(row_counts(two.output), row_counts(_batch(top, one)))


def _batch(top: TopN, source: OperatorRun) -> pa.Table:
    reader = OperatorRun(summed(top), [SHAPE])
    reader.inputs = source.inputs
    return reader.batch(batch(top))


@settings(max_examples=10 * MORE, deadline=None)
@given(operators.filter(lambda top: bool(top.key)), deltas(SCHEMA, rows_max=8))
def test_every_delta_is_that_of_the_generic_operator(top: TopN, given_deltas: list[pa.Table]) -> None:
    fast = OperatorRun(summed(top), [SHAPE])
    slow = OperatorRun(PerKey(top.key, sql=batch(top).replace("input0", "input")), [SHAPE])
    for delta in given_deltas:
        assert_same_rows(row_counts(fast.epoch(delta)), row_counts(slow.epoch(delta)))


# ---------------------------------------------------------------- single cases


def test_duplicates_take_a_place_each() -> None:
    run = OperatorRun(TopN(("k",), (Order("x"),), 3), [SHAPE])
    run.epoch(rows(SCHEMA, "+2 1 0.5 a", "+3 1 0.5 b"))
    assert row_counts(run.output) == {(1, 0.5, "a"): 2, (1, 0.5, "b"): 1}
    run.epoch(rows(SCHEMA, "- 1 0.5 a"))
    assert row_counts(run.output) == {(1, 0.5, "a"): 1, (1, 0.5, "b"): 2}


def test_an_update_behind_the_head_says_nothing() -> None:
    run = OperatorRun(TopN(("k",), (Order("x"),), 1), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 1 2 b", "+ 1 3 c"))
    assert run.epoch(rows(SCHEMA, "- 1 3 c", "+ 1 4 c")).num_rows == 0
    assert row_counts(run.epoch(rows(SCHEMA, "- 1 1 a"))) == {(1, 1.0, "a"): -1, (1, 2.0, "b"): 1}


def test_ranks_move_with_what_comes_before() -> None:
    run = OperatorRun(TopN((), (Order("x"),), 2, rank_column="r"), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 1 2 b"))
    out = run.epoch(rows(SCHEMA, "+ 1 0 c"))
    assert row_counts(out) == {
        (1, 0.0, "c", 1): 1,
        (1, 1.0, "a", 1): -1,
        (1, 1.0, "a", 2): 1,
        (1, 2.0, "b", 2): -1,
    }
    assert run.binding.shape.key == ("r",)


def test_shape_and_placement() -> None:
    top = TopN(("k",), (Order("x"),), 5)
    assert top.bind("t", (SHAPE,)).shape.key is None
    assert replace(top, n=1).bind("t", (SHAPE,)).shape.key == ("k",)
    assert replace(top, rank_column="r").bind("t", (SHAPE,)).shape.key == ("k", "r")
    assert replace(top, rank_column="r", with_ties=True).bind("t", (SHAPE,)).shape.key is None
    keyed = replace(SHAPE, key=("s",))
    assert top.bind("t", (keyed,)).shape.key == ("s",)
    assert top.bind("t", (SHAPE,)).placed_by == ("k",)
    first, second = replace(top, offset=2, rank_column="r").split(4)
    assert (first.n, first.offset, first.rank_column) == (7, 0, None)
    assert second == replace(top, offset=2, rank_column="r")
    binding = first.bind("t", (SHAPE,))
    assert binding.placements == (by_key("k", BUCKET),)
    assert binding.placed_by is None
    assert binding.shape.schema.names == SCHEMA.names
    assert first.requires(binding, frozenset()) == (frozenset(SCHEMA.names),)
    assert codec.loads(codec.dumps(binding)) == binding


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (TopN(("k",), (Order("x"),), 0), "positive n"),
        (TopN(("k",), (Order("x"),), 1, offset=-1), "positive n"),
        (TopN(("q",), (Order("x"),), 1), "no column named 'q'"),
        (TopN(("k",), (Order("y"),), 1), "no column named 'y'"),
        (TopN(("k",), (Order("x"),), 1, rank_column="s"), "'s'"),
        (TopN(("k",), (Order("x"),), 1, buckets=0), "buckets"),
    ],
)
def test_what_cannot_be_ranked_is_refused(operator: TopN, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        operator.bind("t", (SHAPE,))


# ---------------------------------------------------------------- cost


class Read:
    """Counts the rows that are read from runs, once for each column."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        taken, cut, looked = Segment.take, Segment.slice, Segment.bits

        def counted(segment: Segment, name: str, positions: Any, *fill: Any) -> pa.Array:
            self.rows += len(positions)
            return taken(segment, name, positions, *fill)

        def sliced(segment: Segment, name: str, start: int, stop: int, *fill: Any) -> pa.Array:
            self.rows += stop - start
            return cut(segment, name, start, stop, *fill)

        def bits(segment: Segment, name: str, positions: Any, *fill: Any) -> Any:
            self.rows += len(positions)
            return looked(segment, name, positions, *fill)

        monkeypatch.setattr(Segment, "take", counted)
        monkeypatch.setattr(Segment, "slice", sliced)
        monkeypatch.setattr(Segment, "bits", bits)


BIG = 200_000


def hot(n: int = BIG, key: int = 1) -> pa.Table:
    numbers = np.arange(n)
    return pa.table({"k": np.full(n, key), "x": numbers.astype(float), "s": pa.array(numbers).cast("string")})


@pytest.mark.parametrize(
    "operator", [TopN(("k",), (Order("x"),), 10), TopN((), (Order("x", descending=True),), 10)]
)
def test_a_hot_key_costs_its_change(operator: TopN, monkeypatch: pytest.MonkeyPatch) -> None:
    run = OperatorRun(operator, [SHAPE], parallelism=1)
    run.epoch(hot())
    read = Read(monkeypatch)
    columns = 4  # with _w; and the harness plays an epoch twice
    out = run.epoch(rows(SCHEMA, "+ 1 5.5 new", f"+ 1 {BIG - 5.5} new"))
    assert out.num_rows == 2
    assert read.rows <= 2 * 20 * columns
    read.rows = 0
    gone = [f"- 1 {n} {n}" for n in (*range(7), *range(BIG - 7, BIG))]
    out = run.epoch(rows(SCHEMA, *gone))
    assert 0 < read.rows <= 2 * 10 * 30 * columns  # a second fetch, of 10 + 14 rows and more from each run
    run.check_against(batch(operator))


def test_a_big_group_of_peers_is_not_read_for_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    top = TopN(("k",), (Order("x"),), 3, with_ties=True)
    run = OperatorRun(top, [SHAPE], parallelism=1)
    peers = hot(20_000).set_column(1, "x", pa.array(np.full(20_000, 7.0)))
    run.epoch(peers)
    read = Read(monkeypatch)
    out = run.epoch(rows(SCHEMA, "+ 1 7 zzz", "- 1 7 0", "+ 1 3 a", "+ 1 9 b"))
    assert row_counts(out) == {(1, 7.0, "zzz"): 1, (1, 7.0, "0"): -1, (1, 3.0, "a"): 1}
    assert read.rows < 500
    run.check_against(batch(top))
    run.epoch(rows(SCHEMA, "+2 1 1 a"))  # now the group falls out as a whole
    assert run.output.num_rows == 2
    run.check_against(batch(top))


def test_senders_of_append_only_input_send_their_heads() -> None:
    run = OperatorRun(TopN(("k",), (Order("x"),), 10), [Shape(SCHEMA, append_only=True)])
    sent = run.operator.prepare(run.binding, 0, hot(5_000))  # type: ignore[attr-defined]
    assert sorted(sent.column("x").to_pylist()) == [float(x) for x in range(10)]
    run.epoch(hot(5_000))
    run.epoch(hot(5_000, key=2))
    assert run.state("head").num_rows == 20


def test_buckets_spread_a_hot_key() -> None:
    first, _ = TopN((), (Order("x"),), 10).split(16)
    run = OperatorRun(first, [SHAPE], parallelism=4)
    run.epoch(hot(2_000))
    owners = hashing.owners(run.state("rows").column("_h").to_numpy(), 4)
    assert np.bincount(owners, minlength=4).max() < 1_500

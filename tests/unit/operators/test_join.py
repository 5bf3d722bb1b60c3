"""Joins against the batch join, and what they may touch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import hashing, tuning
from millpond.delta import weights
from millpond.errors import InvalidError
from millpond.kernels import join_epoch
from millpond.kernels.join_match import pairs
from millpond.kernels.keyed_rows import Keyed
from millpond.operators.join import Join
from millpond.operators.operator import BROADCAST, HERE, Shape, by_key
from millpond.plan import codec
from millpond.state.tables.table import RowsByKey, Table
from tests.sampling import first
from tests.unit.operators.churn import churn, summed
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

LEFT = pa.schema([("k", pa.int64()), ("a", pa.string())])
RIGHT = pa.schema([("b", pa.float64()), ("k", pa.int64())])
COLUMNS = (("lk", 0, "k"), ("a", 0, "a"), ("b", 1, "b"), ("rk", 1, "k"))
SHAPES = (Shape(LEFT, append_only=False), Shape(RIGHT, append_only=False))
KINDS = ("inner", "left", "right", "full", "semi", "anti")
RESIDUAL = "a < 'b' or b > 0"
MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples


def batch(kind: str, condition: str = "l.k = r.k", residual: str | None = None) -> str:
    shown = "l.k as lk, l.a" if kind in ("semi", "anti") else "l.k as lk, l.a, r.b, r.k as rk"
    if residual is not None:
        condition = f"{condition} and ({residual})"
    return f"select {shown} from input0 l {kind} join input1 r on {condition}"


def play(run: OperatorRun, sql: str, script: list[tuple[Any, Any]], parallelism: int) -> None:
    for number, (left, right) in enumerate(script):
        run.epoch(left, right, parallelism=(parallelism + 3 * number) % 7 + 1)
        run.check_against(sql)
        if number % 3 == 1:
            run.compact()


def scripts(
    left: pa.Schema = LEFT, right: pa.Schema = RIGHT, *, append_only: bool = False
) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    """Deltas of both sides; in some epochs one side is silent."""
    one = deltas(left, epochs=5, append_only=append_only)
    two = deltas(right, epochs=5, append_only=append_only)
    return st.tuples(one, two).map(lambda both: list(zip_longest(*both)))


residuals = st.sampled_from([None, RESIDUAL])
chunks = st.sampled_from([1, 3, 1_000_000])


def bound(operator: Join, shapes: Sequence[Shape] = SHAPES, *, chunk_rows: int = 1_000_000) -> OperatorRun:
    # Pairs of rows that only ever come cannot cancel: they come out as they are made.
    grows = operator.kind == "inner" and all(shape.append_only for shape in shapes)
    run = OperatorRun(operator if grows else summed(operator), shapes)
    sides = run.binding.extra
    small = replace(sides, matcher=replace(sides.matcher, chunk_rows=chunk_rows))
    run.binding = replace(run.binding, extra=small)
    return run


@settings(max_examples=25 * MORE, deadline=None)
@given(st.sampled_from(KINDS), residuals, chunks, scripts(), parallelisms())
def test_every_kind_is_the_batch_join(
    kind: Any, residual: str | None, chunk_rows: int, script: list[tuple[Any, Any]], parallelism: int
) -> None:
    run = bound(Join(("k",), ("k",), kind, COLUMNS, residual), chunk_rows=chunk_rows)
    play(run, batch(kind, residual=residual), script, parallelism)


SMALL_SIDE = [(kind, "right") for kind in ("inner", "left", "semi", "anti")] + [
    (kind, "left") for kind in ("inner", "right")
]


@settings(max_examples=12 * MORE, deadline=None)
@given(st.sampled_from(SMALL_SIDE), residuals, scripts(), parallelisms())
def test_broadcast_joins_are_the_batch_join(
    which: tuple[Any, Any], residual: str | None, script: list[tuple[Any, Any]], parallelism: int
) -> None:
    kind, side = which
    run = bound(Join(("k",), ("k",), kind, COLUMNS, residual, broadcast=side))
    assert set(run.binding.placements) == {HERE, BROADCAST}
    play(run, batch(kind, residual=residual), script, parallelism)


@settings(max_examples=12 * MORE, deadline=None)
@given(
    st.sampled_from([*((kind, None) for kind in KINDS), ("left", "right"), ("inner", "left")]),
    st.sampled_from([None, "lk < rk"]),
    chunks,
    scripts(),
    parallelisms(),
)
def test_a_join_without_a_key_pairs_all_with_all(
    which: tuple[Any, Any],
    residual: str | None,
    chunk_rows: int,
    script: list[tuple[Any, Any]],
    parallelism: int,
) -> None:
    kind, side = which
    run = bound(Join((), (), kind, COLUMNS, residual, broadcast=side), chunk_rows=chunk_rows)
    play(run, batch(kind, "true" if residual is None else "l.k < r.k"), script, parallelism)


WIDE_LEFT = pa.schema([("x", pa.int32()), ("s", pa.string()), ("f", pa.float64())])
WIDE_RIGHT = pa.schema([("f", pa.float64()), ("s", pa.string()), ("x", pa.bool_())])
FEW = {"s": st.sampled_from(["", "a", None]), "f": st.sampled_from([0.0, -0.0, float("nan"), None])}


@settings(max_examples=12 * MORE, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.tuples(deltas(WIDE_LEFT, values=FEW), deltas(WIDE_RIGHT, values=FEW)),
    parallelisms(),
)
def test_keys_of_several_columns(
    kind: Any, both: tuple[list[pa.Table], list[pa.Table]], parallelism: int
) -> None:
    columns = (("f", 0, "f"), ("g", 1, "f"), ("x", 0, "x"), ("y", 1, "x"))
    shapes = [Shape(WIDE_LEFT, append_only=False), Shape(WIDE_RIGHT, append_only=False)]
    run = bound(Join(("s", "f"), ("s", "f"), kind, columns), shapes)
    shown = "l.f, l.x" if kind in ("semi", "anti") else "l.f, r.f as g, l.x, r.x as y"
    sql = f"select {shown} from input0 l {kind} join input1 r on l.s = r.s and l.f = r.f"
    play(run, sql, list(zip_longest(*both)), parallelism)


@pytest.mark.parametrize("residual", first(1, [RESIDUAL, None]))
@pytest.mark.parametrize(("kind", "side"), [*((kind, None) for kind in KINDS), *SMALL_SIDE])
def test_many_keys_at_once(kind: Any, side: Any, residual: str | None) -> None:
    run = bound(Join(("k",), ("k",), kind, COLUMNS, residual, broadcast=side), chunk_rows=50)
    keys = [None, *range(30)]
    left = churn(LEFT, [keys, ["a", "b", "c", None]], 1)
    right = churn(RIGHT, [[-1.0, 0.0, 1.0, None], keys], 2)
    script = [(next(left), next(right)) for _ in range(2)]
    script += [(next(left), None), (None, next(right))]
    play(run, batch(kind, residual=residual), script, 2)


@settings(max_examples=10 * MORE, deadline=None)
@given(st.sampled_from(["inner", "semi"]), scripts(append_only=True), parallelisms())
def test_joins_of_append_only_sides_append(
    kind: Any, script: list[tuple[Any, Any]], parallelism: int
) -> None:
    shapes = [replace(shape, append_only=True) for shape in SHAPES]
    run = bound(Join(("k",), ("k",), kind, COLUMNS, RESIDUAL), shapes)
    assert run.binding.shape.append_only
    play(run, batch(kind, residual=RESIDUAL), script, parallelism)


# ---------------------------------------------------------------- single cases


def test_rows_of_both_sides_that_meet_in_one_epoch_pair_once() -> None:
    run = OperatorRun(Join(("k",), ("k",), "inner", COLUMNS), SHAPES)
    out = run.epoch(rows(LEFT, "+2 1 a"), rows(RIGHT, "+3 0.5 1"))
    assert row_counts(out) == {(1, "a", 0.5, 1): 6}
    out = run.epoch(rows(LEFT, "- 1 a"), rows(RIGHT, "- 0.5 1"))
    assert row_counts(out) == {(1, "a", 0.5, 1): -4}


def test_a_left_row_loses_its_nulls_when_a_partner_comes_and_gets_them_back() -> None:
    run = OperatorRun(Join(("k",), ("k",), "left", COLUMNS), SHAPES)
    alone, met = (1, "a", None, None), (1, "a", 2.0, 1)
    assert row_counts(run.epoch(rows(LEFT, "+ 1 a"), None)) == {alone: 1}
    assert row_counts(run.epoch(None, rows(RIGHT, "+ 2.0 1"))) == {alone: -1, met: 1}
    assert row_counts(run.epoch(None, rows(RIGHT, "+ 2.0 1"))) == {met: 1}
    assert row_counts(run.epoch(None, rows(RIGHT, "- 2.0 1"))) == {met: -1}
    assert row_counts(run.epoch(None, rows(RIGHT, "- 2.0 1"))) == {alone: 1, met: -1}


def test_a_residual_that_fails_is_an_error_row_and_no_pair() -> None:
    run = OperatorRun(Join(("k",), ("k",), "left", COLUMNS, "a::int > b"), SHAPES)
    run.epoch(rows(LEFT, "+ 1 7", "+ 1 x"), rows(RIGHT, "+ 2.0 1"))
    assert row_counts(run.output) == {(1, "7", 2.0, 1): 1, (1, "x", None, None): 1}
    assert len(run.errors) == 1 and '"a":"x"' in run.errors.column("row")[0].as_py()
    run.epoch(None, rows(RIGHT, "- 2.0 1"))
    assert row_counts(run.output) == {(1, "7", None, None): 1, (1, "x", None, None): 1}
    assert not len(run.errors)


def test_rows_without_a_key_are_sent_apart_and_not_kept() -> None:
    run = OperatorRun(Join(("k",), ("k",), "full", COLUMNS), SHAPES)
    many = pa.table({"k": pa.nulls(2000, pa.int64()), "a": [str(n) for n in range(2000)]}, schema=LEFT)
    sent = run.operator.prepare(run.binding, 0, many)  # type: ignore[attr-defined]
    shares = np.bincount(hashing.owners(sent.column("_h").to_numpy(), 4))
    assert shares.min() > 400
    run.epoch(many, rows(RIGHT, "+ 1.0 NULL"))
    run.check_against(batch("full"))
    assert not run.refs


@pytest.mark.parametrize("kind", ["inner", "semi"])
def test_rows_that_can_meet_nobody_are_not_sent(kind: Any) -> None:
    run = OperatorRun(Join(("k",), ("k",), kind, COLUMNS), SHAPES)
    for side, schema, line in ((0, LEFT, "+ NULL a"), (1, RIGHT, "+ 1.0 NULL")):
        sent = run.operator.prepare(run.binding, side, rows(schema, line))  # type: ignore[attr-defined]
        assert sent.num_rows == 0


def test_a_semi_join_keeps_only_keys_of_the_right() -> None:
    run = OperatorRun(Join(("k",), ("k",), "semi", COLUMNS[:2]), SHAPES)
    run.epoch(rows(LEFT, "+ 1 a"), rows(RIGHT, "+ 1.0 1", "+ 2.0 1", "+ 3.0 2"))
    kept = run.state("right")
    assert kept.column_names == ["_h", "k", "_w"]
    assert row_counts(kept) == {(1,): 2, (2,): 1}
    assert run.operator.requires(run.binding, frozenset({"a"})) == (frozenset({"k", "a"}), frozenset({"k"}))


def test_a_hot_key_of_a_broadcast_join_is_stored_apart() -> None:
    run = OperatorRun(Join(("k",), ("k",), "inner", COLUMNS, broadcast="right"), SHAPES, parallelism=4)
    run.epoch(pa.table({"k": [7] * 500, "a": [str(n) for n in range(500)]}, schema=LEFT), None)
    owners = hashing.owners(run.state("left").column("_h").to_numpy(), 4)
    assert len(np.unique(owners)) >= 3
    run.epoch(None, rows(RIGHT, "+ 1.0 7"))
    assert int(weights(run.output).sum()) == 500


def test_a_broadcast_side_is_written_once() -> None:
    run = OperatorRun(Join(("k",), ("k",), "left", COLUMNS, broadcast="right"), SHAPES, parallelism=5)
    run.epoch(None, rows(RIGHT, *[f"+ 1.0 {k}" for k in range(20)]))
    assert row_counts(run.state("right")) == {(1.0, k): 1 for k in range(20)}
    assert row_counts(run.state("right_n")) == {(k,): 1 for k in range(20)}


# ---------------------------------------------------------------- shape


ID = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int64())])
ID_COLUMNS = (("lid", 0, "id"), ("lk", 0, "k"), ("rid", 1, "id"), ("rk", 1, "k"))


@pytest.mark.parametrize(
    ("kind", "left_key", "right_key", "expected"),
    [
        ("inner", ("id",), ("id",), ("lid", "rid")),
        ("inner", ("id",), ("k",), ("lid",)),
        ("inner", ("k",), ("id",), ("rid",)),
        ("inner", None, ("k",), None),
        ("left", ("id",), ("k",), ("lid",)),
        ("left", ("k",), ("id",), ("lk", "rid")),
        ("right", ("k",), ("id",), ("rid",)),
        ("full", ("id",), ("id",), None),
        ("semi", ("id",), None, ("lid",)),
        ("anti", ("id",), None, ("lid",)),
    ],
)
def test_the_key_of_the_output_follows_from_the_keys_of_the_sides(
    kind: Any, left_key: Any, right_key: Any, expected: Any
) -> None:
    shapes = (Shape(ID, append_only=False, key=left_key), Shape(ID, append_only=False, key=right_key))
    assert Join(("k",), ("k",), kind, ID_COLUMNS).bind("j", shapes).shape.key == expected


def test_the_key_of_a_full_join_needs_a_column_that_is_never_null() -> None:
    solid = pa.schema([ID.field("id").with_nullable(False), ID.field("k")])
    shapes = (Shape(solid, append_only=False, key=("id",)), Shape(ID, append_only=False, key=("id",)))
    binding = Join(("k",), ("k",), "full", ID_COLUMNS).bind("j", shapes)
    assert binding.shape.key == ("lid", "rid")
    assert binding.shape.schema.field("lid").nullable


def test_an_inner_join_may_show_a_key_under_the_name_of_its_equal() -> None:
    shapes = (Shape(ID, append_only=False, key=("k",)), Shape(ID, append_only=False, key=("id",)))
    binding = Join(("k",), ("k",), "inner", ID_COLUMNS[2:]).bind("j", shapes)
    assert binding.shape.key == ("rid",)
    assert binding.placed_by == ("rk",)


def test_rows_are_summed_only_where_two_pairs_can_be_one() -> None:
    def tells(columns: Any, **keys: Any) -> bool:
        left, right = (Shape(ID, append_only=False, key=keys.get(side)) for side in ("left", "right"))
        return bool(Join(("k",), ("k",), "inner", columns).bind("j", (left, right)).extra.tells_apart)

    assert tells(ID_COLUMNS)
    assert tells(ID_COLUMNS[:3])  # the two keys are equal
    ids = (ID_COLUMNS[0], ID_COLUMNS[2])
    assert not tells(ids)
    assert not tells(ids, left=("id",))
    assert tells(ids, left=("id",), right=("id",))


def test_where_the_rows_lie() -> None:
    def placed(kind: Any, schema: pa.Schema = ID, **options: Any) -> Any:
        shapes = (Shape(schema, append_only=False), Shape(schema, append_only=False))
        return Join(("k",), ("k",), kind, ID_COLUMNS, **options).bind("j", shapes)

    assert placed("inner").placements == (by_key("k"), by_key("k"))
    assert placed("inner").placed_by == ("lk",)
    assert placed("semi").placed_by == ("lk",)
    assert placed("left").placed_by is None  # rows without a key lie anywhere
    solid = pa.schema([ID.field("id"), ID.field("k").with_nullable(False)])
    assert placed("left", solid).placed_by == ("lk",)
    assert placed("right", solid).placed_by == ("rk",)
    assert placed("full", solid).placed_by is None
    assert placed("inner", broadcast="right").placed_by is None


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Join(("k",), ("k", "b"), "inner", COLUMNS), "as many key columns"),
        (Join(("q",), ("k",), "inner", COLUMNS), "left side of the join has no column 'q'"),
        (Join(("k",), ("k",), "inner", (("a", 0, "a"), ("a", 1, "b"))), "column 'a' is there twice"),
        (Join(("a",), ("k",), "inner", COLUMNS), "types differ"),
        (Join(("k", "k"), ("k", "b"), "inner", COLUMNS), "types differ|twice"),
        (Join(("k",), ("k",), "full", COLUMNS, broadcast="right"), "cannot broadcast"),
        (Join(("k",), ("k",), "semi", COLUMNS, broadcast="left"), "cannot broadcast"),
        (Join(("k",), ("k",), "inner", COLUMNS, "nothing = 1"), "nothing"),
    ],
)
def test_what_cannot_be_joined_is_refused(operator: Join, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        operator.bind("j", SHAPES)


def test_a_bound_join_survives_the_catalog() -> None:
    binding = Join(("k",), ("k",), "left", COLUMNS, RESIDUAL).bind("j", SHAPES)
    assert codec.loads(codec.dumps(binding)) == binding


# ---------------------------------------------------------------- cost


def test_pairs_come_in_bounded_chunks() -> None:
    def keyed(*key: int) -> Keyed:
        return Keyed({}, np.ones(len(key), np.int64), np.array(key, np.int64))

    a, b = keyed(0, 1, 1, 3, 5), keyed(1, 1, 1, 2, 3, 5, 5)
    for size in (1, 2, 3, 4, 100):
        chunks = list(pairs(a, b, size))
        assert all(len(i) == len(j) <= size for i, j in chunks)
        found = [(int(i), int(j)) for some in chunks for i, j in zip(*some, strict=True)]
        assert found == [(i, j) for i in range(5) for j in range(7) if a.key[i] == b.key[j]]
    assert list(pairs(a, keyed(), 4)) == []
    assert list(pairs(keyed(), b, 4)) == []


class Counted:
    """Counts the rows that lookups return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        lookup = Table.lookup

        def counted(table: Table, *arguments: Any) -> RowsByKey:
            found = lookup(table, *arguments)
            self.rows += found.table.num_rows
            return found

        monkeypatch.setattr(Table, "lookup", counted)


@pytest.mark.parametrize("kind", ["left", "semi", "anti"])
def test_a_row_more_on_a_hot_key_fetches_no_other_rows_of_its_side(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = OperatorRun(Join(("k",), ("k",), kind, COLUMNS), SHAPES, parallelism=2)
    hot = pa.table({"b": np.arange(50_000.0), "k": np.full(50_000, 7)}, schema=RIGHT)
    run.epoch(rows(LEFT, "+ 7 a", "+ 8 b"), hot)
    counted = Counted(monkeypatch)
    run.epoch(None, rows(RIGHT, "+ -1.0 7", "- 0 7"))
    assert (
        counted.rows <= 2 * 3
    )  # the count of the key, the row on the left; twice as the harness plays twice
    run.epoch(None, rows(RIGHT, "+ 1.0 8"))
    assert counted.rows <= 2 * 6


def test_a_delta_fetches_its_partners_only(monkeypatch: pytest.MonkeyPatch) -> None:
    run = OperatorRun(Join(("k",), ("k",), "full", COLUMNS), SHAPES, parallelism=3)
    many = pa.table({"b": np.arange(20_000.0), "k": np.arange(20_000) // 2}, schema=RIGHT)
    run.epoch(None, many)
    counted = Counted(monkeypatch)
    run.epoch(rows(LEFT, *[f"+ {k} a" for k in range(10)]), None)
    assert counted.rows <= 2 * (20 + 10 + 10)


def test_the_module_constants_are_part_of_the_state_format() -> None:
    assert (join_epoch.SPREADS, tuning.JOIN_CHUNK_ROWS) == (16, 1_000_000)

"""Tables against plain Python: every method, both merge rules, any cut, with and without hash collisions.

The model keeps each run as a list of rows. Under *latest* it is a dict from
identity to the newest row, under *weights* a sum per row. Values are compared
canonically: one NaN, one zero, NULL is a value.
"""

from __future__ import annotations

import functools
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import delta as deltas
from millpond import hashing, tuning
from millpond.errors import DataError, InternalError, InvalidError
from millpond.ordering import Order
from millpond.state.runs import packed_writer, point_lookup
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.repeat_by_weight import repeat_by_weight
from millpond.state.tables.table import KeySet, RowsByKey, Table
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec

TOP = 2**64 - 1


# ---------------------------------------------------------------- the model


def canon(value: Any) -> Any:
    """A hashable stand-in, equal exactly for canonically equal values."""
    if isinstance(value, float):
        return ("float", "nan") if math.isnan(value) else ("float", value + 0.0)
    if isinstance(value, dict):
        return tuple((name, canon(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(canon(item) for item in value)
    return value


def compare(a: Any, b: Any, order: Order) -> int:
    if a is None or b is None:
        if a is None and b is None:
            return 0
        return (-1 if order.nulls_first else 1) * (1 if a is None else -1)
    sign = _compare_values(a, b)
    return -sign if order.descending else sign


def _compare_values(a: Any, b: Any) -> int:
    if isinstance(a, dict):
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        for x, y in zip(a, b, strict=False):
            if sign := compare(x, y, Order("")):
                return sign
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, float):
        a, b = (
            (math.isnan(a), a if not math.isnan(a) else 0.0),
            (math.isnan(b), b if not math.isnan(b) else 0.0),
        )
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return (a > b) - (a < b)


Row = dict[str, Any]  # columns, and _w


@dataclass
class Model:
    spec: TableSpec
    runs: list[list[Row]]  # oldest first

    def key_of(self, row: Row) -> Any:
        return canon([row[name] for name in self.spec.key])

    def bucket(self, row: Row) -> int | None:
        return None if self.spec.bucket_width is None else row[self.spec.time] // self.spec.bucket_width

    def identity(self, row: Row) -> Any:
        names = self.spec.schema.names
        if self.spec.rule == "latest":
            names = [*self.spec.key, *(o.column for o in self.spec.order)]
        return canon([row[name] for name in names]), self.bucket(row)

    def settled(self) -> dict[Any, Row]:
        state: dict[Any, Row] = {}
        for run in self.runs:
            for row in run:
                name = self.identity(row)
                if self.spec.rule == "latest":
                    state[name] = row
                else:
                    weight = state[name]["_w"] if name in state else 0
                    state[name] = {**row, "_w": weight + row["_w"]}
        return state

    def rows(self) -> list[Row]:
        """All live rows in table order."""
        orders = [*self.spec.order]
        if self.spec.rule == "weights":
            orders += [Order(name) for name in self.spec.rest]

        def in_order(a: Row, b: Row) -> int:
            signs = ((a["_h"] > b["_h"]) - (a["_h"] < b["_h"]),)
            by_key = (compare(a[n], b[n], Order("")) for n in self.spec.key)
            by_order = (compare(a[o.column], b[o.column], o) for o in orders)
            last = (compare(self.bucket(a), self.bucket(b), Order("")),)
            return next((s for s in (*signs, *by_key, *by_order, *last) if s), 0)

        live = [dict(row) for row in self.settled().values() if row["_w"]]
        for row, h in zip(live, hashes_of(self.spec, live), strict=True):
            row["_h"] = h
        return sorted(live, key=functools.cmp_to_key(in_order))


def hashes_of(spec: TableSpec, rows: list[Row]) -> list[int]:
    columns = [pa.array([row[n] for row in rows], spec.schema.field(n).type) for n in spec.key]
    return hashing.hash_columns(columns, len(rows)).tolist()


# ---------------------------------------------------------------- specs and their values

NAN, INF = math.nan, math.inf
STRINGS = ["", "a", "https://millpond/1", "https://millpond/2", "https://", "é", None]
TIMES = [datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1), datetime(1969, 5, 5), None]
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "k": (pa.int64(), [0, 1, -1, 2**62, None]),
    "b": (pa.bool_(), [True, False, None]),
    "s": (pa.string(), STRINGS),
    "d": (
        pa.decimal128(30, 2),
        [Decimal("1.00"), Decimal("-1.50"), Decimal("123456789012345678901.25"), None],
    ),
    "t": (pa.timestamp("us"), TIMES),
    "f": (pa.float64(), [0.0, -0.0, NAN, INF, -INF, 1.5, None]),
    "i": (pa.int64(), [*range(8), None]),
    "n": (pa.int64(), [0, 1, 2, 3, None]),
    "z": (pa.int64(), [*range(0, 40, 4)]),
    "list": (pa.list_(pa.float64()), [[], [1.0], [1.0, None], [NAN, -0.0], None]),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]),
        [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, {"x": 1, "y": []}, None],
    ),
}


def spec_of(name: str, key: str, order: tuple[Order, ...], rest: str, rule: Any, **more: Any) -> TableSpec:
    names = [*key.split(), *(o.column for o in order), *rest.split()]
    return TableSpec(
        name, pa.schema([(n, POOLS[n][0]) for n in names]), tuple(key.split()), order, rule, **more
    )


SPECS = {
    spec.name: spec
    for spec in [
        spec_of("upsert", "k", (), "n s", "latest"),
        spec_of("upsert_mixed", "s d b", (), "list n", "latest"),
        spec_of("map_state", "k", (Order("s"),), "struct n", "latest"),
        spec_of("list_state", "b t", (Order("f", True), Order("i", False, True)), "list", "latest"),
        spec_of("by_float", "f", (), "n", "latest"),
        spec_of("join_side", "k", (), "s f struct", "weights"),
        spec_of("top", "b", (Order("f", True, True),), "s list", "weights"),
        spec_of("global_top", "", (Order("i"),), "n", "weights"),
        spec_of("asof", "s", (Order("t", False, True), Order("i", True)), "n", "weights"),
        spec_of("by_text", "b", (Order("s", True),), "n", "weights"),
        spec_of("by_decimal", "n", (Order("d"),), "s", "weights"),
        spec_of("timers", "k", (Order("z"),), "n", "latest", time="z", bucket_width=10),
        spec_of("panes", "b", (), "z n", "latest", time="z", bucket_width=10),
        spec_of("windowed", "n", (Order("z", True),), "s", "weights", time="z", bucket_width=10),
    ]
}
ORDERED = [name for name, spec in SPECS.items() if spec.order]


@dataclass
class Case:
    """A table's history and a source of choices; the numbers shrink, the seed replays."""

    epochs: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def row(self, names: Sequence[str]) -> Row:
        return {name: self.random.choice(POOLS[name][1]) for name in names}

    def model(self, spec: TableSpec) -> Model:
        """Epochs of lawful changes: one row per identity and epoch, no row owed."""
        model = Model(spec, [])
        for _ in range(self.epochs):
            run: dict[Any, Row] = {}
            state = model.settled()
            for _ in range(self.random.randint(0, self.size)):
                new = self.row(spec.schema.names)
                name = model.identity(new)
                if spec.rule == "latest":
                    weight = self.random.choice([1, 1, 1, 0])
                else:
                    have = state[name]["_w"] if name in state else 0
                    weight = max(self.random.choice([1, 1, 2, -1, -2]), -have)
                if weight or spec.rule == "latest":
                    run[name] = {**new, "_w": weight}
            if spec.rule == "weights" and state:  # retract much: cancelled heads are the hard case
                for name in self.random.sample(list(state), self.random.randint(0, len(state))):
                    if name not in run and state[name]["_w"]:
                        run[name] = {**state[name], "_w": -state[name]["_w"]}
            model.runs.append(list(run.values()))
        return model

    def keys(self, spec: TableSpec) -> tuple[KeySet, list[Any]]:
        """Some keys, present or not, in any order, some twice; and their canonical values by number."""
        asked = [self.row(spec.key) for _ in range(self.random.randint(0, 8))]
        columns = {n: pa.array([r[n] for r in asked], POOLS[n][0]) for n in spec.key}
        batch = pa.table(columns) if columns else pa.table({"x": [0] * len(asked)})
        keys = KeySet.of(batch, spec.key)
        wanted = [canon(list(r.values())) for r in asked]
        names = [canon([r[n] for n in spec.key]) for r in keys.columns.to_pylist()]
        names = names if spec.key else [()] * len(keys)
        assert len(set(names)) == len(names) == len(set(wanted))
        assert [names[i] for i in keys.inverse] == wanted
        return keys, names

    def bounds(self, spec: TableSpec, count: int, *, nulls: bool) -> list[Any]:
        pool = [value for value in POOLS[spec.order[0].column][1] if nulls or value is not None]
        return [self.random.choice(pool) for _ in range(count)]


cases = given(case=st.builds(Case, st.integers(0, 5), st.integers(0, 12), st.integers(0, 2**32 - 1)))


# ---------------------------------------------------------------- the real thing


class Files:
    """A store of bytes, opened files kept open."""

    def __init__(self) -> None:
        self.data: dict[str, pa.Buffer] = {}
        self.opened: dict[str, PackedFile] = {}

    def write(
        self, adds: list[tuple[TableSpec, pa.Table, int | None, bool]], lo: int, hi: int
    ) -> list[RunRef]:
        writer = PackedWriter()
        for spec, rows, bucket, presorted in adds:
            writer.add(spec, rows, bucket=bucket, presorted=presorted)
        buffers, infos = writer.finish()
        name = f"runs/1/{hi}-0-0-{len(self.data):04x}"
        self.data[name] = pa.py_buffer(b"".join(bytes(b) for b in buffers))
        return [info.ref(name, lo=lo, hi=hi, kind="delta") for info in infos]

    def open(self, name: str) -> PackedFile:
        if name not in self.opened:
            self.opened[name] = PackedFile.open(name, self.data[name])
        return self.opened[name]


def as_table(spec: TableSpec, rows: list[Row]) -> pa.Table:
    columns = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in spec.schema}
    return pa.table({**columns, "_w": pa.array([row["_w"] for row in rows], pa.int64())})


def write_model(model: Model) -> tuple[Files, list[RunRef]]:
    files, refs = Files(), []
    for epoch, run in enumerate(model.runs):
        buckets = {model.bucket(row) for row in run}
        adds = [
            (
                model.spec,
                as_table(model.spec, [row for row in run if model.bucket(row) == bucket]),
                bucket,
                False,
            )
            for bucket in sorted(buckets, key=str)
        ]
        refs += files.write(adds, epoch, epoch)
    return files, refs


def plain(rows: list[Row]) -> list[Any]:
    return [canon([(name, row[name]) for name in sorted(row) if name != "_h"]) for row in rows]


def table_plain(table: pa.Table) -> list[Any]:
    return plain(table.to_pylist())


def by_key(rows: RowsByKey, count: int) -> list[list[Any]]:
    assert (np.diff(rows.key_index) >= 0).all()
    assert rows.table.num_rows == len(rows.key_index)
    out: list[list[Any]] = [[] for _ in range(count)]
    for number, row in zip(rows.key_index.tolist(), table_plain(rows.table), strict=True):
        out[number].append(row)
    return out


def collisions(few: bool) -> AbstractContextManager[Any]:
    """With `few`, all keys share four hashes at the ends and the middle of the range."""
    if not few:
        return nullcontext()
    real: Callable[..., Any] = hashing.hash_columns
    places = np.array([0, 2**63, TOP - 1, TOP], np.uint64)

    def few_hashes(columns: Any, length: int) -> Any:
        return places[(real(columns, length) % np.uint64(4)).astype(np.int64)]

    return mock.patch.multiple(hashing, hash_columns=few_hashes, is_injective=lambda columns: False)


quick = settings(max_examples=int(os.environ.get("MILLPOND_EXAMPLES", "8")), deadline=None)
each_spec = pytest.mark.parametrize("name", list(SPECS))
each_ordered = pytest.mark.parametrize("name", ORDERED)
each_hash = pytest.mark.parametrize("few", [False, True], ids=["hash", "collisions"])


def expect_by_key(model: Model, names: list[Any]) -> list[list[Row]]:
    rows = model.rows()
    return [[row for row in rows if model.key_of(row) == name] for name in names]


@each_spec
@each_hash
@quick
@cases
def test_scan_is_the_model_whatever_the_cut(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        expected = model.rows()
        whole = Table(model.spec, refs, files.open).scan()
        assert table_plain(whole) == plain(expected)
        assert whole["_h"].to_pylist() == [row["_h"] for row in expected]
        cuts = sorted({case.random.randint(1, TOP) for _ in range(case.random.randint(0, 4))})
        if expected:
            cuts = sorted({*cuts, max(1, expected[len(expected) // 2]["_h"])})
        lows, highs = [0, *cuts], [*(cut - 1 for cut in cuts), TOP]
        shuffled = case.random.sample(refs, len(refs))
        pieces = [
            Table(model.spec, shuffled, files.open, lo, hi).scan() for lo, hi in zip(lows, highs, strict=True)
        ]
        assert [row for piece in pieces for row in table_plain(piece)] == plain(expected)


@each_spec
@each_hash
@pytest.mark.parametrize("slices", [1, 10**9], ids=["slices", "copies"])
@quick
@cases
def test_the_batches_of_a_scan_are_the_model_in_any_order(
    name: str, few: bool, slices: int, case: Case
) -> None:
    with collisions(few), mock.patch.object(tuning, "SCAN_SLICE_ROWS", slices):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        names = case.random.sample(model.spec.schema.names, case.random.randint(1, len(model.spec.schema)))
        expected = sorted(
            repr(canon([row[n] for n in names])) for row in model.rows() for _ in range(row["_w"])
        )
        scan = TableScan(model.spec, refs, files.open, names)
        # The three ways to find what must be merged: search the largest run, one merge of all, sort the hashes.
        for larger, few_rows, many in ((0, 0, 4), (4, 4096, 4), (10**9, 0, 0), (10**9, 0, 10**9)):
            with mock.patch.multiple(
                tuning,
                SCAN_OVERLAY_FACTOR=larger,
                SCAN_MERGE_ROWS_MAX=few_rows,
                SCAN_SHARED_ROWS_FACTOR=many,
            ):
                found = [repeat_by_weight(batch, names) for batch in scan.batches()]
            rows = [row for batch in found for row in batch.to_pylist()]
            assert sorted(repr(canon([row[n] for n in names])) for row in rows) == expected
        if scan.batches_are_sorted():
            assert [repr(canon([row[n] for n in names])) for row in rows] == [
                repr(canon([row[n] for n in names])) for row in model.rows() for _ in range(row["_w"])
            ]


@each_spec
@each_hash
@quick
@cases
def test_the_unsorted_scans_of_all_ranges_are_the_model(name: str, few: bool, case: Case) -> None:
    with collisions(few), mock.patch.object(packed_writer, "ELIDE_ROWS", case.random.choice([1, 64])):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        names = case.random.sample(model.spec.schema.names, case.random.randint(0, len(model.spec.schema)))
        edges = [0, *sorted(case.random.randrange(TOP) for _ in range(case.random.randint(0, 3))), TOP + 1]
        found: Counter[Any] = Counter()
        for low, after in pairwise(edges):
            many = case.random.choice([0, 4, 10**9])
            few_rows = case.random.choice([0, 4096])
            with mock.patch.multiple(tuning, SCAN_MERGE_ROWS_MAX=few_rows, SCAN_SHARED_ROWS_FACTOR=many):
                rows = TableScan(model.spec, refs, files.open, names, low, after - 1).unsorted()
            for row, weight in zip(rows.to_pylist(), deltas.weights(rows), strict=True):
                found[repr(canon([row[n] for n in names]))] += int(weight)
    expected: Counter[Any] = Counter()
    for row in model.rows():
        expected[repr(canon([row[n] for n in names]))] += row["_w"]
    assert found == expected


def test_an_unsorted_scan_sums_rows_that_several_runs_hold_once() -> None:
    spec = TableSpec("bag", pa.schema([("k", pa.int64())]), ("k",), rule="weights")
    runs = [[{"k": k, "_w": 1} for k in range(at, at + 100)] for at in (0, 70)]
    files, refs = write_model(Model(spec, runs))
    rows = TableScan(spec, refs, files.open, ["k"]).unsorted()
    assert sorted(zip(rows["k"].to_pylist(), deltas.weights(rows).tolist(), strict=True)) == [
        (k, 2 if 70 <= k < 100 else 1) for k in range(170)
    ]
    assert "_w" not in TableScan(spec, refs[:1], files.open, ["k"]).unsorted().column_names


@each_spec
@each_hash
@quick
@cases
def test_lookup(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        keys, names = case.keys(model.spec)
        table = Table(model.spec, refs, files.open)
        expected = expect_by_key(model, names)
        assert by_key(table.lookup(keys), len(keys)) == [plain(rows) for rows in expected]
        some = model.spec.schema.names[-1:]
        got_some = table.lookup(keys, some)
        assert got_some.table.column_names == [*some, "_w"]
        assert table_plain(got_some.table) == table_plain(table.lookup(keys).table.select([*some, "_w"]))
        lower = Table(model.spec, refs, files.open, 0, 2**63 - 1).lookup(keys)
        upper = Table(model.spec, refs, files.open, 2**63, TOP).lookup(keys)
        both = [a + b for a, b in zip(by_key(lower, len(keys)), by_key(upper, len(keys)), strict=True)]
        assert both == by_key(table.lookup(keys), len(keys))


@pytest.mark.parametrize("name", ["upsert", "upsert_mixed", "by_float", "panes"])
@each_hash
@quick
@cases
def test_lookup_one(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        if name == "panes":  # one row per key: keep to one bucket
            model.runs = [[row for row in run if row["z"] < 10] for run in model.runs]
        files, refs = write_model(model)
        keys, names = case.keys(model.spec)
        found, rows = Table(model.spec, refs, files.open).lookup_one(keys)
        assert rows.schema.equals(model.spec.schema)
        with mock.patch.object(point_lookup, "STRATEGIES", (point_lookup.by_key,)):
            again, same = Table(model.spec, refs, files.open).lookup_one(keys)
        assert again.tolist() == found.tolist()
        assert canon(same.to_pylist()) == canon(rows.to_pylist())
        for present, row, key, expected in zip(
            found, rows.to_pylist(), names, expect_by_key(model, names), strict=True
        ):
            assert present == bool(expected)
            assert canon([row[n] for n in model.spec.key]) == key
            if expected:
                assert canon(row) == canon({n: expected[0][n] for n in model.spec.schema.names})
            else:
                assert row["n"] == 0
                assert "s" in model.spec.key or row.get("s") is None


@each_spec
@each_hash
@quick
@cases
def test_head(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        keys, names = case.keys(model.spec)
        n = np.array([case.random.randint(0, 4) for _ in names], np.int64)
        reverse = case.random.random() < 0.5
        got = by_key(Table(model.spec, refs, files.open).head(keys, n, reverse=reverse), len(keys))
        for rows, count, expected in zip(got, n.tolist(), expect_by_key(model, names), strict=True):
            assert rows == plain(expected[max(0, len(expected) - count) :] if reverse else expected[:count])
        assert by_key(Table(model.spec, refs, files.open).head(keys, 2), len(keys)) == [
            plain(expected[:2]) for expected in expect_by_key(model, names)
        ]


@each_ordered
@each_hash
@quick
@cases
def test_range(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        keys, names = case.keys(model.spec)
        column = model.spec.order[0].column
        kind = POOLS[column][0]
        lo, hi = (case.bounds(model.spec, len(keys), nulls=True) for _ in range(2))
        low_open, high_open = case.random.random() < 0.3, case.random.random() < 0.3
        got = Table(model.spec, refs, files.open).range(
            keys, None if low_open else pa.array(lo, kind), None if high_open else pa.array(hi, kind)
        )

        def inside(value: Any, low: Any, high: Any) -> bool:
            low, high = None if low_open else low, None if high_open else high
            if value is None:
                return low is None and high is None
            return (low is None or compare(value, low, Order("")) >= 0) and (
                high is None or compare(value, high, Order("")) <= 0
            )

        for rows, low, high, expected in zip(
            by_key(got, len(keys)), lo, hi, expect_by_key(model, names), strict=True
        ):
            assert rows == plain([row for row in expected if inside(row[column], low, high)])


@each_ordered
@each_hash
@quick
@cases
def test_neighbours(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        keys, names = case.keys(model.spec)
        order = model.spec.order[0]
        at = case.bounds(model.spec, len(keys), nulls=False)
        before, after = Table(model.spec, refs, files.open).neighbours(
            keys, pa.array(at, POOLS[order.column][0])
        )
        got = zip(by_key(before, len(keys)), by_key(after, len(keys)), strict=True)
        for (below, above), value, expected in zip(got, at, expect_by_key(model, names), strict=True):
            known = [row for row in expected if row[order.column] is not None]
            if order.descending:
                known.reverse()
            lower = [row for row in known if compare(row[order.column], value, Order("")) <= 0]
            upper = [row for row in known if compare(row[order.column], value, Order("")) > 0]
            assert below == plain(lower[-1:])
            assert above == plain(upper[:1])


@each_spec
@each_hash
@quick
@cases
def test_a_merge_takes_the_place_of_its_runs(name: str, few: bool, case: Case) -> None:
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        expected = model.rows()
        epochs = len(model.runs)
        first = case.random.randint(0, max(0, epochs - 1))
        last = case.random.randint(first, max(first, epochs - 1))
        cut = case.random.choice([1, 2**63, TOP])
        kept = [ref for ref in refs if not first <= ref.lo <= last]
        merged = []
        for bucket in sorted({ref.bucket for ref in refs}, key=str):
            inputs = [ref for ref in refs if first <= ref.lo <= last and ref.bucket == bucket]
            for low, high in ((0, cut - 1), (cut, TOP)):
                rows = merge_segments(model.spec, inputs, files.open, low, high, drop_tombstones=first == 0)
                assert first > 0 or all(rows["_w"].to_pylist())
                for ref in files.write([(model.spec, rows, bucket, True)], first, last):
                    merged.append(ref)
        again = Table(model.spec, [*merged, *kept], files.open).scan()
        assert table_plain(again) == plain(expected)
        keys, _ = case.keys(model.spec)
        table = Table(model.spec, refs, files.open)
        assert by_key(Table(model.spec, [*merged, *kept], files.open).lookup(keys), len(keys)) == by_key(
            table.lookup(keys), len(keys)
        )


@pytest.mark.parametrize("name", ["upsert", "map_state", "join_side"])
@each_hash
@quick
@cases
def test_a_ref_speaks_only_for_its_range(name: str, few: bool, case: Case) -> None:
    """A merge of half the hashes leaves the old file to speak for the other half."""
    with collisions(few):
        model = case.model(SPECS[name])
        files, refs = write_model(model)
        cut = 2**63
        lower = merge_segments(model.spec, refs, files.open, 0, cut - 1, drop_tombstones=True)
        merged = files.write([(model.spec, lower, None, True)], 0, max(0, len(model.runs) - 1))
        rest = [replace(ref, h_min=cut, h_max=TOP) for ref in refs]
        table = Table(model.spec, [*rest, *merged], files.open)
        assert table_plain(table.scan()) == plain(model.rows())
        keys, names = case.keys(model.spec)
        expected = [plain(rows) for rows in expect_by_key(model, names)]
        assert by_key(table.lookup(keys), len(keys)) == expected


# ---------------------------------------------------------------- single cases

UPSERT = SPECS["upsert"]


def upsert(*rows: tuple[int, int, str]) -> pa.Table:
    return as_table(UPSERT, [{"k": k, "n": n, "s": s, "_w": 1} for k, n, s in rows])


def test_nothing_is_found_in_no_runs() -> None:
    table = Table(UPSERT, [], Files().open)
    keys = KeySet.of(pa.table({"k": [1, 2]}), ["k"])
    assert table.count_rows_upper() == 0
    assert table.scan().num_rows == 0
    assert table.scan().column_names == ["_h", "k", "n", "s", "_w"]
    assert table.lookup(keys).table.num_rows == 0
    found, rows = table.lookup_one(keys)
    assert not found.any()
    assert rows["n"].to_pylist() == [0, 0]
    assert table.head(keys, 3).table.num_rows == 0


def test_keys_of_another_width_are_the_same_keys() -> None:
    files = Files()
    refs = files.write([(UPSERT, upsert((1, 5, "a"), (2, 6, "b")), None, False)], 1, 1)
    keys = KeySet.of(pa.table({"k": pa.array([2, 9], pa.int8())}), ["k"])
    found, rows = Table(UPSERT, refs, files.open).lookup_one(keys)
    assert sorted(zip(found.tolist(), rows["n"].to_pylist(), strict=True)) == [(False, 0), (True, 6)]


def test_keys_that_cannot_be_cast_are_refused() -> None:
    keys = KeySet.of(pa.table({"k": ["x"]}), ["k"])
    files = Files()
    refs = files.write([(UPSERT, upsert((1, 5, "a")), None, False)], 1, 1)
    with pytest.raises(InvalidError, match="values do not fit"):
        Table(UPSERT, refs, files.open).lookup(keys)
    for wrong in (pa.array([1.0]), pa.array([True]), pa.array([2**63], pa.uint64())):
        with pytest.raises(InvalidError, match="values do not fit"):
            Table(UPSERT, refs, files.open).lookup(KeySet.of(pa.table({"k": wrong}), ["k"]))


def test_lookup_one_refuses_tables_with_several_rows_per_key() -> None:
    with pytest.raises(InternalError, match="several rows per key"):
        Table(SPECS["top"], [], Files().open).lookup_one(KeySet.of(pa.table({"b": [True]}), ["b"]))


def test_lookup_one_refuses_a_key_in_two_buckets() -> None:
    spec = SPECS["panes"]
    files = Files()
    row = {"b": True, "n": 1, "_w": 1}
    adds = [(spec, as_table(spec, [{**row, "z": 10 * b}]), b, False) for b in range(2)]
    refs = files.write(adds, 1, 1)
    with pytest.raises(InternalError, match="two time buckets"):
        Table(spec, refs, files.open).lookup_one(KeySet.of(pa.table({"b": [True]}), ["b"]))


def test_a_run_outside_the_keys_is_not_opened() -> None:
    files = Files()
    refs = files.write([(UPSERT, upsert((1, 5, "a")), None, False)], 1, 1)
    low = refs[0].h_min

    def refuse(name: str) -> PackedFile:
        raise AssertionError(f"opened {name}")

    keys = KeySet.of(pa.table({"k": [7]}), ["k"], np.array([low ^ 1], np.uint64))
    assert Table(UPSERT, refs, refuse).lookup(keys).table.num_rows == 0
    assert Table(UPSERT, refs, refuse, low + 1, TOP).scan().num_rows == 0


def test_a_hash_alone_is_not_a_match() -> None:
    files = Files()
    refs = files.write([(UPSERT, upsert((1, 5, "a")), None, False)], 1, 1)
    hashes = np.array([refs[0].h_min], np.uint64)
    keys = KeySet.of(pa.table({"k": [2]}), ["k"], hashes)
    with mock.patch.object(hashing, "is_injective", lambda columns: False):  # as for text
        assert Table(UPSERT, refs, files.open).lookup(keys).table.num_rows == 0
    with pytest.raises(InternalError, match="uint64"):
        KeySet.of(pa.table({"k": [2]}), ["k"], hashes.astype(np.int64))


def test_head_of_a_large_key_reads_little() -> None:
    """Top 10 of a key with 200,000 rows whose first 500 were retracted: few rows are taken from the runs."""
    spec = TableSpec(
        "top/rows", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ("k",), (Order("v"),), "weights"
    )
    size = 200_000
    files = Files()
    base = pa.table({"k": np.zeros(size, np.int64), "v": np.arange(size)[::-1]})
    gone = pa.table({"k": np.zeros(500, np.int64), "v": np.arange(500), "_w": np.full(500, -1)})
    refs = files.write([(spec, base, None, False)], 1, 1) + files.write([(spec, gone, None, False)], 2, 2)
    taken = []
    from millpond.state.runs.segment import Segment

    real = Segment.take

    def counting(self: Segment, name: str, positions: Any, fill: pa.Array | None = None) -> pa.Array:
        taken.append(len(positions))
        return real(self, name, positions, fill)

    with mock.patch.object(Segment, "take", counting):
        rows = Table(spec, refs, files.open).head(KeySet.of(pa.table({"k": [0]}), ["k"]), 10)
    assert rows.table["v"].to_pylist() == list(range(500, 510))
    assert sum(taken) < 20_000


def test_damage_is_found_in_what_is_read() -> None:
    files = Files()
    rows = pa.table({"k": np.arange(100_000), "n": np.arange(100_000), "s": pa.array(["v"] * 99_999 + ["w"])})
    refs = files.write([(UPSERT, rows, None, False)], 1, 1)
    whole = bytearray(files.data[refs[0].file])
    middle = len(whole) // 2
    whole[middle] ^= 1
    files.data[refs[0].file] = pa.py_buffer(bytes(whole))
    with pytest.raises(DataError, match="damaged block") as caught:
        Table(UPSERT, refs, files.open).scan()
    assert refs[0].file in caught.value.message
    assert "written" in str(caught.value.detail)


def test_a_range_of_times_opens_only_its_buckets() -> None:
    spec = SPECS["timers"]
    files = Files()
    refs = []
    for bucket in range(6):
        rows = as_table(spec, [{"k": 1, "z": 10 * bucket + 3, "n": bucket, "_w": 1}])
        refs += files.write([(spec, rows, bucket, False)], 1, 1)
    keys = KeySet.of(pa.table({"k": [1]}), ["k"])
    table = Table(spec, refs, files.open)
    assert table.range(keys, pa.array([14]), pa.array([33])).table["n"].to_pylist() == [2, 3]
    assert set(files.opened) == {refs[i].file for i in (1, 2, 3)}
    assert table.range(keys, pa.array([33]), None).table["n"].to_pylist() == [3, 4, 5]
    assert len(files.opened) == 5


ODD_TYPES: dict[str, list[Any]] = {
    "null": [pa.null(), None, None],
    "uuid": [pa.uuid(), b"0123456789abcdef", None],
    "date": [pa.date32(), 7, -7],
    "time": [pa.time64("us"), 7, 8],
    "zoned": [pa.timestamp("ns", "Europe/Paris"), 7000, None],
    "duration": [pa.duration("s"), 7, -7],
    "half": [pa.float16(), np.float16(1.5), None],
    "wide": [pa.decimal256(60, 3), Decimal("1.5"), Decimal("-1.5")],
    "big": [pa.large_string(), "x", ""],
    "biglist": [pa.large_list(pa.bool_()), [True, None], []],
    "pair": [pa.list_(pa.string(), 2), ["a", None], None],
    "unsigned": [pa.uint64(), 2**64 - 1, 0],
    "interval": [pa.month_day_nano_interval(), (1, 2, 3), None],
}


@pytest.mark.parametrize("name", list(ODD_TYPES))
@pytest.mark.parametrize("rows", [3, 100])
def test_every_type_goes_in_and_out(name: str, rows: int) -> None:
    kind, first, second = ODD_TYPES[name]
    values = pa.array([first, second, *([first] * (rows - 2))], kind)
    spec = TableSpec("odd", pa.schema([("k", pa.int64()), ("v", kind)]), ("k",))
    table = pa.table({"k": np.arange(rows), "v": values})
    changed = pa.table({"k": [0, 1], "v": pa.array([second, first], kind)})
    files = Files()
    refs = files.write([(spec, table, None, False)], 1, 1) + files.write([(spec, changed, None, False)], 2, 2)
    state = Table(spec, refs, files.open)
    by_number = {k.as_py(): v.as_py() for k, v in zip(state.scan()["k"], state.scan()["v"], strict=True)}
    expected = {k: v.as_py() for k, v in enumerate(values)}
    expected |= {0: changed["v"][0].as_py(), 1: changed["v"][1].as_py()}
    assert by_number == expected
    keys = KeySet.of(pa.table({"k": [0, 2, 99999]}), ["k"])
    found, one = state.lookup_one(keys)
    assert one.schema.equals(spec.schema)
    for present, k, v in zip(found, one["k"].to_pylist(), one["v"].to_pylist(), strict=True):
        assert present == (k != 99999)
        assert not present or v == expected[k]


@pytest.mark.parametrize("name", [name for name in ODD_TYPES if name not in ("null", "interval")])
def test_every_type_can_be_a_key_and_an_order(name: str) -> None:
    kind, first, second = ODD_TYPES[name]
    keyed = TableSpec("odd", pa.schema([("v", kind), ("n", pa.int64())]), ("v",))
    files = Files()
    rows = pa.table({"v": pa.array([first, second], kind), "n": [1, 2]})
    refs = files.write([(keyed, rows, None, False)], 1, 1)
    keys = KeySet.of(rows.slice(1, 1), ["v"])
    assert Table(keyed, refs, files.open).lookup(keys).table["n"].to_pylist() == [2]
    ordered = TableSpec("odd", keyed.schema, (), (Order("v"),), "weights")
    one_key = KeySet.of(pa.table({"x": [0]}), [])
    old = files.write([(ordered, rows, None, False)], 1, 1)
    for weight, left in ((1, [(1, 2), (2, 2)]), (-1, [(2, 2)])):
        more = pa.table({"v": rows["v"], "n": rows["n"], "_w": [weight, 1]})
        state = Table(ordered, old + files.write([(ordered, more, None, False)], 2, 2), files.open)
        got = state.scan().select(["n", "_w"]).to_pydict()
        assert sorted(zip(got["n"], got["_w"], strict=True)) == left
        before, _ = state.neighbours(one_key, pa.array([first], kind))
        assert (1 in before.table["n"].to_pylist()) == (weight == 1)


def test_field_metadata_comes_back() -> None:
    field = pa.field("u", pa.string(), metadata={"logical": "UUID"})
    spec = TableSpec("m", pa.schema([pa.field("k", pa.int64()), field]), ("k",))
    files = Files()
    refs = files.write([(spec, pa.table({"k": [1], "u": ["x"]}), None, False)], 1, 1)
    state = Table(spec, refs, files.open)
    keys = KeySet.of(pa.table({"k": [1]}), ["k"])
    for got in (state.scan(), state.lookup(keys).table, state.lookup_one(keys)[1], state.head(keys, 1).table):
        assert got.schema.field("u").metadata == {b"logical": b"UUID"}


def test_two_threads_may_verify_one_block() -> None:
    files = Files()
    rows = pa.table({"k": np.arange(90_000), "n": np.arange(90_000), "s": pa.array(["v", "w"] * 45_000)})
    part = files.open(files.write([(UPSERT, rows, None, False)], 1, 1)[0].file).segment(0)
    checked = part._blocks
    blocks = np.arange(len(checked.verified))
    checked.check_blocks(blocks[:2])
    checked.check_blocks(blocks[:2])
    assert checked.missing == len(blocks) - len(checked.verified.nonzero()[0]) > 0


# ---------------------------------------------------------------- keys of a batch


@pytest.mark.parametrize("shared", [False, True], ids=["own hashes", "shared hashes"])
@pytest.mark.parametrize("keys", [1, 300, 9000])
def test_few_and_many_keys_are_told_apart_alike(
    keys: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the distinct keys are found: by hash, each row knows its own."""
    rng = np.random.default_rng(keys)
    batch = pa.table(
        {
            "k": rng.integers(0, keys, 20_000),
            "t": pa.array([f"t{n % 3}" if n % 7 else None for n in range(20_000)]),
        }
    )
    hashes = hashing.hash_columns([c.combine_chunks() for c in batch.columns], batch.num_rows)
    if shared:
        hashes = hashes >> np.uint64(57)
    found = KeySet.of(batch, ["k", "t"], hashes)
    monkeypatch.setattr("millpond.state.tables.table._few_keys", lambda values, hashes: None)
    expected = KeySet.of(batch, ["k", "t"], hashes)
    assert found.hashes.tolist() == expected.hashes.tolist()
    assert found.columns.equals(expected.columns)
    assert found.inverse.tolist() == expected.inverse.tolist()
    assert found.columns.take(pa.array(found.inverse)).equals(batch)

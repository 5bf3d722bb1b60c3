"""One operator alone, over many epochs, without an engine.

`OperatorRun` plays the engine for one operator: it scatters each input over
pretend senders, shuffles the rows, cuts them by placement into any number of
tasks, gives every task its tables at epoch e-1, writes what they change into
runs and adds what they send to the integrated output.  After every epoch it
checks what must hold of any operator:

* the output has the declared schema and never owes a row;
* an append-only output retracts nothing, a keyed one has one row per key;
* state is written only into the task's own hash range;
* the view table, where there is one, holds exactly the integrated output;
* a canonical operator gives the same bits in another order of rows, from other
  senders and at another parallelism (law 3).

`check_against(sql)` is law 1: the output is the batch query over the input.

    run = OperatorRun(Filter("x > 1"), [Shape(SCHEMA, append_only=False)], parallelism=3)
    run.epoch(rows(SCHEMA, "+ 1 a", "+ 2 b"))
    run.epoch(rows(SCHEMA, "- 2 b", "+ 3 b"), parallelism=5)
    run.check_against("select * from input0 where x > 1")
"""

from __future__ import annotations

import atexit
import datetime
import functools
import math
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from millpond import hashing
from millpond.delta import HASH, WEIGHT, assert_non_negative, concat, consolidate, weights, with_weights
from millpond.operators.operator import (
    Binding,
    Change,
    Inputs,
    Operator,
    Placement,
    Shape,
    StepResult,
)
from millpond.operators.traits import FiresByTime, PreparesInput
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.error_rows import ERROR_SCHEMA
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

STEP = "step"
LAST_HASH = 2**64 - 1
PARALLELISM_MAX = 7

Rows = Counter[tuple[Any, ...]]


@dataclass
class TaskContext:
    """The `Context` of one task of one epoch."""

    step: str
    epoch: int
    now_us: int
    task: int
    h_min: int
    h_max: int
    output_is_read: bool
    run: OperatorRun
    before: Mapping[str, int]
    after: Mapping[str, int]
    backfilling: bool = False
    vectorize_user_code: bool = True

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Container[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        def asked(ref: RunRef) -> bool:
            below = below_bucket is None or (ref.bucket is not None and ref.bucket < below_bucket)
            return below and (buckets is None or ref.bucket in buckets)

        h_min, h_max = (0, LAST_HASH) if everywhere else (self.h_min, self.h_max)
        return self.run.table(name, h_min, h_max, [ref for ref in self.run.refs if asked(ref)])

    def watermark_before(self, step: str) -> int | None:
        return self.before.get(step)

    def watermark(self, step: str) -> int | None:
        return self.after.get(step)

    def watermark_at(self, step: str, share: float) -> int | None:
        return self.watermark(step)


@dataclass
class _Epoch:
    """What all tasks of one epoch gave."""

    out: pa.Table
    results: list[StepResult] = field(default_factory=list)


class OperatorRun:
    """See the module's text."""

    def __init__(
        self,
        operator: Operator,
        shapes: Sequence[Shape],
        *,
        parallelism: int = 3,
        seed: int = 0,
        step: str = STEP,
        needed: Collection[str] | None = None,
        wanted: bool = True,
    ) -> None:
        """`needed` plays a plan that needs only these output columns: inputs come with what
        `requires` asks for and nothing else.  `wanted` is what the context says."""
        self.operator = operator
        self.step = step
        self.shapes = tuple(shapes)
        self.binding: Binding = operator.bind(step, self.shapes)
        self.parallelism = parallelism
        self.wanted = wanted
        self.epochs = 0
        self.inputs = [_empty(shape.schema) for shape in self.shapes]
        declared = self.binding.shape.schema
        self.schema = pa.schema([f for f in declared if needed is None or f.name in needed])
        self.whole = self.schema.names == declared.names
        asked = operator.requires(self.binding, frozenset(self.schema.names))
        self.asked = [
            s.schema.names if self.whole else sorted(a) for s, a in zip(self.shapes, asked, strict=True)
        ]
        self.output = _empty(self.schema)
        self.errors = ERROR_SCHEMA.empty_table()
        self.counts: Counter[str] = Counter()
        self.refs: list[RunRef] = []
        self.calls = 0  # of `apply`, for tests of what is *not* done
        self._specs = {spec.name: spec for spec in self.binding.tables}
        self._files: dict[str, PackedFile] = {}
        self._watermarks: dict[str, int] = {}
        self._random = np.random.default_rng(seed)
        self._check_binding()

    # ------------------------------------------------------------ epochs

    def epoch(
        self,
        *deltas: pa.Table | None,
        parallelism: int | None = None,
        now_us: int | None = None,
        watermark: int | Mapping[str, int] | None = None,
    ) -> pa.Table:
        """Run one epoch over one delta per input; returns the consolidated output delta.

        `watermark` is the bound after this epoch, for every step or by step;
        the bound before it is what the last epoch left.
        """
        if len(deltas) != len(self.shapes):
            raise ValueError(f"{len(deltas)} deltas for {len(self.shapes)} inputs")
        self.parallelism = parallelism or self.parallelism
        self.epochs += 1
        before, after = dict(self._watermarks), self._watermarks_after(watermark)
        now = self.epochs * 1_000_000 if now_us is None else now_us
        given = [None if delta is None or not delta.num_rows else delta for delta in deltas]

        result = self._play(given, self.parallelism, before, after, now)
        if self.operator.canonical:
            other = self._play(given, self.parallelism % PARALLELISM_MAX + 1, before, after, now)
            _assert_same_bits(result, other, self.step, self.epochs)

        self._watermarks = after
        for index, delta in enumerate(given):
            if delta is not None:
                self.inputs[index] = _add(self.inputs[index], delta)
                assert_non_negative(self.inputs[index], step=f"input{index} of the test", epoch=self.epochs)
        self._commit(result)
        self._check_output(result.out)
        return result.out

    def idle(self, **options: Any) -> pa.Table:
        """An epoch without input: only time passes."""
        return self.epoch(*[None] * len(self.shapes), **options)

    def _watermarks_after(self, watermark: int | Mapping[str, int] | None) -> dict[str, int]:
        if watermark is None:
            return dict(self._watermarks)
        if isinstance(watermark, int):
            steps = {shape.watermark for shape in self.shapes if shape.watermark} | {self.step}
            return {**self._watermarks, **{step: watermark for step in steps}}
        return {**self._watermarks, **watermark}

    def _play(
        self,
        deltas: Sequence[pa.Table | None],
        parallelism: int,
        before: Mapping[str, int],
        after: Mapping[str, int],
        now_us: int,
    ) -> _Epoch:
        """Every task once, at one parallelism, in one random order of rows; changes nothing."""
        placed = [
            self._place(index, placement, delta, parallelism)
            for index, (placement, delta) in enumerate(zip(self.binding.placements, deltas, strict=True))
        ]
        wake = self._due(after, now_us)
        starts = hashing.bounds(parallelism).tolist()
        ends = [*starts[1:], LAST_HASH + 1]
        if all(placement.kind == "here" for placement in self.binding.placements):
            starts, ends = [0] * parallelism, [LAST_HASH + 1] * parallelism  # rows lie anywhere
        epoch = _Epoch(_empty(self.schema))
        for task in range(parallelism):
            inputs: Inputs = tuple(pieces[task] for pieces in placed)
            if not wake and all(piece is None for piece in inputs):
                continue
            h_min, h_max = starts[task], ends[task] - 1
            ctx = TaskContext(
                self.step, self.epochs, now_us, task, h_min, h_max, self.wanted, self, before, after
            )
            self.calls += 1
            result = self.operator.apply(ctx, self.binding, inputs)
            self._check_result(ctx, result)
            epoch.results.append(result)
            if result.out is not None:
                epoch.out = concat([epoch.out, result.out.select(_given(result.out, self.schema.names))])
        epoch.out = consolidate(epoch.out)
        return epoch

    def _due(self, watermarks: Mapping[str, int], now_us: int) -> bool:
        if not isinstance(self.operator, FiresByTime):
            return False
        earliest: dict[str, int] = {}
        for ref in self.refs:
            if ref.bucket is not None:
                earliest[ref.table] = min(ref.bucket, earliest.get(ref.table, ref.bucket))
        return self.operator.due(self.binding, earliest, watermarks, now_us)

    # ------------------------------------------------------------ exchange

    def _place(
        self, index: int, placement: Placement, delta: pa.Table | None, parallelism: int
    ) -> list[pa.Table | None]:
        """One piece per task, as an exchange would give it."""
        if delta is None:
            return [None] * parallelism
        delta = delta.select(_given(delta, self.asked[index]))
        scattered = self._scatter(delta, parallelism, self.shapes[index].append_only)
        if placement.kind == "here":
            return [self._piece(self._with_some_hash(part)) for part in scattered]
        if placement.kind == "broadcast":
            return [self._piece(self._shuffle(pa.concat_tables(scattered))) for _ in range(parallelism)]
        received: list[list[pa.Table]] = [[] for _ in range(parallelism)]
        for part in scattered:
            if not part.num_rows:
                continue
            sent = self._send(index, placement, part)
            owner = hashing.owners(sent.column(HASH).combine_chunks().to_numpy(), parallelism)
            for task in range(parallelism):
                received[task].append(sent.filter(pa.array(owner == task)))
        # a sender may leave out columns that hold nothing
        return [
            self._piece(self._shuffle(pa.concat_tables(parts, promote_options="default"))) if parts else None
            for parts in received
        ]

    def _send(self, index: int, placement: Placement, part: pa.Table) -> pa.Table:
        """What one sender puts into a hash exchange: prepared rows with their hash."""
        if isinstance(self.operator, PreparesInput):
            sent = self.operator.prepare(self.binding, index, part)
            assert HASH in sent.column_names, f"prepare gave no {HASH}"
            wire = self.binding.wire
            if wire is not None:
                visible = [name for name in sent.column_names if name not in (HASH, WEIGHT)]
                assert visible == wire.names, f"prepare gave {visible}, declared {wire.names}"
                assert [sent.schema.field(name).type for name in visible] == wire.types, "wire types differ"
        else:
            sent = part
        if all(name in sent.column_names for name in placement.key):
            hashes = hashing.hash_columns([sent.column(name) for name in placement.key], sent.num_rows)
            if HASH in sent.column_names:
                assert (sent.column(HASH).to_numpy() == hashes).all(), "prepare gave another key hash"
            else:
                sent = sent.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))
        return sent

    def _scatter(self, delta: pa.Table, senders: int, append_only: bool) -> list[pa.Table]:
        """The delta over several senders, as one task may really get it: not consolidated.

        A weight of 2 comes as 1 and 1, and a row may come and go within the epoch.
        """
        delta = _weighted(_without_hash(delta))
        w = weights(delta)
        index = np.repeat(np.arange(delta.num_rows), np.abs(w))
        unit = np.repeat(np.sign(w), np.abs(w))
        if not append_only:
            some = self._random.integers(0, delta.num_rows, size=2)
            index = np.concatenate([index, some, some])
            unit = np.concatenate([unit, np.array([1, 1, -1, -1])])
        sender = self._random.integers(0, senders, size=len(index))
        pieces = []
        for number in range(senders):
            mine = np.flatnonzero(sender == number)
            piece = with_weights(delta.take(pa.array(index[mine])), unit[mine])
            pieces.append(self._shuffle(piece))
        return pieces

    def _with_some_hash(self, table: pa.Table) -> pa.Table:
        """Rows that were not exchanged for this step may carry the hash of another step's key."""
        if self._random.random() < 0.5:
            return table
        columns = [
            column for name, column in zip(table.column_names, table.columns, strict=True) if name != WEIGHT
        ]
        stale = hashing.hash_columns(columns[:1], table.num_rows)
        return table.append_column(pa.field(HASH, pa.uint64()), pa.array(stale))

    def _shuffle(self, table: pa.Table) -> pa.Table:
        return table.take(pa.array(self._random.permutation(table.num_rows)))

    def _piece(self, table: pa.Table) -> pa.Table | None:
        """As a task may meet it: nothing, in chunks, with or without weights of one."""
        if not table.num_rows:
            return None
        if WEIGHT in table.column_names and (weights(table) == 1).all() and self._random.random() < 0.5:
            table = table.drop_columns([WEIGHT])
        cut = int(self._random.integers(0, table.num_rows + 1))
        return pa.concat_tables([table.slice(0, cut), table.slice(cut)])

    # ------------------------------------------------------------ state

    def table(
        self, name: str, h_min: int = 0, h_max: int = LAST_HASH, refs: Sequence[RunRef] | None = None
    ) -> Table:
        """A state table as it stands now, cut to a hash range (and to some of its runs)."""
        mine = [ref for ref in (self.refs if refs is None else refs) if ref.table == name]
        return Table(self._specs[name], mine, self._files.__getitem__, h_min, h_max)

    def _commit(self, epoch: _Epoch) -> None:
        for task, result in enumerate(epoch.results):
            self._write(task, result.changes)
            if result.errors is not None:
                self.errors = _add(self.errors, result.errors)
                assert_non_negative(self.errors, step=self.step, epoch=self.epochs)
            self.counts.update(result.counts)
        for result in epoch.results:
            for name, bucket in result.drops:
                self.refs = [
                    r for r in self.refs if r.table != name or r.bucket is None or r.bucket >= bucket
                ]

    def _write(self, task: int, changes: Sequence[Change]) -> None:
        """One packed file per task and epoch, a segment per table and time bucket."""
        writer = PackedWriter()
        for name in dict.fromkeys(change.table for change in changes):
            spec = self._specs[name]
            mine = [change for change in changes if change.table == name]
            rows_ = concat([change.rows for change in mine])
            presorted = len(mine) == 1 and mine[0].presorted
            for bucket, part in _by_bucket(spec, rows_):
                writer.add(spec, part, bucket=bucket, presorted=presorted)
        self._add_file(f"{self.epochs}-{task}", writer, self.epochs, self.epochs, "delta")

    def _add_file(self, file: str, writer: PackedWriter, lo: int, hi: int, kind: Any) -> None:
        buffers, infos = writer.finish()
        if infos:
            self._files[file] = PackedFile.open(
                file, pa.py_buffer(b"".join(bytes(memoryview(b)) for b in buffers))
            )
            self.refs.extend(info.ref(file, lo=lo, hi=hi, kind=kind) for info in infos)

    def compact(self) -> None:
        """Merge all runs of every table and bucket into one; nothing older lies below, so tombstones go."""
        groups: dict[tuple[str, int | None], list[RunRef]] = {}
        for ref in self.refs:
            groups.setdefault((ref.table, ref.bucket), []).append(ref)
        self.refs = []
        for number, ((name, bucket), refs) in enumerate(groups.items()):
            writer = PackedWriter()
            merged = merge_segments(self._specs[name], refs, self._files.__getitem__, drop_tombstones=True)
            writer.add(self._specs[name], merged, bucket=bucket, presorted=True)
            lo, hi = min(ref.lo for ref in refs), max(ref.hi for ref in refs)
            self._add_file(f"merge-{self.epochs}-{number}", writer, lo, hi, "merge")

    # ------------------------------------------------------------ checks

    def view(self) -> pa.Table:
        """The rows of the view table, hidden columns gone, with weights."""
        assert self.binding.view is not None, "this operator has no view table"
        found = self.table(self.binding.view).scan()
        return consolidate(found, columns=self.schema.names)

    def state(self, name: str) -> pa.Table:
        """All live rows of a state table."""
        return self.table(f"{self.step}/{name}").scan()

    def _check_binding(self) -> None:
        assert len(self.binding.placements) == len(self.shapes), "one placement per input"
        assert not any(name.startswith("_") for name in self.binding.shape.schema.names), (
            "hidden column in output"
        )
        for spec in self.binding.tables:
            assert spec.name.startswith(f"{self.step}/"), f"table {spec.name!r} is not named by its step"
        assert self.binding.view is None or self.binding.view in self._specs

    def _check_result(self, ctx: TaskContext, result: StepResult) -> None:
        declared = self.binding.shape.schema
        if result.out is not None:
            visible = [name for name in result.out.column_names if name not in (HASH, WEIGHT)]
            allowed = declared.names if self.whole else [n for n in declared.names if n in visible]
            assert visible == allowed, f"output has {visible}, declared {declared.names}"
            assert [result.out.schema.field(n).type for n in visible] == [
                declared.field(n).type for n in visible
            ], f"output is {result.out.schema}, declared {declared}"
            assert weights(result.out).all(), "output has rows of weight zero"
        if result.errors is not None:
            assert result.errors.schema.equals(ERROR_SCHEMA), f"errors are {result.errors.schema}"
        placed = [p for p in self.binding.placements if p.kind == "hash"]
        for change in result.changes:
            spec = self._specs[change.table]
            assert set(spec.schema.names) <= set(change.rows.column_names), (
                f"change lacks columns of {spec.name!r}"
            )
            hashes = hashing.hash_columns([change.rows.column(k) for k in spec.key], change.rows.num_rows)
            if HASH in change.rows.column_names:
                given = change.rows.column(HASH).to_numpy()
                assert (given == hashes).all(), f"rows for {spec.name!r} carry the hash of another key"
            if placed:
                inside = (hashes >= np.uint64(ctx.h_min)) & (hashes <= np.uint64(ctx.h_max))
                assert inside.all(), f"rows for {spec.name!r} outside the hash range of task {ctx.task}"

    def _check_output(self, out: pa.Table) -> None:
        shape = self.binding.shape
        assert not shape.append_only or not (weights(out) < 0).any(), "an append-only output retracted"
        self.output = _add(self.output, out)
        assert_non_negative(self.output, step=self.step, epoch=self.epochs)
        if shape.key is not None and set(shape.key) <= set(self.schema.names):
            doubled = consolidate(self.output, columns=shape.key)
            assert (weights(doubled) == 1).all(), f"two rows for one key {shape.key}"
        if self.binding.view is not None and self.wanted:
            assert_same_rows(row_counts(self.view()), row_counts(self.output), "view", "integrated output")

    def check_against(self, sql: str, *, close: float | None = None) -> None:
        """Law 1: the integrated output is `sql` over the integrated inputs input0, input1, ...

        `close` is a relative tolerance for floats, where the batch query itself is not exact.
        """
        expected = self.batch(sql)
        got, want = row_counts(self.output), row_counts(expected)
        if close is not None and got != want:
            _assert_close(got, want, close)
        else:
            assert_same_rows(got, want, "integrated output", "batch query")

    def batch(self, sql: str) -> pa.Table:
        """The batch query over the integrated inputs, in the output's schema."""
        con = _oracle()
        for index, table in enumerate(self.inputs):
            con.register(f"input{index}", expand(table))
        found = con.sql(sql).to_arrow_table()
        names = self.schema.names
        assert found.column_names == names, f"query gives {found.column_names}, output has {names}"
        columns = [c.cast(t) for c, t in zip(found.columns, self.schema.types, strict=True)]
        return pa.table(columns, schema=self.schema)


@functools.cache
def _oracle() -> duckdb.DuckDBPyConnection:
    """One connection for all tests: opening one costs more than most queries."""
    con = duckdb.connect(":memory:", config={"threads": 1})
    con.execute("set TimeZone = 'UTC'")
    atexit.register(_oracle.cache_clear)
    atexit.register(con.close)
    return con


# ---------------------------------------------------------------- tables


def _empty(schema: pa.Schema) -> pa.Table:
    return _weighted(schema.empty_table())


def _weighted(table: pa.Table) -> pa.Table:
    return with_weights(table, weights(table))


def _without_hash(table: pa.Table) -> pa.Table:
    return table.drop_columns([HASH]) if HASH in table.column_names else table


def _add(total: pa.Table, delta: pa.Table) -> pa.Table:
    return consolidate(concat([total, _weighted(_without_hash(delta))]))


def _given(table: pa.Table, columns: Sequence[str]) -> list[str]:
    """These columns, and the weight if there is one."""
    return [*columns, *([WEIGHT] if WEIGHT in table.column_names else [])]


def expand(table: pa.Table) -> pa.Table:
    """A collection as plain rows: a row of weight 3 three times, without hidden columns."""
    index = np.repeat(np.arange(table.num_rows), weights(table))
    visible = [name for name in table.column_names if not name.startswith("_")]
    return table.select(visible).take(pa.array(index))


def _by_bucket(spec: TableSpec, rows_: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if spec.bucket_width is None:
        yield None, rows_
        return
    numbers = spec.buckets(rows_)
    for bucket in np.unique(numbers).tolist():
        yield bucket, rows_.filter(pa.array(numbers == bucket))


# ---------------------------------------------------------------- comparing


def plain(value: Any) -> Any:
    """A Python value with canonical equality: one NaN, one zero, hashable."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, plain(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return value


def _python(column: pa.ChunkedArray) -> list[Any]:
    """The values; nanoseconds, which Python's times do not have, as whole numbers."""
    kind = column.type
    if getattr(kind, "unit", None) == "ns":
        column = column.cast(pa.int64())
    return cast(list[Any], column.to_pylist())


def row_counts(table: pa.Table) -> Rows:
    """A delta as {row: weight}, hidden columns gone."""
    visible = [name for name in table.column_names if not name.startswith("_")]
    found: Rows = Counter()
    columns = [_python(table.column(name)) for name in visible]
    tuples = zip(*columns, strict=True) if columns else [()] * table.num_rows
    for row, weight in zip(tuples, weights(table).tolist(), strict=True):
        found[tuple(plain(value) for value in row)] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


def assert_same_rows(got: Rows, want: Rows, got_name: str = "got", want_name: str = "expected") -> None:
    if got != want:
        extra = {row: got[row] - want[row] for row in got | want if got[row] > want[row]}
        lacking = {row: want[row] - got[row] for row in got | want if want[row] > got[row]}
        raise AssertionError(
            f"{got_name} differs from {want_name}\n  too many: {extra}\n  missing: {lacking}"
        )


def _assert_close(got: Rows, want: Rows, tolerance: float) -> None:
    left, right = (sorted(rows_.elements(), key=_sort_key) for rows_ in (got, want))
    assert len(left) == len(right), f"{len(left)} rows, expected {len(right)}"
    for a, b in zip(left, right, strict=True):
        same = all(
            math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance)
            if isinstance(x, float) and isinstance(y, float)
            else x == y
            for x, y in zip(a, b, strict=True)
        )
        assert same, f"row {a}, expected {b}"


def _sort_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    exact = tuple(repr(value) for value in row if not isinstance(value, float))
    return (exact, tuple(value for value in row if isinstance(value, float)))


def _assert_same_bits(one: _Epoch, two: _Epoch, step: str, epoch: int) -> None:
    """`repr` tells -0.0 from 0.0 and every last bit of a float."""
    texts = [sorted(map(repr, zip(*map(_python, e.out.columns), strict=True))) for e in (one, two)]
    assert texts[0] == texts[1], (
        f"step {step!r} says it is canonical, but another order of rows gave other output in epoch {epoch}\n"
        f"  one: {texts[0]}\n  two: {texts[1]}"
    )


# ---------------------------------------------------------------- deltas as text


def rows(schema: pa.Schema, *lines: str) -> pa.Table:
    """A delta in the notation of the tests: sign, optional weight, then one word per column.

    "+ 1 a" inserts, "- 1 a" retracts, "+3 1 a" inserts three; NULL is NULL, '' the empty string.
    """
    cells: list[list[str | None]] = []
    w = []
    for line in (part.strip() for text in lines for part in text.splitlines() if part.strip()):
        sign, *words = line.split()
        if len(words) != len(schema):
            raise ValueError(f"{line!r} has {len(words)} values for {schema.names}")
        w.append(int(sign + "1") if sign in "+-" else int(sign))
        cells.append([None if word == "NULL" else "" if word == "''" else word for word in words])
    columns = [pa.array([row[i] for row in cells], pa.string()).cast(f.type) for i, f in enumerate(schema)]
    return with_weights(pa.table(columns, schema=schema), np.array(w, np.int64))


# ---------------------------------------------------------------- random deltas


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Few values of a type, so that they meet; the awkward ones among them."""
    t = pa.types
    if t.is_boolean(kind):
        return st.booleans()
    if t.is_unsigned_integer(kind):
        return st.integers(0, 4)
    if t.is_integer(kind):
        return st.integers(-3, 3)
    if t.is_floating(kind):
        return st.sampled_from([0.0, -0.0, 0.1, 0.2, -1.5, 3.0, 1e16, math.nan, math.inf, -math.inf])
    if t.is_decimal(kind):
        return st.integers(-3, 3).map(lambda n: Decimal(n).scaleb(-kind.scale))
    if t.is_string(kind) or t.is_large_string(kind):
        return st.sampled_from(["", "a", "b", "ab", "é", "a long string beyond twelve bytes"])
    if t.is_binary(kind) or t.is_large_binary(kind):
        return st.sampled_from([b"", b"\x00", b"\x00\x01", b"\xff"])
    if t.is_date(kind):
        return st.integers(0, 3).map(lambda n: datetime.date(2024, 2, 28) + datetime.timedelta(days=n))
    if t.is_timestamp(kind):
        zone = datetime.UTC if kind.tz else None
        start = datetime.datetime(1970, 1, 1, tzinfo=zone)
        return st.integers(-2, 20).map(lambda n: start + datetime.timedelta(seconds=n))
    if t.is_list(kind):
        return st.lists(values_of(kind.value_type) | st.none(), max_size=2)
    if t.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return st.fixed_dictionaries({f.name: values_of(f.type) | st.none() for f in fields})
    raise NotImplementedError(f"no values for {kind}")


def deltas(
    schema: pa.Schema,
    *,
    epochs: int = 4,
    rows_max: int = 6,
    append_only: bool = False,
    nullable: bool = True,
    values: Mapping[str, st.SearchStrategy[Any]] | None = None,
) -> st.SearchStrategy[list[pa.Table]]:
    """Up to `epochs` deltas that never owe a row: inserts, duplicates, retractions and updates.

    `values` replaces the values of single columns (then NULLs are up to it).
    """
    given = values or {}
    cells = [
        given[f.name] if f.name in given else values_of(f.type) | st.none() if nullable else values_of(f.type)
        for f in schema
    ]
    verbs = ["insert", "again"] if append_only else ["insert", "insert", "again", "retract", "update"]
    change = st.tuples(st.sampled_from(verbs), st.tuples(*cells), st.integers(0, 255), st.integers(0, 255))
    script = st.lists(st.lists(change, max_size=rows_max), min_size=1, max_size=epochs)
    return script.map(lambda written: _perform(schema, written))


def _perform(schema: pa.Schema, script: list[list[tuple[str, tuple[Any, ...], int, int]]]) -> list[pa.Table]:
    live: list[tuple[Any, ...]] = []
    found = []
    for changes in script:
        delta: list[tuple[tuple[Any, ...], int]] = []
        for verb, row, pick, mask in changes:
            if verb == "insert" or not live:
                live.append(row)
                delta.append((row, 1))
                continue
            place = pick % len(live)
            old = live[place]
            if verb == "again":
                live.append(old)
                delta.append((old, 1))
                continue
            delta.append((live.pop(place), -1))
            if verb == "update":
                new = tuple(b if mask >> i & 1 else a for i, (a, b) in enumerate(zip(old, row, strict=True)))
                live.append(new)
                delta.append((new, 1))
        columns = [pa.array([row[i] for row, _ in delta], f.type) for i, f in enumerate(schema)]
        found.append(
            with_weights(pa.table(columns, schema=schema), np.array([w for _, w in delta], np.int64))
        )
    return found


def parallelisms() -> st.SearchStrategy[int]:
    return st.integers(1, PARALLELISM_MAX)

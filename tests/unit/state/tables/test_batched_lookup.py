"""Tables that are alike, asked and merged at once: what each gives alone, stacked or not (law 3)."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from millpond import hashing
from millpond.delta import HASH, WEIGHT
from millpond.errors import DataError, InternalError
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import stacked_name
from millpond.state.tables import batched_lookup, batched_merge
from millpond.state.tables.stacked_rows import stack_shape
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

KEYS: dict[str, list[pa.DataType]] = {
    "number": [pa.int64()],
    "text": [pa.string()],
    "two": [pa.int32(), pa.string()],
    "time": [pa.timestamp("us")],
}


def specs(kinds: list[pa.DataType], count: int) -> list[TableSpec]:
    """Tables with names of their own for the same columns."""
    return [
        TableSpec(
            f"t{n}",
            pa.schema(
                [
                    *[(f"k{n}{p}", kind) for p, kind in enumerate(kinds)],
                    (f"n{n}", pa.int64()),
                    (f"s{n}", pa.string()),
                ]
            ),
            key=tuple(f"k{n}{p}" for p in range(len(kinds))),
        )
        for n in range(count)
    ]


def value(chance: random.Random, kind: pa.DataType) -> Any:
    number = chance.randrange(40)
    if pa.types.is_string(kind):
        return None if number == 3 else f"key {number % 20}"
    return None if number == 7 else number


def rows(chance: random.Random, spec: TableSpec) -> pa.Table:
    """Rows of some keys, one each; some are tombstones."""
    kinds = [spec.schema.field(name).type for name in spec.key]
    keys = {tuple(value(chance, kind) for kind in kinds) for _ in range(chance.randrange(12))}
    columns = [pa.array([key[p] for key in keys], kind) for p, kind in enumerate(kinds)]
    columns.append(pa.array([chance.randrange(5) for _ in keys], pa.int64()))
    columns.append(pa.array([chance.choice(["a", "b", None]) for _ in keys], pa.string()))
    return pa.table(columns, schema=spec.schema).append_column(
        WEIGHT, pa.array([chance.choice([0, 1, 1]) for _ in keys], pa.int64())
    )


class Files:
    def __init__(self) -> None:
        self.files: dict[str, PackedFile] = {}

    def open(self, name: str) -> PackedFile:
        return self.files[name]

    def add(self, writer: PackedWriter, epoch: int) -> dict[str, RunRef]:
        buffers, infos = writer.finish()
        name = f"file {epoch}"
        self.files[name] = PackedFile.open(name, pa.py_buffer(b"".join(bytes(b) for b in buffers)))
        return {i.table: i.ref(name, lo=epoch, hi=epoch, kind="delta") for i in infos}


def stacked(writer: PackedWriter, tables: list[TableSpec], given: list[pa.Table]) -> None:
    """The rows of all tables as one stack, each in the order of its hashes."""
    sorted_rows = []
    for spec, table in zip(tables, given, strict=True):
        hashes = hashing.hash_columns([table.column(k) for k in spec.key], table.num_rows)
        order = pa.array(np.argsort(hashes, kind="stable"))
        whole = table.append_column(HASH, pa.array(hashes)).take(order)
        names = [*map(stacked_name, range(len(spec.schema))), WEIGHT, HASH]
        sorted_rows.append(whole.rename_columns(names))
    together = pa.concat_tables(sorted_rows).combine_chunks()
    columns = {n: together[n].combine_chunks() for n in (HASH, *together.column_names[:-1])}
    writer.add_stack([(s, t.num_rows) for s, t in zip(tables, given, strict=True)], columns)


def few_hashes() -> AbstractContextManager[Any]:
    real = hashing.hash_columns
    return mock.patch.multiple(
        hashing, hash_columns=lambda c, n: real(c, n) % np.uint64(4), is_injective=lambda columns: False
    )


def made(chance: random.Random, kinds: list[pa.DataType], *, stack: bool) -> tuple[Any, Any, Files]:
    tables = specs(kinds, 4)
    files = Files()
    runs: list[list[RunRef]] = [[] for _ in tables]
    for epoch in range(chance.randrange(1, 6)):
        writer = PackedWriter()
        given = [rows(chance, spec) for spec in tables]
        if stack and chance.random() < 0.7:
            stacked(writer, tables, given)
        else:
            for spec, table in zip(tables, given, strict=True):
                writer.add(spec, table)
        refs = files.add(writer, epoch)
        for number, spec in enumerate(tables):
            if spec.name in refs and chance.random() < 0.9:  # some of a stack may be over
                runs[number].append(refs[spec.name])
    return tables, runs, files


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("few", [False, True], ids=["hash", "collisions"])
def test_lookups_are_those_of_each_table(kinds: list[pa.DataType], few: bool) -> None:
    told = 0
    with few_hashes() if few else nullcontext():
        for seed in range(30):
            chance = random.Random(seed)
            tables, runs, files = made(chance, kinds, stack=not few)
            asked = [KeySet.of(rows(chance, spec), spec.key) for spec in tables]
            hashes = np.concatenate([keys.hashes for keys in asked])
            columns = [
                pa.concat_arrays([k.columns.column(p).combine_chunks() for k in asked])
                for p in range(len(kinds))
            ]
            starts = np.cumsum([0, *map(len, asked)])
            places = range(len(kinds), len(kinds) + 2)
            found = batched_lookup.lookup(
                tables, runs, files.open, batched_lookup.KeysByTable(hashes, columns, starts), places
            )
            if found is None:
                continue
            told += 1
            for number, (spec, keys) in enumerate(zip(tables, asked, strict=True)):
                names = spec.schema.names[len(kinds) :]
                wanted = Table(spec, runs[number], files.open).lookup_one(keys, names)
                start, stop = starts[number], starts[number + 1]
                assert found[0][start:stop].tolist() == wanted[0].tolist()
                for place, name in zip(places, names, strict=True):
                    assert found[1][place][start:stop].to_pylist() == wanted[1][name].to_pylist()
    assert told == 30 or few


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("few", [False, True], ids=["hash", "collisions"])
def test_merges_are_those_of_each_table(kinds: list[pa.DataType], few: bool) -> None:
    told = 0
    with few_hashes() if few else nullcontext():
        for seed in range(30):
            chance = random.Random(seed)
            tables, runs, files = made(chance, kinds, stack=not few)
            drop = [chance.random() < 0.5 for _ in tables]
            found = batched_merge.merge(tables, runs, drop, files.open)
            if found is None:
                continue
            told += 1
            sizes, columns = found
            writer = PackedWriter()
            infos = writer.add_stack(list(zip(tables, sizes, strict=True)), columns)
            refs = files.add(writer, 99)
            assert [i.rows for i in infos if i] == [size for size in sizes if size]
            for spec, own, gone in zip(tables, runs, drop, strict=True):
                wanted = merge_segments(spec, own, files.open, drop_tombstones=gone)
                merged = [refs[spec.name]] if spec.name in refs else []
                assert merge_segments(spec, merged, files.open).equals(wanted)
    assert told or few


def test_tables_of_one_stack_may_have_been_merged_over_other_epochs() -> None:
    """A stack is as old as each table says: the run of one may lie between the stack and what it holds."""
    tables = specs([pa.int64()], 2)
    files = Files()

    def put(epoch: int, numbers: list[int]) -> dict[str, RunRef]:
        writer = PackedWriter()
        given = [pa.table([[1], [epoch], ["x"], [1]], names=[*s.schema.names, WEIGHT]) for s in tables]
        stacked(writer, [tables[n] for n in numbers], [given[n] for n in numbers])
        return files.add(writer, epoch)

    before = put(6, [1])["t1"]
    merged = put(12, [0, 1])
    runs = [[replace(merged["t0"], lo=0, hi=5)], [replace(merged["t1"], lo=7, hi=12), before]]
    key = pa.array([1, 1])
    hashes = hashing.hash_columns([key], 2)
    asked = batched_lookup.KeysByTable(hashes, [key], np.array([0, 1, 2]))
    found = batched_lookup.lookup(tables, runs, files.open, asked, [1])
    assert found is not None and found[1][1].to_pylist() == [12, 12]
    again = batched_merge.merge(tables, runs, [False, False], files.open)
    assert again is not None and again[0] == [1, 1] and again[1]["c1"].to_pylist() == [12, 12]


def test_columns_of_a_stack_have_the_places_they_had_when_it_was_written() -> None:
    """A state may lose a column (`plan.evolution`); those behind it move up."""
    kinds = {"k": pa.int64(), "a": pa.int64(), "b": pa.int64()}
    before = [TableSpec(f"t{n}", pa.schema(kinds), ("k",)) for n in range(2)]
    less = pa.schema([("k", pa.int64()), ("b", pa.int64())])
    after = [TableSpec(f"t{n}", less, ("k",)) for n in range(2)]
    files = Files()
    writer = PackedWriter()
    stacked(writer, before, [pa.table({"k": [1], "a": [5], "b": [6], WEIGHT: [1]}) for _ in before])
    refs = files.add(writer, 1)
    runs = [[refs["t0"]], [refs["t1"]]]
    key = pa.array([1, 1])
    asked = batched_lookup.KeysByTable(hashing.hash_columns([key], 2), [key], np.arange(3))
    found = batched_lookup.lookup(after, runs, files.open, asked, [1])
    assert found is not None and found[1][1].to_pylist() == [6, 6]
    merged = batched_merge.merge(after, runs, [False, False], files.open)
    assert merged is not None and merged[1]["c1"].to_pylist() == [6, 6]


def test_a_stack_is_read_table_by_table_and_knows_its_share() -> None:
    tables = specs([pa.int64()], 3)
    chance = random.Random(5)
    given = [rows(chance, spec) for spec in tables]
    writer = PackedWriter()
    stacked(writer, tables, given)
    files = Files()
    refs = files.add(writer, 1)
    for spec, table in zip(tables, given, strict=True):
        found = Table(spec, [refs[spec.name]], files.open).scan(spec.schema.names)
        live = [r for r in table.to_pylist() if r.pop(WEIGHT)]
        assert sorted(found.drop_columns([HASH, WEIGHT]).to_pylist(), key=str) == sorted(live, key=str)
    whole = files.files["file 1"].entries[0]
    assert sum(ref.bytes for ref in refs.values()) <= whole.length


def test_a_damaged_stack_is_told_before_a_row_of_it_is_used() -> None:
    tables = specs([pa.int64()], 2)
    given = [pa.table([[n], [n], ["x" * 50]], schema=s.schema) for n, s in enumerate(tables)]
    writer = PackedWriter()
    stacked(writer, tables, [t.append_column(WEIGHT, pa.array([1])) for t in given])
    buffers, _ = writer.finish()
    raw = bytearray(b"".join(bytes(b) for b in buffers))
    place = raw.index(b"x" * 50) + 5
    raw[place] ^= 1
    file = PackedFile.open("damaged", pa.py_buffer(bytes(raw)))
    with pytest.raises(DataError, match="damaged"):
        file.segment(0)


def test_a_stack_whose_rows_are_not_in_order_is_not_written() -> None:
    tables = specs([pa.int64()], 2)
    columns = {
        HASH: pa.array([5, 9, 4, 4], pa.uint64()),
        **{
            stacked_name(place): pa.array([None] * 4, kind)
            for place, kind in enumerate(tables[0].schema.types)
        },
        WEIGHT: pa.array([1] * 4),
    }
    for sizes in ((2, 2), (3, 1), (2, 1)):  # a hash twice, a hash that falls, a row of nobody
        with pytest.raises(InternalError, match="in order"):
            PackedWriter().add_stack(list(zip(tables, sizes, strict=True)), columns)


def test_tables_are_alike_by_types_and_places_whatever_their_names() -> None:
    one, other = specs([pa.int64()], 2)
    assert stack_shape(one) == stack_shape(other)
    assert stack_shape(one) != stack_shape(specs([pa.int32()], 1)[0])
    bag = TableSpec("b", one.schema, key=one.key, rule="weights")
    assert stack_shape(bag) is None

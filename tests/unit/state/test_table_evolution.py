"""Tables that gained and lost columns: runs from before a column give its default, merged or not.

The oracle is the same table with every run written anew by the new spec: each
method must give the same rows from the mixed runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import DataError, InvalidError
from millpond.ordering import Order
from millpond.plan import codec
from millpond.state.manifest.history import read_manifest
from millpond.state.manifest.listing import PageCache
from millpond.state.manifest.manifest import Manifest, manifest_name
from millpond.state.manifest.snapshot import Snapshot, difference
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.memory_store import MemoryStore
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

OLD = TableSpec("s/v", pa.schema([("k", pa.int64()), ("a", pa.int64()), ("gone", pa.string())]), ("k",))
NEW = TableSpec(
    "s/v",
    pa.schema([("k", pa.int64()), ("b", pa.string()), ("a", pa.int64()), ("c", pa.list_(pa.int64()))]),
    ("k",),
    defaults=(("b", "none yet"),),
)


class Files:
    def __init__(self) -> None:
        self.files: dict[str, PackedFile] = {}

    def write(self, spec: TableSpec, rows: pa.Table, epoch: int) -> RunRef:
        writer = PackedWriter()
        writer.add(spec, rows)
        buffers, infos = writer.finish()
        name = f"f{len(self.files)}"
        self.files[name] = PackedFile.open(name, pa.py_buffer(b"".join(buffers)))
        return infos[0].ref(name, lo=epoch, hi=epoch, kind="delta")

    def open(self, name: str) -> PackedFile:
        return self.files[name]


def as_new(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """What a writer of the new spec would have written."""
    defaults = dict(spec.defaults)
    columns = {
        f.name: rows.column(f.name)
        if f.name in rows.column_names
        else pa.array([defaults.get(f.name)] * rows.num_rows, f.type)
        for f in spec.schema
    }
    return pa.table({**columns, "_w": rows.column("_w")})


def weighted(rows: pa.Table, weights: Sequence[int]) -> pa.Table:
    return rows.append_column("_w", pa.array(np.array(weights, np.int64)))


def old_rows(keys: Sequence[int], seed: int, dead: float = 0.1) -> pa.Table:
    draw = random.Random(seed)
    rows = pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "a": pa.array([draw.randrange(9) for _ in keys], pa.int64()),
            "gone": pa.array([draw.choice("xyz") for _ in keys]),
        }
    )
    return weighted(rows, [0 if draw.random() < dead else 1 for _ in keys])


def new_rows(keys: Sequence[int], seed: int) -> pa.Table:
    draw = random.Random(seed)
    rows = pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "b": pa.array([draw.choice(["p", None]) for _ in keys], pa.string()),
            "a": pa.array([draw.randrange(9) for _ in keys], pa.int64()),
            "c": pa.array([[draw.randrange(3)] for _ in keys], pa.list_(pa.int64())),
        }
    )
    return weighted(rows, [0 if draw.random() < 0.1 else 1 for _ in keys])


def mixed(size: int) -> tuple[Files, list[RunRef], list[RunRef]]:
    """The same content twice: as it came about, and all of it written by the new spec."""
    files = Files()
    parts = [
        (OLD, old_rows(range(size), 1)),
        (OLD, old_rows(range(size // 2, 2 * size), 2)),
        (NEW, new_rows(range(size // 4, size), 3)),
    ]
    as_it_came = [files.write(spec, rows, epoch) for epoch, (spec, rows) in enumerate(parts, 1)]
    anew = [files.write(NEW, as_new(rows, NEW), epoch) for epoch, (_, rows) in enumerate(parts, 1)]
    return files, as_it_came, anew


@pytest.mark.parametrize("size", [4, 300])
def test_every_read_gives_defaults_for_older_runs(size: int) -> None:
    files, mine, oracle = mixed(size)
    one, other = Table(NEW, mine, files.open), Table(NEW, oracle, files.open)
    assert one.scan().equals(other.scan())
    assert "none yet" in one.scan()["b"].to_pylist()
    assert one.scan(["b"]).equals(other.scan(["b"]))
    keys = KeySet.of(pa.table({"k": pa.array(range(0, 3 * size, 2))}), ["k"])
    assert one.lookup(keys).table.equals(other.lookup(keys).table)
    for got, wanted in zip(one.lookup_one(keys), other.lookup_one(keys), strict=True):
        assert got.equals(wanted) if isinstance(got, pa.Table) else (got == wanted).all()
    assert one.head(keys, 1).table.equals(other.head(keys, 1).table)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_merging_writes_the_defaults_and_drops_what_left(cut: int) -> None:
    files, mine, oracle = mixed(200)
    before = Table(NEW, oracle, files.open).scan()
    rows = merge_segments(NEW, mine[:cut], files.open, drop_tombstones=True)
    merged = files.write(NEW, rows, cut)
    segment = files.open(merged.file).segment(0)
    assert "gone" not in {*segment._columns, *segment.entry.constants}
    assert Table(NEW, [merged, *mine[cut:]], files.open).scan().equals(before)


ORDERED_OLD = TableSpec(
    "s/m", pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a", pa.int64())]), ("k",), (Order("t"),)
)
ORDERED_NEW = replace(
    ORDERED_OLD, schema=ORDERED_OLD.schema.append(pa.field("b", pa.float64())), defaults=(("b", 1.5),)
)


@pytest.mark.parametrize("rule", ["latest", "weights"])
def test_ordered_reads_give_defaults(rule: Any) -> None:
    files = Files()
    old, new = replace(ORDERED_OLD, rule=rule), replace(ORDERED_NEW, rule=rule)
    draw = random.Random(7)
    pairs = sorted({(draw.randrange(5), draw.randrange(40)) for _ in range(120)})
    first = weighted(
        pa.table({"k": [p[0] for p in pairs], "t": [p[1] for p in pairs], "a": [p[1] % 3 for p in pairs]}),
        [1] * len(pairs),
    )
    some = pairs[::3]
    second = pa.table({"k": [p[0] for p in some], "t": [p[1] for p in some], "a": [p[1] % 3 for p in some]})
    second = weighted(
        second.append_column("b", pa.array([1.5] * len(some))), [-1 if rule == "weights" else 1] * len(some)
    )
    mine = [files.write(old, first, 1), files.write(new, second, 2)]
    oracle = [files.write(new, as_new(first, new), 1), files.write(new, second, 2)]
    one, other = Table(new, mine, files.open), Table(new, oracle, files.open)
    keys = KeySet.of(pa.table({"k": [0, 1, 2, 3, 9]}), ["k"])
    assert one.scan().equals(other.scan())
    if rule == "weights":  # the default is part of the row: what is retracted with it meets it
        assert one.scan().num_rows == len(pairs) - len(some)
    assert one.lookup(keys).table.equals(other.lookup(keys).table)
    assert one.head(keys, 3, reverse=True).table.equals(other.head(keys, 3, reverse=True).table)
    bounds = pa.array([5] * len(keys)), pa.array([20] * len(keys))
    assert one.range(keys, *bounds).table.equals(other.range(keys, *bounds).table)
    for got, wanted in zip(one.neighbours(keys, bounds[0]), other.neighbours(keys, bounds[0]), strict=True):
        assert got.table.equals(wanted.table)


def test_a_run_without_a_key_or_order_column_is_damage_all_the_same() -> None:
    files = Files()
    ref = files.write(OLD, old_rows([1, 2], 1, dead=0), 1)
    keyed = replace(OLD, schema=pa.schema([("z", pa.int64()), *OLD.schema]), key=("z",))
    with pytest.raises(DataError, match="lacks a column"):
        Table(keyed, [ref], files.open).lookup(
            KeySet.of(pa.table({"z": [1]}), ["z"], np.array([ref.h_min], np.uint64))
        )
    ordered = replace(ORDERED_OLD, name="s/v")
    bound = pa.array([3])
    with pytest.raises(DataError, match="lacks a column"):
        Table(ordered, [ref], files.open).range(KeySet.of(pa.table({"k": [1]}), ["k"]), bound, bound)


def test_changes_and_differences_read_across_the_upgrade() -> None:
    """A change feed tells old rows as the newer plan sees them, so what did not change does not show."""
    store = MemoryStore()
    runs = []
    parts: list[tuple[TableSpec, list[dict[str, Any]]]] = [
        (OLD, [{"k": 1, "a": 1, "gone": "x"}, {"k": 2, "a": 2, "gone": "y"}]),
        (NEW, [{"k": 1, "b": "none yet", "a": 1, "c": None}, {"k": 2, "b": "now", "a": 2, "c": [1]}]),
    ]
    nonce = None
    for epoch, (spec, rows) in enumerate([(OLD, []), *parts]):
        added = ()
        if rows:
            writer = PackedWriter()
            writer.add(spec, weighted(pa.Table.from_pylist(rows, schema=spec.schema), [1] * len(rows)))
            buffers, infos = writer.finish()
            store.put_new(f"runs/1/{epoch:016d}-x", buffers)
            added = tuple(i.ref(f"runs/1/{epoch:016d}-x", lo=epoch, hi=epoch, kind="delta") for i in infos)
        runs += added
        manifest = Manifest(
            pond="p",
            epoch=epoch,
            token=1,
            nonce=str(epoch),
            now_us=epoch,
            parent_nonce=nonce,
            recent=tuple(runs),
            added=added,
        )
        store.put_new(manifest_name(epoch), manifest.encode())
        nonce = manifest.nonce

    def open_file(name: str) -> PackedFile:
        return PackedFile.open(name, store.map(name))

    after = Snapshot(store, read_manifest(store, 2), PageCache(store), open_file)
    names = NEW.schema.names
    wanted = [
        {"k": 2, "b": "none yet", "a": 2, "c": None, "_w": -1},
        {"k": 2, "b": "now", "a": 2, "c": [1], "_w": 1},
    ]
    for found in (after.changes(NEW, names), difference(after.at(1), after, NEW, names)):
        assert sorted(found.to_pylist(), key=lambda row: row["_w"]) == wanted
    assert after.at(1).scan(NEW, ["b"]).to_pylist() == [{"b": "none yet"}] * 2


def test_a_default_must_fit_and_have_a_value_column() -> None:
    with pytest.raises(
        InvalidError, match=r"the default of column 'b' of table 's/v' does not fit"
    ) as caught:
        _ = replace(NEW, defaults=(("b", 7),)).fill
    assert "7 is no string" in (caught.value.detail or "")
    with pytest.raises(InvalidError, match="gives a default to what can have none"):
        replace(NEW, defaults=(("k", 7),))


def test_defaults_go_through_the_catalog() -> None:
    spec = replace(
        NEW,
        schema=NEW.schema.append(pa.field("d", pa.timestamp("us"))),
        defaults=(("b", "x"), ("c", (1, 2)), ("d", datetime(2024, 1, 2))),
    )
    again: TableSpec = codec.loads(codec.dumps(spec))
    assert again == spec
    assert {n: v[0].as_py() for n, v in again.fill.items() if v[0].is_valid} == {
        "b": "x",
        "c": [1, 2],
        "d": datetime(2024, 1, 2),
    }

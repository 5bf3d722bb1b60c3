"""Changes that are not written yet look like a table that has them (law 5: in few runs)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec
from millpond.state.tables.write_buffer import WriteBuffer
from tests.sampling import first

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def spec(rule: str) -> TableSpec:
    return TableSpec("s/t", SCHEMA, ("k",), rule=rule)  # type: ignore[arg-type]


def rows(given: list[tuple[int, int, int]]) -> pa.Table:
    k, v, w = zip(*given, strict=True)
    return pa.table(
        {"k": pa.array(k, pa.int64()), "v": pa.array(v, pa.int64()), "_w": pa.array(w, pa.int64())}
    )


def held(table: Table) -> dict[tuple[int, int], int]:
    return {(r["k"], r["v"]): r["_w"] for r in table.scan().to_pylist()}


def before(of: TableSpec, given: list[tuple[int, int, int]]) -> Table:
    writer = PackedWriter()
    writer.add(of, rows(given))
    buffers, (info,) = writer.finish()
    file = PackedFile.open("old", pa.py_buffer(b"".join(buffers)))
    return Table(of, [info.ref("old", lo=1, hi=1, kind="delta")], lambda name: file)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_sums_are_as_if_written_at_once(seed: int) -> None:
    rng = random.Random(seed)
    table = before(spec("weights"), [(k, 0, 2) for k in range(20)])
    model = {(k, 0): 2 for k in range(20)}
    fresh = WriteBuffer({"s/t": spec("weights")})
    for _ in range(30):
        change = [
            (rng.randrange(20), rng.randrange(2), rng.choice([1, 2, -1])) for _ in range(rng.randint(1, 5))
        ]
        fresh.add("s/t", rows(change))
        for k, v, w in change:
            model[k, v] = model.get((k, v), 0) + w
        if rng.random() < 0.5:
            assert held(fresh.applied_to(table)) == {row: w for row, w in model.items() if w}
    merged = fresh.merged("s/t")
    assert merged is not None
    summed = {(r["k"], r["v"]): r["_w"] for r in merged.to_pylist()}
    assert all(model.get(row, 0) - (2 if row[1] == 0 else 0) == w for row, w in summed.items())
    assert 0 not in summed.values()


def test_the_newest_is_seen_and_ends_are_kept() -> None:
    """A row that was put and taken within the epoch must still end what lies under it."""
    of = spec("latest")
    table = before(of, [(1, 10, 1), (2, 20, 1)])
    fresh = WriteBuffer({"s/t": of})
    fresh.add("s/t", rows([(1, 11, 1), (3, 30, 1)]))
    assert held(fresh.applied_to(table)) == {(1, 11): 1, (2, 20): 1, (3, 30): 1}
    fresh.add("s/t", rows([(1, 11, 0), (3, 31, 1)]))
    assert held(fresh.applied_to(table)) == {(2, 20): 1, (3, 31): 1}
    found = fresh.applied_to(table).lookup(KeySet.of(pa.table({"k": pa.array([1, 3])}), ["k"])).table
    assert found.select(["k", "v"]).to_pylist() == [{"k": 3, "v": 31}]
    merged = fresh.merged("s/t")
    assert merged is not None
    assert sorted((r["k"], r["_w"]) for r in merged.to_pylist()) == [(1, 0), (3, 1)]


def test_many_changes_are_few_runs() -> None:
    of = spec("latest")
    table = before(of, [(0, 0, 1)])
    fresh = WriteBuffer({"s/t": of})
    for n in range(200):
        fresh.add("s/t", rows([(n, n, 1)]))
        assert len(fresh.applied_to(table).runs) <= 10
    assert held(fresh.applied_to(table)) == {(n, n): 1 for n in range(200)}

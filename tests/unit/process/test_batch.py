"""process_batch: states as arrays, equal to what process() gives row by row (laws 1 and 3)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond import ListState, ValueState
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])
OUT = {"k": str, "n": int, "total": int}


def tally(
    batch: Any, n: Any = ValueState(int, default=0), total: Any = ValueState(int, default=0)
) -> pa.Table:
    before = batch.starts[:-1][batch.key_of]
    x = batch.rows["x"].to_numpy()
    sums = np.concatenate([[0], np.cumsum(x)])
    count = n.values.to_numpy()[batch.key_of] + np.arange(len(batch)) - before + 1
    summed = total.values.to_numpy()[batch.key_of] + sums[1:] - sums[before]
    last = batch.starts[1:] - 1
    n.values, total.values = count[last], summed[last]
    return pa.table({"k": batch.rows["k"], "n": count, "total": summed})


def tally_rows(row: Any, n: Any = ValueState(int, default=0), total: Any = ValueState(int, default=0)) -> Any:
    n.value += 1
    total.value += row.x
    return row.k, n.value, total.value


@pytest.mark.parametrize("parallelism", [1, 4])
def test_a_batch_is_what_its_rows_are(tmp_path: Path, parallelism: int) -> None:
    rng = np.random.default_rng(5)
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=parallelism, checks=True)
    source = MemorySource(SCHEMA)
    stream = pond.stream("s", source)
    stream.key_by("k").process_batch(tally, OUT, id="batch").view("batches")
    stream.key_by("k").process(tally_rows, OUT, id="rows").view("rows")
    for _ in range(4):
        keys = [None if k == 7 else f"k{k}" for k in rng.integers(0, 12, 60).tolist()]
        source.push(pa.table({"k": pa.array(keys, pa.string()), "x": rng.integers(0, 9, 60)}))
        pond.drain()
    one, two = (sorted(map(str, pond.read(v).to_pylist())) for v in ("batches", "rows"))
    assert len(one) == 240 and one == two
    states = [sorted(map(str, pond.state(s, "total").to_pylist())) for s in ("batch", "rows")]
    assert states[0] == states[1] and len(states[0]) == 12


@dataclasses.dataclass
class Seen:
    n: int = 0
    best: float = 0.0


def test_a_record_is_a_table_and_null_takes_a_value_away(tmp_path: Path) -> None:
    def best(batch: Any, seen: Any = ValueState(Seen, default=Seen)) -> pa.Table:
        held = seen.values
        n = held["n"].to_numpy() + np.bincount(batch.key_of, minlength=len(batch.keys))
        gone = pa.array(n >= 3)
        counts = pa.array(n, mask=gone.to_numpy(zero_copy_only=False))
        scores = pa.array(n * 1.5, mask=gone.to_numpy(zero_copy_only=False))
        seen.values = pa.table({"n": counts, "best": scores})
        return batch.keys.append_column("n", pa.array(n))

    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    source = MemorySource(SCHEMA)
    pond.stream("s", source).key_by("k").process_batch(best, {"k": str, "n": int}, id="b").view("out")
    for keys in (["a", "b"], ["a", "a"], ["a"]):
        source.push([{"k": k, "x": 0} for k in keys])
        pond.drain()
    held = sorted(pond.state("b", "seen").to_pylist(), key=lambda r: r["k"])
    assert held == [{"k": "a", "n": 1, "best": 1.5}, {"k": "b", "n": 1, "best": 1.5}]
    assert sorted((r["k"], r["n"]) for r in pond.read("out").to_pylist()) == [
        ("a", 1),
        ("a", 1),
        ("a", 3),
        ("b", 1),
    ]


def test_what_does_not_fit_columns_is_refused(tmp_path: Path) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline")
    keyed = pond.stream("s", MemorySource(SCHEMA)).key_by("k")
    for state in (ListState(int), ValueState(), ValueState(int, ttl="1h")):

        def function(batch: Any, held: Any = state) -> None: ...

        with pytest.raises(InvalidError, match="cannot keep state 'held' in columns"):
            keyed.process_batch(function, OUT)


def test_a_failing_batch_names_the_step_and_the_line(tmp_path: Path) -> None:
    def broken(batch: Any, n: Any = ValueState(int)) -> None:
        n.values = [1, 2, 3]

    pond = millpond.open(tmp_path / "pond", engine="inline")
    source = MemorySource(SCHEMA)
    pond.stream("s", source).key_by("k").process_batch(broken, OUT, id="b").view("out")
    source.push([{"k": "a", "x": 1}])
    with pytest.raises(InvalidError, match="failed on a batch") as caught:
        pond.drain()
    assert "one value per key: 3 for 1 keys" in str(caught.value) and "test_batch.py" in str(caught.value)

"""What aggregates make of a sender's rows part by part is what they make of all of them (law 1)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import tuning
from millpond.engine.task.partitioning import concat
from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.kernels.grouping import few_groups
from millpond.operators.aggregate import Aggregate
from millpond.operators.operator import Binding, Shape

KINDS = ("count", "sum", "wide_sum", "avg", "min", "max")
COLUMNS = {"n": KINDS, "f": ("sum", "avg", "var_samp", "min"), "s": ("count", "min", "max"), "t": ("max",)}
AGGS = (Agg("rows", "count"), *(Agg(f"{k}_{c}", k, c) for c, kinds in COLUMNS.items() for k in kinds))


def rows(size: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    gone = rng.random(size) < 0.2
    return pa.table(
        {
            "k": rng.integers(0, 20, size),
            "day": pa.array([("mon", "tue", None)[i] for i in rng.integers(0, 3, size)], pa.string()),
            "n": pa.array(rng.integers(-(2**62), 2**62, size), mask=gone),
            "f": pa.array(rng.normal(size=size) * 10.0 ** rng.integers(-200, 200, size), mask=gone[::-1]),
            "s": pa.array([f"{i}" for i in rng.integers(0, 99, size)], mask=gone),
            "t": pa.array(rng.integers(0, 10**9, size), pa.timestamp("ms")),
        }
    )


def bound(key: tuple[str, ...], schema: pa.Schema) -> tuple[Aggregate, Binding]:
    operator = Aggregate(key, AGGS, feeds_for(AGGS, append_only=True))
    return operator, operator.bind("agg", (Shape(schema, append_only=True),))


def by_key(operator: Aggregate, binding: Binding, found: pa.Table) -> dict[Any, dict[str, Any]]:
    """Partial rows, with what need not travel."""
    kinds = {f"_a{i}_{f}": kind for i, k in enumerate(binding.extra) for f, kind in k.fields.items()}
    given = {
        tuple(row[k] for k in operator.key): {
            name: row.get(name) or (0 if kind == pa.int64() and "value" not in name else row.get(name))
            for name, kind in {"_n": pa.int64(), "_h": pa.uint64(), **kinds}.items()
        }
        for row in found.to_pylist()
    }
    assert len(given) == found.num_rows
    return given


@pytest.mark.parametrize("key", [("k",), ("k", "day"), ()])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_come_to_the_same(
    key: tuple[str, ...], weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", 500)
    table = rows(6000)
    parts = [table.slice(0, 2500), table.slice(2500, 3), table.slice(2503, 2200), table.slice(4703)]
    if weighted:  # some of the parts bring weights
        parts[1] = parts[1].append_column("_w", pa.array([2, 1, 3]))
    operator, binding = bound(key, table.schema)
    shrunk = concat([operator.shrunk(binding, 0, part) for part in parts])
    found = operator.united(binding, 0, shrunk)
    assert found.num_rows < shrunk.num_rows < table.num_rows / 10
    wanted = operator.prepare(binding, 0, concat(parts))
    assert by_key(operator, binding, found) == by_key(operator, binding, wanted)
    hashes = found.column("_h").to_numpy()
    assert (hashes[1:] > hashes[:-1]).all(), "they are cut by owner without a copy"


@pytest.mark.parametrize("many", [False, True])
def test_sums_that_leave_a_word_only_when_parts_are_put_together_are_whole(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", 5 if many else 500)
    part = pa.table(
        {
            "k": pa.array([1, 1, 2, 2] * 2),
            "n": pa.array([2**60, 2**60, -(2**60), -(2**60)] * 2),
            "d": pa.array([Decimal(2**60), Decimal(2**60), Decimal(-(2**60)), Decimal(-(2**60))] * 2),
        }
    )
    aggs = (Agg("s", "wide_sum", "n"), Agg("a", "avg", "n"), Agg("d", "sum", "d"))
    operator = Aggregate(("k",), aggs, feeds_for(aggs, append_only=True))
    binding = operator.bind("agg", (Shape(part.schema, append_only=True),))
    shrunk = concat([operator.shrunk(binding, 0, part)] * 3)
    assert "_a0_hi" not in shrunk.column_names, "each part fits into a word"
    found = by_key(operator, binding, operator.united(binding, 0, shrunk))
    assert found == by_key(operator, binding, operator.prepare(binding, 0, concat([part] * 3)))


@pytest.mark.parametrize(
    ("made", "few"),
    [
        (lambda rng, n: rng.integers(0, n // 10, n), True),
        (lambda rng, n: rng.integers(0, n, n), False),
        (lambda rng, n: np.arange(n), False),
        (lambda rng, n: np.arange(n) // 20, True),  # those of a group next to each other
        (lambda rng, n: np.minimum(rng.zipf(1.5, n), n), True),
    ],
)
def test_whether_groups_are_few_is_told_by_a_sample(made: Callable[[Any, int], Any], few: bool) -> None:
    key = pa.chunked_array([pa.array(made(np.random.default_rng(3), 200_000).astype(np.int64))])
    assert few_groups([key], len(key)) is few
    assert few_groups([key, key.cast(pa.string())], len(key)) is few

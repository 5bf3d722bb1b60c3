"""`vectorize_user_code`: the setting reaches every task, and changes no result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import ValueState
from millpond.process import epoch
from millpond.sources.memory import MemorySource


def total(row: Any, seen: Any = ValueState(int, default=0)) -> Any:
    seen.value += row.price
    return row.city, seen.value


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_setting_decides_whether_user_code_gets_many_keys_at_once(
    vectorized: bool, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[int] = []
    looked: list[int] = []
    run, allowed = epoch.run_lanes, epoch.allowed
    monkeypatch.setattr(epoch, "run_lanes", lambda *args: lanes.append(1) or run(*args))
    monkeypatch.setattr(epoch, "allowed", lambda code: looked.append(1) or allowed(code))
    orders = MemorySource({"city": int, "price": int, "note": str})
    with millpond.open(
        tmp_path / "pond", engine="inline", parallelism=parallelism, vectorize_user_code=vectorized
    ) as pond:
        stream = pond.stream("orders", orders)
        stream.key_by("city").process(total, {"city": int, "sum": int}, id="total").view("sums")
        orders.push([{"city": n % 500, "price": n, "note": "-"} for n in range(1000)])
        pond.drain()
        assert pond.read("sums").num_rows == 1000
        assert sum(row["seen"] for row in pond.state("total", "seen").to_pylist()) == sum(range(1000))
    assert bool(lanes) == bool(looked) == vectorized

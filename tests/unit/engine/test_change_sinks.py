"""Law 7 while the program changes: what a sink was told adds up to what its view holds, whatever that is now."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from tests.sampling import first

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


class Target:
    """Keeps each epoch once."""

    def __init__(self) -> None:
        self.told: dict[str, Counter[tuple[Any, ...]]] = {}

    def __call__(self, id: str, delta: pa.Table) -> None:
        rows: Counter[tuple[Any, ...]] = Counter()
        for row in delta.to_pylist():
            rows[row["k"], row["v"]] += row["_w"]
        assert self.told.setdefault(id, rows) == rows, "an epoch was told in two ways"

    def __reduce__(self) -> Any:
        return Target, ()

    def total(self) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for rows in self.told.values():
            found.update(rows)
        return Counter({row: n for row, n in found.items() if n})


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        options: dict[str, Any] = {"durable": False, "checks": True, "poll_ms": 5}
        options["retain_epochs"] = self.rng.choice([3, 1000])
        options["collect_every"] = 1
        self.pond: Pond = millpond.open(folder, engine="inline", **options)
        self.t = self.pond.table("t", SCHEMA)
        self.targets: dict[str, Target] = {}
        self.made = 0
        self.pond.drain()
        self._add()

    def step(self) -> None:
        acts = [self._insert, self._insert, self._add, self._swap, self._rename, self._drop, self._roll_back]
        self.rng.choice(acts)()
        if self.rng.random() < 0.7:
            self.pond.drain()

    def _insert(self) -> None:
        rng = self.rng
        self.pond.insert("t", [{"k": rng.randint(0, 3), "v": rng.randint(0, 9)} for _ in range(3)])

    def _add(self) -> None:
        self.made += 1
        name, target = f"v{self.made}", Target()
        self.targets[f"s{self.made}"] = target
        with self.pond.changing():
            view = self.t.filter(f"v > {self.rng.randint(0, 8)}").view(name)
            view.sink(f"s{self.made}", CallbackSink(target))

    def _others(self) -> list[str]:
        return [name for name in self.pond.views() if name != "t"]

    def _swap(self) -> None:
        if len(names := self._others()) > 1:
            self.pond.swap_views(*self.rng.sample(names, 2))

    def _rename(self) -> None:
        if names := self._others():
            self.made += 1
            self.pond.rename_view(self.rng.choice(names), f"r{self.made}")

    def _drop(self) -> None:
        if len(names := self._others()) > 1:
            self.pond.drop_view(self.rng.choice(names), cascade=True)

    def _roll_back(self) -> None:
        if self.pond.plan.sinks:
            self.pond.drain()
            head = self.pond.head()
            self.pond.rollback(self.rng.randint(head.floor, head.epoch))

    def check(self) -> None:
        self.pond.drain()
        for name, sink in self.pond.plan.sinks.items():
            held = Counter((r["k"], r["v"]) for r in self.pond.read(sink.view).to_pylist())
            assert self.targets[name].total() == held, name


@pytest.mark.parametrize("seed", first(2, range(20)))
def test_what_sinks_were_told_adds_up(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", seed)
    try:
        for _ in range(14):
            world.step()
            if world.rng.random() < 0.4:
                world.check()
        world.check()
    finally:
        world.pond.close()

"""Law 1 while the program changes: views come and go between epochs, whatever else happens to the pond.

A view that comes is the batch query from the very epoch that brings it, over all that was admitted before;
one that went is gone, with its errors; a rollback brings the program of its epoch back.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import millpond
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan.change import without_views
from millpond.pond import Pond
from tests.oracle.pipeline import VIEWS, Streams, ViewCase
from tests.oracle.world import AtOnce, World
from tests.sampling import seeds
from tests.unit.operators.harness import assert_same_rows, row_counts

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "6"))
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))
BASE = {"a": "a.rows", "e": "e.watermark", "t": "t.rows", "m": "m.rows"}
BY_NAME = {case.name: case for case in VIEWS}


class ChangingWorld(World):
    """A world in which the views are others every few steps."""

    changes = 0

    def _open(self, parallelism: int | None) -> Pond:
        """A new process knows the sources, and takes the program from the pond."""
        if not self.folder.exists() or not any((self.folder / "manifests").glob("*")):
            return super()._open(parallelism)
        pond = millpond.open(
            self.folder,
            engine=self.engine,
            parallelism=parallelism,
            on_epoch=self._committed,
            **self.settings,
            **self.options,
        )
        plan = pond.plan
        nodes = dict(plan.nodes)
        for step, source in (("a", self.a), ("e", self.e)):
            scan = nodes[step].operator
            assert isinstance(scan, Scan)
            nodes[step] = replace(nodes[step], operator=replace(scan, source=source))
        pond._builder.reopen(replace(plan, nodes=nodes))
        if not self.threads:
            with mock.patch("millpond.engine.coordinator.runner.ThreadPoolExecutor", AtOnce):
                pond._execution.boot()
        return pond

    def step(self) -> None:
        if self.rng.random() < 0.6 and self.accounted >= 0:
            self._change_program()
        super().step()

    def _change_program(self) -> None:
        rng, pond = self.rng, self.pond
        here = [name for name in pond.views() if name in BY_NAME]
        others = [case for case in VIEWS if case.name not in here]
        coming = rng.sample(others, rng.choice([0, 1, 2, 3]))
        going = rng.sample(here, min(len(here), rng.choice([0, 0, 1, 2])))
        with pond.changing():
            if going:
                keep = tuple(BASE.values())
                pond._builder.change(lambda plan: without_views(plan, going, cascade=True, keep=keep))
            streams = Streams(**{name: Stream(pond._builder, step) for name, step in BASE.items()})
            for case in coming:
                case.define(streams).view(case.name, key=case.key)
        self.changes += 1

    def cases_at(self, epoch: int) -> list[ViewCase]:
        plan = self.pond._reader.plan_of(self.pond.at(epoch).manifest)
        return [BY_NAME[name] for name in plan.views if name in BY_NAME]

    def check(self) -> None:
        head = self.pond.head()
        assert self.accounted == head.epoch
        for epoch in range(max(self.checked + 1, head.floor), head.epoch + 1):
            self.cases = self.cases_at(epoch)
            fresh = [c for c in self.cases if (c.name, epoch - 1) not in self.seen]
            moved = self.model.accounts[epoch] is not self.model.accounts.get(epoch - 1)
            for case in self.cases:
                if moved or case in fresh or self.rng.random() < 0.2:
                    self.check_view(case, epoch)
                else:
                    self.seen[case.name, epoch] = self.seen[case.name, epoch - 1]
            self.check_apart(epoch)
        self.checked = head.epoch

    def check_history(self) -> None:
        head = self.pond.head()
        for case in self.cases_at(head.epoch):
            kept = [e for e in range(head.floor, head.epoch + 1)]
            for epoch in kept:
                self.seen.setdefault((case.name, epoch), Counter())  # it was not there
            for epoch in kept:
                if case in self.cases_at(epoch):
                    again = row_counts(self.pond.read(case.name, epoch=epoch))
                    assert_same_rows(again, self.seen[case.name, epoch], f"{case.name!r} at {epoch}", "then")
            there = [e for e in kept if case in self.cases_at(e)]
            self.check_diff(case, self.rng.choice(kept), self.rng.choice(there))
            self.check_changes(case, head.floor, head.epoch)
            self.check_lookup(case, self.rng.choice(there))


def test_every_kind_of_view_can_come_later(tmp_path: Path) -> None:
    """All of them at once, over rows that were read, and each is exact in that epoch and after."""
    made = ChangingWorld(tmp_path / "pond", 11, cases=[])
    try:
        for _ in range(5):
            made._push_a()
            made._push_e()
            made._change_t()
            made._change_m()
            made.pond.drain()
        streams = Streams(**{name: Stream(made.pond._builder, step) for name, step in BASE.items()})
        with made.pond.changing():
            for case in VIEWS:
                case.define(streams).view(case.name, key=case.key)
        assert made.pond.head().kind == "change"
        made.check()
        for _ in range(3):
            made._push_a()
            made._push_e()
            made._change_t()
            made._change_m()
            made.pond.drain()
        made.check()
        assert len(made.cases) == len(VIEWS)
    finally:
        made.close()


@pytest.mark.parametrize("seed", seeds(1, FIRST, SEEDS, "MILLPOND_ORACLE_SEEDS"))
def test_views_come_and_go_whatever_happens(seed: int, tmp_path: Path) -> None:
    world = ChangingWorld(tmp_path / "pond", seed)
    try:
        world.run(steps=8)
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(FIRST + 1000, FIRST + 1000 + max(1, SEEDS // 4)))
def test_with_merges_and_collections_beside_the_chain(seed: int, tmp_path: Path) -> None:
    world = ChangingWorld(tmp_path / "pond", seed, threads=True)
    try:
        world.run(steps=6)
    finally:
        world.close()

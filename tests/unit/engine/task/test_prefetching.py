"""Tasks of level 0 fetch for the later levels of their host while they read their input."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import millpond
from millpond.engine.inline import InlineEngine
from millpond.engine.task.level import run_task
from millpond.engine.task.spec import EpochSpec, Report
from millpond.engine.task.worker import Worker
from millpond.sources.memory import MemorySource
from millpond.state.store.disk_cache import DiskCache
from millpond.state.store.local_store import LocalStore


class Recording(InlineEngine):
    """Keeps the spec of the newest epoch."""

    spec: EpochSpec

    def run(self, spec: EpochSpec) -> list[Report]:
        self.spec = spec
        return super().run(spec)


@pytest.mark.parametrize("ahead", [False, True])
def test_level_0_fetches_for_later_levels_if_they_are_on_the_same_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    store = LocalStore(tmp_path / "pond", durable=False)
    engine = Recording(Worker(store))
    asked: list[str] = []

    def prefetch_soon(cache: DiskCache, names: Iterable[str]) -> None:
        asked.extend(names)

    with millpond.Pond(store, engine=engine, parallelism=2) as pond:
        source = MemorySource({"k": int})
        pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("v")
        for _ in range(4):
            source.push([{"k": n} for n in range(20)], [{"k": n} for n in range(20, 40)])
            pond.drain()
        assert engine.spec.parallelism == (2, 2)
        monkeypatch.setattr(DiskCache, "prefetch_soon", prefetch_soon)
        other_host = Worker(DiskCache(store, tmp_path / "cache", 1 << 30))
        sent = [list(run_task(engine.spec, 0, task, iter(()), other_host, ahead)) for task in range(2)]
    assert all(sent)
    live = {ref.file for ref in engine.spec.recent}
    assert set(asked) == (live if ahead else set()) and len(live) > 2

"""Runs one step alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.engine.task.failing_step import naming_step

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class Apply:
    step: str

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,)

    def run(self, task: TaskRun) -> None:
        node = task.plan.nodes[self.step]
        started = time.perf_counter_ns()
        with naming_step(self.step, task.spec.epoch):
            task.finish(node, task.result(node), "apply")
        task.took(self.step, started)

    def text(self) -> str:
        return f"apply {self.step}"


@dataclass(frozen=True)
class LocalLookup:
    """A lookup without an exchange: every task reads the right side in full (`plan.local_lookup`)."""

    step: str

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,)

    def run(self, task: TaskRun) -> None:
        node = task.plan.nodes[self.step]
        started = time.perf_counter_ns()
        with naming_step(self.step, task.spec.epoch):
            ready = None if task.batches is None else task.batches.ready.get(self.step)
            result = task.result(node) if ready is None else task.streamed(node, ready)
            task.finish(node, result, "local_lookup")
        task.took(self.step, started)

    def text(self) -> str:
        return f"local lookup {self.step}"

"""Reads a source, or a table of the pond in a backfill."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.engine.task.failing_step import naming_step

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class ReadSource:
    step: str

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,)

    def run(self, task: TaskRun) -> None:
        started = time.perf_counter_ns()
        with naming_step(self.step, task.spec.epoch):
            task.give(self.step, task.read_source(self.step, task.splits(self.step)), "read_source")
        task.took(self.step, started)

    def text(self) -> str:
        return f"read source {self.step}"


@dataclass(frozen=True)
class ReadTable:
    """Reads the rows of a table at the epoch of a backfill, or the changes up to it."""

    step: str

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,)

    def run(self, task: TaskRun) -> None:
        started = time.perf_counter_ns()
        with naming_step(self.step, task.spec.epoch):
            task.give(self.step, task.read_table(self.step), "read_table")
        task.took(self.step, started)

    def text(self) -> str:
        return f"read table {self.step}"

"""The inline engine: runs the same levels in this process, without a JVM.

For unit tests, documentation and debugging; by law 3 its results are equal to
those of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.engine.engine import collect_reports
from millpond.engine.task.frames import Raw
from millpond.engine.task.level import run_task
from millpond.engine.task.single_task import run_all_levels
from millpond.engine.task.spec import EpochSpec, Report
from millpond.engine.task.worker import Worker


def run_levels(spec: EpochSpec, worker: Worker) -> list[Raw]:
    """Run all levels of an epoch one after the other; returns the frames at the end of the chain."""
    one = set(spec.parallelism) == {1} and "single_task" not in spec.passes_off
    if spec.in_parts or one:
        return [frame for task in range(spec.parallelism[0]) for frame in run_all_levels(spec, worker, task)]
    depth = len(spec.parallelism)
    inboxes: list[list[Raw]] = [[] for _ in range(spec.parallelism[0])]
    for level in range(depth):
        last = level == depth - 1
        outboxes: list[list[Raw]] = [[] for _ in range(1 if last else spec.parallelism[level + 1])]
        for task, incoming in enumerate(inboxes):
            for target, frame in run_task(spec, level, task, iter(incoming), worker):
                outboxes[target].append(frame)
        inboxes = outboxes
    return inboxes[0]


class InlineEngine:
    default_parallelism = 1
    single_task_rows_max = 0

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def run(self, spec: EpochSpec) -> list[Report]:
        return collect_reports(spec, run_levels(spec, self.worker))

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        return [function(item) for item in items]

    def cancel(self) -> None:
        return None

    def close(self) -> None:
        return None

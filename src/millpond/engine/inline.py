"""The inline engine: the same levels in this process, without a JVM.

For unit tests, documentation and debugging; law 3 makes its results equal to
those of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.engine.engine import collect_reports
from millpond.engine.level import run_task
from millpond.engine.spec import EpochSpec, Report
from millpond.engine.worker import Worker


class InlineEngine:
    default_parallelism = 1
    rows_alone = 0

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def run(self, spec: EpochSpec) -> list[Report]:
        depth = len(spec.parallelism)
        inboxes: list[list[bytes]] = [[] for _ in range(spec.parallelism[0])]
        for level in range(depth):
            last = level == depth - 1
            outboxes: list[list[bytes]] = [[] for _ in range(1 if last else spec.parallelism[level + 1])]
            for task, incoming in enumerate(inboxes):
                for target, frame in run_task(spec, level, task, iter(incoming), self.worker):
                    outboxes[target].append(frame)
            inboxes = outboxes
        return collect_reports(spec, inboxes[0])

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        return [function(item) for item in items]

    def cancel(self) -> None:
        return None

    def close(self) -> None:
        return None

"""Runs one task of one level: receive, run every node, write one file, send.

This is everything that runs inside a Spark task (and inside the inline engine).
It depends only on the spec, the frames and the store.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping

from millpond.engine.task import frames
from millpond.engine.task.prefetching import cache_metrics, prefetch
from millpond.engine.task.spec import EpochSpec, Report, heard
from millpond.engine.task.task_run import TaskRun
from millpond.engine.task.worker import Worker, worker_for
from millpond.plan.levels import Levels

HOST = socket.gethostname()


class LevelTask:
    """A picklable function that runs any task of one level."""

    def __init__(self, spec: EpochSpec, level: int, ahead: bool = False) -> None:
        """With `ahead`, the tasks of the same number in later levels will run on the same host."""
        self.spec = spec
        self.level = level
        self.ahead = ahead

    def __call__(self, task: int, incoming: Iterator[frames.Raw]) -> Iterator[tuple[int, frames.Raw]]:
        worker = worker_for(self.spec.store, **self.spec.options)
        return run_task(self.spec, self.level, task, incoming, worker, self.ahead)


def run_task(
    spec: EpochSpec,
    level: int,
    task: int,
    incoming: Iterator[frames.Raw],
    worker: Worker,
    ahead: bool = False,
) -> Iterator[tuple[int, frames.Raw]]:
    """Run one task; yields its frames for the next level as (target task, frame), reports last."""
    run = TaskRun(spec, level, task, worker)
    depth = len(spec.parallelism)
    prefetch(run, range(level, depth) if ahead else (level,))
    sources = [(k, t) for k in header_senders(run.levels, level, depth) for t in range(spec.parallelism[k])]
    received = frames.receive(level, task, incoming, sources)
    run.receive_headers(received.headers)
    run.run(received.tables)

    last = level == depth - 1
    here = (level, task)
    sent: dict[tuple[int, int], list[int]] = {}
    for to_level, to_task, raw in run.frames():
        tally = sent.setdefault((to_level, to_task), [0, 0])
        tally[0] += 1
        tally[1] = (tally[1] + frames.parse(raw).digest()) & 0xFFFFFFFFFFFFFFFF
        yield hop(spec, level, to_level, to_task), raw
    for to_level in header_receivers(run.levels, level, depth):
        for to_task in range(spec.parallelism[to_level]):
            count, digest = sent.get((to_level, to_task), [0, 0])
            header = frames.Header(run.attempt, count, digest, run.watermarks)
            raw = frames.make(frames.HEADER, (to_level, to_task), here, 0, 0, header.encode())
            yield hop(spec, level, to_level, to_task), raw

    report = written_report(spec, run, task, received.headers)
    for frame in received.passing:
        target = 0 if last or frame.kind == frames.REPORT else hop(spec, level, frame.to_level, frame.to_task)
        yield target, frame.raw
    yield 0, report


def written_report(
    spec: EpochSpec, run: TaskRun, task: int, headers: Mapping[tuple[int, int], frames.Header]
) -> bytes:
    """Write the task's file; returns its report as a frame.

    `spec` is that of the whole epoch: a task that runs one part of the plan alone has another of its own, and
    hears only itself.
    """
    runs, written = run.write_file()
    report = Report(
        run.level,
        task,
        run.attempt,
        heard(spec.parallelism, {source: header.attempt for source, header in headers.items()}),
        runs,
        tuple(sorted(run.drops.items())),
        run.counts,
        run.watermarks,
        {
            "us": (time.perf_counter_ns() - run.started) // 1000,
            "steps_us": run.step_us,
            "ran": run.ran,
            "rows_in": run.rows_in,
            "bytes_written": written,
            "host": HOST,
            **cache_metrics(run.worker.store, run.cache_before),
            **({"needs_full_rows": True} if run.needs_full_rows else {}),
            **({"errors_ended": True} if run.errors_ended else {}),
        },
    )
    to = (len(run.spec.parallelism), 0)
    return frames.make(frames.REPORT, to, (run.level, task), 0, 0, report.encode())


def hop(spec: EpochSpec, level: int, to_level: int, to_task: int) -> int:
    """The task of the next level that receives a frame, or forwards it."""
    return to_task if to_level == level + 1 else to_task % spec.parallelism[level + 1]


def header_senders(levels: Levels, level: int, depth: int) -> list[int]:
    """The levels whose tasks all send this level a header: the previous one, and those with an edge to it."""
    if level == 0:
        return []
    return sorted(
        {level - 1} | {e.from_level for e in levels.edges if e.to_level == level and e.to_level < depth}
    )


def header_receivers(levels: Levels, level: int, depth: int) -> list[int]:
    later = {e.to_level for e in levels.edges if e.from_level == level and e.to_level < depth}
    if level + 1 < depth:
        later.add(level + 1)
    return sorted(later)

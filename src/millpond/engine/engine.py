"""The engine interface: it runs the levels of an epoch, and other work beside the chain of epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from millpond.engine.task import frames
from millpond.engine.task.spec import ALL, EpochSpec, Report, attempts_digest
from millpond.errors import InternalError


class Engine(Protocol):
    @property
    def default_parallelism(self) -> int:
        """The number of tasks that can run at the same time now."""

    single_task_rows_max: (
        int  # an epoch with at most this many rows is one task; 0: always as many tasks as requested
    )

    def run(self, spec: EpochSpec) -> list[Report]:
        """Run every level of an epoch; returns the checked reports of all tasks."""

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        """Run a function over items beside the chain, in order."""

    def cancel(self) -> None:
        """Stop running jobs soon."""

    def close(self) -> None: ...


@runtime_checkable
class RemoteEngine(Protocol):
    """An engine whose tasks run in other processes, perhaps on other hosts."""

    def shared(self, uri: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with which tasks open the store, without secrets; checks that they can."""


@runtime_checkable
class Executors(Protocol):
    """The executors of a cluster, as a number that can be changed."""

    @property
    def wanted(self) -> int:
        """The number that was last requested."""

    @property
    def cores_each(self) -> int: ...

    def request(self, count: int) -> None:
        """Request this number."""


@runtime_checkable
class ElasticEngine(Protocol):
    """An engine on a cluster that may give it more executors, or fewer."""

    @property
    def executors(self) -> Executors | None:
        """None if their number cannot be changed."""


@runtime_checkable
class PlacingEngine(Protocol):
    """An engine that runs a hash range on the same host in every epoch."""

    placement: tuple[str, ...]
    """The host of each task of the last epoch; a new process sets it to that of the one before it."""


def collect_reports(spec: EpochSpec, raw: Sequence[frames.Raw]) -> list[Report]:
    """The reports at the end of a chain, after checking that they belong to one run.

    Every task of every level has exactly one report, and all receivers of a task
    received the header of the attempt that this report describes.  So an epoch never
    mixes two attempts of a task.
    """
    reports: dict[tuple[int, int], Report] = {}
    for item in raw:
        frame = frames.parse(item)
        if frame.kind != frames.REPORT:
            raise InternalError("a frame was sent beyond the last level", detail=f"kind {frame.kind}")
        try:
            report = Report.decode(frame.payload)
        except (ValueError, KeyError, TypeError, IndexError) as broken:
            raise InternalError(
                "a report is damaged", detail=str(broken), hint="the epoch is run again", epoch=spec.epoch
            ) from broken
        if (report.level, report.task) in reports:
            raise InternalError("a task reported twice", detail=f"level {report.level} task {report.task}")
        reports[report.level, report.task] = report
    wanted = [(level, task) for level, tasks in enumerate(spec.parallelism) for task in range(tasks)]
    missing = [w for w in wanted if w not in reports]
    if missing:
        raise InternalError(
            "reports are missing",
            detail=f"{len(reports)} of {len(wanted)} tasks reported, the first missing is {missing[0]}",
            epoch=spec.epoch,
        )
    extra = sorted(set(reports) - set(wanted))
    if extra:
        raise InternalError("a task reported that should not exist", detail=str(extra[0]), epoch=spec.epoch)
    digests = {
        level: attempts_digest([reports[level, task].attempt for task in range(tasks)])
        for level, tasks in enumerate(spec.parallelism)
    }
    for report in reports.values():
        for level, task, attempt in report.heard:
            reported = digests[level] if task == ALL else reports[level, task].attempt
            if reported != attempt:
                of = "the tasks" if task == ALL else f"task {task}"
                raise InternalError(
                    "an epoch mixed two attempts of a task",
                    detail=f"level {report.level} task {report.task} heard {attempt} of level {level} "
                    f"{of}, which reported as {reported}",
                    hint="the epoch is run again",
                    epoch=spec.epoch,
                )
    return [reports[w] for w in wanted]

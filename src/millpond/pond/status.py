"""The status of a pond, as one frozen value."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from millpond.control import lease
from millpond.errors import MillpondError, UnavailableError
from millpond.plan.sink_check import SinkState, SinkStatus, connector_of, promise_of
from millpond.pond.execution import Execution
from millpond.serve.sink_lag import epochs_behind
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.waiting_store import at_once, waiting_store

State = Literal["new", "running", "stopped", "failed", "standby"]


@dataclass(frozen=True)
class Status:
    """What a Pond does in this process, and the newest epoch of the pond.

    `state` is "running" while this Pond runs epochs, in the background or in a call; "standby" while it waits
    for another process; "failed" after an error ended it, until it runs again; "new" before the first epoch;
    else "stopped", also if another process runs the pond: `holder` names it.
    """

    state: State
    epoch: int | None  # the newest committed epoch; None before the first
    lag: int | None  # rows that the sources have and no epoch has read; None if unknown
    last_error: BaseException | None  # the error that ended the run; None once it runs again
    sinks: tuple[SinkStatus, ...] = ()
    holder: str | None = None  # the process that holds the pond, and since when
    waiting: str | None = (
        None  # while the storage does not answer or there are no executors: which, since when
    )


def status_of(execution: Execution) -> Status:
    runner = execution.runner
    try:
        store = at_once(execution.components.store)
        head, beat = history.read_head(store), lease.latest(store)
    except UnavailableError:  # perhaps the cause of the failure: report what this process knows
        head, beat = (None if runner is None else runner.coordinator.head), None
    return Status(
        _state(execution, head is None),
        None if head is None else head.epoch,
        None if runner is None else runner.coordinator.backlog_rows,
        execution.last_error,
        sinks_of(execution, head),
        None if beat is None or beat.over else beat.described(),
        _waiting(execution),
    )


def _waiting(execution: Execution) -> str | None:
    store = waiting_store(execution.components.store)
    if store is not None and store.outage is not None:
        return store.outage.described(time.monotonic())
    return execution.listeners.executors


def summary_of(execution: Execution) -> list[tuple[str, str]]:
    """A summary of the pond for `repr`; the reason if it cannot be read."""
    if execution.closed:
        return [("state", "closed")]
    try:
        status, views = status_of(execution), sorted(execution.plan.views)
    except MillpondError as error:
        return [("state", f"unreadable: {error.message}")]
    epoch = "none" if status.epoch is None else str(status.epoch)
    return [("state", status.state), ("epoch", epoch), ("views", ", ".join(views) or "none")]


def sinks_of(execution: Execution, head: Manifest | None) -> tuple[SinkStatus, ...]:
    """Every sink of the plan, as far as this process knows."""
    coordinator = None if execution.runner is None else execution.runner.coordinator
    failed = {} if coordinator is None else coordinator.sink_errors
    cursors = {} if head is None else dict(head.cursors)
    if coordinator is not None:
        cursors |= coordinator.cursors
    stopped = {} if head is None else head.stopped_sinks
    statuses = []
    defined = execution.components.builder.plan  # without reading the storage, if this process knows
    for name in defined.sinks if defined.nodes or head is None else execution.plan.sinks:
        epoch = cursors.get(name)
        behind = 0 if head is None else _behind(execution, head, -1 if epoch is None else epoch)
        state: SinkState = "behind" if behind else "current"
        if name in stopped:
            state, epoch = stopped[name], None
        elif name in failed:
            state = "failed"
        node = defined.sinks.get(name) or execution.plan.sinks[name]
        statuses.append(
            SinkStatus(
                name,
                state,
                epoch,
                failed.get(name),
                node.view,
                connector_of(node.sink),
                *promise_of(node),
                None if epoch is None else behind,
            )
        )
    return tuple(statuses)


def _behind(execution: Execution, head: Manifest, cursor: int) -> int:
    try:
        return epochs_behind(at_once(execution.components.store), head, cursor)
    except UnavailableError:  # count all of them
        return head.epoch - cursor


def _state(execution: Execution, is_new: bool) -> State:
    if execution.standing_by:
        return "standby"
    if execution.last_error is not None:
        return "failed"
    if execution.is_running:
        return "running"
    return "new" if is_new else "stopped"

"""The status of a pond, as one frozen value."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from millpond.control import lease
from millpond.errors import MillpondError, UnavailableError
from millpond.plan.sink_check import SinkState, SinkStatus, connector_of, promise_of
from millpond.pond.driver import Driver
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


def status_of(driver: Driver) -> Status:
    runner = driver.runner
    try:
        store = at_once(driver.components.store)
        head, beat = history.read_head(store), lease.latest(store)
    except UnavailableError:  # perhaps the cause of the failure: report what this process knows
        head, beat = (None if runner is None else runner.coordinator.head), None
    return Status(
        _state(driver, head is None),
        None if head is None else head.epoch,
        None if runner is None else runner.coordinator.backlog_rows,
        driver.last_error,
        sinks_of(driver, head),
        None if beat is None or beat.over else beat.described(),
        _waiting(driver),
    )


def _waiting(driver: Driver) -> str | None:
    store = waiting_store(driver.components.store)
    if store is not None and store.outage is not None:
        return store.outage.described(time.monotonic())
    return driver.listeners.executors


def summary_of(driver: Driver) -> list[tuple[str, str]]:
    """A summary of the pond for `repr`; the reason if it cannot be read."""
    if driver.closed:
        return [("state", "closed")]
    try:
        status, views = status_of(driver), sorted(driver.plan.views)
    except MillpondError as error:
        return [("state", f"unreadable: {error.message}")]
    epoch = "none" if status.epoch is None else str(status.epoch)
    return [("state", status.state), ("epoch", epoch), ("views", ", ".join(views) or "none")]


def sinks_of(driver: Driver, head: Manifest | None) -> tuple[SinkStatus, ...]:
    """Every sink of the plan, as far as this process knows."""
    coordinator = None if driver.runner is None else driver.runner.coordinator
    failed = {} if coordinator is None else coordinator.failed_sinks
    cursors = {} if head is None else dict(head.cursors)
    if coordinator is not None:
        cursors |= coordinator.cursors
    stopped = {} if head is None else head.stopped_sinks
    found = []
    defined = driver.components.builder.plan  # without reading the storage, if this process knows
    for name in defined.sinks if defined.nodes or head is None else driver.plan.sinks:
        epoch = cursors.get(name)
        behind = 0 if head is None else _behind(driver, head, -1 if epoch is None else epoch)
        state: SinkState = "behind" if behind else "current"
        if name in stopped:
            state, epoch = stopped[name], None
        elif name in failed:
            state = "failed"
        node = defined.sinks.get(name) or driver.plan.sinks[name]
        found.append(
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
    return tuple(found)


def _behind(driver: Driver, head: Manifest, cursor: int) -> int:
    try:
        return epochs_behind(at_once(driver.components.store), head, cursor)
    except UnavailableError:  # count all of them
        return head.epoch - cursor


def _state(driver: Driver, is_new: bool) -> State:
    if driver.standing_by:
        return "standby"
    if driver.last_error is not None:
        return "failed"
    if driver.is_driving:
        return "running"
    return "new" if is_new else "stopped"

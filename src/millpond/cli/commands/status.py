"""`millpond status`: shows whether a pond is running, its newest epoch, and the lag of its sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, open_reader
from millpond.cli.output import FactsPart, OutputColumn, TablePart
from millpond.cli.values import local
from millpond.control import lease
from millpond.plan.nodes import Plan
from millpond.serve.epoch_view import utc
from millpond.serve.sink_lag import epochs_behind
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import Store

SINKS = (
    OutputColumn("name"),
    OutputColumn("state"),
    OutputColumn("epoch", right=True),
    OutputColumn("behind", right=True),
)
State = Literal["running", "stopped", "failed", "killed", "silent"]


@dataclass(frozen=True)
class LeaseStatus:
    """What the lease says about the process that runs the pond, or ran it last."""

    state: State
    holder: str | None = None
    error: str | None = None


def status(pond: PondArgument, output: OutputOption = TEXT) -> None:
    """Show whether the pond is running, the newest epoch, the sinks and the number of entries in the inbox.

    State: running; stopped; failed (with the error); killed (its process ended without releasing the lease);
    silent (a process on another machine no longer renews its lease).
    """
    reader = open_reader(pond)
    head = reader.head()
    found = run_of(reader.store)
    facts: dict[str, Any] = {
        "state": found.state,
        "epoch": head.epoch,
        "when": utc(head.now_us),
        "holder": found.holder,
        "error": found.error,
        "inbox": len(inbox.beyond(reader.store, inbox.next_entry(head))),
        "backfill": None if head.backfill is None else ", ".join(head.backfill.steps),
    }
    rows = list(sinks_of(reader.store, reader.plan_of(head), head))
    output.write(FactsPart(facts, (OutputColumn("when", "at", local),)), TablePart("sinks", SINKS, rows))


def run_of(store: Store) -> LeaseStatus:
    """Read the lease; one of another machine is watched until it is renewed or expires."""
    last = lease.latest(store)
    if last is None:
        return LeaseStatus("stopped")
    if last.error is not None:
        return LeaseStatus("failed", last.described(), last.error)
    if last.released:
        return LeaseStatus("stopped")
    if last.over:
        return LeaseStatus("killed", last.described())
    if last.process is not None and last.is_on_this_machine:
        return LeaseStatus("running", last.described())
    alive = lease.alive_elsewhere(store, 0)
    return LeaseStatus("silent" if alive is None else "running", (alive or last).described())


def sinks_of(store: Store, plan: Plan, head: Manifest) -> Iterator[dict[str, Any]]:
    """Each sink with the last epoch that it received, as far as that is committed."""
    for name in plan.sinks:
        if name in head.detached:
            yield {"name": name, "state": head.stopped_sinks[name], "epoch": None, "behind": None}
            continue
        epoch = head.cursors.get(name, -1)
        behind = epochs_behind(store, head, epoch)
        yield {"name": name, "state": "behind" if behind else "current", "epoch": epoch, "behind": behind}

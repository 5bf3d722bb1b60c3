"""`millpond status`: whether somebody runs a pond, how far it is, and what its sinks and inbox wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, open_reader
from millpond.cli.output import Column, Facts, Rows
from millpond.cli.values import local
from millpond.control import lease
from millpond.plan.nodes import Plan
from millpond.serve.moment import utc
from millpond.serve.sink_lag import epochs_behind
from millpond.state import inbox
from millpond.state.manifest import Manifest
from millpond.state.store import Store

SINKS = (Column("name"), Column("state"), Column("epoch", right=True), Column("behind", right=True))
State = Literal["running", "stopped", "failed", "killed", "silent"]


@dataclass(frozen=True)
class Run:
    """Who runs the pond, by its lease, or ran it last."""

    state: State
    holder: str | None = None
    error: str | None = None


def status(pond: PondArgument, output: OutputOption = TEXT) -> None:
    """Show whether somebody runs the pond, the newest epoch, its sinks and what waits in the inbox.

    State: running; stopped; failed (with the error); killed (its process is gone without a word); silent (a
    process of another machine no longer renews its lease).
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
        "inbox": len(inbox.beyond(reader.store, int(head.positions.get("inbox", 0)))),
        "filling": None if head.filling is None else ", ".join(head.filling.steps),
    }
    rows = list(sinks_of(reader.store, reader.plan_of(head), head))
    output.write(Facts(facts, (Column("when", "at", local),)), Rows("sinks", SINKS, rows))


def run_of(store: Store) -> Run:
    """What the lease says; one of another machine is watched until it is renewed, or long enough."""
    last = lease.latest(store)
    if last is None:
        return Run("stopped")
    if last.error is not None:
        return Run("failed", last.described(), last.error)
    if last.released:
        return Run("stopped")
    if last.over:
        return Run("killed", last.described())
    if last.process is not None and last.is_on_this_machine:
        return Run("running", last.described())
    alive = lease.alive_elsewhere(store, 0)
    return Run("silent" if alive is None else "running", (alive or last).described())


def sinks_of(store: Store, plan: Plan, head: Manifest) -> Iterator[dict[str, Any]]:
    """Each sink with the last epoch it was shown, as far as that is committed: the runner may know more."""
    for name in plan.sinks:
        if name in head.detached:
            yield {"name": name, "state": "detached", "epoch": None, "behind": None}
            continue
        epoch = head.cursors.get(name, -1)
        behind = epochs_behind(store, head, epoch)
        yield {"name": name, "state": "behind" if behind else "current", "epoch": epoch, "behind": behind}

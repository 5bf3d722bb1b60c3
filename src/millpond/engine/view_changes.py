"""What an epoch changed in a view, also where its name came to mean another table.

Law 2: a program is part of the epoch.  So the change of a view is told between
what its name meant before and what it means now: a view that came begins with
all its rows, one that went ends with them, and after a swap it is the difference.
For a sink it is between what the sink read before and what it reads now, so
whatever it was told adds up to what its view holds (law 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from millpond import delta as deltas
from millpond.plan.nodes import Plan, View
from millpond.plan.tables import table_specs
from millpond.state.manifest import Manifest
from millpond.state.snapshot import Snapshot, difference
from millpond.state.table_spec import TableSpec

PlanOf = Callable[[Manifest], Plan]
OTHER_PROGRAM = ("change", "rollback", "takeover")  # kinds of epochs that may bring one


@dataclass(frozen=True)
class Held:
    """A view and the table that holds its rows; two tables may call the same column of a view differently."""

    view: View
    spec: TableSpec
    columns: list[str]  # of the table, those that are seen


def view_changes(snapshot: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """The delta of one epoch; None where the view is neither there nor was."""
    return _changes(snapshot, lambda manifest: held_by(plan_of(manifest), view))


def sink_changes(snapshot: Snapshot, sink: str, plan_of: PlanOf) -> pa.Table | None:
    """What a sink is told of one epoch: nothing before it is there, and all rows when it comes."""
    return _changes(snapshot, lambda manifest: read_by(plan_of(manifest), sink))


def view_difference(before: Snapshot, after: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for one view, by reading only what the two do not share."""
    was, now = (held_by(plan_of(snapshot.manifest), view) for snapshot in (before, after))
    return _between(before, was, after, now)


def sink_difference(before: Snapshot, after: Snapshot, sink: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for what a sink reads."""
    was, now = (read_by(plan_of(snapshot.manifest), sink) for snapshot in (before, after))
    return _between(before, was, after, now)


def held_by(plan: Plan, view: str) -> Held | None:
    """The table that a view is, in a plan; None where there is no such view."""
    found = plan.views.get(view)
    if found is None:
        return None
    return Held(found, table_specs(plan)[found.table], found.held(plan.shape(found.step).schema.names))


def read_by(plan: Plan, sink: str) -> Held | None:
    """The table that a sink reads, in a plan; None where there is no such sink."""
    found = plan.sinks.get(sink)
    return None if found is None else held_by(plan, found.view)


def all_rows(snapshot: Snapshot, held: Held) -> pa.Table:
    rows = snapshot.table(held.spec).scan(held.columns).select([*held.columns, "_w"])
    return held.view.shown(rows)


def _changes(snapshot: Snapshot, held: Callable[[Manifest], Held | None]) -> pa.Table | None:
    now = held(snapshot.manifest)
    if snapshot.manifest.kind not in OTHER_PROGRAM or snapshot.epoch == 0:
        return None if now is None else now.view.shown(snapshot.changes(now.spec, now.columns))
    before = snapshot.at(snapshot.epoch - 1)
    return _between(before, held(before.manifest), snapshot, now)


def _still(was: Held, now: Held) -> bool:
    """Is it the same table, perhaps with more columns?"""
    return was.spec.name == now.spec.name and set(was.columns) <= set(now.columns)


def _between(before: Snapshot, was: Held | None, after: Snapshot, now: Held | None) -> pa.Table | None:
    if was is not None and now is not None and _still(was, now):
        # Columns that a table gained since hold their defaults in what was before.
        if after.epoch == before.epoch + 1:
            return now.view.shown(after.changes(now.spec, now.columns))
        return now.view.shown(difference(before, after, now.spec, now.columns))
    parts = []
    if was is not None:
        parts.append(deltas.negate(all_rows(before, was)))
    if now is not None:
        parts.append(all_rows(after, now))
    if len(parts) == 2 and parts[0].schema.names == parts[1].schema.names:
        return deltas.consolidate(deltas.concat(parts))
    # With other columns nothing is equal: whoever follows sees the rows of today.
    return parts[-1] if parts else None

"""What an epoch changed in a view, also where its name came to mean another table.

Law 2: a program is part of the epoch.  So the change of a view is told between
what its name meant before and what it means now: a view that came begins with
all its rows, one that went ends with them, and after a swap it is the difference.
For a sink it is between what the sink read before and what it reads now, so
whatever it was told adds up to what its view holds (law 7).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond import delta as deltas
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.state.manifest import Manifest
from millpond.state.snapshot import Snapshot, difference
from millpond.state.table_spec import TableSpec

PlanOf = Callable[[Manifest], Plan]
Held = tuple[TableSpec, list[str]]  # the table of a view, and the columns that are seen
OTHER_PROGRAM = ("change", "rollback", "takeover")  # kinds of epochs that may bring one


def view_changes(snapshot: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """The delta of one epoch; None where the view is neither there nor was."""
    found = _changes(snapshot, lambda manifest: held_by(plan_of(manifest), view))
    return _shown(found, plan_of(snapshot.manifest), view)


def sink_changes(snapshot: Snapshot, sink: str, plan_of: PlanOf) -> pa.Table | None:
    """What a sink is told of one epoch: nothing before it is there, and all rows when it comes."""
    found = _changes(snapshot, lambda manifest: read_by(plan_of(manifest), sink))
    plan = plan_of(snapshot.manifest)
    return _shown(found, plan, plan.sinks[sink].view) if sink in plan.sinks else found


def view_difference(before: Snapshot, after: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for one view, by reading only what the two do not share."""
    was, now = (held_by(plan_of(snapshot.manifest), view) for snapshot in (before, after))
    return _shown(_between(before, was, after, now), plan_of(after.manifest), view)


def _shown(rows: pa.Table | None, plan: Plan, view: str) -> pa.Table | None:
    found = plan.views.get(view)
    return rows if rows is None or found is None else found.shown(rows)


def held_by(plan: Plan, view: str) -> Held | None:
    """The table that a view is, in a plan; None where there is no such view."""
    found = plan.views.get(view)
    if found is None:
        return None
    return table_specs(plan)[found.table], found.held(plan.shape(found.step).schema.names)


def read_by(plan: Plan, sink: str) -> Held | None:
    """The table that a sink reads, in a plan; None where there is no such sink."""
    found = plan.sinks.get(sink)
    return None if found is None else held_by(plan, found.view)


def all_rows(snapshot: Snapshot, held: Held) -> pa.Table:
    spec, columns = held
    return snapshot.table(spec).scan(columns).select([*columns, "_w"])


def _changes(snapshot: Snapshot, held: Callable[[Manifest], Held | None]) -> pa.Table | None:
    now = held(snapshot.manifest)
    if snapshot.manifest.kind not in OTHER_PROGRAM or snapshot.epoch == 0:
        return None if now is None else snapshot.changes(*now)
    before = snapshot.at(snapshot.epoch - 1)
    return _between(before, held(before.manifest), snapshot, now)


def _still(was: Held, now: Held) -> bool:
    """Is it the same table, perhaps with more columns?"""
    return was[0].name == now[0].name and set(was[1]) <= set(now[1])


def _between(before: Snapshot, was: Held | None, after: Snapshot, now: Held | None) -> pa.Table | None:
    if was is not None and now is not None and _still(was, now):
        # Columns that a table gained since hold their defaults in what was before.
        if after.epoch == before.epoch + 1:
            return after.changes(*now)
        return difference(before, after, *now)
    parts = []
    if was is not None:
        parts.append(deltas.negate(all_rows(before, was)))
    if now is not None:
        parts.append(all_rows(after, now))
    if len(parts) == 2 and parts[0].schema.names == parts[1].schema.names:
        return deltas.consolidate(deltas.concat(parts))
    # With other columns nothing is equal: whoever follows sees the rows of today.
    return parts[-1] if parts else None

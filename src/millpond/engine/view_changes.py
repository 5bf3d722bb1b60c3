"""What an epoch changed in a view, also where its name came to mean another table.

Law 2: a program is part of the epoch.  So the change of a view is told between
what its name meant before and what it means now: a view that came begins with
all its rows, one that went ends with them, and after a swap it is the difference.
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


def held_by(plan: Plan, view: str) -> Held | None:
    """The table that a view is, in a plan; None where there is no such view."""
    found = plan.views.get(view)
    if found is None:
        return None
    return table_specs(plan)[found.table], list(plan.shape(found.step).schema.names)


def view_changes(snapshot: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """The delta of one epoch; None where the view is neither there nor was."""
    now = held_by(plan_of(snapshot.manifest), view)
    if snapshot.manifest.kind not in ("change", "rollback", "takeover") or snapshot.epoch == 0:
        return None if now is None else snapshot.changes(*now)
    before = snapshot.at(snapshot.epoch - 1)
    return view_difference(before, snapshot, view, plan_of)


def view_difference(before: Snapshot, after: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for one view, by reading only what the two do not share."""
    was, now = held_by(plan_of(before.manifest), view), held_by(plan_of(after.manifest), view)
    if was is not None and now is not None and was[0].name == now[0].name and was[1] == now[1]:
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


def all_rows(snapshot: Snapshot, held: Held) -> pa.Table:
    spec, columns = held
    return snapshot.table(spec).scan(columns).select([*columns, "_w"])

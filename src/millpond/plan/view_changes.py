"""Computes what an epoch changed in a view, even if the view's name refers to another table since.

Law 2: a program belongs to its epoch.  So the change of a view is the difference between what its name meant
before and what it means now: a new view starts with all its rows, a dropped one retracts them.  For a sink it
is the difference between what the sink read before and what it reads now; so all changes that it received add
up to the rows of its view (law 7).

Rows that were emitted by time come in the order of that time (`emission_order`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from millpond import delta as deltas
from millpond.ordering import Order, sort_indices
from millpond.plan.emission_order import emission_order
from millpond.plan.nodes import Plan, View
from millpond.plan.tables import table_specs
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot, difference, empty_delta
from millpond.state.runs.missing_column import CopyOf
from millpond.state.tables.table_spec import TableSpec

PlanOf = Callable[[Manifest], Plan]
OTHER_PROGRAM = ("change", "rollback", "takeover")  # kinds of epochs that may change the program


@dataclass(frozen=True)
class ViewTable:
    """A view and the table with its rows; two tables may name the same column of a view differently."""

    view: View
    spec: TableSpec
    columns: list[str]  # the table's columns that the view shows
    feed: TableSpec | None = None  # the table whose changes readers receive, if it is another one
    order: tuple[str, ...] = ()  # of `columns`: those by which rows are sorted

    def changes(self, snapshot: Snapshot) -> pa.Table:
        """The delta of one epoch.  A feed holds what the epoch added; a rollback takes nothing of it back."""
        if self.feed is None:
            return self.shown(snapshot.changes(self.spec, self.columns))
        if snapshot.manifest.kind == "rollback":
            return self.shown(empty_delta(self.feed, self.columns))
        return self.shown(snapshot.changes(self.feed, self.columns))

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows of the table as readers of changes receive them."""
        if self.order and rows.num_rows > 1:
            by = [Order(column) for column in self.order]
            rows = rows.take(pa.array(sort_indices([rows.column(o.column) for o in by], by)))
        return self.view.shown(rows)


def view_changes(snapshot: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """The delta of one epoch; None if the view exists neither before nor after it."""
    return _changes(snapshot, lambda manifest: view_table(plan_of(manifest), view))


def sink_changes(snapshot: Snapshot, sink: str, plan_of: PlanOf) -> pa.Table | None:
    """The delta that a sink receives of one epoch: all rows with the epoch that creates the sink."""
    return _changes(snapshot, lambda manifest: sink_table(plan_of(manifest), sink))


def view_difference(before: Snapshot, after: Snapshot, view: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for one view; reads only what the two epochs do not share."""
    was, now = (view_table(plan_of(snapshot.manifest), view) for snapshot in (before, after))
    return _between(before, was, after, now)


def sink_difference(before: Snapshot, after: Snapshot, sink: str, plan_of: PlanOf) -> pa.Table | None:
    """after - before for what a sink reads."""
    was, now = (sink_table(plan_of(snapshot.manifest), sink) for snapshot in (before, after))
    return _between(before, was, after, now)


def view_table(plan: Plan, view: str) -> ViewTable | None:
    """The table of a view in a plan; None if there is no such view."""
    named = plan.views.get(view)
    if named is None:
        return None
    specs = table_specs(plan)
    columns = named.stored_columns(plan.shape(named.step).schema.names)
    feed = None if named.feed is None else specs[named.feed]
    return ViewTable(named, specs[named.table], columns, feed, emission_order(plan, named.step, columns))


def sink_table(plan: Plan, sink: str) -> ViewTable | None:
    """The table that a sink reads in a plan; None if there is no such sink."""
    named = plan.sinks.get(sink)
    return None if named is None else view_table(plan, named.view)


def all_rows(snapshot: Snapshot, table: ViewTable) -> pa.Table:
    rows = snapshot.table(table.spec).scan(table.columns).select([*table.columns, "_w"])
    return table.shown(rows)


def _changes(snapshot: Snapshot, table_at: Callable[[Manifest], ViewTable | None]) -> pa.Table | None:
    now = table_at(snapshot.manifest)
    if snapshot.manifest.kind not in OTHER_PROGRAM or snapshot.epoch == 0:
        return None if now is None else now.changes(snapshot)
    before = snapshot.at(snapshot.epoch - 1)
    return _between(before, table_at(before.manifest), snapshot, now)


def _still(was: ViewTable, now: ViewTable) -> bool:
    """Is it the same table, perhaps with more or wider columns?"""
    if was.spec.name != now.spec.name:
        return False
    copies = dict(now.spec.defaults)
    known = set(now.columns)
    for column in now.columns:
        while isinstance(copy := copies.get(column), CopyOf):
            column = copy.column
            known.add(column)
    return known.issuperset(was.columns)


def _between(
    before: Snapshot, was: ViewTable | None, after: Snapshot, now: ViewTable | None
) -> pa.Table | None:
    if was is not None and now is not None and _still(was, now):
        # Older rows get the defaults of columns that the table gained since.
        if after.epoch == before.epoch + 1:
            return now.changes(after)
        return now.shown(difference(before, after, now.spec, now.columns))
    parts = []
    if was is not None:
        parts.append(deltas.negate(all_rows(before, was)))
    if now is not None:
        parts.append(all_rows(after, now))
    if len(parts) == 2 and parts[0].schema.equals(parts[1].schema):
        return deltas.consolidate(deltas.concat(parts))
    # With other columns no row is equal: a reader of changes receives all current rows.
    return parts[-1] if parts else None

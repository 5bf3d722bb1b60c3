"""Creates the steps of a query, and a materialized view of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.delta import WEIGHT
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream, plain_columns
from millpond.kernels.recursion import Limits
from millpond.operators.pane_view import PaneView
from millpond.plan.existing_table import own_view, without_step
from millpond.plan.nodes import Node, View
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.types import UTC, Json
from millpond.sql.lowering.query import lower_query
from millpond.sql.lowering.steps.panes import every_pane
from millpond.sql.text.emit_clause import Emission
from millpond.sql.text.time_windows import as_plain_sql

TIME_ZONE = "time_zone"  # an option of a view: the zone of the session that created it

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def materialize(
    session: SqlSession,
    builder: Builder,
    name: str,
    text: str,
    emission: Emission,
    said: str,
    catalog: Catalog | None = None,
    check: Callable[[Json], None] = lambda plan: None,
) -> SqlObject:
    """Add the steps of a query over the names of a catalog, and a view of them; `check` may refuse it."""
    catalog = catalog or session.catalog
    made = inlined(text, catalog.objects)
    text = made.sql
    set_to = session.host.settings
    limits = Limits(set_to.rounds_max, set_to.recursion_rows_max, set_to.recursion_copies_max)
    before = builder.plan.nodes
    relations = catalog.relations()
    relation = lower_query(builder, catalog.binder, relations, name, text, emission, limits, check)
    view = _pane_view(builder, name, relation.step) if emission.mode == "accumulating" else None
    if view is None:
        view = _view(builder, name, relation.step, before)
    held = dict(view.columns)
    asked = [column for column, _ in catalog.binder.describe(as_plain_sql(text))]
    shown = _shown(name, asked, [c.name for c in relation.columns])
    columns = tuple(
        SqlColumn(seen, c.type, stored=None if (at := held.get(c.name, c.name)) == seen else at)
        for seen, c in zip(shown, relation.columns, strict=True)
    )
    if shown != [c.name for c in relation.columns]:
        made_view = replace(view, columns=tuple((c.name, c.stored_name) for c in columns))
        builder.change(lambda plan: replace(plan, views={**plan.views, name: made_view}))
    uses = (*(o.name for o in catalog.read_by(as_plain_sql(text))), *made.uses)
    zone = catalog.binder.zone
    return SqlObject(
        "materialized view",
        name,
        columns,
        text=text,
        step=view.step,
        uses=uses,
        options=made.options if zone == UTC else {**made.options, TIME_ZONE: zone},
        said=said,
    )


def _shown(view: str, asked: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the names of a view's columns: those of the query, even if rows are stored under others.

    Columns of steps cannot begin with an underscore; users' columns can.
    """
    taken = {name.lower() for name in given}
    found = []
    for wanted, name in zip(asked, given, strict=True):
        if wanted.lower() == WEIGHT:
            raise InvalidError(
                f"column {wanted!r} of view {view!r} cannot have this name",
                detail="changes of a view have their weight under it",
                hint="choose another name",
            )
        hidden = wanted.startswith("_") and wanted.lower() not in taken
        taken.add(wanted.lower())
        found.append(wanted if hidden else name)
    return found


def _pane_view(builder: Builder, name: str, step: str) -> View | None:
    """Return a view with the newest panes whose readers of changes receive every pane, if rows are panes."""
    every = every_pane(builder, step)
    if every is None:
        return None
    key = builder.shape(step).key or plain_columns(builder.shape(step).schema)
    made = builder.add(None, PaneView(key), (step, every), f"{name}.view")
    rows, feed = builder.plan.nodes[made].binding.tables
    view = View(name, made, rows.name, feed=feed.name)
    builder.change(lambda plan: plan.with_view(view))
    return view


def _view(builder: Builder, name: str, step: str, before: Mapping[str, Node]) -> View:
    """Return the view of a step: an existing table with the same rows if there is one, else a new one."""
    own = own_view(builder.plan, name, step)
    if own is None:
        Stream(builder, step).view(name)
        return builder.plan.views[name]
    if step not in before:
        builder.change(lambda plan: without_step(plan, step))
    builder.change(lambda plan: plan.with_view(own))
    return own

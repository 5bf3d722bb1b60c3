"""Defines a name: what all CREATE statements share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.arguments.names import check_name
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.plan.objects import SqlObject
from millpond.sql.lowering import unbounded_state
from millpond.sql.lowering.steps.windows_per_row import gap_warnings
from millpond.sql.result import Result
from millpond.sql.statements.replaced_views import make_anew

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


Edit = Callable[[Builder], SqlObject]


def create(session: SqlSession, name: str, kind: str, *, exists: bool, replaces: bool, make: Edit) -> Result:
    """Define a name; `exists` is IF NOT EXISTS, `replaces` is OR REPLACE."""
    catalog = session.catalog
    old = catalog.find(name)
    word = kind.upper().replace(" ", "_")
    if old is not None and exists:
        return Result.said(f"CREATE_{word} {name}: there already")
    if old is None:
        check_name(f"a {kind}", name)
    if old is not None and not replaces:
        catalog.free(name)
    if old is not None and old.kind != kind:
        raise InvalidError(f"{old.name!r} is a {old.kind}, and is not replaced by a {kind}")

    told: list[str] = []

    def edit(builder: Builder) -> None:
        before = builder.plan.nodes.keys()
        if old is None:
            made = make(builder)
            builder.plan = builder.plan.with_object(made)
        else:
            make_anew(session, builder, old, make)
        made_now = [s for s in builder.plan.nodes if s not in before]
        gaps = gap_warnings(builder.plan.nodes[s] for s in made_now)
        told[:] = [*unbounded_state.warnings(builder.plan, made_now), *gaps]

    session.define(edit)
    result = Result.said(f"CREATE_{word}")
    result.warnings = told
    return result

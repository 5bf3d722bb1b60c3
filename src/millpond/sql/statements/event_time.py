"""Adds the watermark step of a table or source that was defined with WATERMARK FOR."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream_watermarks import heartbeat_bound
from millpond.sql.binding.functions import KIND, STRATEGY, WATERMARK
from millpond.sql.text.column_definitions import Definition

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def with_watermark(session: SqlSession, builder: Builder, found: Definition, step: str, name: str) -> str:
    """The rows of a step behind the watermark of the definition, if it has one."""
    if found.clause is None:
        return step
    made = found.clause.made
    if found.clause.function is not None:
        called = session.catalog.get(found.clause.function, "function")
        if called.options[KIND] != WATERMARK:
            raise InvalidError(
                f"{called.name}() is not a function of watermarks",
                detail="it takes a batch and its state, and returns a bound and the next state",
                hint=f'register it with pond.function("{called.name}", …, kind="watermark")',
            )
        made = replace(made, strategy=called.options[STRATEGY])
    if found.clause.heartbeats is not None:
        beats = session.catalog.get(found.clause.heartbeats, "table", "source")
        assert beats.step is not None  # every table and source has one
        made = replace(made, heartbeats=heartbeat_bound(builder, beats.step))
    return builder.add(None, made, (step,), f"{name}.watermark")


def heartbeats(session: SqlSession, found: Definition) -> tuple[str, ...]:
    """The name of the table or source whose heartbeats a definition uses, if it does."""
    if found.clause is None or found.clause.heartbeats is None:
        return ()
    return (session.catalog.get(found.clause.heartbeats, "table", "source").name,)

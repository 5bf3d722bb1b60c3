"""Adds the watermark step of a table or source that was defined with WATERMARK FOR."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.flow.builder import Builder
from millpond.flow.stream_watermarks import heartbeat_bound
from millpond.sql.text.column_definitions import Definition

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def with_watermark(session: SqlSession, builder: Builder, found: Definition, step: str, name: str) -> str:
    """The rows of a step behind the watermark of the definition, if it has one."""
    made = found.watermark
    if made is None:
        return step
    if found.heartbeats is not None:
        beats = session.catalog.get(found.heartbeats, "table", "source")
        assert beats.step is not None  # every table and source has one
        made = replace(made, heartbeats=heartbeat_bound(builder, beats.step))
    return builder.add(None, made, (step,), f"{name}.watermark")

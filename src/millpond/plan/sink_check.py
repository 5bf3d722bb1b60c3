"""Checks a sink against the view that it reads, when it is defined, and says what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.codec import Unloaded
from millpond.plan.final_rows import is_final
from millpond.plan.nodes import Plan, SinkNode
from millpond.plan.sink_settings import DEFAULT, SinkSettings, guarantee_of, modes_of, settled
from millpond.plan.sink_traits import ChecksView, DeliversDeltas, OpensTarget, WritesRows, misspelt
from millpond.plan.tags import tag_of
from millpond.stored_code import Stored

SinkState = Literal["current", "behind", "failed", "detached", "paused"]


@dataclass(frozen=True)
class SinkStatus:
    name: str
    state: SinkState
    epoch: int | None  # the last epoch it received
    error: Exception | None = None  # the error of its last delivery, if that failed
    view: str = ""
    connector: str = ""
    mode: str = ""
    guarantee: str = ""
    behind: int | None = None  # epochs with changes that it has not received; None if it is stopped


def checked_sink(plan: Plan, name: str, view: str, sink: Any, asked: SinkSettings = DEFAULT) -> SinkNode:
    """The node of a sink; refused if the sink or its view cannot give what is asked.

    A sink with `deliver` keeps settings that nobody gave open, as plans of older versions do.
    """
    if not isinstance(sink, WritesRows | OpensTarget | DeliversDeltas):
        raise InvalidError(
            f"{sink!r} is no sink"[:200],
            hint="for example CallbackSink(function) of millpond.sinks.callback, or FilesSink(folder) of "
            "millpond.sinks.files",
        )
    if (wrong := misspelt(sink)) is not None:
        raise InvalidError(
            f"sink {name!r}: {type(sink).__name__} has an attribute {wrong[0]!r}, which nothing reads",
            hint=f"did you mean {wrong[1]!r}?",
        )
    key, append_only = view_facts(plan, view)
    settings = settled(name, sink, asked, key=key, append_only=append_only)
    if isinstance(sink, ChecksView):
        sink.check_view(shown_schema(plan, view), settings)
    keeps_open = asked == DEFAULT and isinstance(sink, DeliversDeltas)
    return SinkNode(name, view, sink, asked if keeps_open else settings)


def shown_schema(plan: Plan, name: str) -> pa.Schema:
    """The columns that a view shows."""
    view = plan.views[name]
    schema = plan.shape(view.step).schema
    return view.shown(schema.empty_table().select(view.stored_columns(schema.names))).schema.remove_metadata()


def view_facts(plan: Plan, name: str) -> tuple[tuple[str, ...] | None, bool]:
    """(the key of a view in the names that it shows, None if it has none; do its changes only add rows?)"""
    view = plan.views[name]
    shape = plan.shape(view.step)
    if view.feed is not None:  # the changes are those of another table, which has a row for every pane
        return None, True
    grows = is_final(plan, view.step)
    shown = {own: shown for shown, own in view.columns} if view.columns else dict.fromkeys(shape.schema.names)
    if shape.key is None or not set(shape.key) <= shown.keys():
        return None, grows
    return tuple(shown[k] or k for k in shape.key), grows


def promise_of(node: SinkNode) -> tuple[str, str]:
    """The mode and the guarantee of a sink; empty if its code is not loaded here."""
    if isinstance(node.sink, Stored | Unloaded):
        return node.settings.mode or "", node.settings.guarantee or ""
    return node.settings.mode or modes_of(node.sink)[0], node.settings.guarantee or guarantee_of(node.sink)


def connector_of(sink: Any) -> str:
    """The name of a connector, or of a user's class."""
    if isinstance(sink, Stored):
        return sink.name
    cls: type = type(sink)
    tag = tag_of(cls)
    return cls.__name__ if tag is None else tag.removeprefix("sink.")

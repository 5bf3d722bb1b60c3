"""Checks a sink against the view that it reads, when it is defined."""

from __future__ import annotations

from typing import Any

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan, SinkNode
from millpond.plan.sink_settings import DEFAULT, SinkSettings, settled


def checked_sink(plan: Plan, name: str, view: str, sink: Any, asked: SinkSettings = DEFAULT) -> SinkNode:
    """The node of a sink; refused if the sink or its view cannot give what is asked.

    A sink with `deliver` keeps settings that nobody gave open, as plans of older versions do.
    """
    calls = ("write", "open", "deliver")
    if not any(callable(getattr(sink, call, None)) for call in calls):
        raise InvalidError(
            f"{sink!r} is no sink"[:200],
            hint="for example CallbackSink(function) or FilesSink(folder), of millpond.sinks",
        )
    key, append_only = view_facts(plan, view)
    found = settled(name, sink, asked, key=key, append_only=append_only)
    keeps_open = asked == DEFAULT and callable(getattr(sink, "deliver", None))
    return SinkNode(name, view, sink, asked if keeps_open else found)


def view_facts(plan: Plan, name: str) -> tuple[tuple[str, ...] | None, bool]:
    """(the key of a view in the names that it shows, None if it has none; do its changes only add rows?)"""
    view = plan.views[name]
    shape = plan.shape(view.step)
    if view.feed is not None:  # the changes are those of another table, which has a row for every pane
        return None, True
    shown = (
        {held: shown for shown, held in view.columns} if view.columns else dict.fromkeys(shape.schema.names)
    )
    if shape.key is None or not set(shape.key) <= shown.keys():
        return None, shape.append_only
    return tuple(shown[k] or k for k in shape.key), shape.append_only

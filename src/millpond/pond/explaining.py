"""Explains the plan of a pond as text or a diagram, on request with the measurements of its last epochs."""

from __future__ import annotations

from millpond.errors import InvalidError
from millpond.plan.explain import analyze_text, explain_text, mermaid
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.pond.components import Components


def explain_plan(components: Components, plan: Plan, format: str, *, analyze: bool) -> str:
    if format not in ("text", "mermaid"):
        raise InvalidError(f"no format named {format!r}", hint='"text" or "mermaid"')
    head = components.head()
    if analyze and head is not None:
        if format != "text":
            raise InvalidError("a diagram shows no measurements", hint="leave out format or analyze")
        with components.reader.pinned() as snapshot:
            return analyze_text(components.reader.plan_of(snapshot.manifest), snapshot)
    if format == "mermaid":
        return mermaid(plan, cut(plan))
    return explain_text(plan, cut(plan), {} if head is None else head.stopped_sinks)

"""A plan as JSON, for programs that read EXPLAIN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.plan.explain import NONE_STOPPED, describe_edge, label
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan
from millpond.plan.sink_check import promise_of


def explain_json(
    plan: Plan, levels: Levels, stopped: Mapping[str, str] = NONE_STOPPED
) -> list[dict[str, Any]]:
    """The steps in the order of their levels, and the sinks, in a list as PostgreSQL has it."""
    views: dict[str, list[str]] = {}
    for view in plan.views.values():
        views.setdefault(view.step, []).append(view.name)
    steps = [
        _step(plan.nodes[step], number, levels, views.get(step, []))
        for number, listed in enumerate(levels.steps)
        for step in listed
    ]
    sinks = [
        {
            "Name": sink.name,
            "Target": str(sink.sink),
            "View": sink.view,
            "State": stopped.get(sink.name, "running"),
            "Promise": " ".join(part for part in promise_of(sink) if part),
        }
        for sink in plan.sinks.values()
    ]
    return [{"Plan": {"Levels": len(levels.steps), "Steps": steps, "Sinks": sinks}}]


def _step(node: Node, level: int, levels: Levels, views: list[str]) -> dict[str, Any]:
    edges = {consumer: edge for edge in levels.edges for consumer in edge.consumers}
    inputs = [
        {"Step": source, "Exchange": describe_edge(edge) if (edge := edges.get((node.step, n))) else None}
        for n, source in enumerate(node.inputs)
    ]
    return {
        "Step": node.step,
        "Level": level,
        "Operator": label(node.operator),
        "Columns": [{"Name": f.name, "Type": str(f.type)} for f in node.binding.shape.schema],
        "Inputs": inputs,
        "State": [{"Table": t.name, "Key": list(t.key), "Rule": t.rule} for t in node.binding.tables],
        "Views": views,
    }

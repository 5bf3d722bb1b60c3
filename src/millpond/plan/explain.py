"""One explain for every plan: as text, and as a drawing in Mermaid."""

from __future__ import annotations

from millpond.operators.operator import Operator
from millpond.plan.levels import Edge, Levels
from millpond.plan.nodes import Node, Plan


def explain_text(plan: Plan, levels: Levels) -> str:
    """Levels, exchanges, state tables and views."""
    lines = []
    used = {s: [v.name for v in plan.views.values() if v.step == s] for s in plan.nodes}
    for level, steps in enumerate(levels.steps):
        lines.append(f"level {level}")
        for step in steps:
            node = plan.nodes[step]
            lines.append(f"  {step}: {label(node.operator)}{_columns(node, levels)}")
            for source, index in ((s, i) for i, s in enumerate(node.inputs)):
                edge = _edge(levels, step, index)
                lines.append(f"    from {source}" + (f"  [{describe_edge(edge)}]" if edge else ""))
            for table in node.binding.tables:
                order = f", order {', '.join(o.column for o in table.order)}" if table.order else ""
                time = f", buckets of {table.bucket_width} us by {table.time}" if table.time else ""
                lines.append(
                    f"    state {table.name}: {table.rule}, key ({', '.join(table.key)}){order}{time}"
                )
            if used[step]:
                lines.append(f"    view {', '.join(used[step])}")
    for sink in plan.sinks.values():
        lines.append(f"sink {sink.name}: {sink.sink} from view {sink.view}")
    shared = [s for s, readers in plan.consumers().items() if len({r[0] for r in readers}) > 1]
    if shared:
        lines.append(f"shared: {', '.join(shared)}")
    return "\n".join(lines)


def mermaid(plan: Plan, levels: Levels) -> str:
    """The same as a Mermaid flowchart: one box a level, thick arrows are exchanges."""
    number = {step: f"n{i}" for i, step in enumerate(plan.nodes)}
    lines = ["flowchart LR"]
    for level, steps in enumerate(levels.steps):
        lines.append(f'  subgraph L{level}["level {level}"]')
        for step in steps:
            node = plan.nodes[step]
            text = f"{_safe(step)}<br/>{_safe(label(node.operator))}"
            shape = f'[("{text}")]' if node.binding.tables else f'["{text}"]'
            lines.append(f"    {number[step]}{shape}")
        lines.append("  end")
    for node in plan.nodes.values():
        for index, source in enumerate(node.inputs):
            edge = _edge(levels, node.step, index)
            arrow = f"== {_safe(describe_edge(edge))} ==>" if edge else "-->"
            lines.append(f"  {number[source]} {arrow} {number[node.step]}")
    for i, view in enumerate(plan.views.values()):
        lines.append(f'  {number[view.step]} --> v{i}(["{_safe(view.name)}"])')
    return "\n".join(lines)


def label(operator: Operator) -> str:
    name = type(operator).__name__
    facts = []
    key = getattr(operator, "key", None)
    if key is not None:
        facts.append(f"by ({', '.join(key)})" if key else "of all")
    aggs = getattr(operator, "aggs", None)
    if aggs:
        facts.append(
            ", ".join(
                f"{a.name}={a.function}({'distinct ' if a.distinct else ''}{a.argument or '*'})" for a in aggs
            )
        )
    for field in ("predicate", "kind", "n"):
        value = getattr(operator, field, None)
        if isinstance(value, str | int):
            facts.append(f"{field} {value}")
    return f"{name} {' '.join(facts)}".strip()


def describe_edge(edge: Edge) -> str:
    where = f"({', '.join(edge.key)})" if edge.key else "to one task"
    kind = {"hash": f"hash {where}", "broadcast": "broadcast", "forward": "forward"}[edge.kind]
    return kind + (", pre-aggregated" if edge.prepared_by else "")


def _edge(levels: Levels, step: str, index: int) -> Edge | None:
    return next((e for e in levels.edges if (step, index) in e.consumers), None)


def _columns(node: Node, levels: Levels) -> str:
    fields = {f.name: f.type for f in node.binding.shape.schema}
    kept = levels.columns[node.step]
    if not kept:
        return ""
    return " -> " + ", ".join(f"{c} {fields[c]}" for c in kept)


def _safe(text: str) -> str:
    return text.replace('"', "'").replace("<", "&lt;").replace(">", "&gt;")

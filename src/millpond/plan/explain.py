"""One explain for every plan: as text, and as a drawing in Mermaid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa

from millpond.kernels.bounds import Bound
from millpond.kernels.synopses.sketch_accumulators import stated_error
from millpond.kernels.user_code import name_of
from millpond.kernels.watermark_strategies import (
    Bounded,
    Custom,
    Inherited,
    NewestOf,
    Percentile,
    Slack,
    Strategy,
)
from millpond.kernels.window_assigners import Sliding
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.flat_map import FlatMap
from millpond.operators.iterate import Iterate
from millpond.operators.operator import Operator
from millpond.operators.session_aggregate import SessionAggregate
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.traits import EndsState
from millpond.operators.window import Hop
from millpond.plan.levels import Edge, Levels, cut
from millpond.plan.nodes import Node, Plan, SinkNode
from millpond.plan.sink_check import promise_of
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.table_spec import TableSpec
from millpond.stored_code import Stored

ANALYZED_EPOCHS = 20  # that `analyze_text` looks back at
COLUMNS_MAX = 8  # of a schema on one line
TYPE_CHARS_MAX = 40
NONE_STOPPED: Mapping[str, str] = MappingProxyType({})


def explain_text(plan: Plan, levels: Levels, stopped: Mapping[str, str] = NONE_STOPPED) -> str:
    """Levels, steps with what they give, exchanges, state tables, views and sinks."""
    lines = []
    used = {s: [v.name for v in plan.views.values() if v.step == s] for s in plan.nodes}
    for level, steps in enumerate(levels.steps):
        lines.append(f"level {level}")
        for step in steps:
            node = plan.nodes[step]
            lines.append(f"  {step}: {label(node.operator)} -> {columns_text(node.binding.shape.schema)}")
            if needed := _needed(node, levels):
                lines.append(f"    needed {needed}")
            for source, index in ((s, i) for i, s in enumerate(node.inputs)):
                edge = _edge(levels, step, index)
                lines.append(f"    from {source}" + (f"  [{describe_edge(edge)}]" if edge else ""))
            if isinstance(node.operator, Iterate):
                lines += [
                    f"    each round {inner.name}: {label(inner.operator)} of {', '.join(inner.inputs)}"
                    for inner in node.operator.steps
                ]
            if leaves_gaps(node.operator):
                lines.append("    note: rows between two windows are in none, and are counted as no_window")
            lines += _error_lines(node.operator)
            lines += _state_lines(node)
            lines += _watermark_lines(node, levels)
            if used[step]:
                lines.append(f"    view {', '.join(used[step])}")
    for sink in plan.sinks.values():
        state = f" ({stopped[sink.name]})" if sink.name in stopped else ""
        promise = " ".join(part for part in promise_of(sink) if part) + _sink_options(sink)
        lines.append(f"sink {sink.name}: {sink.sink} from view {sink.view}{state}, {promise}")
    shared = [s for s, readers in plan.consumers().items() if len({r[0] for r in readers}) > 1]
    if shared:
        lines.append(f"shared: {', '.join(shared)}")
    return "\n".join(lines)


def _sink_options(sink: SinkNode) -> str:
    """How a sink is attached, as far as it differs from the default."""
    settings = sink.settings
    parts = [f" by {', '.join(settings.key)}" if settings.key and settings.mode == "upsert" else ""]
    parts.append(f", every {settings.every_us / 1e6:g} s" if settings.every_us else "")
    parts.append("" if settings.snapshot else ", without a snapshot")
    if settings.behind_max is not None:
        parts.append(f", {settings.when_behind} if more than {settings.behind_max} epochs behind")
    return "".join(parts)


def analyze_text(plan: Plan, snapshot: Snapshot) -> str:
    """The plan, and what its steps did in the last epochs: time, rows, the way they were run, state.

    A way is the pass that chose it (`engine.task.optimizer`); `apply` is a step that was run by itself.
    """
    first = max(snapshot.manifest.floor, snapshot.epoch - ANALYZED_EPOCHS + 1)
    metrics = [snapshot.at(epoch).manifest.metrics for epoch in range(first, snapshot.epoch + 1)]
    lines = [
        explain_text(plan, cut(plan), snapshot.manifest.stopped_sinks),
        "",
        f"epochs {first} to {snapshot.epoch}",
    ]
    applied: dict[str, int] = {}  # by way: epochs
    for ran in (m.get("ran", {}) for m in metrics):
        for way, steps in ran.items():
            if not steps or not plan.nodes.keys().isdisjoint(steps):
                applied[way] = applied.get(way, 0) + 1
    if applied:
        lines.append(
            f"  ran: {', '.join(f'{way} in {count} epochs' for way, count in sorted(applied.items()))}"
        )
    off = sorted({name for m in metrics for name in m.get("passes_off", ())})
    if off:
        lines.append(f"  switched off: {', '.join(off)}")
    for node in plan.topological():
        us = [m["steps_us"][node.step] for m in metrics if node.step in m.get("steps_us", {})]
        facts = [f"{sum(us) / 1000:.3f} ms in {len(us)} epochs" if us else "did not run"]
        if node.binding.tables:
            runs = [r for t in node.binding.tables for r in snapshot.listing.runs(t.name)]
            facts.append(f"{sum(r.rows for r in runs)} rows and {sum(r.bytes for r in runs)} bytes of state")
        ways: dict[str, int] = {}
        for way, steps in ((w, s) for m in metrics for w, s in m.get("ran", {}).items()):
            if node.step in steps:
                ways[way] = ways.get(way, 0) + steps[node.step]
        if ways:
            facts.append(f"{sum(ways.values())} rows out by {', '.join(sorted(ways))}")
        lines.append(f"  {node.step}: {', '.join(facts)}")
    return "\n".join(lines)


def leaves_gaps(operator: Operator) -> bool:
    """Do windows of one size start at longer intervals?"""
    windows = operator.windows if isinstance(operator, AssignWindows) else operator
    return isinstance(windows, Hop | Sliding) and windows.slide_us > windows.size_us


def _error_lines(operator: Operator) -> list[str]:
    """A line for each approximate aggregate: its stated error."""
    if not isinstance(operator, Aggregate | SlidingAggregate | SessionAggregate):
        return []
    stated = ((agg.name, stated_error(agg.function)) for agg in operator.aggs)
    return [f"    approximate {name}: {error}" for name, error in stated if error is not None]


def _state_lines(node: Node) -> list[str]:
    """A line for each table; tables that hold the same by buckets of several widths are one line."""
    specs: dict[str, list[TableSpec]] = {}
    for table in node.binding.tables:
        name, _, tier = table.name.rpartition(".")
        specs.setdefault(name if table.time and tier.isdigit() else table.name, []).append(table)
    lines = []
    for name, tables in specs.items():
        first = tables[0]
        order = f", order {', '.join(o.column for o in first.order)}" if first.order else ""
        widths = f"{first.bucket_width} us" if len(tables) == 1 else f"{len(tables)} widths"
        time = f", buckets of {widths} by {first.time}" if first.time else ""
        lines.append(f"    state {name}: {first.rule}, key ({', '.join(first.key)}){order}{time}")
    return lines


def _watermark_lines(node: Node, levels: Levels) -> list[str]:
    """How a step sets a watermark, by which one its rows are bounded, and which state that releases."""
    lines, shape = [], node.binding.shape
    each = levels.watermarks.named(node.step)
    if each is not None:
        by = "by partition" if each.by_partition else "for all rows"
        idle_us, drift_us = each.operator.idle_us, each.operator.drift_us
        more = "" if idle_us is None else f", idle after {idle_us / 1_000_000:g} s"
        more += "" if drift_us is None else f", at most {drift_us / 1_000_000:g} s ahead"
        more += (
            "" if each.operator.heartbeats is None else f", heartbeats of {_marks(each.operator.heartbeats)}"
        )
        from_ = "" if each.operator.follows is None else f" from {_marks(each.operator.follows)}"
        rule = f"{_rule_text(each.operator.rule)}{from_}"
        lines.append(f"    watermark {by} of {', '.join(each.scans)}: {rule}{more}")
    elif shape.watermark is not None:
        watermarks = dict(levels.watermarks.least).get(shape.watermark, ((shape.watermark, 0),))
        lines.append(f"    {shape.time} bounded by {', '.join(step for step, _ in watermarks)}")
    elif shape.bounds:
        lines += [f"    {bound.column} bounded by {_marks(bound)}" for bound in shape.bounds]
    if isinstance(node.operator, EndsState):
        for table, bound in node.operator.ends(node.binding):
            lines.append(f"    releases {table} by {bound.column}, behind {_marks(bound)}")
    return lines


def _marks(bound: Bound) -> str:
    return ", ".join(sorted({step for step, _ in bound.marks}))


def _rule_text(rule: Strategy) -> str:
    match rule:
        case Bounded(delay_us):
            return f"{delay_us / 1_000_000:g} s behind the newest row"
        case Slack(rows):
            return f"{rows} rows may overtake"
        case Percentile(share, _):
            return f"percentile {share:g} of the delays"
        case Custom(NewestOf(column)):
            return f"announced in {column}"
        case Custom(function):
            return _function_text(function)
        case Inherited():
            return "inherited"


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
    """What a step does, in a few words: its class and the fields that say most."""
    name = "Map" if isinstance(operator, FlatMap) and operator.one else type(operator).__name__
    values = {f.name: getattr(operator, f.name) for f in dataclasses.fields(cast(Any, operator))}
    facts = [fact for field, shown in _SHOWN.items() if field in values and (fact := shown(values[field]))]
    return f"{name} {' '.join(facts)}".strip()


def _key_text(key: Any) -> str:
    if key is None:
        return ""
    return f"by ({', '.join(key)})" if key else "of all"


def _aggregates_text(aggs: Any) -> str:
    return ", ".join(
        f"{a.name}={a.function}({'distinct ' if a.distinct else ''}{a.argument or '*'})" for a in aggs
    )


def _conditions_text(conditions: Any) -> str:
    return ", ".join(c if isinstance(c, str) else _function_text(c) for c in conditions)


def _code_text(code: Any) -> str:
    target = code.target
    return _function_text(target) if callable(target) else type(target).__name__


# The fields of operators that a label shows, in this order.
_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "key": _key_text,
    "aggs": _aggregates_text,
    "predicate": lambda value: f"predicate {value}" if isinstance(value, str) else "",
    "kind": lambda value: f"kind {value}" if isinstance(value, str) else "",
    "n": lambda value: f"n {value}" if isinstance(value, int) else "",
    "predicates": _conditions_text,
    "function": lambda value: _function_text(value) if callable(value) else "",
    "code": _code_text,
}


def _function_text(function: Callable[..., Any]) -> str:
    if isinstance(function, Stored):
        return function.name
    name = name_of(function).rpartition(".")[2]
    return "a lambda" if name == "<lambda>" else f"{name}()"


def columns_text(schema: pa.Schema) -> str:
    """A schema on one line, a wide one shortened.

    >>> columns_text(pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))]))
    'k int64, at timestamp[us]'
    """
    shown = [f"{field.name} {_type_text(field.type)}" for field in list(schema)[:COLUMNS_MAX]]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def _type_text(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= TYPE_CHARS_MAX else f"{text[: TYPE_CHARS_MAX - 3]}..."


def describe_edge(edge: Edge) -> str:
    where = f"({', '.join(edge.key)})" if edge.key else "to one task"
    kind = {"hash": f"hash {where}", "broadcast": "broadcast", "forward": "forward"}[edge.kind]
    return kind + (", pre-aggregated" if edge.prepared_by else "")


def _edge(levels: Levels, step: str, index: int) -> Edge | None:
    return next((e for e in levels.edges if (step, index) in e.consumers), None)


def _needed(node: Node, levels: Levels) -> str:
    """The columns that the steps after this one read, where that is not all of them."""
    names = node.binding.shape.schema.names
    needed = [name for name in names if name in levels.columns[node.step]]
    if not needed or len(needed) == len(names):
        return ""
    more = len(needed) - COLUMNS_MAX
    return (
        f"{', '.join(needed[:COLUMNS_MAX])}{f', and {more} more' if more > 0 else ''} of {len(names)} columns"
    )


def _safe(text: str) -> str:
    return text.replace('"', "'").replace("<", "&lt;").replace(">", "&gt;")

"""Describes a stream for `repr` and notebooks: its columns, its key and the steps it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.table_preview import html_facts

if TYPE_CHECKING:
    from millpond.flow.stream import Stream


def text_description(
    stream: Stream, name: str, key: Sequence[str] | None = None, kind: str | None = None
) -> str:
    """One line: the name, the columns with their types, the key, and the steps in front of it."""
    facts = [", ".join(f"{f.name} {f.type}" for f in stream.schema)]
    if key:
        facts.append(f"key {', '.join(key)}")
    if steps := _steps_before(stream):
        facts.append(f"from {', '.join(steps)}")
    return f"{kind or type(stream).__name__}({name!r}: {'; '.join(facts)})"


def html_description(
    stream: Stream, name: str, key: Sequence[str] | None = None, kind: str | None = None
) -> str:
    """The same as an HTML table."""
    columns = ", ".join(f"{f.name} {f.type}" for f in stream.schema)
    steps = ", ".join([*_steps_before(stream), stream.step])
    facts = [("columns", columns), ("key", ", ".join(key or ()) or "none"), ("steps", steps)]
    return html_facts(f"{kind or type(stream).__name__} {name}", facts)


def _steps_before(stream: Stream) -> list[str]:
    """The steps that a stream is made of, without its last one, in the order of the plan."""
    nodes = stream._builder.plan.nodes
    before: set[str] = set()
    pending = list(nodes[stream.step].inputs)
    while pending:
        step = pending.pop()
        if step not in before:
            before.add(step)
            pending += nodes[step].inputs
    return [step for step in nodes if step in before]

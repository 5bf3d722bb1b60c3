"""Finds out what running a plan may do besides computing, to warn users before they run a foreign plan."""

from __future__ import annotations

from millpond.operators.accumulate import Accumulate
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.state.trust import Trust
from millpond.stored_code import Stored, is_own

_INSIDE = ("inbox_table", "memory", "constant", "nexmark")  # sources that read no files and no servers


def reaches_out(plan: Plan) -> bool:
    """Does the plan read files or servers, or write to sinks?"""
    sources = [n.operator.source for n in plan.nodes.values() if isinstance(n.operator, Scan)]
    return bool(plan.sinks) or not all(type(s).__module__.rpartition(".")[2] in _INSIDE for s in sources)


def unpickles(plan: Plan) -> bool:
    """Does the plan keep state that must be unpickled to be read?"""
    return any(isinstance(n.operator, Accumulate) for n in plan.nodes.values()) or any(
        (field.metadata or {}).get(b"millpond") == b"pickle"
        for spec in table_specs(plan).values()
        for field in spec.schema
    )


def contains_code(plan: Plan) -> bool:
    """Does the plan contain user code that was read from the catalog and not defined in this process?"""
    return any(_holds(part) for part in (*plan.nodes.values(), *plan.sinks.values(), *plan.objects.values()))


def require_for_fork(plan: Plan, trust: Trust) -> None:
    """A fork belongs to the user who makes it, so its code must be trusted before."""
    if contains_code(plan) or unpickles(plan):
        trust.require("code that the fork would take over")


def _holds(value: object) -> bool:
    if isinstance(value, Stored):
        return not is_own(value.raw)
    if isinstance(value, tuple):
        return any(_holds(each) for each in value)
    if isinstance(value, dict):
        return any(_holds(each) for each in value.values())
    fields = getattr(type(value), "__dataclass_fields__", None)
    return fields is not None and any(_holds(getattr(value, name)) for name in fields)

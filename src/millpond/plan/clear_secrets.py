"""Finds secrets that a plan would store in clear: options of sources and sinks that are not references."""

from __future__ import annotations

from typing import Any

from millpond.masking import is_secret_name
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.secret_references import is_reference


def clear_secrets(plan: Plan) -> list[str]:
    """The options, each with its step or sink: ``sink 'files': secret_access_key``."""
    scans = {
        f"source {node.step!r}": node.operator.source
        for node in plan.nodes.values()
        if isinstance(node.operator, Scan)
    }
    sinks = {f"sink {name!r}": node.sink for name, node in plan.sinks.items()}
    return [f"{place}: {name}" for place, made in (scans | sinks).items() for name in _options(made)]


def _options(made: Any) -> list[str]:
    options = getattr(made, "options", ())
    if not isinstance(options, tuple):
        return []
    pairs = [pair for pair in options if isinstance(pair, tuple) and len(pair) == 2]
    return [name for name, value in pairs if is_secret_name(str(name)) and not is_reference(str(value))]

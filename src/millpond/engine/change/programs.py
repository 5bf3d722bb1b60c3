"""Programs of a pond: plans under `catalog/`, whose names end with a digest of their content.

The process that defined a plan has its live objects; other processes read it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from millpond.clock import SystemClock
from millpond.engine.coordinator.protocol import ProgramSummary
from millpond.engine.task.worker import Worker
from millpond.errors import UnavailableError
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.backfill import is_constant, is_filled_from_tables
from millpond.plan.clear_secrets import clear_secrets
from millpond.plan.levels import with_unheard
from millpond.plan.nodes import Node, Plan
from millpond.plan.sheddable import ShedRules
from millpond.plan.sink_settings import DEFAULT
from millpond.plan.tables import late_steps, table_specs, table_wakes
from millpond.state.manifest.pins import pin_plan, unpin
from millpond.state.plan_file import fresh_name, is_named
from millpond.state.retention import LATE

log = logging.getLogger("millpond.pond")
PIN_US = 3_600_000_000  # by then an inbox entry or a manifest names a saved plan, or it may be collected


def save_plan(worker: Worker, plan: Plan, current: str | None = None) -> str:
    """Store a plan and return its name in the catalog.  It is pinned until `release_plan`.

    `current` is the program of the head: if the plan is the same, nothing is stored.
    """
    raw = codec.dumps(plan)
    if current is not None and is_named(current, raw):
        worker.know_plan(current, plan)
        return current
    for setting in clear_secrets(plan):
        log.warning(
            "%s is stored in clear in the catalog, where everybody who can read the pond can read it; "
            "write ${env:NAME}, ${file:/path} or ${secret:name} instead",
            setting,
        )
    name = fresh_name(raw)
    worker.plan_pins[name] = pin_plan(worker.store, name, SystemClock().now_us() + PIN_US)
    worker.store.put_new(name, raw)
    worker.know_plan(name, plan)
    return name


def release_plan(worker: Worker, name: str) -> None:
    """Remove the pin of a plan: an inbox entry or a manifest names it now, or none will."""
    made = worker.plan_pins.pop(name, None)
    if made is not None:
        with contextlib.suppress(UnavailableError):  # the pin expires
            unpin(worker.store, made)


def program_of(catalog: str, plan: Plan) -> ProgramSummary:
    return ProgramSummary(
        catalog,
        tuple(n.step for n in plan.nodes.values() if isinstance(n.operator, Scan)),
        tuple(plan.sinks),
        table_wakes(plan),
        frozenset(table_specs(plan)),
        any(is_constant(node) for node in plan.nodes.values()),
        frozenset(f"{step}{LATE}" for step in late_steps(plan)),
        frozenset(f"{step}{LATE}" for step in late_steps(plan) if is_filled_from_tables(plan, step)),
        with_unheard(plan),
        ShedRules(plan),
        {name: sink.settings for name, sink in plan.sinks.items() if sink.settings != DEFAULT},
    )


def with_running_objects(plan: Plan, running: Plan) -> Plan:
    """The plan, with the running objects for sources and sinks that already run."""
    nodes: dict[str, Node] = dict(plan.nodes)
    for step, node in plan.nodes.items():
        mine = running.nodes.get(step)
        if mine is None or mine is node or not isinstance(node.operator, Scan):
            continue
        if node.operator == mine.operator:
            nodes[step] = replace(node, operator=mine.operator)
    sinks = {n: running.sinks[n] if running.sinks.get(n) == s else s for n, s in plan.sinks.items()}
    return replace(plan, nodes=nodes, sinks=sinks)

"""The state tables of a plan, by name, and those with wakes."""

from __future__ import annotations

from millpond.operators.operator import Wake
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table_spec import TableSpec
from millpond.stored_code import Stored


def table_specs(plan: Plan) -> dict[str, TableSpec]:
    specs = {ERRORS_SPEC.name: ERRORS_SPEC}
    for node in plan.nodes.values():
        for table in node.binding.tables:
            specs[table.name] = table
        if isinstance(node.operator, Scan) and not isinstance(node.operator.source, Stored):
            own = node.operator.source.table(node.step)
            if own is not None:
                specs[own.name] = own
    return specs


def table_wakes(plan: Plan) -> dict[str, Wake]:
    return {wake.table: wake for node in plan.nodes.values() for wake in node.binding.wakes}


def late_steps(plan: Plan) -> list[str]:
    """The steps that keep late rows."""
    tables = {node.step: {table.name for table in node.binding.tables} for node in plan.nodes.values()}
    return [step for step, names in tables.items() if f"{step}/late" in names]

"""The program that the shell runs: a plan, its catalog, and what is derived from them once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.engine.task.worker import Worker
from millpond.operators.scan import Scan
from millpond.plan.levels import Levels
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.sources.source import Source
from millpond.state.manifest.manifest import Manifest
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class RunningProgram:
    catalog: str
    plan: Plan
    levels: Levels
    specs: Mapping[str, TableSpec]
    sources: Mapping[str, Source]
    step_of_table: Mapping[str, str]

    @staticmethod
    def of(catalog: str, plan: Plan, levels: Levels) -> RunningProgram:
        sources = {n.step: n.operator.source for n in plan.nodes.values() if isinstance(n.operator, Scan)}
        steps = {t.name: n.step for n in plan.nodes.values() for t in n.binding.tables}
        return RunningProgram(catalog, plan, levels, table_specs(plan), sources, steps)

    def plan_of(self, manifest: Manifest, worker: Worker) -> Plan:
        """The plan of any epoch."""
        if manifest.catalog is None or manifest.catalog == self.catalog:
            return self.plan
        return worker.description(manifest.catalog)

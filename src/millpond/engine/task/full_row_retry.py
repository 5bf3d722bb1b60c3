"""Runs an epoch again with all columns, if the columns that were read turn out not to be enough.

A step leaves out columns that it needs only to show rows on which user code
failed (`StepResult.needs_full_rows`).  If some rows fail, the attempt is discarded: the
epoch is run again from the same input with all columns, and so are all later epochs.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.engine import Engine
from millpond.engine.task.spec import EpochSpec, Report
from millpond.errors import InternalError


class Epochs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._full_rows = False

    def run(self, spec: EpochSpec) -> list[Report]:
        # Bytecode tells which columns user code reads.
        full = self._full_rows or not spec.vectorize_user_code or "fewer_columns" in spec.passes_off
        reports = self._engine.run(replace(spec, full_rows=full))
        if not full and _asked(reports):
            self._full_rows = True
            reports = self._engine.run(replace(spec, full_rows=True))
        if _asked(reports):
            raise InternalError("a step that was given full rows asks for full rows", epoch=spec.epoch)
        return reports


def _asked(reports: list[Report]) -> bool:
    return any(report.metrics.get("needs_full_rows") for report in reports)

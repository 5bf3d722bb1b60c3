"""Epochs with whole rows, where rows of some columns turn out to be too little.

A step leaves out columns that it needs only to show rows on which user code
failed (`Result.whole`).  When some do, nothing of the attempt is kept: the epoch
is run again from the same input, and so are all after it, with whole rows.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.engine import Engine
from millpond.engine.spec import EpochSpec, Report
from millpond.errors import InternalError


class Epochs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._whole = False

    def run(self, spec: EpochSpec) -> list[Report]:
        reports = self._engine.run(replace(spec, whole=self._whole))
        if not self._whole and _asked(reports):
            self._whole = True
            reports = self._engine.run(replace(spec, whole=True))
        if _asked(reports):
            raise InternalError("a step that was given whole rows asks for whole rows", epoch=spec.epoch)
        return reports


def _asked(reports: list[Report]) -> bool:
    return any(report.metrics.get("whole") for report in reports)

"""For joins as of PROCTIME(): what tables held at each tick, and at which tick rows of streams came.

A tick is one change, which is an epoch of its own in such a case.  The engines keep it in tables beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.sql.fuzz.cases import Case, Change
from tests.sql.fuzz.dialect import looked_up
from tests.sql.fuzz.engines import Remembering


class Ticks:
    def __init__(self, case: Case, engines: Sequence[Remembering]) -> None:
        pairs = [pair for view in case.views for pair in looked_up(view.query)]
        tables = {table.name: table for table in case.tables}
        self.engines = engines
        self.streams = {tables[left].name for left, _ in pairs}
        self.tables = [tables[right] for right in sorted({right for _, right in pairs})]
        self.now = 0
        self.made = [
            f"CREATE TABLE {table.name}_{word} (tick INTEGER, {', '.join(f'{c} {k}' for c, k in table.columns.items())})"
            for word, some in (("came", [tables[n] for n in sorted(self.streams)]), ("at", self.tables))
            for table in some
        ]

    def begin(self) -> None:
        for statement in self.made:
            self._run(statement)
        self.snapshot()

    def snapshot(self) -> None:
        """What every table holds is what it holds from now on."""
        self.now += 1
        for table in self.tables:
            listed = ", ".join(table.columns)
            self._run(f"INSERT INTO {table.name}_at SELECT {self.now}, {listed} FROM {table.name}")

    def follow(self, change: Change) -> None:
        """A change was made: rows of a stream came."""
        if self.tables:
            self.snapshot()
        if change.table.name in self.streams:
            listed = ", ".join(change.table.columns)
            rows = ", ".join(f"({self.now}, {', '.join(row)})" for row in change.rows)
            self._run(f"INSERT INTO {change.table.name}_came (tick, {listed}) VALUES {rows}")

    def _run(self, statement: str) -> None:
        for engine in self.engines:
            told = engine.run(statement)
            assert told is None, f"{engine.name}: {told}"

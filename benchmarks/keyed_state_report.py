"""What the keyed-state benchmark leaves behind: one file, and a table for each number of keys.

Law: as of `report`; besides, the table tells how many rows each contender was given, for their rates are
compared over prefixes of one input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.data import Input
from benchmarks.outcome import Outcome
from benchmarks.peers import bytewax_state, spark_state


@dataclass
class Section:
    """One input, and what was measured on it so far."""

    wanted: Input
    outcomes: list[Outcome]


def facts() -> dict[str, Any]:
    found = report.machine()
    peers = {"bytewax": bytewax_state.VERSION, **dict(one.split("==") for one in spark_state.REQUIREMENTS)}
    return {**found, "libraries": {**peers, **found["libraries"]}}


def table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """The best run of each, with how many times faster Millpond's process (without it: the best) was."""
    shown = report.best(outcomes)
    base = next((one for one in shown if one.name == "millpond"), shown[0])
    made = Table(title=title, box=box.SIMPLE, caption="best run of each; other CPU s: what ran beside it")
    made.add_column("contender", no_wrap=True)
    columns = ("rows/s", f"{base.name} is", "rows", "run s", "start s", "CPU s", "anon MiB", "commits")
    for column in (*columns, "other CPU s"):
        made.add_column(column, justify="right", no_wrap=True)
    for one in shown:
        made.add_row(
            one.name,
            f"{one.rows_per_second:,.0f}",
            f"{base.rows_per_second / one.rows_per_second:.1f}x",
            f"{one.rows:,}",
            f"{one.run_seconds:.1f}",
            f"{one.startup_seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.peak_rss_anon_bytes / 2**20:,.0f}",
            str(one.checkpoints),
            f"{one.other_cpu_seconds:.1f}",
        )
    return made


@dataclass(frozen=True)
class Record:
    """The file of one run; saved after every outcome, so that a failure loses only itself."""

    at: datetime
    sections: list[Section]
    machine: dict[str, Any] = field(default_factory=facts)

    @property
    def path(self) -> Path:
        return report.RESULTS / f"{self.at:%Y-%m-%d-%H%M}-keyed-state.json"

    def save(self) -> None:
        content = {
            "name": "keyed-state",
            "at": self.at.isoformat(timespec="seconds"),
            "machine": self.machine,
            "sections": [
                {"input": asdict(one.wanted), "outcomes": [each.as_json() for each in one.outcomes]}
                for one in self.sections
            ],
        }
        report.RESULTS.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(content, indent=2) + "\n")

    def show(self, console: Console) -> None:
        for one in self.sections:
            console.print(table(f"keyed-state: {one.wanted.keys:,} keys", one.outcomes))
        console.print(f"written: benchmarks/results/{self.path.name}")

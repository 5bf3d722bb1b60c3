"""What a run of Nexmark leaves behind: a table for each query, the means of its groups, and one file.

Law: as of `benchmarks/report.py`: every number shown is in the file, or follows from it. A mean is geometric,
over the queries that both systems ran, and tells how many they are; what a system does better than Millpond
stands in the same columns, as a ratio below one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import GROUPS, QUERIES
from benchmarks.outcome import Outcome

BASE = "millpond"


def best(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], Outcome]:
    """The fastest run of each query by each system."""
    found: dict[tuple[str, str], Outcome] = {}
    for one in outcomes:
        key = (str(one.query), one.name)
        if key not in found or one.rows_per_second > found[key].rows_per_second:
            found[key] = one
    return found


def mean(ratios: Sequence[float]) -> float:
    """
    >>> mean([1.0, 4.0])
    2.0
    """
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratios(outcomes: Sequence[Outcome], system: str, names: Sequence[str]) -> dict[str, float]:
    """How many times faster Millpond was, by query, where both ran it."""
    found = best(outcomes)
    return {
        name: found[name, BASE].rows_per_second / found[name, system].rows_per_second
        for name in names
        if (name, BASE) in found and (name, system) in found
    }


def table(query: str, outcomes: Sequence[Outcome]) -> Table:
    """The best run of each system."""
    shown = sorted(report.best(outcomes), key=lambda one: -one.rows_per_second)
    base = next((one for one in shown if one.name == BASE), shown[0])
    made = Table(title=f"{query}: {QUERIES[query].asks}", box=box.SIMPLE)
    made.add_column("system", no_wrap=True)
    columns = ("events/s", f"{base.name} is", "run s", "start s", "CPU s", "anon MiB", "state MiB", "commits")
    for column in (*columns, "other CPU s"):
        made.add_column(column, justify="right", no_wrap=True)
    for one in shown:
        made.add_row(
            one.name,
            f"{one.rows_per_second:,.0f}",
            f"{base.rows_per_second / one.rows_per_second:.2f}x",
            f"{one.run_seconds:.1f}",
            f"{one.startup_seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.peak_rss_anon_bytes / 2**20:,.0f}",
            "-" if one.state_bytes is None else f"{one.state_bytes / 2**20:,.1f}",
            "-" if one.checkpoints is None else str(one.checkpoints),
            f"{one.other_cpu_seconds:.1f}",
        )
    return made


def summary(outcomes: Sequence[Outcome]) -> Table:
    """How many times faster Millpond was than each system, by group of queries."""
    title = f"how many times faster {BASE} is: geometric mean, least (queries)"
    made = Table(title=title, box=box.SIMPLE)
    made.add_column("system", no_wrap=True)
    for group in GROUPS:
        made.add_column(group, justify="right", no_wrap=True)
    for system in dict.fromkeys(one.name for one in outcomes if one.name != BASE):
        cells = []
        for names in GROUPS.values():
            found = ratios(outcomes, system, names)
            if not found:
                cells.append("-")
                continue
            least = min(found, key=lambda name: found[name])
            cells.append(f"{mean(list(found.values())):.2f}x, {least} {found[least]:.2f}x ({len(found)})")
        made.add_row(system, *cells)
    return made


@dataclass
class Record:
    """The file of one run; saved after every outcome, so that a failure loses only itself."""

    at: datetime
    wanted: Events
    systems: Sequence[str]
    source: str = "parquet"  # what the events are read from
    machine: dict[str, Any] = field(default_factory=report.machine)
    outcomes: list[Outcome] = field(default_factory=list)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def leave_out(self, system: str, query: str, why: str) -> None:
        self.reasons[system, query] = why

    def left_out(self, system: str, query: str) -> bool:
        return (system, query) in self.reasons

    @property
    def path(self) -> Path:
        return report.RESULTS / f"{self.at:%Y-%m-%d-%H%M}-nexmark.json"

    def save(self) -> None:
        means = {
            group: {
                system: {"mean": mean(list(found.values())), "ratios": found}
                for system in self.systems
                if system != BASE and (found := ratios(self.outcomes, system, names))
            }
            for group, names in GROUPS.items()
        }
        content = {
            "name": "nexmark",
            "at": self.at.isoformat(timespec="seconds"),
            "machine": self.machine,
            "input": {**asdict(self.wanted), "source": self.source},
            "millpond_times_faster": means,
            "left_out": [
                {"system": system, "query": query, "why": why}
                for (system, query), why in self.reasons.items()
            ],
            "outcomes": [one.as_json() for one in self.outcomes],
        }
        report.RESULTS.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(content, indent=2) + "\n")

    def show(self, console: Console) -> None:
        console.print(f"input: {self.wanted.events:,} events, {self.source}")
        for query in dict.fromkeys(str(one.query) for one in self.outcomes):
            console.print(table(query, [one for one in self.outcomes if one.query == query]))
        if any(one.name == BASE for one in self.outcomes):
            console.print(summary(self.outcomes))
        for (system, query), why in self.reasons.items():
            line = why.splitlines()[0]
            console.print(f"not timed: {query} on {system}, {line}", markup=False, highlight=False)
        console.print(f"written: benchmarks/results/{self.path.name}")

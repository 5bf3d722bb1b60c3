"""Two checkouts of Millpond against each other: the same input, in turns, in one run.

Law: before and after take turns on each task, in swapped order from round to round, and never run at once.
A ratio compares the least CPU of each; wall times stand beside it.
Both checkouts need a virtual environment in `.venv`, and each runs its own benchmark modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data, keyed_state, report
from benchmarks.millpond_keyed_state import FORMS
from benchmarks.nexmark import events

LIMIT_S = 1800.0
FIGURES = ("views", "growth")  # benchmarks that report several figures of one session


@dataclass(frozen=True)
class Task:
    """What both checkouts run: a module that writes an outcome, or a benchmark that saves figures."""

    name: str
    module: str
    arguments: tuple[str, ...]

    @property
    def has_figures(self) -> bool:
        return self.module == "benchmarks"


@dataclass(frozen=True)
class Measured:
    task: str
    figure: str
    unit: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def tasks(names: Sequence[str], queries: Sequence[str], nexmark_events: int) -> Iterator[Task]:
    """The tasks of the benchmarks named, with their input made."""
    cores = ("--cores", "2")
    if "nexmark" in names:
        folder = str(events.ensure(events.of_size(nexmark_events)))
        for query in queries:
            how = ("--input", folder, "--queries", query, *cores)
            yield Task(f"nexmark {query}", "benchmarks.nexmark.on_millpond", how)
    if "headline" in names:
        folder = str(data.ensure(data.Input(20_000_000, 1_000_000)))
        yield Task("headline", "benchmarks.millpond_headline", ("--input", folder, *cores))
    if "keyed-state" in names:
        for keys in (1_000_000, 1_000):
            folder = str(data.ensure(keyed_state.input_of(10_000_000, keys)))
            for form in FORMS:
                how = ("--input", folder, "--form", form, *cores)
                yield Task(f"keyed state, {form}, {keys:,} keys", "benchmarks.millpond_keyed_state", how)
    if "views" in names:
        yield Task("views", "benchmarks", ("views", "--counts", "1,10,100", "--epochs", "60"))
    if "growth" in names:
        yield Task(
            "growth", "benchmarks", ("growth", "--sizes", "1000000,10000000", "updates", "expiry", "floor")
        )


def run(
    before: Path,
    names: Sequence[str],
    queries: Sequence[str],
    nexmark_events: int,
    rounds: int,
    console: Console,
) -> None:
    """Time every task in both checkouts, save and show the ratios."""
    sides = {"before": before.resolve(), "after": data.ROOT.parent}
    found: list[Measured] = []
    for task in tasks(names, queries, nexmark_events):
        figures: dict[str, list[dict[tuple[str, str], float]]] = {side: [] for side in sides}
        for turn in range(1 if task.has_figures else rounds):
            for side in list(sides) if turn % 2 == 0 else list(reversed(sides)):
                figures[side].append(_figures(sides[side], task))
        for name in figures["before"][0]:
            least = {side: min(one[name] for one in figures[side]) for side in sides}
            found.append(Measured(task.name, *name, least["before"], least["after"]))
            one = found[-1]
            values = f"{one.before:10.2f} {one.after:10.2f} {one.unit:3} {one.ratio:5.2f}x"
            console.print(f"{one.task:34} {one.figure:40} {values}", highlight=False)
    table = Table("task", "figure", "before", "after", "", "after / before")
    for one in found:
        table.add_row(
            one.task, one.figure, f"{one.before:.2f}", f"{one.after:.2f}", one.unit, f"{one.ratio:.2f}x"
        )
    console.print(table)
    saved = [{**vars(one), "ratio": one.ratio} for one in found]
    commits = {side: _commit(folder) for side, folder in sides.items()}
    path = report.keep("compare", {**commits, "figures": saved})
    console.print(f"written: benchmarks/results/{path.name}")


def _figures(folder: Path, task: Task) -> dict[tuple[str, str], float]:
    """Name and unit of each figure of one run, with its value."""
    results = folder / "benchmarks" / "results"
    there = set(results.glob("*.json"))
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "outcome.json")
        more = () if task.has_figures else ("--out", str(out))
        _call(folder, [task.module, *task.arguments, *more])
        if not task.has_figures:
            outcome = json.loads(out.read_text())
            return {("CPU", "s"): outcome["cpu_seconds"], ("wall", "s"): outcome["run_seconds"]}
    [path] = set(results.glob("*.json")) - there
    saved = json.loads(path.read_text())
    path.unlink()
    return dict(_saved_figures(saved))


def _saved_figures(saved: dict[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    for one in saved.get("views", ()):
        yield (f"{one['views']} views, {one['way']}, CPU", "ms"), one["cpu_ms"]
        yield (f"{one['views']} views, {one['way']}, p50", "ms"), one["p50_ms"]
    for one in saved.get("outcomes", ()):  # of growth
        yield (f"{one['name']}, {one['size']:,}", one["unit"]), one["value"]


def _call(folder: Path, arguments: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(folder / ".venv" / "bin" / "python"), "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed in {folder.name}:\n{done.stderr[-4000:]}")


def _commit(folder: Path) -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

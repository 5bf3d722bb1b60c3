"""What a run of a benchmark leaves behind: a table on the screen and a JSON file with the machine's facts.

Law: every number in the table is in the file, with the settings, versions and commit it was measured with. No
names of hosts, users or folders are written.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.data import Input
from benchmarks.outcome import Outcome
from benchmarks.peers import flink

RESULTS = Path(__file__).with_name("results")
LIBRARIES = ("duckdb", "numpy", "pyarrow", "pyspark")


def _field(path: str, name: str) -> str:
    """The first value of `name : value` in a /proc file."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    raise LookupError(f"{path} has no {name}")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def machine() -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_bytes": int(_field("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": java.splitlines()[0],
        "libraries": {**{name: metadata.version(name) for name in LIBRARIES}, "apache-flink": flink.VERSION},
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain")),
        "load": list(os.getloadavg()),
    }


def best(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Each contender's fastest run, fastest contender first."""
    chosen: dict[str, Outcome] = {}
    for one in outcomes:
        held = chosen.get(one.name)
        if held is None or one.rows_per_second > held.rows_per_second:
            chosen[one.name] = one
    return sorted(chosen.values(), key=lambda one: -one.rows_per_second)


def table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """The best run of each, with how many times faster Millpond (without it: the best durable one) was."""
    shown = best(outcomes)
    durable = [one for one in shown if one.checkpoints is not None]
    base = next((one for one in shown if one.name == "millpond"), (durable or shown)[0])
    made = Table(title=title, box=box.SIMPLE, caption="best run of each; other CPU s: what ran beside it")
    made.add_column("contender", no_wrap=True)
    for column in ("rows/s", f"{base.name} is", "run s", "start s", "CPU s", "RSS MiB", "anon MiB"):
        made.add_column(column, justify="right", no_wrap=True)
    for column in ("checkpoints", "other CPU s", "load"):
        made.add_column(column, justify="right", no_wrap=True)
    for one in shown:
        made.add_row(
            one.name,
            f"{one.rows_per_second:,.0f}",
            f"{base.rows_per_second / one.rows_per_second:.2f}x",
            f"{one.run_seconds:.1f}",
            f"{one.startup_seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.peak_rss_bytes / 2**20:,.0f}",
            f"{one.peak_rss_anon_bytes / 2**20:,.0f}",
            "-" if one.checkpoints is None else str(one.checkpoints),
            f"{one.other_cpu_seconds:.1f}",
            f"{one.load_before:.1f}",
        )
    return made


def keep(name: str, figures: Mapping[str, Any]) -> Path:
    """The file of a benchmark without contenders: its figures beside the machine's facts."""
    at = datetime.now().astimezone()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{at:%Y-%m-%d-%H%M}-{name}.json"
    content = {"name": name, "at": at.isoformat(timespec="seconds"), "machine": machine(), **figures}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


@dataclass(frozen=True)
class Record:
    """The file of one run of a benchmark; saved after every outcome, so that a failure loses only itself."""

    name: str
    at: datetime
    wanted: Input
    facts: dict[str, Any]

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.at:%Y-%m-%d-%H%M}-{self.name}.json"

    def save(self, outcomes: Sequence[Outcome]) -> None:
        content = {
            "name": self.name,
            "at": self.at.isoformat(timespec="seconds"),
            "machine": self.facts,
            "input": asdict(self.wanted),
            "outcomes": [one.as_json() for one in outcomes],
        }
        RESULTS.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(content, indent=2) + "\n")

    def show(self, outcomes: Sequence[Outcome], console: Console) -> None:
        console.print(table(f"{self.name}: {self.wanted.rows:,} rows, {self.wanted.keys:,} keys", outcomes))
        console.print(f"written: benchmarks/results/{self.path.name}")

"""A peer that lives in a Python of its own: its environment, its job, and what the job hands back.

Law: a job is a script that imports nothing of ours. It gets the path of a JSON task and leaves a JSON file
with its clock: when it could take its first row, when the last was durable, and the commits between (Flink's
is read from its log). Where every emitted row is wanted, it writes them as Parquet (auction, n, total) into
the folder `collect`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.measure import Sample, Sampler
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import command, emitted


@dataclass(frozen=True)
class Clock:
    """Of one run, in seconds of the wall clock."""

    started: float
    ended: float
    commits: int


def python(name: str, *requirements: str) -> Path:
    """The interpreter that has the requirements; its environment is made on first use."""
    home = data.scratch() / f"{name}-venv"
    interpreter, marker = home / "bin" / "python", home / "has"
    wanted = "\n".join(requirements) + "\n"
    if not marker.exists() or marker.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "-q", *requirements], check=True)
        marker.write_text(wanted)
    return interpreter


@dataclass(frozen=True)
class Job:
    """What to run, in which Python, and how it is told."""

    name: str
    system: str
    interpreter: Path
    script: Path
    task: Mapping[str, Any]
    settings: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


def _run(job: Job, work: Path, folder: Path, collect: Path | None) -> list[Sample]:
    task = {
        **job.task,
        "work": str(work),
        "clock": str(work / "clock.json"),
        "input": str(folder.resolve()),
        "rows": data.count(folder),
        "collect": None if collect is None else str(collect),
    }
    path = work / "task.json"
    path.write_text(json.dumps(task))
    environment = {**os.environ, **{name: value.format(work=work) for name, value in job.environment.items()}}
    with (work / "output").open("wb") as output:
        process = subprocess.Popen(
            [job.interpreter, job.script, path], env=environment, stdout=output, stderr=output
        )
    with Sampler(process.pid) as sampler:
        code = process.wait()
    if code != 0:
        tail = (work / "output").read_text(errors="replace")[-4000:]
        raise RuntimeError(f"{job.name} ended with code {code}; the end of its output:\n{tail}")
    return sampler.samples


def read_clock(work: Path) -> Clock:
    """What the job itself wrote."""
    found = json.loads((work / "clock.json").read_text())
    return Clock(found["started"], found["ended"], found["commits"])


def measured(job: Job, folder: Path, cores: int, read: Callable[[Path], Clock] = read_clock) -> Outcome:
    load = os.getloadavg()[0]
    with command.work_folder(job.name) as work:
        began = time.time()
        samples = _run(job, work, folder, None)
        clock = read(work)
    return over(
        Span(load, began, clock.started, clock.ended),
        samples,
        name=job.name,
        system=job.system,
        rows=data.count(folder),
        cores=cores,
        checkpoints=clock.commits,
        settings=job.settings,
    )


def verified(job: Job, folder: Path) -> pa.Table:
    """The final row of every key, from all rows that the job emitted."""
    with command.work_folder(f"{job.name}-verify") as work:
        collect = work / "collect"
        collect.mkdir()
        _run(job, work, folder, collect)
        return emitted.final(collect)


def main(job: Job, arguments: argparse.Namespace, read: Callable[[Path], Clock] = read_clock) -> None:
    if arguments.verify:
        pq.write_table(verified(job, arguments.input), arguments.verify)
    else:
        measured(job, arguments.input, arguments.cores, read).write(arguments.out)

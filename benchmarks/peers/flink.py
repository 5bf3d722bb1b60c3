"""Flink SQL in streaming mode: the same query with mini-batches, exactly-once checkpoints every 5 s.

Law: the run is what Flink's own log says it was: it begins when the first task runs, ends when the job has
finished, and the checkpoints counted are those the coordinator called completed. A restart is an error. The
last checkpoint is taken by Flink when all input is read, so the final state is durable.

PyFlink pins older versions of our own dependencies, so it lives in a virtual environment of its own; this
process only starts it and watches its tree.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.measure import Sampler, confine
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import command

VERSION = "2.3.0"
JARS = (
    f"org.apache.flink:flink-sql-parquet:{VERSION}",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
)
# The throughput collector: a tenth to an eighth less processor time here than the default one.
JVM = "-Xmx4g -XX:+UseParallelGC"
BACKENDS = {"heap": "hashmap", "rocksdb": "rocksdb"}
_JOB = Path(__file__).with_name("flink_job.py")
_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \S+ +(\S+) .*? - (.*)$")


def python() -> Path:
    """The interpreter that has PyFlink; its environment is made on first use."""
    home = data.scratch() / "flink-venv"
    interpreter, marker = home / "bin" / "python", home / f"has-{VERSION}"
    if not marker.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "-q", f"apache-flink=={VERSION}"], check=True)
        marker.touch()
    return interpreter


def jars() -> list[Path]:
    """The Parquet format and the Hadoop classes it needs."""
    return [jar(artifact) for artifact in JARS]


def jar(artifact: str) -> Path:
    """From Maven on first use."""
    folder = data.scratch() / "jars"
    _group, name, version = artifact.split(":")
    path = folder / f"{name}-{version}.jar"
    if not path.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
        subprocess.run([*copy, f"-DoutputDirectory={folder}"], check=True)
    return path


def settings(backend: str, cores: int, phase: str, mini_batch_rows: int, checkpoints: Path) -> dict[str, str]:
    return {
        "parallelism.default": str(cores),
        "taskmanager.numberOfTaskSlots": str(cores),
        "taskmanager.memory.managed.size": "2g",
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "pipeline.object-reuse": "true",
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": "5s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.incremental": "true" if backend == "rocksdb" else "false",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "state.backend.type": BACKENDS[backend],
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2s",
        "table.exec.mini-batch.size": str(mini_batch_rows),
        "table.optimizer.agg-phase-strategy": phase,
    }


@dataclass(frozen=True)
class Log:
    """What the run's log says, in seconds of the wall clock."""

    running: float  # the first task
    all_running: float  # and the last
    finished: float
    checkpoints: int


def read_log(lines: Iterator[str]) -> Log:
    """Refuses a log without exactly one run from start to end.

    >>> at = "2026-01-01 00:00:0{},500 INFO  o.a.f.{} [] - {}".format
    >>> text = [at(1, "ExecutionGraph", "bids (1/2) (a_0) switched from INITIALIZING to RUNNING."),
    ...         at(2, "ExecutionGraph", "bids (2/2) (a_1) switched from INITIALIZING to RUNNING."),
    ...         at(3, "CheckpointCoordinator", "Completed checkpoint 1 for job a (7 bytes)."),
    ...         at(4, "ExecutionGraph", "Job x (a) switched from state RUNNING to FINISHED.")]
    >>> log = read_log(iter(text))
    >>> log.finished - log.running, log.finished - log.all_running, log.checkpoints
    (3.0, 2.0, 1)
    """
    running: list[float] = []
    finished: list[float] = []
    checkpoints = 0
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue  # a stack trace or a message of several lines
        written, logger, message = match.groups()
        at = datetime.strptime(written, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()
        if logger.endswith("ExecutionGraph") and message.endswith("switched from INITIALIZING to RUNNING."):
            running.append(at)
        elif logger.endswith("ExecutionGraph") and message.endswith(
            "switched from state RUNNING to FINISHED."
        ):
            finished.append(at)
        elif logger.endswith("CheckpointCoordinator") and message.startswith("Completed checkpoint "):
            checkpoints += 1
    if not running or len(finished) != 1:
        raise RuntimeError(
            f"one finished job expected; the log has {len(running)} starts, {len(finished)} ends"
        )
    return Log(running[0], running[-1], finished[0], checkpoints)


def start(work: Path, folder: Path, wanted: dict[str, str], collect: Path | None) -> subprocess.Popen[bytes]:
    task = work / "task.json"
    place = str(folder.resolve())
    task.write_text(json.dumps({"settings": wanted, "input": place, "collect": collect and str(collect)}))
    environment = {
        **os.environ,
        "TZ": "UTC",  # log times are local times
        "JVM_ARGS": JVM,
        "FLINK_LOG_DIR": str(work),
        "FLINK_IDENT_STRING": "bench",
        "HADOOP_CLASSPATH": os.pathsep.join(str(path) for path in jars()),
    }
    with (work / "output").open("wb") as output:
        return subprocess.Popen([python(), _JOB, task], env=environment, stdout=output, stderr=output)


def wait(process: subprocess.Popen[bytes], work: Path) -> None:
    code = process.wait()
    if code != 0:
        tail = (work / "output").read_text(errors="replace")[-4000:]
        raise RuntimeError(f"flink ended with code {code}; the end of its output:\n{tail}")


def measured(folder: Path, backend: str, cores: int, phase: str, mini_batch_rows: int) -> Outcome:
    load = os.getloadavg()[0]
    python(), jars()  # made before the clock starts
    with command.work_folder(f"flink-{backend}") as work:
        wanted = settings(backend, cores, phase, mini_batch_rows, work / "checkpoints")
        began = time.time()
        process = start(work, folder, wanted, None)
        with Sampler(process.pid) as sampler:
            wait(process, work)
        (path,) = work.glob("*.log")
        with path.open(errors="replace") as lines:
            log = read_log(lines)
    shown = {name: value for name, value in wanted.items() if name != "execution.checkpointing.dir"}
    return over(
        Span(load, began, log.running, log.finished),
        sampler.samples,
        name=f"flink-{backend}",
        system=f"Flink SQL {VERSION}, {BACKENDS[backend]} state",
        rows=data.count(folder),
        cores=cores,
        checkpoints=log.checkpoints,
        settings={**shown, "java": JVM},
    )


def verified(folder: Path, backend: str, cores: int, phase: str, mini_batch_rows: int) -> pa.Table:
    """The final row of every key, folded from the changelog."""
    with command.work_folder(f"flink-{backend}-verify") as work:
        wanted = settings(backend, cores, phase, mini_batch_rows, work / "checkpoints")
        collected = work / "collected"
        wait(start(work, folder, wanted, collected), work)
        rows = [json.loads(line) for line in collected.read_text().splitlines()]
        columns = [pa.array((row[i] for row in rows), pa.int64()) for i in range(3)]
        return pa.table(columns, names=["auction", "n", "total"])


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="heap")
    parser.add_argument("--phase", choices=("ONE_PHASE", "TWO_PHASE"), default="TWO_PHASE")
    parser.add_argument("--mini-batch-rows", type=int, default=50_000)
    arguments = parser.parse_args()
    confine(arguments.cores)
    backend, phase = arguments.backend, arguments.phase
    how = (arguments.input, backend, arguments.cores, phase, arguments.mini_batch_rows)
    if arguments.verify:
        pq.write_table(verified(*how), arguments.verify)
    else:
        measured(*how).write(arguments.out)


if __name__ == "__main__":
    main()

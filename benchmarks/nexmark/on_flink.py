"""Flink SQL in streaming mode over the same files: mini-batches, exactly-once checkpoints every 5 s.

Law: as of `peers/flink.py`, whose settings these are: the run is what Flink's own log says it was. State
bytes are those of its largest completed checkpoint. One class is not Flink's
(`flink/LocalityAwareSplitAssigner.java`): files are given to readers in their order, for in any other most
events would be late.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks import data
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import command, events, queries
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.topics import Topics
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import flink
from benchmarks.peers.command import work_folder

# What keeps every bid needs more heap than the headline's query, for which 4 GB are plenty.
_LARGE = ("q4", "q6", "q9", "q18", "q19", "q20")
_JOB = Path(__file__).with_name("flink_job.py")
_ORDERED = queries.HERE / "flink" / "LocalityAwareSplitAssigner.java"
_COMPLETED = re.compile(r"Completed checkpoint \d+ for job \S+ \((\d+) bytes")
# The newest that there is; made for the version of Flink before this one.
CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_ROOT_CAUSE = re.compile(
    r"^(?:Caused by: |: )?((?:org\.apache|java)\.[\w.$]+(?:Exception|Error): .*)$", re.MULTILINE
)


def home() -> Path:
    """Where Flink is in the environment of PyFlink."""
    (found,) = flink.python().parent.parent.glob("lib/python*/site-packages/pyflink")
    return found


def library() -> Path:
    """Flink's own jars, with the one class in its place; made on first use."""
    folder = data.scratch() / f"flink-lib-ordered-{flink.VERSION}"
    if folder.exists():
        return folder
    site = home() / "lib"
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    making.mkdir()
    try:
        files = making / f"flink-connector-files-{flink.VERSION}.jar"
        for jar in site.glob("*.jar"):
            if jar.name == files.name:
                shutil.copy(jar, files)
            else:
                (making / jar.name).symlink_to(jar)
        classes = making / "classes"
        path = os.pathsep.join(str(jar) for jar in site.glob("*.jar"))
        subprocess.run(["javac", "-cp", path, "-d", classes, _ORDERED], check=True)
        subprocess.run(["jar", "uf", files, "-C", classes, "."], check=True)
        shutil.rmtree(classes)
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return folder


def start(
    work: Path,
    folder: Path,
    wanted: Mapping[str, str],
    asked: Sequence[Query],
    collect: Path | None,
    jvm: str = flink.JVM,
    topics: Topics | None = None,
) -> subprocess.Popen[bytes]:
    content = {
        "settings": wanted,
        "input": str(folder.resolve()),
        "queries": {query.name: queries.text("flink", query.name) for query in asked},
        "collect": collect and str(collect),
        "brokers": topics and topics.brokers,
        "topics": topics and topics.prefix,
    }
    return start_job(work, _JOB, content, jvm, [] if topics is None else [CONNECTOR])


def start_job(
    work: Path, job: Path, content: Mapping[str, object], jvm: str, connectors: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a job of Flink with its task, and with the jars of connectors."""
    task = work / "task.json"
    task.write_text(json.dumps(content))
    jars = flink.jars() + [flink.jar(name) for name in connectors]
    environment = {
        **os.environ,
        "TZ": "UTC",  # log times are local times
        "JVM_ARGS": jvm,
        "FLINK_HOME": str(home()),  # without it PyFlink would not look at the next line
        "FLINK_LIB_DIR": str(library()),
        "FLINK_LOG_DIR": str(work),
        "FLINK_IDENT_STRING": "bench",
        "HADOOP_CLASSPATH": os.pathsep.join(str(path) for path in jars),
    }
    with (work / "output").open("wb") as output:
        return subprocess.Popen([flink.python(), job, task], env=environment, stdout=output, stderr=output)


def settings(backend: str, cores: int, work: Path) -> dict[str, str]:
    wanted = flink.settings(backend, cores, "TWO_PHASE", 50_000, work / "checkpoints")
    # Aggregates of distinct values are spread over the tasks, as its guide of performance says.
    return {**wanted, "table.optimizer.distinct-agg.split.enabled": "true", "table.local-time-zone": "UTC"}


def jvm(query: Query, backend: str) -> str:
    return flink.JVM.replace("-Xmx4g", "-Xmx14g") if backend == "heap" and query.name in _LARGE else flink.JVM


def measured(query: Query, folder: Path, backend: str, cores: int, topics: Topics | None) -> Outcome:
    load = os.getloadavg()[0]
    flink.python(), flink.jars(), library()  # made before the clock starts
    if topics is not None:
        flink.jar(CONNECTOR)
    with work_folder(f"flink-{backend}") as work:
        wanted = settings(backend, cores, work)
        began = time.time()
        process = start(work, folder, wanted, [query], None, jvm(query, backend), topics)
        with Sampler(process.pid) as sampler:
            flink.wait(process, work)
        (path,) = work.glob("*.log")
        lines = path.read_text(errors="replace").splitlines()
    log = flink.read_log(iter(lines))
    sizes = [int(match[1]) for line in lines if (match := _COMPLETED.search(line))]
    shown = {name: value for name, value in wanted.items() if name != "execution.checkpointing.dir"}
    return over(
        Span(load, began, log.running, log.finished),
        sampler.samples,
        name="flink" if backend == "heap" else f"flink-{backend}",
        system=f"Flink SQL {flink.VERSION}, {flink.BACKENDS[backend]} state",
        rows=events.count(folder),
        cores=cores,
        checkpoints=log.checkpoints,
        settings={**shown, "java": jvm(query, backend)},
        query=query.name,
        state_bytes=max(sizes, default=None),
    )


def _rows(path: Path) -> pa.Table:
    names, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    columns = [pa.array((row[n] for row in rows), pa.string()) for n in range(len(names))]
    return pa.table(columns, names=names)


def _told(text: str) -> str:
    """The innermost reason of a Java stack trace."""
    found: list[str] = _ROOT_CAUSE.findall(text)
    return found[-1] if found else text


def verified(
    asked: Sequence[tuple[Query, Path]], folder: Path, backend: str, cores: int, topics: Topics | None
) -> None:
    with work_folder(f"flink-{backend}-verify") as work:
        collect = work / "collect"
        collect.mkdir()
        wanted = {**settings(backend, cores, work), "execution.checkpointing.interval": "1s"}
        wanted_queries = [query for query, _ in asked]
        flink.wait(start(work, folder, wanted, wanted_queries, collect, topics=topics), work)
        for query, place in asked:
            refused, rows = collect / f"{query.name}.refused", collect / f"{query.name}.jsonl"
            command.hand_over(_told(refused.read_text()) if refused.exists() else _rows(rows), place)


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--backend", choices=sorted(flink.BACKENDS), default="heap")
    arguments = parser.parse_args()
    confine(arguments.cores)
    asked, topics = list(command.asked(arguments)), command.topics(arguments)
    if arguments.verify:
        verified(asked, arguments.input, arguments.backend, arguments.cores, topics)
    else:
        ((query, place),) = asked
        measured(query, arguments.input, arguments.backend, arguments.cores, topics).write(place)


if __name__ == "__main__":
    main()

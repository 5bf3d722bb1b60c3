"""Flink SQL: row by row, without mini-batches; checkpoints as often as the variant says.

Law: a row is *emitted* when it goes into the sink, by the clock of that operator, and *committed* when a
checkpoint completes that was not yet complete then, by Flink's own log. That is in Flink's favour: what comes
between a checkpoint's barrier and its completion is only in the next. A sample of the input, of which no
window is waited for, goes to the same sink in the same job: its newest row before a checkpoint is the newest
event whose effect is in the state.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from benchmarks.latency import command, feed
from benchmarks.latency.age import Sight
from benchmarks.latency.command import SETTLE_S, Asked, Shown
from benchmarks.latency.outcome import Latency
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import on_flink
from benchmarks.peers import flink
from benchmarks.peers.command import work_folder

SAMPLED = 1_000  # rows a second of the input that are printed, about
READY_S = 180.0
_JOB = Path(__file__).with_name("flink_job.py")
_TIME = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
TABLES = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    f"date_time TIMESTAMP(3), extra STRING, {_TIME}",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    f"date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, {_TIME}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), "
    f"extra STRING, {_TIME}",
}
COLUMNS = {
    "q5": ("auction", "num", "starttime", "endtime"),
    "q7": ("auction", "price", "bidder", "date_time", "extra"),
    "q8": ("id", "name", "starttime"),
}
_SHARE = {"person": 0.02, "auction": 0.06, "bid": 0.92}
_LINE = re.compile(r"\+I\[(\[.*\])\]$")
_LOGGED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*Completed checkpoint \d+ for job ")
SEEN = "CAST(CURRENT_ROW_TIMESTAMP() AS STRING)"


def settings(cores: int, work: Path, every: str, backend: str = "heap") -> dict[str, str]:
    wanted = flink.settings(backend, cores, "AUTO", 50_000, work / "checkpoints")
    return {
        **{name: value for name, value in wanted.items() if "mini-batch" not in name},
        "execution.checkpointing.interval": every,
        "execution.buffer-timeout.interval": "5 ms",
        "pipeline.auto-watermark-interval": "50 ms",
        # A reader that waits for its next file must not hold the watermark of the other back.
        "table.exec.source.idle-timeout": "1 s",
        "table.local-time-zone": "UTC",
    }


def one_of(table: str, rate: int) -> int:
    """Which share of the input is looked at, so that looking costs little."""
    return max(1, round(rate * _SHARE[table] / SAMPLED))


def sample(table: str, rate: int, key: str) -> str:
    """Rows of the input as they pass: when each was seen, and its event time."""
    return (
        f"INSERT INTO said SELECT JSON_ARRAY('in', {SEEN}, CAST(date_time AS STRING)) FROM {table}"
        f" WHERE MOD({key}, {one_of(table, rate)}) = 0"
    )


def inserts(job: Asked) -> list[str]:
    query = command.text("flink", job.query)
    if not job.windowed:  # all rows are made, and a sample of them is looked at
        (table,) = job.query.reads
        made = "CONCAT_WS('|', CAST(auction AS STRING), CAST(bidder AS STRING), CAST(price AS STRING), extra)"
        one_in = one_of(table, job.feed.rate)
        return [
            f"INSERT INTO nowhere SELECT {made} FROM ({query}) AS made",
            f"INSERT INTO said SELECT JSON_ARRAY('in', {SEEN}, CAST(date_time AS STRING))"
            f" FROM ({query}) AS made WHERE MOD(CAST(price AS BIGINT), {one_in}) = 0",
        ]
    columns = ", ".join(f"CAST({name} AS STRING)" for name in COLUMNS[job.query.name])
    table = "bid" if "bid" in job.query.reads else "auction"
    return [
        f"INSERT INTO said SELECT JSON_ARRAY('out', {SEEN}, {columns} NULL ON NULL) FROM ({query}) AS made",
        sample(table, job.feed.rate, "price" if table == "bid" else "id"),
    ]


def start(work: Path, task: dict[str, object]) -> subprocess.Popen[bytes]:
    path = work / "task.json"
    path.write_text(json.dumps(task))
    environment = {
        **os.environ,
        "TZ": "UTC",  # log times are local times
        "JVM_ARGS": flink.JVM,
        "FLINK_HOME": str(on_flink.home()),
        "FLINK_LIB_DIR": str(on_flink.library()),
        "FLINK_LOG_DIR": str(work),
        "FLINK_IDENT_STRING": "bench",
        "HADOOP_CLASSPATH": os.pathsep.join(str(jar) for jar in flink.jars()),
    }
    with (work / "output").open("wb") as output:
        return subprocess.Popen(
            [flink.python(), _JOB, path],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def completed(work: Path) -> list[float]:
    """When each checkpoint was complete, by the wall clock."""
    found = []
    for path in work.glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            match = _LOGGED.match(line)
            if match:
                at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                found.append(at.timestamp())
    return sorted(found)


def ready(process: subprocess.Popen[bytes], work: Path) -> None:
    """Waits for the first checkpoint: all tasks run then."""
    until = time.time() + READY_S
    while not completed(work):
        if process.poll() is not None or time.time() > until:
            tail = (work / "output").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"flink is not running; the end of its output:\n{tail}")
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Said:
    """The lines of the sink: event times of the sample, and rows of windows, each with when it was seen."""

    passed: list[tuple[float, float]]
    rows: list[list[str | None]]
    at: list[float]


def read(lines: Iterator[str]) -> Said:
    """
    >>> said = read(iter(['2> +I[["in","2026-01-01 00:00:01.500","2015-07-15 00:00:01"]]', 'a warning',
    ...                   '1> +I[["out","2026-01-01 00:00:02","7","a, b]"]]']))
    >>> said.rows, said.at[0] - said.passed[0][0]
    ([['7', 'a, b]']], 0.5)
    """
    said = Said([], [], [])
    for line in lines:
        match = _LINE.search(line.rstrip("\n"))
        if match is None:
            continue
        kind, seen, *values = json.loads(match[1])
        if kind == "in":
            said.passed.append((_moment(seen), _moment(values[0])))
        else:
            said.rows.append(values)
            said.at.append(_moment(seen))
    return said


def commit_of(at: Sequence[float], checkpoints: Sequence[float]) -> list[float | None]:
    """For each moment the first checkpoint that completes after it; None when there is none.

    >>> commit_of([3.0, 1.0, 9.0], [2.0, 4.0])
    [4.0, 2.0, None]
    """
    places = [bisect.bisect_left(checkpoints, moment) for moment in at]
    return [checkpoints[place] if place < len(checkpoints) else None for place in places]


def measured(job: Asked, every: str, name: str) -> Latency:
    flink.python(), flink.jars(), on_flink.library()  # made before the clock starts
    with work_folder("flink") as work:
        feed.folders(work / "in", job.query.reads)
        wanted = settings(job.cores, work, every)
        began = time.time()
        process = start(
            work,
            {
                "settings": wanted,
                "input": str(work / "in"),
                "tables": {table: TABLES[table] for table in job.query.reads},
                "monitor": "20 ms",
                "inserts": inserts(job),
            },
        )
        try:
            with Sampler(process.pid) as sampler:
                ready(process, work)
                startup = time.time() - began
                fed = feed.run(job.staged, work / "in", job.query.reads, job.feed.tick_ms)
                over = fed.start + job.feed.seconds
                while time.time() < over + SETTLE_S and process.poll() is None:
                    time.sleep(0.2)
                    if _settled(job, fed, _said(work), completed(work)):
                        break
        finally:
            end(process)
        said, checkpoints = _said(work), completed(work)
    return _outcome(job, name, fed, sampler, startup, said, checkpoints, wanted)


def _settled(job: Asked, fed: feed.Fed, said: Said, checkpoints: Sequence[float]) -> bool:
    """Has the last of the feed been seen, and every window that it closes, and a checkpoint since?"""
    newest = max((event for _, event in said.passed), default=0.0)
    if job.feed.seconds - job.feed.due_s(newest * 1000) > 0.5:
        return False
    if job.windowed:
        closed = command.closings(job.query, job.feed, Shown(_rows(job, said), said.at), fed.start)
        if max((one.newest for one in closed), default=0.0) < command.last_closed(job):
            return False
    return bool(checkpoints) and checkpoints[-1] > max(said.at, default=0.0) + 1.0


def _rows(job: Asked, said: Said) -> pa.Table:
    columns = COLUMNS[job.query.name]
    values = [pa.array((row[n] for row in said.rows), pa.string()) for n in range(len(columns))]
    return pa.table(values, names=list(columns))


def _said(work: Path) -> Said:
    with (work / "output").open(errors="replace") as lines:
        return read(lines)


def _outcome(
    job: Asked,
    name: str,
    fed: feed.Fed,
    sampler: Sampler,
    startup: float,
    said: Said,
    checkpoints: list[float],
    wanted: dict[str, str],
) -> Latency:
    due = [job.feed.due_s(event * 1000) for _, event in said.passed]
    commits = commit_of([at for at, _ in said.passed], checkpoints)
    committed = [Sight(at - fed.start, one) for at, one in zip(commits, due, strict=True) if at is not None]
    emitted = [Sight(at - fed.start, one) for (at, _), one in zip(said.passed, due, strict=True)]
    shown = results = None
    if job.windowed:
        table = _rows(job, said)
        results = command.closings(job.query, job.feed, Shown(table, said.at), fed.start)
        last = float("inf")  # a row of no completed checkpoint is never committed
        shown = Shown(table, [last if at is None else at for at in commit_of(said.at, checkpoints)])
    shown_settings = {key: value for key, value in wanted.items() if key != "execution.checkpointing.dir"}
    return command.outcome(
        job,
        name,
        f"Flink SQL {flink.VERSION}, heap state",
        "a checkpoint has completed since the row went into the sink",
        fed,
        sampler,
        startup,
        committed,
        shown,
        {**shown_settings, "java": flink.JVM, "source.monitor-interval": "20 ms"},
        emitted=emitted,
        emitted_results=results,
    )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--checkpoints", default="1s", help="how often")
    parser.add_argument("--name", default="flink")
    arguments = parser.parse_args()
    confine(arguments.cores)
    job = command.asked(arguments)
    measured(job, arguments.checkpoints, arguments.name).write(job.out)


if __name__ == "__main__":
    main()

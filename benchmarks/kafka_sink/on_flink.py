"""Flink SQL: its Kafka connector on both sides, exactly once, checkpoints every 5 s."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.kafka_sink import task
from benchmarks.kafka_sink.task import COLUMNS, Task
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import on_flink
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import flink
from benchmarks.peers.command import work_folder

_JOB = Path(__file__).with_name("flink_job.py")
_JARS = (on_flink.CONNECTOR,)


def measured(wanted: Task) -> Outcome:
    load = os.getloadavg()[0]
    flink.python(), flink.jars(), on_flink.library()  # made before the clock starts
    for jar in _JARS:
        flink.jar(jar)
    with work_folder("flink-kafka") as work:
        settings = on_flink.settings("heap", wanted.cores, work)
        told = {"brokers": wanted.brokers, "read": wanted.read, "write": wanted.write, "columns": COLUMNS}
        began = time.time()
        process = on_flink.start_job(work, _JOB, {"settings": settings, **told}, flink.JVM, _JARS)
        with Sampler(process.pid) as sampler:
            flink.wait(process, work)
        (path,) = work.glob("*.log")
        log = flink.read_log(iter(path.read_text(errors="replace").splitlines()))
    shown = {name: value for name, value in settings.items() if name != "execution.checkpointing.dir"}
    return over(
        Span(load, began, log.running, log.finished),
        sampler.samples,
        name="flink",
        system=f"Flink SQL {flink.VERSION}",
        rows=wanted.rows,
        cores=wanted.cores,
        checkpoints=log.checkpoints,
        settings={**shown, "java": flink.JVM, "guarantee": "exactly-once"},
    )


def main() -> None:
    wanted = task.from_command_line(__doc__ or "")
    confine(wanted.cores)
    measured(wanted).write(wanted.out)


if __name__ == "__main__":
    main()

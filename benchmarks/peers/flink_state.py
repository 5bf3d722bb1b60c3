"""PyFlink: a KeyedProcessFunction with value state on the heap, exactly-once checkpoints every 5 s.

Law: as for Flink SQL, the run is what Flink's own log says it was; it begins when the last task runs, for
until then Python workers start. The job ends with the checkpoint that follows the last row, and those come
every 5 s: a run is up to that much longer than its work.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.measure import confine
from benchmarks.peers import apart, command, flink


def settings(mode: str, cores: int, bundle_rows: int, bundle_ms: int, cached_keys: int) -> dict[str, str]:
    return {
        "parallelism.default": str(cores),
        "taskmanager.numberOfTaskSlots": str(cores),
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "pipeline.object-reuse": "true",
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": "5s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "state.backend.type": "hashmap",
        "python.execution-mode": mode,
        "python.fn-execution.bundle.size": str(bundle_rows),
        "python.fn-execution.bundle.time": str(bundle_ms),
        "python.state.cache-size": str(cached_keys),
    }


def read(work: Path) -> apart.Clock:
    paths = sorted(work.glob("*.log"))
    if len(paths) != 1:
        raise RuntimeError(f"one log expected, found {[path.name for path in paths]}")
    with paths[0].open(errors="replace") as lines:
        log = flink.read_log(lines)
    return apart.Clock(log.all_running, log.finished, log.checkpoints)


def job(mode: str, cores: int, bundle_rows: int, bundle_ms: int, cached_keys: int) -> apart.Job:
    wanted = settings(mode, cores, bundle_rows, bundle_ms, cached_keys)
    interpreter = flink.python()
    (packages,) = interpreter.parent.parent.glob("lib/python3*/site-packages")
    return apart.Job(
        name="flink" if mode == "process" else f"flink-{mode}",
        system=f"PyFlink {flink.VERSION}, {mode} mode, hashmap state",
        interpreter=interpreter,
        script=Path(__file__).with_name("flink_state_job.py"),
        task={"settings": wanted},
        settings={**wanted, "java": flink.JVM},
        environment={
            "TZ": "UTC",  # log times are local times
            "JVM_ARGS": flink.JVM,
            "FLINK_LOG_DIR": "{work}",
            "FLINK_IDENT_STRING": "bench",
            "PYTHONPATH": str(packages),  # an interpreter inside the JVM knows of no virtual environment
            "HADOOP_CLASSPATH": os.pathsep.join(str(path) for path in flink.jars()),
        },
    )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--mode", choices=("process", "thread"), default="process")
    parser.add_argument("--bundle-rows", type=int, default=100_000)
    parser.add_argument("--bundle-ms", type=int, default=1000)
    parser.add_argument("--cached-keys", type=int, default=100_000, help="of state, in the Python workers")
    arguments = parser.parse_args()
    confine(arguments.cores)
    chosen = job(
        arguments.mode, arguments.cores, arguments.bundle_rows, arguments.bundle_ms, arguments.cached_keys
    )
    apart.main(chosen, arguments, read)


if __name__ == "__main__":
    main()

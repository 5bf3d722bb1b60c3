"""The process from which Spark forks Python workers, with the kernels already loaded.

Used as `spark.python.daemon.module`.  It does what `pyspark.daemon` does, but
*before* it forks it imports and runs once what every task needs, so that a
worker starts warm and shares those pages with its siblings.  It also freezes the
loaded objects, so that the full garbage collection that Spark runs after every
task examines only what the task left behind (12 ms per task otherwise).

Law: no thread is started before a fork; a thread does not survive a fork, and a
lock that it held stays locked for ever.  OpenBLAS and jemalloc start threads
when they are loaded, so they are configured beforehand not to do so.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from io import BufferedReader
from typing import Any, BinaryIO

ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # Columns of up to four million numbers use memory that the process retains: returning it to the system
    # and faulting it in again took up to a third of a worker's time.  Arrow uses the system allocator, too,
    # as its own allocators return memory that was unused for a moment, and the heap grows in large steps.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

# Everything that a task of a level may need.  A name here that cannot be imported
# is an error: workers that silently start cold make the pond slow.
MODULES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "xxhash",
    "cloudpickle",
    "duckdb",
    "pyspark.worker",
    "millpond.engine.spark.chain",
    "millpond.engine.spark.warm_up",
    "millpond.engine.task.level",
    "millpond.engine.coordinator.compactor",
    "millpond.sources.files",
    "millpond.state.store.local_store",
)
# All modules of these are loaded: plans name operators, which a worker would import in its first task.
PACKAGES = ("millpond.kernels", "millpond.operators", "millpond.process")
KERNELS = (
    "millpond.engine.spark.warm_up"  # imported late: it starts threads unless the environment forbids them
)


def quiet_threads() -> bool:
    """Forbid threads at load time; returns False if it is too late for this process.

    Millpond's own session passes these settings in the environment.  In another session the libraries may
    already have been loaded by the parent packages of this module.
    """
    missing = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(missing)
    return not missing or not {"numpy", "pyarrow"} & set(sys.modules)


def load(modules: tuple[str, ...] = MODULES, packages: tuple[str, ...] = PACKAGES) -> None:
    for name in modules:
        importlib.import_module(name)
    for package in packages:
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)


def threads() -> list[str]:
    """The names of this process's threads, including native ones (Linux; empty elsewhere)."""
    folder = "/proc/self/task"
    if not os.path.isdir(folder):
        return []
    names = []
    for thread in sorted(os.listdir(folder)):
        with open(f"{folder}/{thread}/comm") as comm:
            names.append(comm.read().strip())
    return names


def prepare() -> None:
    load()
    importlib.import_module(KERNELS).warm()
    started = threads()[1:]
    if started:
        # Forking still works almost always, so the problem would otherwise go unnoticed.
        print(f"millpond daemon: threads started before fork: {', '.join(started)}", file=sys.stderr)
    gc.collect()
    gc.freeze()


Work = Callable[[BufferedReader, BinaryIO], None]


def ends_quietly(work: Work) -> Work:
    """Wrap a worker's main function so that it exits quietly when Spark closes its connection.

    Spark does so after a minute without tasks, or when the session stops.  `pyspark.worker.main` treats that
    as a failed task, reports it to the other side, which is gone, and prints the broken pipe.
    """

    def when_asked(infile: BufferedReader, outfile: BinaryIO) -> None:
        try:
            asked = infile.peek(1)
        except ConnectionError:
            asked = b""
        if not asked:
            sys.exit(1)
        work(infile, outfile)

    return when_asked


class Signals:
    """The module `signal` for `pyspark.daemon`, which ignores SIGCHLD and so hides how workers end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        from millpond.engine.spark.worker_exits import reap

        ignored = number == signal.SIGCHLD and handler is signal.SIG_IGN
        return signal.signal(number, reap if ignored else handler)


def main() -> None:
    if not quiet_threads():
        os.execv(sys.executable, sys.orig_argv)
    prepare()
    import pyspark.daemon
    import pyspark.worker
    from pyspark.daemon import manager

    setattr(pyspark.daemon, "signal", Signals())  # noqa: B010 - it is a module for mypy
    pyspark.worker.main = ends_quietly(pyspark.worker.main)  # the daemon calls it in a forked worker
    try:
        manager()
    except SystemExit as stop:
        # Extension modules check for leaks when the interpreter ends, and report frozen objects as leaks.
        os._exit(stop.code if isinstance(stop.code, int) else 1)


if __name__ == "__main__":
    main()

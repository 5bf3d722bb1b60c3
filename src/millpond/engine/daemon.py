"""The process Spark forks Python workers from, with the kernels already loaded.

Used as `spark.python.daemon.module`.  It does what `pyspark.daemon` does, but
imports and runs once what every task needs *before* it forks, so that a worker
starts warm and shares those pages with its siblings, and it freezes what it
loaded, so that the full collection Spark runs after every task looks only at
what the task left behind (12 ms a task otherwise).

Law: no thread is started before a fork; a thread does not survive it, and a
lock that it held is held for ever.  OpenBLAS and jemalloc start threads when
they are loaded, so they are told not to, before they are.
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
    # Columns of up to four million numbers come from memory that is kept: giving each back to the system and
    # faulting it in again took up to a third of a worker's time.  Arrow takes its memory from the same place,
    # as its own allocators give back what was not used for a moment, and the heap grows by large steps.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

# Everything a task of a level may need.  A name listed here that cannot be
# imported is an error: a worker that silently starts cold is a slow pond.
MODULES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "xxhash",
    "cloudpickle",
    "duckdb",
    "pyspark.worker",
    "millpond.engine.spark_chain",
    "millpond.engine.readiness",
    "millpond.engine.level",
    "millpond.engine.compactor",
    "millpond.sources.files",
    "millpond.state.local_store",
)
# Of which every module is loaded: a plan names operators, and a worker would import them in its first task.
PACKAGES = ("millpond.operators",)
KERNELS = "millpond.engine.readiness"  # imported only now: with it come threads, where nothing forbids them


def quiet_threads() -> bool:
    """Forbid threads at load time; False if it is too late for this process.

    A session of ours passes these in the environment.  In another the libraries may already be
    loaded, by the packages this module lies in.
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
    """The names of this process's threads, native ones too (Linux; elsewhere unknown, so none)."""
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
        # Forking still works almost always, which is why this must be said and not be found out.
        print(f"millpond daemon: threads started before fork: {', '.join(started)}", file=sys.stderr)
    gc.collect()
    gc.freeze()


Work = Callable[[BufferedReader, BinaryIO], None]


def ends_quietly(work: Work) -> Work:
    """Spark closes the connection of a worker that was idle for a minute, or when the session stops.

    `pyspark.worker.main` takes that for a failed task, tells the other side, which is gone, and prints the
    broken pipe.  There was no task: the worker ends.
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
    """The module `signal` for `pyspark.daemon`, which ignores SIGCHLD: so nobody knows how workers end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        from millpond.engine.worker_ends import reap

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
    pyspark.worker.main = ends_quietly(pyspark.worker.main)  # what the manager calls in a forked worker
    try:
        manager()
    except SystemExit as stop:
        # Extension modules look for leaks when the interpreter ends, and take what is frozen for one.
        os._exit(stop.code if isinstance(stop.code, int) else 1)


if __name__ == "__main__":
    main()

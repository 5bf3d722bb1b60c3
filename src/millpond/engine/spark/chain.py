"""Runs the linear chain of levels as one Spark job over raw frames.

A level is a function (task, frames in) -> (target task, frame) pairs.  Its
frames go through Spark's shuffle to the tasks of the next level; the driver
receives the frames of the last level.  Law 9 at this layer: a task's input ends
with Spark's end mark or it is an error (pyspark treats a lost connection as the
end of the data), and the driver counts the frames of every last task.

This is the layer under `RDD.partitionBy`: Python writes the target as eight
bytes and then the frame, `PairwiseRDD` pairs them, and nothing pickles, batches
or buffers more than one frame (Spark picks Kryo for (long, bytes); its Java
serializer would buffer the last hundred).

Measured with local[2] on two cores, two levels of two tasks, empty frames: p50
44 ms, p99 75 ms, 50 ms of CPU.  TCP instead of unix sockets makes that 125;
pyspark's own daemon adds 65 ms of CPU; the driver's calls into the JVM take 3.
No visible effect: FIFO or FAIR, locality wait, shuffle checksums, Spark's UI on
or off, the kind of garbage collector.  Frames cost 5 ms of CPU per MiB, half as
much again with `spark.shuffle.compress`.  A level's closure is free up to
100 KB; 1 MB costs 15 ms, 4 MB 180 ms: large objects are passed by name.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
import shutil
import struct
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import cloudpickle
from pyspark.serializers import Serializer, SpecialLengths

from millpond import tuning
from millpond.engine.spark import breadcrumb, credential_files, worker_exits
from millpond.engine.spark.masters import is_local_master
from millpond.engine.spark.preferred_hosts import PreferredHosts
from millpond.engine.spark.served_results import Served
from millpond.engine.task.frame_files import Shelf, fetch, is_ticket
from millpond.engine.task.frames import Raw
from millpond.errors import InternalError, InvalidError, MillpondError, UnavailableError
from millpond.state.store.shared_credentials import find_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LevelFn = Callable[[int, Iterator[Raw]], Iterator[tuple[int, Raw]]]
HostsOf = Callable[[int], Sequence[str]]

FRAME_BYTES_MAX = 64 << 20
TASKS_MAX = 32768
CHAIN_POOL = "millpond"
BESIDE_POOL = "millpond-beside"

_LENGTH = struct.Struct(">i")
_ROUTE = struct.Struct(">iqi")  # 8, target, length of the frame: two of Spark's length-prefixed byte strings
_COUNT = struct.Struct(">q")
_CARRIED = re.compile(r"millpond-error ([A-Za-z0-9+/=]+)")
_TRACE_LINES = 12


# -- in the worker ------------------------------------------------------------


class RawFrames(Serializer):
    """Length-prefixed bytes, passed on unchanged, one at a time."""

    def dump_stream(self, iterator: Iterable[Raw], stream: IO[bytes]) -> None:
        for frame in iterator:
            stream.write(_LENGTH.pack(len(frame)))
            stream.write(frame)

    def load_stream(self, stream: IO[bytes]) -> Iterator[bytes]:
        while True:
            head = stream.read(_LENGTH.size)
            if len(head) == _LENGTH.size:
                (length,) = _LENGTH.unpack(head)
                if length == SpecialLengths.END_OF_DATA_SECTION:
                    return
                frame = stream.read(length)
            if len(head) < _LENGTH.size or len(frame) < length:
                raise UnavailableError(
                    "the input of a task ended before its end mark",
                    hint="a task before it or the connection to spark was lost; run the epoch again",
                )
            yield frame


class RoutedFrames(Serializer):
    """Writes (target, frame) pairs in the format of `PairwiseRDD`: the key's bytes, then the frame's."""

    def dump_stream(self, iterator: Iterable[tuple[int, Raw]], stream: IO[bytes]) -> None:
        for target, frame in iterator:
            stream.write(_ROUTE.pack(8, target, len(frame)))
            stream.write(frame)


class RemoteError(Exception):
    """An exception on its way to the driver: Spark transports only text, so the text encodes all of it."""


def _carry(error: Exception) -> RemoteError:
    summary = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    trace = "".join(traceback.format_exception(error))
    original = _pickled(error) if isinstance(error, MillpondError) else None
    payload = base64.b64encode(pickle.dumps((original, summary, trace))).decode()
    return RemoteError(f"{summary}\nmillpond-error {payload}")


def _pickled(error: MillpondError) -> bytes | None:
    """The pickled error with all its fields; None if it cannot be pickled (its text is still sent)."""
    try:
        # vars(): a subclass may have more than the five common fields.
        whole: bytes = cloudpickle.dumps((error, vars(error)))
        pickle.loads(whole)
    except Exception:
        return None
    return whole


class Task:
    """A level as the function that a Spark worker calls; it checks the frames that leave it."""

    def __init__(self, level: LevelFn, *, first: bool, targets: int | None, depot: str | None = None) -> None:
        self.level = level
        self.first = first
        self.targets = targets  # None in the last level, which routes nothing
        self.depot = depot  # a folder that all tasks share, if there is one

    def __call__(self, task: int, incoming: Iterator[bytes]) -> Iterator[Any]:
        shelf = None if self.depot is None else Shelf(self.depot)
        breadcrumb.enable()
        find_with(credential_files.read)
        try:
            frames = self._drained(incoming) if self.first else self._fetched(incoming)
            sent = 0
            for target, frame in self.level(task, frames):
                self._check(task, target, frame)
                sent += 1
                if self.targets is None:
                    yield frame
                elif shelf is None or len(frame) < tuning.FRAME_FILE_BYTES_MIN:
                    yield target, frame
                else:
                    yield target, shelf.leave(frame)
            # Spark reuses a worker only if the worker has read its input to the end.
            for _ in incoming:
                pass
            if self.targets is None:
                yield _COUNT.pack(sent)
        except Exception as error:
            raise _carry(error) from None
        finally:
            if shelf is not None:
                shelf.close()

    def _fetched(self, incoming: Iterator[bytes]) -> Iterator[Raw]:
        """The frames, with each ticket replaced by its frame from the depot."""
        for frame in incoming:
            yield frame if self.depot is None or not is_ticket(frame) else fetch(self.depot, frame)

    def _drained(self, incoming: Iterator[bytes]) -> Iterator[Raw]:
        for _ in incoming:
            raise InternalError("the first level of a chain received a frame")
        return iter(())

    def _check(self, task: int, target: int, frame: Raw) -> None:
        if self.targets is not None and not 0 <= target < self.targets:
            # Spark's partitioner would silently take it modulo the number of tasks.
            raise InternalError(
                f"task {task} sent a frame to a task that does not exist",
                detail=f"target {target} of {self.targets} tasks",
            )
        if is_ticket(frame):
            raise InternalError(f"task {task} sent a frame that looks like a ticket of the depot")
        if len(frame) > FRAME_BYTES_MAX:
            raise InternalError(
                f"task {task} sent a frame that is too large",
                detail=f"{len(frame)} bytes, the most is {FRAME_BYTES_MAX}",
                hint="cut the frame before sending it",
            )


class MapLevel:
    """`map` as a chain of one level: task t runs every n-th item; results carry the item's number."""

    def __init__(self, function: Callable[[bytes], bytes], items: Sequence[bytes], parallelism: int) -> None:
        self.function = function
        self.items = items
        self.parallelism = parallelism

    def __call__(self, task: int, frames: Iterator[Raw]) -> Iterator[tuple[int, Raw]]:
        for number in range(task, len(self.items), self.parallelism):
            yield 0, _COUNT.pack(number) + self.function(self.items[number])


# -- in the driver ------------------------------------------------------------


class SparkChain:
    """Runs chains and single stages on one Spark session; thread-safe."""

    def __init__(self, session: SparkSession) -> None:
        context: Any = session.sparkContext
        self._context = context
        self._jvm = context._jvm
        self._spark = context._jsc.sc()
        self._group = f"millpond-{uuid.uuid4().hex[:12]}"
        self._local = threading.local()
        self._running = 0
        self._idle = threading.Condition()
        # Objects that every run needs and that never change are made once: naming a class
        # or passing a dict takes several calls into the JVM, up to 0.3 ms each.
        self._python_rdd = self._jvm.PythonRDD
        self._pairwise_rdd = self._jvm.PairwiseRDD
        self._partitioner = self._jvm.PythonPartitioner
        self._function = self._jvm.SimplePythonFunction
        self._served = Served(context._gateway)
        self._empty_list = self._jvm.java.util.ArrayList()
        self._environment = self._jvm.java.util.HashMap()
        for name, value in context.environment.items():
            self._environment.put(name, value)
        # In local mode tasks run on this machine and exchange large frames as files.
        self._depot = context._temp_dir if is_local_master(context.master) else None
        # In local mode the daemon can also tell the driver how a worker ended.
        self._ends = None if self._depot is None else os.path.join(self._depot, "worker-ends")
        if self._ends is not None:
            os.makedirs(self._ends, exist_ok=True)
            self._environment.put(worker_exits.FOLDER, self._ends)
        self._bases: dict[int, Any] = {}
        self._partitioners: dict[int, Any] = {}
        self._preferred = PreferredHosts(context)
        self._make_pool()

    def run(
        self,
        levels: Sequence[LevelFn],
        parallelism: Sequence[int],
        *,
        description: str,
        hosts_of: HostsOf | None = None,
    ) -> list[bytes]:
        """Run one job, level k on parallelism[k] tasks; returns the last level's frames in order of task.

        `hosts_of` returns the preferred host of each task, given their number; nothing without a choice.
        """
        _check_shape(levels, parallelism)
        return self._submit(levels, parallelism, description, CHAIN_POOL, hosts_of)

    def map(
        self,
        function: Callable[[bytes], bytes],
        items: Sequence[bytes],
        parallelism: int,
        *,
        description: str = "beside the chain",
    ) -> list[bytes]:
        """Run one stage beside the chain: function(item) for every item; returns the results in order."""
        if not items:
            return []
        tasks = min(parallelism, len(items))
        level = MapLevel(function, list(items), tasks)
        _check_shape([level], [tasks])
        results: list[bytes | None] = [None] * len(items)
        for frame in self._submit([level], [tasks], description, BESIDE_POOL):
            results[_COUNT.unpack_from(frame)[0]] = frame[_COUNT.size :]
        found = [result for result in results if result is not None]
        if len(found) != len(items):
            raise InternalError("a stage lost results", detail=f"{len(found)} results of {len(items)} items")
        return found

    def is_busy(self) -> bool:
        """Is a job running?"""
        return self._running > 0

    def cancel(self) -> None:
        """Cancel every running job of this chain and wait until none runs."""
        with self._idle:
            while self._running:
                # A run may be between its start and its submission: cancel again until it is gone.
                self._context.cancelJobGroup(self._group)
                self._idle.wait(0.05)

    def _make_pool(self) -> None:
        """Give the chain every core it requests; jobs beside it use the rest.

        Spark reads pools from a file, or makes all of them equal when they are first used.
        """
        root = self._spark.taskScheduler().rootPool()
        if root.schedulingMode().toString() == "FAIR" and root.getSchedulableByName(CHAIN_POOL) is None:
            scheduler = self._jvm.org.apache.spark.scheduler
            pool = scheduler.Pool(CHAIN_POOL, scheduler.SchedulingMode.FIFO(), TASKS_MAX, 1)
            root.addSchedulable(pool)

    # -- one job -----------------------------------------------------------

    def _submit(
        self,
        levels: Sequence[LevelFn],
        parallelism: Sequence[int],
        description: str,
        pool: str,
        hosts_of: HostsOf | None = None,
    ) -> list[bytes]:
        with self._idle:
            self._running += 1
        depot = None
        if self._depot is not None and len(levels) > 1:
            depot = os.path.join(self._depot, f"frames-{uuid.uuid4().hex}")
        try:
            commands = [_command(level, k, parallelism, depot) for k, level in enumerate(levels)]
            try:
                rdd = self._build(commands, parallelism, hosts_of)
                frames = self._collect(rdd, description, pool)
                # Spark's cleaner waits until the driver's JVM collects garbage; an executor's full disk does
                # not trigger that.  After a failure it is left to the cleaner: a late task may still write.
                rdd.cleanShuffleDependencies(False)
            except _spark_errors() as error:
                raise _translate(error, self._ends) from None
            return _checked_frames(frames, parallelism[-1])
        finally:
            if depot is not None:
                # After a failure a late task may still write; the session's folder is deleted later anyway.
                shutil.rmtree(depot, ignore_errors=True)
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _build(self, commands: Sequence[bytes], parallelism: Sequence[int], hosts_of: HostsOf | None) -> Any:
        rdd = self._base(parallelism[0])
        for k, command in enumerate(commands):
            if k > 0:
                pairs = self._pairwise_rdd(rdd).asJavaPairRDD().partitionBy(self._partition(parallelism[k]))
                rdd = self._python_rdd.valueOfPair(pairs).rdd()
            hosts = hosts_of(parallelism[k]) if hosts_of is not None else ()
            if hosts:
                rdd = self._preferred.prefer(rdd, hosts)
            rdd = self._python_rdd(rdd, self._wrapped(command), False, False)
        return rdd

    def _wrapped(self, command: bytes) -> Any:
        context = self._context
        # Inline at any size: Spark broadcasts the task's binary anyway, once per executor.
        return self._function(
            bytearray(command),
            self._environment,
            context._python_includes or self._empty_list,
            context.pythonExec,
            context.pythonVer,
            self._empty_list,
            context._javaAccumulator,
        )

    def _collect(self, rdd: Any, description: str, pool: str) -> list[bytes]:
        # The thread's own properties (a user's job group, pool, description) are restored after the job.
        theirs = self._spark.getLocalProperties()
        self._spark.setLocalProperties(self._properties(pool))
        try:
            served = self._python_rdd.collectAndServeWithJobGroup(rdd, self._group, description, True)
        finally:
            self._spark.setLocalProperties(theirs)
        return self._served.read(served)

    def _properties(self, pool: str) -> Any:
        known: dict[str, Any] = self._local.__dict__.setdefault("properties", {})
        if pool not in known:
            properties = self._jvm.java.util.Properties()
            properties.setProperty("spark.scheduler.pool", pool)
            known[pool] = properties
        return known[pool]

    def _base(self, tasks: int) -> Any:
        if tasks not in self._bases:
            self._bases[tasks] = self._context.parallelize([], tasks)._jrdd.rdd()
        return self._bases[tasks]

    def _partition(self, tasks: int) -> Any:
        if tasks not in self._partitioners:
            self._partitioners[tasks] = self._partitioner(tasks, 0)
        return self._partitioners[tasks]


def _check_shape(levels: Sequence[Any], parallelism: Sequence[int]) -> None:
    if not levels or len(levels) != len(parallelism):
        raise InvalidError(
            "a chain needs one parallelism for each of its levels",
            detail=f"{len(levels)} levels, {len(parallelism)} numbers",
        )
    for tasks in parallelism:
        if not 1 <= tasks <= TASKS_MAX:
            raise InvalidError(
                "the parallelism of a level is out of range",
                detail=f"got {tasks}, allowed is 1 to {TASKS_MAX}",
            )


def _command(level: LevelFn, number: int, parallelism: Sequence[int], depot: str | None) -> bytes:
    last = number == len(parallelism) - 1
    task = Task(level, first=number == 0, targets=None if last else parallelism[number + 1], depot=depot)
    writes = RawFrames() if last else RoutedFrames()
    try:
        command: bytes = cloudpickle.dumps((task, None, RawFrames(), writes))
    except Exception as error:
        raise InvalidError(
            f"level {number} cannot be sent to the workers",
            detail=f"{type(error).__name__}: {error}",
            hint="functions must not hold locks, connections, sessions or open files; make them inside",
        ) from error
    return command


def _checked_frames(frames: Sequence[bytes], tasks: int) -> list[bytes]:
    """Check and remove the counts: each task's frames are followed by their number."""
    found: list[bytes] = []
    end = len(frames)
    for _ in range(tasks):
        if end < 1 or len(frames[end - 1]) != _COUNT.size:
            break
        (count,) = _COUNT.unpack(frames[end - 1])
        start = end - 1 - count
        if count < 0 or start < 0:
            break
        found[:0] = frames[start : end - 1]
        end = start
    else:
        if end == 0:
            return found
    raise UnavailableError(
        "frames of the last level are missing",
        detail=f"{len(frames)} frames for {tasks} tasks, {end} of them not accounted for",
        hint="run the epoch again",
    )


# -- errors -------------------------------------------------------------------


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (Py4JError, PySparkException, ConnectionError)


def _translate(error: Exception, ends: str | None) -> MillpondError:
    """The error for a failed job: the original error, an internal error, or a retryable one."""
    text = str(error)
    if carried := _CARRIED.search(text):
        return _uncarry(carried.group(1))
    if "PythonException" in text or type(error).__name__ == "PythonException":
        lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
        return InternalError("a python worker failed outside the level", detail=_tail("\n".join(lines)))
    cancelled = "cancelled" in text
    died = None if cancelled else breadcrumb.found(text)
    if died is not None:
        return _death(*died, ends)
    return UnavailableError(
        "the spark job was cancelled" if cancelled else "the spark job failed",
        detail=_reason(text),
        hint=None if cancelled else "run the epoch again; if it stays, look at the executors' logs",
    )


def _death(step: str, epoch: int, pid: int, more: str, ends: str | None) -> MillpondError:
    """The error for a worker that died in a step, because of user code or because it was killed."""
    _, mark, status = more.partition(breadcrumb.EXIT)
    if mark:
        return InvalidError(
            f"step {step!r} ended the process of its worker",
            detail=f"os._exit({status.split()[0]}) in worker {pid}",
            hint="raise an exception instead: the row becomes an error row",
            step=step,
            epoch=epoch,
        )
    code = None if ends is None else worker_exits.read(ends, pid)
    crashed = "Fatal Python error" in more
    if crashed or code in worker_exits.CRASHES:
        stack = [line.strip() for line in more.splitlines() if line.startswith(("Fatal", "  File"))]
        return InvalidError(
            f"step {step!r} crashed its worker",
            detail="; ".join([worker_exits.exit_text(code), *stack[:6]] if code is not None else stack[:6]),
            hint="a library that the step calls crashed; run the row in a process of your own to find it",
            step=step,
            epoch=epoch,
        )
    return UnavailableError(
        f"a worker died while it ran step {step!r}",
        detail=f"worker {pid}: {'exit status unknown' if code is None else worker_exits.exit_text(code)}",
        hint="processes are killed when memory runs out: use a larger machine, or fewer tasks at once",
        step=step,
        epoch=epoch,
    )


def _uncarry(payload: str) -> MillpondError:
    original, summary, trace = pickle.loads(base64.b64decode(payload))
    if original is not None:
        error, fields = pickle.loads(original)
        vars(error).update(fields)
        error.add_note("in the worker:\n" + trace)
        assert isinstance(error, MillpondError)
        return error
    return InternalError(f"a level failed: {summary}", detail=_tail(trace))


def _tail(trace: str) -> str:
    return "\n".join(trace.strip().splitlines()[-_TRACE_LINES:])


def _reason(text: str) -> str:
    """The line with the cause: Spark puts it between the failed call and two stacks."""
    for line in text.splitlines():
        _, mark, reason = line.partition("Exception: ")
        if mark:
            return reason.strip()[:1000]
    return text.strip()[:1000]

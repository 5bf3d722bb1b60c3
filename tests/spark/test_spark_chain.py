"""The chain of levels as one Spark job: frames arrive whole, errors as themselves, nothing piles up."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond import tuning
from millpond.engine.spark.chain import SparkChain
from millpond.engine.spark.served_results import paths_at_exit
from millpond.engine.task.frame_files import Shelf
from millpond.engine.task.frames import Raw
from millpond.errors import DataError, InternalError, InvalidError, UnavailableError

# The workers cannot import this file: send what is defined here by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Routed = Iterator[tuple[int, bytes]]


@pytest.fixture(scope="module")
def chain(session: Any) -> SparkChain:
    return SparkChain(session)


def spread(to: int, frames: int = 1) -> Any:
    """A first level that sends every task some frames that name their way: from task, to task, number."""

    def level(task: int, incoming: Iterator[bytes]) -> Routed:
        assert list(incoming) == []
        for target in range(to):
            for number in range(frames):
                yield target, f"{task}>{target}#{number}".encode()

    return level


def gather(task: int, incoming: Iterator[bytes]) -> Routed:
    for frame in sorted(bytes(frame) for frame in incoming):
        yield 0, b"%d:%s" % (task, frame)


def test_every_frame_reaches_the_task_it_was_sent_to(chain: SparkChain) -> None:
    got = chain.run([spread(3, frames=2), gather], [2, 3], description="spread")
    want = [f"{t}:{s}>{t}#{n}".encode() for t in range(3) for s in range(2) for n in range(2)]
    assert got == want


def test_three_levels_of_different_widths(chain: SparkChain) -> None:
    def middle(task: int, incoming: Iterator[bytes]) -> Routed:
        for frame in incoming:
            yield 0, b"%d/%s" % (task, frame)

    got = chain.run([spread(4), middle, gather], [2, 4, 1], description="three levels")
    assert got == sorted(f"0:{t}/{s}>{t}#0".encode() for t in range(4) for s in range(2))


def test_tasks_have_preferred_hosts_and_get_the_same_frames(chain: SparkChain) -> None:
    hosts = {2: ("here", "there"), 3: ("there", "here", "here")}
    built: list[Any] = []
    build = chain._build
    chain._build = lambda *args: built.append(build(*args)) or built[-1]  # type: ignore
    try:
        got = chain.run([spread(3), gather], [2, 3], description="hosts", hosts_of=hosts.__getitem__)
    finally:
        del chain._build  # type: ignore
    assert got == [f"{t}:{s}>{t}#0".encode() for t in range(3) for s in range(2)]
    preferred = [str(chain._spark.getPreferredLocs(built[0], task)) for task in range(3)]
    assert preferred == ["List(there)", "List(here)", "List(here)"]


def test_one_level_goes_straight_to_the_driver(chain: SparkChain) -> None:
    assert chain.run([spread(1)], [3], description="one level") == [b"0>0#0", b"1>0#0", b"2>0#0"]


def test_frames_are_bytes_of_any_content_and_length(chain: SparkChain) -> None:
    # Eight bytes is what the counts at the end look like; negative lengths are Spark's marks.
    odd = [b"", b"\0" * 8, b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\1", b"x" * (8 << 20), b""]

    def send(task: int, incoming: Iterator[bytes]) -> Routed:
        for frame in odd:
            yield 0, frame

    def echo(task: int, incoming: Iterator[bytes]) -> Routed:
        for frame in incoming:
            yield 0, frame

    assert chain.run([send, echo], [1, 1], description="odd frames") == odd


def test_a_level_without_frames(chain: SparkChain) -> None:
    def silent(task: int, incoming: Iterator[bytes]) -> Routed:
        return iter(())

    assert chain.run([silent, gather], [2, 2], description="silence") == []


def test_a_level_may_leave_its_input_unread_and_the_worker_lives_on(chain: SparkChain) -> None:
    def pids(task: int, incoming: Iterator[bytes]) -> Routed:
        yield 0, b"%d" % os.getpid()

    seen: set[bytes] = set()
    for _ in range(6):
        seen |= set(chain.run([spread(1, frames=50), pids], [1, 1], description="unread"))
    assert len(seen) <= 2  # of six tasks: two cores, two workers


def test_a_receiver_holds_one_frame_at_a_time(chain: SparkChain) -> None:
    count, size = 60, 8 << 20

    def send(task: int, incoming: Iterator[bytes]) -> Routed:
        for number in range(count):
            yield 0, bytes([number]) * size

    def measure(task: int, incoming: Iterator[bytes]) -> Routed:
        before = resident_mb()
        seen = hashlib.blake2b()
        peak = 0
        for frame in incoming:
            seen.update(frame[:1])
            peak = max(peak, resident_mb())
        yield 0, f"{peak - before} {seen.hexdigest()}".encode()

    [answer] = chain.run([send, measure], [1, 1], description="large frames")
    grown_mb, digest = answer.decode().split()
    assert digest == hashlib.blake2b(bytes(range(count))).hexdigest()
    assert int(grown_mb) < 64  # of 480 MB that went through


def test_large_frames_of_one_machine_are_files_and_go_with_the_job(chain: SparkChain, session: Any) -> None:
    large = tuning.FRAME_FILE_BYTES_MIN + 1  # neither a whole page, nor the first of the file

    def send(task: int, incoming: Iterator[Raw]) -> Routed:
        for target in range(2):
            for size in (10, large, large - 2, large):
                yield target, bytes([16 * task + target]) * size

    def told(task: int, incoming: Iterator[Raw]) -> Routed:
        for frame in incoming:
            assert set(bytes(frame)) == {frame[0]}
            yield 0, f"{type(frame).__name__} {len(frame)} {frame[0]} {task}".encode()

    got = chain.run([send, told], [2, 2], description="files")
    sizes = (("bytes", 10), ("memoryview", large), ("bytes", large - 2), ("memoryview", large))
    want = [f"{k} {n} {16 * s + t} {t}" for t in range(2) for s in range(2) for k, n in sizes]
    assert sorted(frame.decode() for frame in got) == sorted(want)
    assert left_behind(session) == []


def test_files_of_a_failed_job_go_too(chain: SparkChain, session: Any) -> None:
    def send(task: int, incoming: Iterator[Raw]) -> Routed:
        yield 0, b"x" * tuning.FRAME_FILE_BYTES_MIN

    def fail(task: int, incoming: Iterator[Raw]) -> Routed:
        raise DataError(f"there were {len(left_by(next(iter(incoming))))}")
        yield 0, b""

    with pytest.raises(DataError, match="there were 1"):
        chain.run([send, fail], [1, 1], description="files of a failure")
    assert left_behind(session) == []


def left_by(frame: Raw) -> list[str]:
    """The files of frames that this worker has mapped."""
    assert isinstance(frame, memoryview)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in maps if "/frames-" in line})


def left_behind(session: Any) -> list[str]:
    return [one.name for one in Path(session.sparkContext._temp_dir).glob("frames-*")]


def test_a_frame_like_a_ticket_is_refused(chain: SparkChain, tmp_path: Path) -> None:
    ticket = Shelf(str(tmp_path)).leave(b"frame")

    def send(task: int, incoming: Iterator[Raw]) -> Routed:
        yield 0, ticket

    with pytest.raises(InternalError, match="looks like a ticket"):
        chain.run([send, gather], [1, 1], description="ticket")


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


# -- shapes -------------------------------------------------------------------


@pytest.mark.parametrize(("levels", "parallelism"), [(1, [1, 1]), (2, [1]), (0, []), (1, [0]), (1, [32769])])
def test_a_shape_that_cannot_be_is_refused(chain: SparkChain, levels: int, parallelism: list[int]) -> None:
    with pytest.raises(InvalidError):
        chain.run([gather] * levels, parallelism, description="shape")


def test_a_target_out_of_range_is_an_error_not_another_task(chain: SparkChain) -> None:
    def astray(task: int, incoming: Iterator[bytes]) -> Routed:
        yield 2, b"lost"

    with pytest.raises(InternalError, match="does not exist") as caught:
        chain.run([astray, gather], [1, 2], description="astray")
    assert caught.value.detail == "target 2 of 2 tasks"


def test_a_function_that_cannot_travel_is_refused_before_the_job(chain: SparkChain) -> None:
    lock = threading.Lock()

    def locked(task: int, incoming: Iterator[bytes]) -> Routed:
        with lock:
            yield 0, b""

    with pytest.raises(InvalidError, match="cannot be sent"):
        chain.run([locked], [1], description="lock")


# -- map ----------------------------------------------------------------------


def test_map_keeps_the_order_of_items(chain: SparkChain) -> None:
    items = [b"%d" % n for n in range(7)]
    assert chain.map(lambda item: item * 2, items, 2) == [item * 2 for item in items]
    assert chain.map(lambda item: item, [], 2) == []


def test_map_runs_beside_the_chain_from_another_thread(chain: SparkChain, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait(item: bytes) -> bytes:
        deadline = time.monotonic() + 120
        while not gate.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return b"waited"

    answers: list[bytes] = []
    thread = threading.Thread(target=lambda: answers.extend(chain.map(wait, [b"x"], 1)))
    thread.start()
    # The chain finishes while the other job is still running: only then is the gate opened.
    assert len(chain.run([spread(2), gather], [2, 2], description="beside")) == 4
    assert answers == []
    gate.touch()
    thread.join(120)
    assert answers == [b"waited"]


def test_a_run_leaves_the_threads_own_properties_alone(chain: SparkChain, session: Any) -> None:
    context = session.sparkContext
    context.setLocalProperty("spark.job.description", "mine")
    context.setLocalProperty("spark.scheduler.pool", "my-pool")
    chain.run([spread(1)], [1], description="theirs")
    assert context.getLocalProperty("spark.job.description") == "mine"
    assert context.getLocalProperty("spark.scheduler.pool") == "my-pool"
    context.setLocalProperty("spark.job.description", None)
    context.setLocalProperty("spark.scheduler.pool", None)


# -- failures -----------------------------------------------------------------


def test_a_millpond_error_arrives_with_its_fields(chain: SparkChain) -> None:
    def fail(task: int, incoming: Iterator[bytes]) -> Routed:
        list(incoming)
        error = DataError("bad block", detail="crc 1, not 2", hint="restore", step="orders", epoch=7)
        error.unknown = True  # type: ignore[attr-defined]
        raise error
        yield

    with pytest.raises(DataError) as caught:
        chain.run([spread(1), fail], [1, 1], description="fail")
    assert caught.value.fields() == {
        "kind": "DataError",
        "message": "bad block",
        "detail": "crc 1, not 2",
        "hint": "restore",
        "step": "orders",
        "epoch": 7,
    }
    assert caught.value.unknown  # type: ignore[attr-defined]
    assert "in fail" in "".join(caught.value.__notes__)


def test_a_millpond_error_that_cannot_travel_arrives_as_text(chain: SparkChain) -> None:
    def fail(item: bytes) -> bytes:
        error = DataError("bad block", detail="crc 1, not 2")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(InternalError, match="bad block"):
        chain.map(fail, [b""], 1)


def test_any_other_exception_is_an_internal_error_with_its_last_lines(chain: SparkChain) -> None:
    def fail(item: bytes) -> bytes:
        return {"a": b""}[item.decode()]

    with pytest.raises(InternalError, match="KeyError: 'b'") as caught:
        chain.map(fail, [b"b"], 1)
    assert caught.value.detail is not None
    assert caught.value.detail.endswith("KeyError: 'b'")
    assert "in fail" in caught.value.detail


def test_an_exception_in_the_first_level_and_after_some_frames(chain: SparkChain) -> None:
    def fail(task: int, incoming: Iterator[bytes]) -> Routed:
        yield 0, b"one"
        raise UnavailableError("store is away")

    with pytest.raises(UnavailableError, match="store is away"):
        chain.run([fail, gather], [2, 2], description="fail late")


def test_a_dead_worker_without_retries_is_unavailable(chain: SparkChain) -> None:
    def die(item: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(UnavailableError, match="the spark job failed") as caught:
        chain.map(die, [b""], 1)
    assert "crashed" in str(caught.value.detail)


def test_input_cut_short_is_an_error_not_the_end() -> None:
    import io

    from millpond.engine.spark.chain import RawFrames

    whole = b"\0\0\0\2ab" + b"\0\0\0\1c" + b"\xff\xff\xff\xff"
    assert list(RawFrames().load_stream(io.BytesIO(whole))) == [b"ab", b"c"]
    for cut in range(len(whole)):
        with pytest.raises(UnavailableError, match="before its end mark"):
            list(RawFrames().load_stream(io.BytesIO(whole[:cut])))


def test_cancel_ends_running_jobs_and_the_chain_stays_usable(chain: SparkChain, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def sleep(item: bytes) -> bytes:
        started.touch()
        time.sleep(60)
        return b""

    errors: list[Exception] = []

    def run() -> None:
        try:
            chain.map(sleep, [b""], 1)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 120
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = time.monotonic()
    chain.cancel()
    thread.join(50)
    assert time.monotonic() - before < 50, "it does not sleep to its end"
    assert [type(error) for error in errors] == [UnavailableError]
    assert "cancelled" in str(errors[0])
    assert chain.map(lambda item: item, [b"on"], 1) == [b"on"]


def test_cancel_without_jobs_returns(chain: SparkChain) -> None:
    chain.cancel()


# -- a long life --------------------------------------------------------------


@pytest.mark.slow
def test_50_runs_leave_nothing_behind(chain: SparkChain, session: Any) -> None:
    payload = b"x" * 100_000

    def send(task: int, incoming: Iterator[bytes]) -> Routed:
        yield 0, payload
        yield 1, payload

    def runs(count: int) -> None:
        for _ in range(count):
            assert len(chain.run([send, gather], [2, 2], description="long life")) == 4

    runs(10)
    before = footprint(session)
    runs(50)
    after = footprint(session)
    # 50 runs write 20 MB of shuffle files and make 750 Java objects.
    assert after["disk_mb"] <= 1, (before, after)
    assert after["java_objects"] <= before["java_objects"] + 50, (before, after)
    # Java keeps the path of every file that it is to delete when it ends, as each socket is.
    assert after["paths"] <= before["paths"] + 5, (before, after)
    assert after["heap_mb"] <= before["heap_mb"] + 10, (before, after)
    assert after["driver_mb"] <= before["driver_mb"] + 20, (before, after)


def footprint(session: Any) -> dict[str, int]:
    """What is held on disk, in the JVM and in this process, when both have collected their garbage."""
    from py4j.java_gateway import JavaObject

    context = session.sparkContext
    jvm = context._jvm
    gc.collect()
    time.sleep(1.0)  # releases of Java objects are sent by a thread of py4j, shuffles removed by one of Spark
    folder = Path(context.getConf().get("spark.local.dir"))
    # Before the JVM collects its garbage: nothing may wait for that on disk.
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    jvm.System.gc()
    time.sleep(1.0)
    runtime = jvm.Runtime.getRuntime()
    server = JavaObject("GATEWAY_SERVER", context._gateway._gateway_client)
    return {
        "disk_mb": disk >> 20,
        "paths": len(paths_at_exit(context._gateway)),
        "java_objects": server.getGateway().getBindings().size(),
        "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) >> 20,
        "driver_mb": resident_mb(),
    }


# -- faults, where executors are processes ------------------------------------


def killed_worker(session: Any, marker: str) -> list[bytes]:
    def dying(task: int, incoming: Iterator[bytes]) -> Routed:
        for number, frame in enumerate(sorted(incoming)):
            yield 0, b"%d:%s" % (task, frame)
            if task == 1 and number == 1 and not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    return SparkChain(session).run([spread(2, frames=3), dying], [2, 2], description="killed worker")


def test_a_killed_python_worker_is_retried(cluster: Any, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    want = [f"{t}:{s}>{t}#{n}".encode() for t in range(2) for s in range(2) for n in range(3)]
    assert cluster(killed_worker, str(marker)) == want
    assert marker.exists()


def killed_executor(session: Any, marker: str) -> list[bytes]:
    def fatal(task: int, incoming: Iterator[bytes]) -> Routed:
        # The daemon's parent is the executor; with it go the shuffle files of every task it ran.
        if task == 0 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
            time.sleep(30)
        for frame in sorted(incoming):
            yield 0, b"%d:%s" % (task, frame)

    return SparkChain(session).run([spread(2, frames=3), fatal, gather], [2, 2, 1], description="executor")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_executor_is_survived(cluster: Any, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    want = [f"0:{t}:{s}>{t}#{n}".encode() for t in range(2) for s in range(2) for n in range(3)]
    assert cluster(killed_executor, str(marker)) == sorted(want)
    assert marker.exists()

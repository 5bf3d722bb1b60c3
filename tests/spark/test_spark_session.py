"""Our session has our settings, workers start warm, and a session that cannot work is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.engine.spark import daemon
from millpond.engine.spark import engine as spark
from millpond.engine.spark.chain import SparkChain
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import DAEMON, SETTINGS, _unfit, advice, check_session, make_session
from millpond.errors import InvalidError

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_our_settings_are_in_force(session: Any) -> None:
    conf = session.sparkContext.getConf()
    assert {name: conf.get(name) for name in SETTINGS} == dict(SETTINGS)


def test_our_own_session_needs_no_advice(session: Any) -> None:
    assert check_session(session) == []


def test_a_running_session_is_used_again(session: Any) -> None:
    assert make_session().sparkContext is session.sparkContext
    assert make_session("local[2]").sparkContext is session.sparkContext
    with pytest.raises(InvalidError, match="already running") as caught:
        make_session("local[1]")
    assert caught.value.detail == "running on local[2], asked for local[1]"


def test_a_session_that_the_user_started_is_left_running(session: Any) -> None:
    engine = SparkEngine()
    assert engine.session.sparkContext is session.sparkContext
    engine.close()
    assert session.range(3).count() == 3


def test_workers_are_forked_warm_frozen_and_without_threads(session: Any) -> None:
    def look(item: bytes) -> bytes:
        import gc

        from millpond.engine.spark.daemon import MODULES

        cold = [name for name in MODULES if name not in sys.modules]
        return f"{sys.executable} {cold} {gc.get_freeze_count() > 10_000}".encode()

    [seen] = SparkChain(session).map(look, [b""], 1)
    assert seen.decode() == f"{sys.executable} [] True"


def test_before_the_first_epoch_every_core_has_a_worker_that_is_ready(session: Any) -> None:
    def look(task: int, frames: Any) -> Any:
        from millpond.kernels import duck

        ready = duck._session.pid == os.getpid() and duck._session.kernel is not None
        yield 0, f"{os.getpid()} {ready}".encode()

    spark._ready.discard(session.sparkContext)  # earlier tests may have let workers die
    engine = SparkEngine(session)
    told = [frame.decode().split() for frame in engine.chain.run([look], [2], description="look")]
    assert [ready for _, ready in told] == ["True", "True"]
    assert len({pid for pid, _ in told}) == 2


def test_a_session_is_checked_once(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    SparkEngine(session)

    def again(session: Any) -> list[str]:
        raise AssertionError("checked again")

    monkeypatch.setattr(spark, "check_session", again)
    assert SparkEngine(session).default_parallelism == 2


def test_the_daemon_starts_no_thread_before_it_forks(tmp_path: Path) -> None:
    # Numpy and arrow are loaded before the daemon gets a word in, and nothing forbade them threads.
    script = tmp_path / "daemon.py"
    script.write_text(
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import numpy, pyarrow, pyspark.daemon\n"
        "from millpond.engine.spark import daemon\n"
        "def manager():\n"
        "    print(daemon.threads(), flush=True)\n"
        "    sys.exit(3)\n"
        "pyspark.daemon.manager = manager\n"
        "daemon.main()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in daemon.ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=environment,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("['python']\n", "", 3)


def test_threads_before_the_fork_are_reported() -> None:
    done = in_a_process(
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        from millpond.engine.spark import daemon
        daemon.prepare()
        """
    )
    assert "threads started before fork" in done.stderr


def test_a_listed_module_that_is_missing_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_kernel"):
        daemon.load(("gc", "no_such_kernel"))


# -- sessions that cannot work ------------------------------------------------


def test_a_connect_session_is_refused() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(InvalidError, match="spark connect") as caught:
        check_session(connect())
    assert caught.value.hint


def test_another_spark_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(session), "version", property(lambda self: "3.5.6"))
    with pytest.raises(InvalidError, match="not supported") as caught:
        check_session(session)
    assert caught.value.detail == "spark 3.5.6, needed is 4.x"


def test_sessions_with_broken_settings_are_refused_and_the_console_is_quiet() -> None:
    done = in_a_process(
        """
        from millpond.engine.spark.chain import SparkChain
        from millpond.engine.spark.session import check_session, make_session
        from millpond.errors import MillpondError

        def tell(session, check=check_session):
            try:
                print(check(session))
            except MillpondError as error:
                print(type(error).__name__, error.message)

        session = make_session("local[1]", extra={"spark.python.worker.reuse": "false"})
        tell(session)
        tell(session, lambda session: SparkChain(session).map(lambda item: 1 / 0, [b""], 1))
        session.stop()
        tell(session)
        session = make_session("local[1]", extra={"spark.python.daemon.module": "no_such_daemon"})
        tell(session)
        session.stop()
        session = make_session("local[1]", extra={"spark.executor.pyspark.memory": "1g"})
        tell(session)
        session.stop()
        """
    )
    assert done.stdout.splitlines() == [
        "['set spark.python.worker.reuse=true: without it every task starts a python process']",
        "InternalError a level failed: ZeroDivisionError: division by zero",
        "InvalidError the spark session is stopped",
        "InvalidError the executors' python has no module no_such_daemon",
        "InvalidError spark.executor.pyspark.memory is set, and state is memory-mapped: it limits both",
    ]
    # Python itself says that it does not find the daemon, and the JVM names its incubator module.
    said = [
        line for line in done.stderr.splitlines() if "incubator" not in line and "no_such_daemon" not in line
    ]
    assert said == []


def test_the_executors_python_is_compared_with_ours() -> None:
    from pyspark.errors import PySparkRuntimeError

    told = PySparkRuntimeError(
        errorClass="PYTHON_VERSION_MISMATCH",
        messageParameters={"worker_version": "3.9", "driver_version": "3.11"},
    )
    error = _unfit(str(told))
    assert error.message == "the executors run another python than the driver"
    assert error.detail == "executors 3.9, driver 3.11"


def test_what_is_slow_is_advised() -> None:
    assert advice({**SETTINGS}) == []
    told = advice({"spark.python.worker.reuse": "false", "spark.cleaner.referenceTracking": "false"})
    named = (
        "unix.domain.socket",
        "worker.reuse",
        f"daemon.module={DAEMON}",
        "referenceTracking",
        "faulthandler",
    )
    for setting in named:
        assert any(setting in line for line in told), setting
    assert len(told) == len(named)


def in_a_process(script: str) -> subprocess.CompletedProcess[str]:
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    return subprocess.run(
        [sys.executable, "-c", path + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

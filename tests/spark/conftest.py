"""Spark for tests: one local[2] session for the whole run, and a small cluster in its own process."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.jdbc_driver import jdbc_jars

CLUSTER = "local-cluster[2,1,1024]"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(autouse=True)
def _many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, and many tasks all the same: what passes between them is what is tested here."""
    from millpond.engine.spark.engine import SparkEngine

    monkeypatch.setattr(SparkEngine, "single_task_rows_max", 0)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of this test run."""
    from millpond.engine.spark.session import make_session

    extra = {"spark.local.dir": str(tmp_path_factory.mktemp("spark"))}
    made = make_session("local[2]", extra={**extra, "spark.jars": ",".join(map(str, jdbc_jars()))})
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Call `cluster(function, *args)` to run function(session, *args) where executors are processes.

    Unlike local[2], a local-cluster retries tasks, loses executors and fetches over the network.  A process
    holds one Spark context, so this one lives in a child.
    """
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, str(tmp_path_factory.mktemp("cluster"))), daemon=True
    )
    child.start()
    theirs.close()

    def call(function: Callable[..., Any], *args: Any) -> Any:
        ours.send_bytes(cloudpickle.dumps((function, args)))
        worked, value = cloudpickle.loads(ours.recv_bytes())
        if not worked:
            raise AssertionError(value)
        return value

    yield call
    ours.close()
    child.join(20)
    if child.is_alive():
        child.kill()


def _serve(calls: Connection, folder: str) -> None:
    from millpond.engine.spark.session import make_session

    os.environ["SPARK_WORKER_DIR"] = os.path.join(folder, "work")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # executors that live for a minute
    session = make_session(
        CLUSTER, extra={"spark.local.dir": folder, "spark.executor.extraJavaOptions": quick}
    )
    while True:
        try:
            function, args = cloudpickle.loads(calls.recv_bytes())
        except EOFError:
            break
        try:
            answer = (True, function(session, *args))
        except Exception:
            answer = (False, traceback.format_exc())
        calls.send_bytes(cloudpickle.dumps(answer))
    session.stop()
    sys.exit(0)

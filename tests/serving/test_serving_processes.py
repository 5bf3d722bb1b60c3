"""Several processes serve PostgreSQL clients: they see one pond, find each other's connections, and may die."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from tests.serving.certificates import made_certificate
from tests.serving.served_process import ServedPond, served
from tests.waiting import until

psycopg = pytest.importorskip("psycopg")
PROCESSES = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPond]:
    pond = tmp_path_factory.mktemp("processes") / "pond"
    with served(pond, "--pg", "0", "--http", "0", "--processes", str(PROCESSES), listeners=2) as found:
        with connect(found) as con:
            con.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
            con.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t")
        yield found


def connect(server: ServedPond, user: str = "ann", **more: Any) -> Any:
    url = server.url("postgresql").replace("//", f"//{user}@")
    return psycopg.connect(url, autocommit=True, connect_timeout=30, **more)


def processes_of(server: ServedPond) -> list[int]:
    """The process ids of the processes."""
    pid = server.process.pid
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if "server.processes.serving_process" in Path(f"/proc/{child}/cmdline").read_text():
            found.append(int(child))
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            command = Path(f"/proc/{child}/cmdline").read_text()
            if "server.processes.serving_process" in command and int(child) not in found:
                found.append(int(child))
    return found


def test_every_process_reads_its_own_writes_and_those_of_others(server: ServedPond) -> None:
    assert len(processes_of(server)) == PROCESSES
    with connect(server) as one, connect(server) as two:
        for number in range(5):
            one.execute("INSERT INTO t VALUES (%s, 'one')", [number])
            assert one.execute("SELECT n FROM n").fetchone()[0] == 2 * number + 1
            two.execute("FLUSH")
            two.execute("INSERT INTO t VALUES (%s, 'two')", [100 + number])
            assert two.execute("SELECT n FROM n").fetchone()[0] == 2 * number + 2
            one.execute("FLUSH")
        with one.transaction():
            one.execute("DELETE FROM t")
            one.execute("INSERT INTO t VALUES (7, 'seven')")
        two.execute("FLUSH")
        assert two.execute("SELECT * FROM t").fetchall() == [(7, "seven")]


def test_every_process_sees_what_any_of_them_has_defined(server: ServedPond) -> None:
    """One of the processes has made the pond: it must not go on with the definitions of then."""
    with connect(server) as one, connect(server) as two:
        for name, con, other in (("a", one, two), ("b", two, one)):
            con.execute(f"CREATE TABLE {name} (n int)")
            con.execute(f"INSERT INTO {name} VALUES (1)")
            con.execute(f"ALTER TABLE {name} ADD COLUMN m int DEFAULT 2")
            assert con.execute(f"SELECT * FROM {name}").fetchall() == [(1, 2)]
            other.execute(f"INSERT INTO {name} VALUES (3, 4)")
            assert sorted(other.execute(f"SELECT * FROM {name}").fetchall()) == [(1, 2), (3, 4)]
            other.execute(f"DROP TABLE {name}")
            with pytest.raises(psycopg.errors.UndefinedTable):
                con.execute(f"INSERT INTO {name} VALUES (5, 6)")


def test_connections_of_all_processes_are_shown_and_ended(server: ServedPond) -> None:
    with connect(server) as one, connect(server) as two:
        shown = {pid for (pid,) in one.execute("SELECT pid FROM pg_stat_activity").fetchall()}
        assert shown == {one.info.backend_pid, two.info.backend_pid}
        for cancel in (
            lambda: two.cancel_safe(timeout=20),
            lambda: one.execute("SELECT pg_cancel_backend(%s)", [two.info.backend_pid]).fetchall(),
        ):
            assert _ends_with(cancel, two) is psycopg.errors.QueryCanceled
        with connect(server) as three:
            ended = one.execute("SELECT pg_terminate_backend(%s)", [three.info.backend_pid]).fetchone()
            assert ended == (True,)
            until(lambda: _is_gone(three))
        assert one.execute("SELECT pg_terminate_backend(999999)").fetchone() == (False,)


def _ends_with(cancel: Callable[[], Any], con: Any) -> type[BaseException] | None:
    """The error of a statement that would take for ever, after `cancel`."""
    ended: list[type[BaseException]] = []

    def run() -> None:
        try:
            con.execute("SELECT count(*) FROM range(1000000000) a, range(1000000) b")
        except psycopg.Error as error:
            ended.append(type(error))

    running = threading.Thread(target=run)
    running.start()
    while running.is_alive():
        cancel()
        running.join(0.2)
    return ended[0] if ended else None


def _is_gone(con: Any) -> bool:
    try:
        con.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


def test_metrics_count_the_statements_of_all_processes(server: ServedPond) -> None:
    before = _selects(server)
    with connect(server) as one, connect(server) as two:
        for con in (one, two, two):
            con.execute("SELECT 1")
        assert _metric(server, r'millpond_connections\{protocol="pg"\}') == 2
        assert _selects(server) == before + 3


def _selects(server: ServedPond) -> float:
    return _metric(server, r'millpond_queries_total\{kind="SELECT",outcome="ok",protocol="pg"\}')


def _metric(server: ServedPond, name: str) -> float:
    with urllib.request.urlopen(server.url("http") + "/metrics") as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_process_that_is_killed_ends_only_its_connections(server: ServedPond) -> None:
    with connect(server) as one, connect(server) as two:
        one.execute("SELECT 1")
        victim, other = processes_of(server)
        os.kill(victim, signal.SIGKILL)
        until(lambda: _is_gone(one) != _is_gone(two))
        left = two if _is_gone(one) else one
        until(lambda: len(processes_of(server)) == PROCESSES)
        assert other in processes_of(server)
        left.execute("INSERT INTO t VALUES (8, 'left')")
        assert left.execute("SELECT name FROM t WHERE id = 8").fetchone() == ("left",)
        with connect(server) as three, connect(server) as four:
            for con in (three, four):
                assert con.execute("SELECT name FROM t WHERE id = 8").fetchone() == ("left",)


def test_limits_hold_for_all_processes_together(tmp_path: Path) -> None:
    cert, key = made_certificate(tmp_path)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE USER boss PASSWORD 'b' ADMIN; CREATE USER ann PASSWORD 'a' CONNECTION LIMIT 1")
    options = ["--pg", "0", "--processes", str(PROCESSES), "--connections", "3"]
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with served(tmp_path / "pond", *options, *tls, "--users", "pond") as server:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(server, password="b", sslmode="require")
        with connect(server, password="a", sslmode="require") as one:
            assert one.pgconn.ssl_in_use
            with pytest.raises(psycopg.OperationalError, match="'ann' has too many connections"):
                connect(server, password="a")
            bosses = [connect(server, "boss", password="b") for _ in range(2)]
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                connect(server, "boss", password="b")
            bosses[0].close()
            until(lambda: _connects(server, "boss", "b"))
            bosses[1].close()
        until(lambda: _connects(server, "ann", "a"))


def _connects(server: ServedPond, user: str, password: str) -> bool:
    try:
        connect(server, user, password=password).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_server(tmp_path: Path, kind: signal.Signals) -> None:
    with served(tmp_path / "pond", "--pg", "0", "--processes", str(PROCESSES)) as server:
        children = processes_of(server)
        assert len(children) == PROCESSES
        with connect(server) as con:
            con.execute("CREATE TABLE t (id int)")
            os.kill(server.process.pid, kind)
            server.process.wait(60)
            until(lambda: _is_gone(con))
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
        if kind == signal.SIGINT:
            assert server.process.returncode == 0
            assert server.process.communicate()[1] == ""


def test_what_other_processes_cannot_serve_is_refused(tmp_path: Path) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        with pytest.raises(InvalidError, match="a pond in memory cannot be opened by another process"):
            pond.serve(pg_port=0, processes=1)
        with pytest.raises(InvalidError, match="processes must be a whole number from 0"):
            pond.serve(pg_port=0, processes=-1)
    users = tmp_path / "users"
    users.write_text("ann:a\n")
    with (
        millpond.open(tmp_path / "pond", engine="inline") as pond,
        pond.serve(pg_port=0, processes=1, users=users) as server,
    ):
        users.unlink()  # a process that is started again cannot read it
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 20

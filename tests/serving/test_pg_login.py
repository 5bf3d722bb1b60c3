"""PostgreSQL clients log in: passwords, verifiers, TLS, the limits of a server, and its end."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

import millpond
from millpond.pond.api import Pond
from millpond.server.scram import ScramVerifier
from tests.serving.certificates import made_certificate

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")


@pytest.fixture
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
        made.flush()
        yield made


def connect(url: str, **more: Any) -> Any:
    found = urlparse(url)
    return psycopg.connect(
        host=found.hostname, port=found.port, dbname="pond", autocommit=True, connect_timeout=60, **more
    )


def rows(con: Any) -> list[tuple[Any, ...]]:
    return sorted(con.execute("SELECT id FROM t").fetchall())


def test_passwords_and_verifiers(pond: Pond, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:s3 cret:x\nbob:{ScramVerifier.of_password('päss')}\n")
    with pond.serve(pg_port=0, users=users) as server:
        url = server.urls["pg"]
        for name, password in (("ann", "s3 cret:x"), ("bob", "päss")):
            with connect(url, user=name, password=password) as con:
                assert rows(con) == [(1,), (2,)]
        for name, password in (("ann", "päss"), ("bob", ""), ("carl", "s3 cret:x")):
            with pytest.raises(psycopg.OperationalError, match=r"password authentication failed|no password"):
                connect(url, user=name, password=password)


def test_tls(pond: Pond, tmp_path: Path) -> None:
    cert, key = made_certificate(tmp_path)
    with pond.serve(pg_port=0, tls_cert=cert, tls_key=key) as server:
        url = server.urls["pg"]
        with connect(url, user="ann", sslmode="verify-full", sslrootcert=str(cert)) as con:
            assert con.pgconn.ssl_in_use and rows(con) == [(1,), (2,)]
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            connect(url, user="ann", sslmode="verify-full", sslrootcert="system")
        found = urlparse(url)
        context = ssl.create_default_context(cafile=str(cert))
        with socket.create_connection((found.hostname, found.port), 60) as raw, pytest.raises(OSError):
            context.wrap_socket(raw, server_hostname="localhost")  # without an SSLRequest before


def test_without_tls_a_client_that_demands_it_is_told(pond: Pond) -> None:
    with pond.serve(pg_port=0) as server:
        with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
            connect(server.urls["pg"], user="ann", sslmode="require")
        with connect(server.urls["pg"], user="ann", sslmode="prefer") as con:
            assert rows(con) == [(1,), (2,)]


def test_too_many_connections(pond: Pond) -> None:
    with pond.serve(pg_port=0, connections_max=2) as server:
        url = server.urls["pg"]
        with connect(url, user="ann") as one, connect(url, user="ann"):
            with pytest.raises(psycopg.OperationalError, match="too many"):
                connect(url, user="ann")
            assert rows(one) == [(1,), (2,)]
        for _ in range(100):  # the server hears of the end a moment later
            try:
                connect(url, user="ann").close()
                break
            except psycopg.OperationalError:
                time.sleep(0.05)
        else:
            pytest.fail("places of connections that ended are not free")


def test_an_idle_connection_is_ended(pond: Pond) -> None:
    with pond.serve(pg_port=0, idle_ms_max=300) as server, connect(server.urls["pg"], user="ann") as con:
        assert rows(con) == [(1,), (2,)]
        deadline = time.monotonic() + 60
        with pytest.raises(psycopg.OperationalError, match=r"idle|closed"):
            while time.monotonic() < deadline:
                time.sleep(0.5)
                con.execute("SELECT 1")


def test_a_statement_is_cancelled_by_another_connection(pond: Pond) -> None:
    with pond.serve(pg_port=0) as server:
        url = server.urls["pg"]
        with connect(url, user="ann") as slow, connect(url, user="ann") as other:
            failed: list[BaseException] = []

            def run() -> None:
                try:
                    slow.execute("SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c")
                except psycopg.Error as error:
                    failed.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            while thread.is_alive():
                other.execute(f"SELECT pg_cancel_backend({slow.info.backend_pid})")
                thread.join(0.2)
            assert failed and failed[0].sqlstate == "57014", failed  # type: ignore[attr-defined]
            assert rows(slow) == [(1,), (2,)]


def test_prepared_by_sql(pond: Pond) -> None:
    with pond.serve(pg_port=0) as server, connect(server.urls["pg"], user="ann") as con:
        con.execute("PREPARE one AS SELECT id FROM t WHERE id = $1")
        assert con.execute("EXECUTE one(2)").fetchall() == [(2,)]
        con.execute("DEALLOCATE one")
        with pytest.raises(psycopg.Error, match="one"):
            con.execute("EXECUTE one(2)")


def test_a_server_that_stops_ends_its_statements(pond: Pond) -> None:
    server = pond.serve(pg_port=0)
    con = connect(server.urls["pg"], user="ann")
    failed: list[BaseException] = []

    def run() -> None:
        try:
            con.execute("SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    server.stop()
    thread.join(60)
    assert not thread.is_alive() and failed
    assert pond.sql("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_psql_asks_for_the_password(pond: Pond, tmp_path: Path) -> None:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    users = tmp_path / "users"
    users.write_text("ann:secret\n")
    with pond.serve(pg_port=0, users=users) as server:
        found = urlparse(server.urls["pg"])
        command = [
            "psql",
            f"host={found.hostname} port={found.port} dbname=pond user=ann",
            "-Atc",
            "SELECT id FROM t",
        ]
        for password, code in (("secret", 0), ("wrong", 2)):
            ended = subprocess.run(
                command, env={"PATH": "/usr/bin:/bin", "PGPASSWORD": password}, capture_output=True, text=True
            )
            assert ended.returncode == code, ended.stderr

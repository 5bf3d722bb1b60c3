"""The sink and the change data capture of PostgreSQL at a server that takes only TLS."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import millpond
from benchmarks.maven import MissingError
from millpond.errors import UnavailableError
from millpond.sinks.postgres import PostgresSink
from tests.certificates import make_authority, make_certificate
from tests.postgres import server as servers
from tests.sql.fuzz import postgres

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # it starts a server of its own


@dataclass(frozen=True)
class TlsServer:
    con: Any
    port: int
    authority: Path
    other_authority: Path

    def address(self, *, trusts: Path | None = None, mode: str = "verify-full") -> str:
        root = trusts or self.authority
        return f"host=127.0.0.1 port={self.port} user=fuzz dbname=postgres sslmode={mode} sslrootcert={root}"


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    folder = Path(tempfile.mkdtemp(prefix="millpond-tls-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        authority, other = (make_authority(folder, name) for name in ("authority", "other"))
        key, certificate = make_certificate(folder, authority)
    except MissingError as error:
        pytest.skip(str(error))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    settings = {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPORT", str(port))
        for name, value in {**settings, "listen_addresses": "127.0.0.1", "port": str(port)}.items():
            patched.setitem(servers.SETTINGS, name, value)
        try:
            _owned(key)
            made = servers.Server()
        except postgres.Missing as error:
            pytest.skip(str(error))
    try:
        (made.folder / "data" / "pg_hba.conf").write_text("local all all trust\nhostssl all all all trust\n")
        made.con.execute("SELECT pg_reload_conf()")
        yield TlsServer(made.con, port, authority, other)
    finally:
        made.close()
        shutil.rmtree(folder)


def _owned(key: Path) -> None:
    """The server reads a key only if it is its own and nobody else may read it."""
    key.chmod(0o600)
    try:
        shutil.chown(key, "postgres")
    except (LookupError, PermissionError):
        return  # then the server runs as this user


def test_a_sink_and_a_replicated_table(server: TlsServer, tmp_path: Path) -> None:
    server.con.execute("CREATE TABLE people (id INT PRIMARY KEY, name TEXT)")
    server.con.execute("INSERT INTO people VALUES (1, 'ann')")
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql(f"""
            CREATE TABLE people (id int PRIMARY KEY, name text)
                WITH (connector = 'postgres-cdc', connection = '{server.address()}', table.name = 'people');
            CREATE MATERIALIZED VIEW loud AS SELECT id, upper(name) AS name FROM people;
            CREATE SINK out FROM loud WITH (connector = 'postgres', connection = '{server.address()}',
                table = 'loud');
        """)
        pond.drain()
        server.con.execute("INSERT INTO people VALUES (2, 'bob')")
        pond.drain()
        assert sorted(server.con.execute("SELECT id, name FROM loud").fetchall()) == [(1, "ANN"), (2, "BOB")]
        used = server.con.execute(
            "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)"
            " WHERE a.client_addr IS NOT NULL"
        ).fetchone()
        assert used == (True,)
        server.con.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_addr IS NOT NULL"
        )


@pytest.mark.parametrize(
    ("trusts", "mode", "said"), [(True, "verify-full", "certificate"), (False, "disable", "no encryption")]
)
def test_an_unknown_certificate_and_plain_text_are_refused(
    server: TlsServer, trusts: bool, mode: str, said: str, tmp_path: Path
) -> None:
    address = server.address(trusts=server.other_authority if trusts else None, mode=mode)
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        table = pond.table("t", {"id": int}, key="id")
        table.sink("out", PostgresSink(address, "t"))
        pond.insert("t", {"id": 1})
        with pytest.raises(UnavailableError) as caught:
            pond.drain()
        assert said in str(caught.value)

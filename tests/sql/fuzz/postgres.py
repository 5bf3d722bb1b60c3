"""PostgreSQL as a second engine: a private cluster on a socket, started by the test and gone with it.

It runs as another user when the test is root, for the server refuses that one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.sql.fuzz.engines import instant
from tests.sql.fuzz.functions import SQL
from tests.sql.world import Rows, plain

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "jit": "off",
}


class Missing(Exception):
    """Why there is no server here."""


class Server:
    def __init__(self) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise Missing("psycopg is not installed; it is one of the dev dependencies") from error
        self.user = "postgres" if os.geteuid() == 0 else None
        self.tools = _tools()
        self.folder = Path(
            tempfile.mkdtemp(prefix="millpond-pg-", dir="/tmp")
        )  # a socket's path must be short
        try:
            if self.user is not None:
                shutil.chown(self.folder, self.user)
            # The order of text is DuckDB's: by code points.
            made = ["-E", "UTF8", "--locale=C.UTF-8", "-A", "trust", "-U", "fuzz", "--no-sync"]
            self._run("initdb", "-D", str(self.folder / "data"), *made)
            said = " ".join(
                f"-c {k}={v!r}" for k, v in {**SETTINGS, "unix_socket_directories": str(self.folder)}.items()
            )
            self._run(
                "pg_ctl",
                "-D",
                str(self.folder / "data"),
                "-w",
                "-l",
                str(self.folder / "log"),
                "-o",
                said,
                "start",
            )
            self.con: Any = psycopg.connect(
                host=str(self.folder), user="fuzz", dbname="postgres", autocommit=True, prepare_threshold=None
            )
        except BaseException:
            self.close()
            raise
        for setting in ("timezone = 'UTC'", "statement_timeout = '2s'", "client_min_messages = 'error'"):
            self.con.execute(f"SET {setting}")

    def _run(self, tool: str, *args: str) -> None:
        done = subprocess.run(
            [str(self.tools / tool), *args], user=self.user, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if tool == "initdb" else subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Missing(f"{tool} of PostgreSQL failed: {(done.stdout or '')[-300:]}")

    def fresh(self) -> Postgres:
        """An empty schema for one case."""
        self.con.execute("DROP SCHEMA IF EXISTS fuzz CASCADE")
        self.con.execute("CREATE SCHEMA fuzz")
        self.con.execute("SET search_path = fuzz, pg_catalog")  # its now() comes before the server's
        for statement in SQL:
            self.con.execute(statement)
        return Postgres(self.con)

    def close(self) -> None:
        if getattr(self, "con", None) is not None:
            self.con.close()
        if (self.folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres:
    """A schema of the server; `at` is what its now() gives."""

    name = "postgresql"

    def __init__(self, con: Any) -> None:
        self.con = con
        self.slow: dict[str, str] = {}  # views that took too long once: not asked again
        self.at(0)

    def at(self, now_us: int) -> None:
        self.con.execute(
            "CREATE OR REPLACE FUNCTION fuzz.now() RETURNS timestamptz LANGUAGE sql STABLE"
            f" AS $$ SELECT to_timestamp({now_us // 1_000_000}) $$"
        )

    def close(self) -> None:
        """The next one has a schema of its own."""

    def run(self, statement: str) -> str | None:
        import psycopg

        try:
            self.con.execute(statement)
        except psycopg.Error as error:
            return str(error)
        return None

    def rows(self, view: str) -> Rows | str:
        import psycopg

        if view in self.slow:
            return self.slow[view]
        try:
            found = self.con.execute(f"SELECT * FROM {view}").fetchall()
        except psycopg.errors.QueryCanceled as error:
            self.slow[view] = str(error)
            return self.slow[view]
        except psycopg.Error as error:
            return str(error)
        return plain(tuple(instant(v) for v in row) for row in found)


def _tools() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise Missing("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return Path(on_path).resolve().parent

"""A PostgreSQL server with logical replication, which can be killed and started again, and its databases."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

from millpond.sources import postgres_cdc, postgres_connection, postgres_copy
from tests.sql.fuzz import postgres

SETTINGS = {
    **postgres.SETTINGS,
    "fsync": "on",  # it is killed
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "full_page_writes": "on",
    "wal_sender_timeout": "60s",
}


class Server(postgres.Server):
    def __init__(self) -> None:
        before = dict(postgres.SETTINGS)
        postgres.SETTINGS.update(SETTINGS)
        try:
            super().__init__()
        finally:
            postgres.SETTINGS.clear()
            postgres.SETTINGS.update(before)

    def stop(self, how: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", how, "-w", "stop")

    def start(self) -> None:
        said = {**SETTINGS, "unix_socket_directories": str(self.folder)}
        shown = " ".join(f"-c {k}={v!r}" for k, v in said.items())
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", log, "-o", shown, "start")
        self.con = psycopg.connect(
            host=str(self.folder), user="fuzz", dbname="postgres", autocommit=True, prepare_threshold=None
        )


class Database:
    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        server.con.execute(f"CREATE DATABASE {name}")
        self.address = f"host={server.folder} user=fuzz dbname={name}"
        self.con = self.connect()

    def connect(self, **more: Any) -> Any:
        found = psycopg.connect(self.address, autocommit=True, prepare_threshold=None, **more)
        found.execute("SET timezone = 'UTC'")
        return found

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.con.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.con.execute(query).fetchall()
        return found

    def forget(self) -> None:
        """What a new process does not have: connections, a copy in progress, and what was peeked."""
        postgres_cdc._peeked.clear()
        for key in [k for k in postgres_copy._copies if k[1] == self.address]:
            postgres_copy.end(key[1], key[2])
        postgres_connection.forget(self.address)

    def close(self) -> None:
        self.forget()
        with contextlib.suppress(psycopg.Error):
            self.con.close()
        con = self.server.con
        for (slot,) in con.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = %s AND NOT active", [self.name]
        ).fetchall():
            con.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        con.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

"""A PostgreSQL server as the target of a sink, read by a client of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millpond.sinks.postgres import PostgresSink
from tests.sql.fuzz.postgres import Server


class PostgresTarget:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = f"host={server.folder} user=fuzz dbname=postgres"
        self.reset()

    def reset(self) -> None:
        tables = "target, by_hand, totals, millpond_progress, millpond_refused"
        self.server.con.execute(f"DROP TABLE IF EXISTS {tables} CASCADE")

    def sink(self) -> Any:
        return PostgresSink(self.address, "target")

    def read(self) -> Sequence[Mapping[str, Any]]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.address, row_factory=dict_row) as con:
            there = con.execute("SELECT to_regclass('public.target') AS there").fetchone()
            if there is None or there["there"] is None:
                return []
            return con.execute("SELECT * FROM target").fetchall()

    def poison(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "s": "a\0b"}  # PostgreSQL has no text with a NUL character

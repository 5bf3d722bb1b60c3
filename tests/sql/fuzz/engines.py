"""Engines that answer a query over tables as they are, and remember what they were told, to go back."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, Protocol

import duckdb

from millpond.kernels.duck import Equipment
from millpond.sql.binding.now import macros
from millpond.sql.dialects.library import equip
from millpond.sql.text.duckdb_text import readable_text
from tests.sql.fuzz.functions import MACROS, PYTHON
from tests.sql.world import Rows, plain


def instant(value: Any) -> Any:
    """An instant with a zone as DuckDB writes it."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S+00")
    return value


class Batch(Protocol):
    name: str

    def run(self, statement: str) -> str | None:
        """Do it; what was wrong, if anything."""

    def rows(self, view: str) -> Rows | str:
        """What is in a view, or why that cannot be said."""

    def at(self, now_us: int) -> None:
        """From now on now() is this."""

    def close(self) -> None: ...


class Broken(Exception):
    """The engine itself has failed: nothing it says can be believed any more."""


_VIEW = re.compile(r"(CREATE (?:OR REPLACE )?(?:RECURSIVE )?VIEW \w+(?:\s*\([^)]*\))? AS\s+)(.*)", re.DOTALL)


def in_duckdb(statement: str) -> str:
    """A statement with PostgreSQL's meaning in DuckDB's SQL: the pond's own translation, computed in batch."""
    view = _VIEW.match(statement)
    if view is not None:
        return view[1] + readable_text(view[2], "postgres")
    return statement if statement.startswith("CREATE") else readable_text(statement, "postgres")


class Duck:
    name = "duckdb"

    def __init__(self) -> None:
        self.con = duckdb.connect(":memory:", config={"threads": 1})
        self.con.execute("set timezone = 'UTC'")
        self._equipment = Equipment(self.con)
        for statement in MACROS:
            self.con.execute(statement)
        for name, (takes, gives, function) in PYTHON.items():
            self.con.create_function(name, function, takes, gives)  # type: ignore[arg-type]

    def run(self, statement: str) -> str | None:
        try:
            statement = in_duckdb(statement)
            equip(self.con, self._equipment, statement)
            self.con.execute(statement)
        except duckdb.Error as error:
            return self._told(error)
        return None

    def rows(self, view: str) -> Rows | str:
        try:
            kinds = [str(k) for k in self.con.sql(f"SELECT * FROM {view}").types]
            listed = (f"#{n}::VARCHAR" if "TIME ZONE" in k else f"#{n}" for n, k in enumerate(kinds, 1))
            return plain(self.con.execute(f"SELECT {', '.join(listed)} FROM {view}").fetchall())
        except duckdb.Error as error:
            return self._told(error)

    def at(self, now_us: int) -> None:
        for statement in macros(f"make_timestamptz({now_us})"):
            self.con.execute(statement)

    def close(self) -> None:
        self.con.close()

    def _told(self, error: duckdb.Error) -> str:
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            raise Broken(f"{self.name}: {error}") from error
        return str(error)


class Remembering:
    """An engine that can go back: what it was told until then is told to a new one."""

    def __init__(self, make: Callable[[], Batch]) -> None:
        self._make = make
        self._engine = make()
        self.name = self._engine.name
        self.told: list[str] = []

    def run(self, statement: str) -> str | None:
        wrong = self._engine.run(statement)
        if wrong is None:
            self.told.append(statement)
        return wrong

    def rows(self, view: str) -> Rows | str:
        return self._engine.rows(view)

    def at(self, now_us: int) -> None:
        self._engine.at(now_us)

    def back_to(self, told: list[str]) -> None:
        self._engine.close()
        self._engine, self.told = self._make(), []
        for statement in told:
            self.run(statement)

    def close(self) -> None:
        self._engine.close()

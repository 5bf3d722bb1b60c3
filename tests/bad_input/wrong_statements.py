"""Wrong statements, with what PostgreSQL 15 says about each and where it differs what Millpond says.

`wrong_statements.txt` has for each statement the SQLSTATE, the position and the message of PostgreSQL; after
`ours`, those of Millpond, or that it takes the statement.  A position of 0 is none: there Millpond may show one.
`python -m tests.bad_input.wrong_statements` asks a PostgreSQL and Millpond, and writes the file anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import millpond
from millpond.errors import MillpondError
from millpond.server.pgwire.error_reports import sqlstate

FILE = Path(__file__).with_name("wrong_statements.txt")
TAKEN = "taken"
SETUP = """
    CREATE TABLE t (a int PRIMARY KEY, s text, d date, ts timestamp, l int[], n numeric(10,2), j jsonb, b boolean,
        f double precision, i interval);
    CREATE TABLE u (a int, x text, y text);
    INSERT INTO t (a, s, d, ts, l, n, j, b, f, i) VALUES
        (1, 'x', '2024-01-01', '2024-01-01', '{1}', 1.5, '{}', true, 1.5, '1 day'),
        (2, 'y', '2024-01-01', '2024-01-01', '{1}', 1.5, '{}', false, 1.5, '1 day');
    INSERT INTO u VALUES (1, 'x', 'y'), (2, 'a', 'b')
"""


@dataclass(frozen=True)
class Answer:
    """What a system says; without a state it takes the statement."""

    state: str = ""
    at: int = 0
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state} {self.at} {self.message}" if self.state else TAKEN


@dataclass(frozen=True)
class WrongStatement:
    sql: str
    postgres: Answer
    ours: Answer

    def __str__(self) -> str:
        lines = [f"-- {self.postgres}"]
        if self.ours != self.expected:
            lines.append(f"-- ours {self.ours}")
        return "\n".join([*lines, self.sql])

    @property
    def expected(self) -> Answer:
        """What Millpond says if it says the same."""
        here = re.sub(r"pg_catalog\.(?:b(?=trim))?", "", self.postgres.message)
        return Answer(self.postgres.state, self.postgres.at or self.ours.at, here)


def statements() -> list[WrongStatement]:
    found, said = [], list[str]()
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("--"):
            said.append(line)
            continue
        postgres = _read(said[0].removeprefix("-- "))
        one = WrongStatement(line, postgres, Answer())
        ours = _read(said[1].removeprefix("-- ours ")) if len(said) > 1 else one.expected
        found.append(WrongStatement(line, postgres, ours))
        said = []
    return found


def _read(text: str) -> Answer:
    if text == TAKEN:
        return Answer()
    state, at, message = text.split(" ", 2)
    return Answer(state, int(at), message)


def place_of(error: MillpondError) -> int:
    """The position of an error in characters from 1; 0 if it has none."""
    text, at = error.place or ("", None)
    return 0 if at is None else len(text.encode()[: at[0]].decode()) + 1


@contextmanager
def pond_with_tables() -> Iterator[millpond.Pond]:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(SETUP + "; FLUSH")
        yield pond


def failed(pond: millpond.Pond, sql: str) -> MillpondError | None:
    """The error of a statement, which changes nothing; None if it is taken."""
    alone = sql.startswith(("create table z as", "create view", "create materialized view"))
    try:
        if alone:
            pond.sql(sql)
            pond.sql(f"DROP {sql.removeprefix('create').partition(' z ')[0]} z")
            return None
        with pond.transaction() as block:
            _ = block.sql(sql).fetchall()
            raise _Taken
    except _Taken:
        return None
    except MillpondError as error:
        return error


class _Taken(Exception):
    """Rolls a transaction back."""


def answer_of(error: MillpondError | None) -> Answer:
    return Answer() if error is None else Answer(sqlstate(error), place_of(error), error.message)


def asked(con: Any, sql: str) -> Answer:
    """What PostgreSQL says."""
    import psycopg

    con.execute("BEGIN")
    try:
        con.execute(sql)
    except psycopg.Error as error:
        said = error.diag
        return Answer(said.sqlstate or "", int(said.statement_position or 0), said.message_primary or "")
    finally:
        con.execute("ROLLBACK")
    return Answer()


def _written() -> str:
    from tests.sql.fuzz.postgres import Server

    server = Server()
    try:
        server.con.execute(SETUP)
        theirs = {one.sql: asked(server.con, one.sql) for one in statements()}
    finally:
        server.close()
    with pond_with_tables() as pond:
        found = [WrongStatement(sql, said, answer_of(failed(pond, sql))) for sql, said in theirs.items()]
    return "".join(f"{one}\n" for one in found)


if __name__ == "__main__":
    FILE.write_text(_written(), "utf-8")

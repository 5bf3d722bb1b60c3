"""Scripts of statements with the rows they should give, run straight and again with everything shaken between epochs.

A file of tests/sql/scripts is made of records, separated by empty lines:

    statement                    what follows is run; `statement error TEXT`: it is refused with this text
    query                        what follows `----` are its rows, in any order; `query sorted`: in this order

The scripts `pg_*.test` mean the same in PostgreSQL: a real server runs them, too, and refuses in the same words.

Cells are separated by " | ".  `{folder}` is a folder of the test's own.  MILLPOND_SCRIPTS_WRITE=1 writes the rows that
come: read them before you keep them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import MillpondError
from tests.sql.fuzz import postgres

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.test"))
SHARED = [path for path in SCRIPTS if path.stem.startswith("pg_")]
WRITE = bool(os.environ.get("MILLPOND_SCRIPTS_WRITE"))


@dataclass(frozen=True)
class Record:
    line: int
    head: str
    sql: str
    rows: tuple[str, ...]
    start: int  # lines of the file that it takes
    end: int


def records(text: str) -> Iterator[Record]:
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].strip():
            end += 1
        body = lines[at + 1 : end]
        cut = body.index("----") if "----" in body else len(body)
        yield Record(at + 1, lines[at].strip(), "\n".join(body[:cut]), tuple(body[cut + 1 :]), at, end)
        at = end


class Runner:
    def __init__(self, folder: Path, seed: str | None) -> None:
        self.folder = folder
        self.rng = None if seed is None else random.Random(seed)
        self.pond = self.opened(2)

    def opened(self, parallelism: int) -> millpond.Pond:
        return millpond.open(self.folder / "pond", engine="inline", parallelism=parallelism, checks=True)

    def shake(self) -> None:
        """Between two epochs: nobody may see it (laws 3 and 4)."""
        if self.rng is None or not self.pond.plan.nodes:
            return
        if self.rng.random() < 0.4:
            self.pond.compact()
        if self.rng.random() < 0.6:
            self.pond.close()
            self.pond = self.opened(self.rng.randint(1, 7))
        else:
            self.pond.rescale(self.rng.randint(1, 7))

    def run(self, record: Record) -> list[str]:
        sql = record.sql.replace("{folder}", str(self.folder))
        word, _, rest = record.head.partition(" ")
        if word == "statement" and rest.startswith("error"):
            with pytest.raises(MillpondError) as told:
                _ = self.pond.sql(sql).rowcount  # waits until a change is executed
            assert rest.removeprefix("error").strip() in str(told.value), str(told.value)
            return []
        found = self.pond.sql(sql)
        if word == "statement":
            if "FLUSH" in sql:
                self.shake()
            return []
        assert word == "query", f"line {record.line}: a record begins with statement or query"
        shown = [" | ".join(cell(v) for v in row) for row in found.fetchall()]
        return shown if rest == "sorted" else sorted(shown)


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(cell(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {cell(v)}" for k, v in value.items()) + "}"
    return str(value) or "''"


@pytest.mark.parametrize(
    "shaken", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["shaken", "straight"]
)
@pytest.mark.parametrize("path", SCRIPTS, ids=[p.stem for p in SCRIPTS])
def test_a_script_gives_its_rows(path: Path, shaken: bool, tmp_path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    written: list[tuple[Record, list[str]]] = []
    runner = Runner(tmp_path, path.stem if shaken else None)
    try:
        for record in records(text):
            given = runner.run(record)
            if not record.head.startswith("query"):
                continue
            written.append((record, given))
            wanted = list(record.rows) if record.head == "query sorted" else sorted(record.rows)
            if not WRITE:
                assert given == wanted, f"{path.name}, line {record.line}: {record.sql}"
    finally:
        runner.pond.close()
    if WRITE and not shaken:
        for record, given in reversed(written):
            lines[record.start : record.end] = [record.head, *record.sql.splitlines(), "----", *given]
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    try:
        found = postgres.Server()
    except postgres.Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.mark.parametrize("path", SHARED, ids=[p.stem for p in SHARED])
def test_a_shared_script_gives_the_same_in_postgresql(path: Path, server: postgres.Server) -> None:
    import psycopg

    con = server.con
    con.execute("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public; RESET search_path")
    for record in records(path.read_text()):
        sql = in_postgresql(record.sql)
        where = f"{path.name}, line {record.line}: {record.sql}"
        if record.head.startswith("statement error"):
            with pytest.raises(psycopg.Error) as told:
                con.execute(sql)
            told_text = str(told.value)
            assert record.head.removeprefix("statement error").strip() in told_text, f"{where}: {told_text}"
            continue
        found = con.execute(sql)
        if record.head.startswith("query"):
            given = [" | ".join(cell(v) for v in row) for row in found.fetchall()]
            wanted = list(record.rows)
            assert (given if record.head == "query sorted" else sorted(given)) == (
                wanted if record.head == "query sorted" else sorted(wanted)
            ), where


def in_postgresql(sql: str) -> str:
    """The statements as PostgreSQL has them: there a materialized view would not follow its tables."""
    sql = sql.replace("CREATE MATERIALIZED VIEW", "CREATE VIEW")
    return ";".join(part for part in sql.split(";") if part.strip() != "FLUSH")


def test_a_wrong_row_is_told(tmp_path: Path) -> None:
    """The check can fail."""
    (record,) = records("query\nSELECT 1 AS a, NULL AS b, true AS c\n----\n1 | NULL | true\n")
    runner = Runner(tmp_path, None)
    runner.pond.sql("CREATE TABLE t (a int)")
    assert runner.run(record) == list(record.rows) != ["2 | NULL | true"]
    runner.pond.close()

"""A case is played: statements go to a pond and to engines that answer in batch, and every view is compared.

A view that an engine cannot answer at an epoch (an overflow, two rows of a scalar subquery) is not compared
with it at that epoch: the view has error rows then, and is compared again when they are gone.
"""

from __future__ import annotations

import collections
import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb

import millpond
from millpond.errors import InvalidError
from millpond.sql.parse import statements
from tests.sql.fuzz.cases import Case, Shake, View
from tests.sql.fuzz.divergences import is_known, why
from tests.sql.world import Rows, plain


class Batch(Protocol):
    """An engine that answers a query over tables as they are."""

    name: str

    def run(self, statement: str) -> str | None:
        """Do it; what was wrong, if anything."""

    def rows(self, view: str) -> Rows | str:
        """What is in a view, or why that cannot be said."""


@dataclass
class Outcome:
    wrong: dict[str, str] = field(default_factory=dict)  # by view
    views: int = 0
    compared: collections.Counter[str] = field(default_factory=collections.Counter)  # by engine
    left_out: collections.Counter[str] = field(default_factory=collections.Counter)

    def add(self, other: Outcome) -> None:
        self.views += other.views
        self.compared += other.compared
        self.left_out += other.left_out


class Duck:
    name = "duckdb"

    def __init__(self) -> None:
        self.con = duckdb.connect(":memory:", config={"threads": 1})
        self.con.execute("set timezone = 'UTC'")

    def run(self, statement: str) -> str | None:
        try:
            self.con.execute(statement)
        except duckdb.Error as error:
            return str(error)
        return None

    def rows(self, view: str) -> Rows | str:
        try:
            kinds = [str(k) for k in self.con.sql(f"SELECT * FROM {view}").types]
            listed = (f"#{n}::VARCHAR" if "TIME ZONE" in k else f"#{n}" for n, k in enumerate(kinds, 1))
            return plain(self.con.execute(f"SELECT {', '.join(listed)} FROM {view}").fetchall())
        except duckdb.Error as error:
            return str(error)

    def close(self) -> None:
        self.con.close()


def play(path: Path, case: Case, second: Callable[[], Batch] | None = None) -> Outcome:
    """`second` makes another engine, for cases that it shares."""
    outcome = Outcome()
    duck = Duck()
    engines: list[Batch] = [duck, *([second()] if second is not None and case.shared else [])]
    pond = opened(path, case.shakes[0] if case.shakes else Shake())
    try:
        for table in case.tables:
            pond.sql(table.sql())
            for engine in engines:
                told = engine.run(table.sql(key=False))
                assert told is None, f"{engine.name}: {told}"
        there: dict[str, list[Batch]] = {}
        for number, changes in enumerate(case.epochs):
            if case.shakes and number:
                pond = shaken(pond, path, case.shakes[number], case.shakes[number - 1])
            for view in case.views:
                if view.epoch == number:
                    _create(pond, view, engines, there, outcome)
            for change in changes:
                pond.sql(change.sql())
                for engine in engines:
                    for statement in change.batch():
                        engine.run(statement)
            pond.sql("FLUSH")
            for name, knows in list(there.items()):
                told = _compare(pond, name, knows, outcome)
                if told is not None:
                    outcome.wrong[name] = f"epoch {number}: {told}"
                    del there[name]
    finally:
        pond.close()
        duck.close()
    return outcome


def opened(path: Path, shake: Shake) -> millpond.Pond:
    return millpond.open(path, engine="inline", parallelism=shake.parallelism, checks=True)


def shaken(pond: millpond.Pond, path: Path, shake: Shake, before: Shake) -> millpond.Pond:
    if shake.compact:
        pond.compact()
    if shake.restart:
        pond.close()
        return opened(path, shake)
    if shake.parallelism != before.parallelism:
        pond.rescale(shake.parallelism)
    return pond


def _create(
    pond: millpond.Pond, view: View, engines: list[Batch], there: dict[str, list[Batch]], outcome: Outcome
) -> None:
    answers = []
    for engine in engines:
        refused = engine.run(f"CREATE VIEW {view.name} AS {view.query}")
        if refused is None:
            answers.append(engine)
        else:
            outcome.left_out[f"{engine.name}: {why(refused)}"] += 1
    if engines[0] not in answers:
        unread = [name for name, known in there.items() if engines[0] not in known]
        tied = "WITH TIES" in view.query or any(f"{name} AS " in view.query for name in unread)
        if not (tied and answers):
            return  # not a query, or over a view that is not there
    try:
        for piece in statements(view.sql(), "postgres"):
            pond.session.run_one(piece)  # those that follow each other are one change of the program
    except InvalidError as error:
        for engine in answers:
            engine.run(f"DROP VIEW {view.name}")
        outcome.left_out[f"refused: {error.message}"] += 1
        if not is_known(error.message) and "does not exist" not in error.message:
            outcome.wrong[view.name] = f"refused: {error}"
        return
    if view.stored:
        outcome.views += 1
        there[view.name] = answers


def _compare(pond: millpond.Pond, name: str, engines: list[Batch], outcome: Outcome) -> str | None:
    given: Rows | None = None
    for engine in engines:
        wanted = engine.rows(name)
        if isinstance(wanted, str):
            outcome.left_out[f"{engine.name}: {why(wanted)}"] += 1
            if engine.name == "duckdb":
                return None  # the view has error rows
            continue
        if given is None:
            given = plain(_flat(row) for row in pond.sql(f"SELECT * FROM {name}").fetchall())
        outcome.compared[engine.name] += 1
        if given != wanted:
            return (
                f"{engine.name} has it otherwise: missing {list((wanted - given).items())[:3]}, too many "
                f"{list((given - wanted).items())[:3]}, errors {pond.errors().to_pylist()[:2]}"
            )
    return None


def _flat(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(instant(v) for v in row)


def instant(value: Any) -> Any:
    """An instant with a zone as DuckDB writes it."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S+00")
    return value

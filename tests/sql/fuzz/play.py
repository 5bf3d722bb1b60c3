"""A case is played: statements go to a pond and to engines that answer in batch, and every view is compared.

A view that an engine cannot answer at an epoch (an overflow, two rows of a scalar subquery) is not compared
with it at that epoch: the view has error rows then, and is compared again when they are gone.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError, MillpondError
from millpond.sql.text.parse import statements
from tests.sql.fuzz.cases import Case, Change, Edit, Shake, View, reads
from tests.sql.fuzz.dialect import WATERMARKS
from tests.sql.fuzz.divergences import is_known, why
from tests.sql.fuzz.edits import Drop, DropColumn
from tests.sql.fuzz.engines import Batch, Duck, Remembering
from tests.sql.fuzz.functions import are_called, define, register
from tests.sql.fuzz.names import Names
from tests.sql.fuzz.past import Shown, as_rows, check_changes, check_lookups, check_past
from tests.sql.fuzz.streams import Streams
from tests.sql.fuzz.ticks import Ticks
from tests.sql.world import Rows

BROKEN = "the pond"  # what is wrong when no view is
HOUR_US = 3_600_000_000
START_US = 1_709_078_400_000_000  # the 28th of February 2024


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


@dataclass(frozen=True)
class Moment:
    """What there was after an epoch, to come back to."""

    epoch: int
    told: tuple[list[str], ...]  # what each engine was told until then, also on a way that was left again
    there: dict[str, list[Remembering]]
    streams: Streams
    names: Names


def play(path: Path, case: Case, second: Callable[[], Batch] | None = None) -> Outcome:
    """`second` makes another engine, for cases that it shares."""
    makes: list[Callable[[], Batch]] = [Duck, *([second] if second is not None and case.shared else [])]
    played = Play(path, case, [Remembering(make) for make in makes])
    try:
        played.run()
    except MillpondError as error:
        played.outcome.wrong[BROKEN] = f"{type(error).__name__}: {error}"
    finally:
        played.close()
    return played.outcome


class Play:
    def __init__(self, path: Path, case: Case, engines: list[Remembering]) -> None:
        self.path, self.case, self.engines = path, case, engines
        self.outcome = Outcome()
        self.clock = ManualClock(START_US)
        self.called = are_called(case.texts())
        self.there: dict[str, list[Remembering]] = {}  # views, and who answers them
        self.streams, self.names = Streams(), Names()
        self.ticks = Ticks(case, engines)
        self.shown: list[Shown] = []  # what was read after each epoch
        self.moments: list[Moment] = []
        self.pond = self.opened(case.shakes[0] if case.shakes else Shake())

    def opened(self, shake: Shake) -> millpond.Pond:
        settings: dict[str, Any] = {
            "engine": "inline",
            "checks": True,
            "durable": False,
            "retain_epochs": 1000,
        }
        return millpond.open(self.path, parallelism=shake.parallelism, clock=self.clock, **settings)

    def close(self) -> None:
        self.pond.close()
        for engine in self.engines:
            engine.close()

    def run(self) -> None:
        if self.called:
            define(self.pond)
        for engine in self.engines:
            assert engine.run(WATERMARKS) is None
        for table in self.case.tables:
            self.pond.sql(table.sql())
            for engine in self.engines:
                told = engine.run(table.sql(engine.name))
                assert told is None, f"{engine.name}: {told}"
        self.ticks.begin()
        for number, changes in enumerate(self.case.epochs):
            if self.case.shakes and number:
                self.shake(self.case.shakes[number], self.case.shakes[number - 1])
            for edit in self.case.edits:
                if edit.epoch == number:
                    self.edit(edit)
            for view in self.case.views:
                if view.epoch == number:
                    self.create(view)
            for change in changes:
                self.change(change)
            self.pond.sql("FLUSH")
            self.pond.drain()  # also what the clock makes due
            self.compare_all(number)
            told_so_far = tuple(list(engine.told) for engine in self.engines)
            kept = Moment(
                self.pond.epoch, told_so_far, dict(self.there), self.streams.copy(), self.names.copy()
            )
            self.moments.append(kept)
        for check in (check_past, check_changes):
            self.outcome.wrong.update(check(self.pond, self.shown, self.outcome.compared))
        self.outcome.wrong.update(check_lookups(self.pond, self.shown[-1], self.outcome.compared))

    # -- what happens --------------------------------------------------------------------

    def shake(self, shake: Shake, before: Shake) -> None:
        self.clock.advance(shake.hours * HOUR_US)
        if shake.compact:
            self.pond.compact()
        if shake.back and len(self.moments) > shake.back:
            self.back_to(self.moments[-1 - shake.back])
        if shake.restart:
            self.pond.close()
            self.pond = self.opened(shake)
            if self.called:
                register(self.pond)
        elif shake.parallelism != before.parallelism:
            self.pond.rescale(shake.parallelism)

    def back_to(self, moment: Moment) -> None:
        self.pond.rollback(moment.epoch)
        self.pond.drain()
        for engine, told in zip(self.engines, moment.told, strict=True):
            engine.back_to(told)
        self.there, self.streams = dict(moment.there), moment.streams.copy()
        self.names = moment.names.copy()
        self.ticks.snapshot()

    def change(self, change: Change) -> None:
        self.pond.sql(self.names.spoken(change.sql()))
        if self.ticks.tables:
            self.pond.sql("FLUSH")
        if change.table.delay_h is not None:
            change, watermark = self.streams.on_time(change)
            for engine in self.engines if watermark else ():
                engine.run(f"DELETE FROM watermarks WHERE name = '{change.table.name}'")
                engine.run(f"INSERT INTO watermarks VALUES ('{change.table.name}', TIMESTAMP '{watermark}')")
            if not change.rows:
                return
        for engine in self.engines:
            for statement in change.batch():
                engine.run(statement)
        self.ticks.follow(change)

    def create(self, view: View) -> None:
        answers = []
        for engine in self.engines:
            refused = engine.run(view.batch(engine.name, tick=self.ticks.now))
            if refused is None:
                answers.append(engine)
            else:
                self.outcome.left_out[f"{engine.name}: {why(refused)}"] += 1
        if self.engines[0] not in answers:
            unread = [name for name, known in self.there.items() if self.engines[0] not in known]
            tied = "WITH TIES" in view.query or any(reads(view.query, name) for name in unread)
            if not (tied and answers):
                return  # not a query, or over a view that is not there
        if not self.defined(view.name, self.names.spoken(view.sql())):
            for engine in answers:
                engine.run(f"DROP VIEW {view.name}")
        elif view.stored:
            self.outcome.views += 1
            self.there[view.name] = answers

    def edit(self, edit: Edit) -> None:
        """Only what is there changes; where an engine cannot follow, it is asked no more."""
        if any(name not in self.there for name in edit.about()):
            return
        if not self.defined(" ".join(edit.about()) or BROKEN, self.names.spoken(edit.sql())):
            return
        edit.rename(self.names)
        for engine in self.engines:
            for told in filter(None, map(engine.run, edit.batch(engine.name))):
                self.outcome.left_out[f"{engine.name}: {why(told)}"] += 1
                for name in edit.about():
                    self.there[name] = [e for e in self.there[name] if e is not engine]
        if isinstance(edit, Drop):
            del self.there[edit.view.name]
        if isinstance(edit, DropColumn):
            self.without_readers(edit)

    def without_readers(self, edit: DropColumn) -> None:
        """The views that went with a column: of those that read its table, or are built on such."""
        left = {row[0] for row in self.pond.sql("SHOW VIEWS").fetchall()}
        went = [name for name in self.there if self.names.of(name) not in left]
        doomed: set[str] = set()
        for view in self.case.views:
            if any(reads(view.query, name) for name in (edit.table, *doomed)):
                doomed.add(view.name)
        for name in went:
            del self.there[name]
            if name not in doomed:
                self.outcome.wrong[name] = f"went with column {edit.column} of a table that it does not read"

    def defined(self, name: str, text: str) -> bool:
        try:
            for piece in statements(text, "postgres"):
                self.pond.session.run_one(piece)  # those that follow each other are one change of the program
        except InvalidError as error:
            self.outcome.left_out[f"refused: {error.message}"] += 1
            if not is_known(error.message) and "does not exist" not in error.message:
                self.outcome.wrong[name] = f"refused: {error}"
            return False
        return True

    # -- what must be there --------------------------------------------------------------

    def compare_all(self, number: int) -> None:
        for engine in self.engines:
            engine.at(self.pond.head().now_us)
        self.shown.append(Shown(self.pond.epoch))
        for name, knows in list(self.there.items()):
            told = self.compare(name, knows)
            if told is not None:
                self.outcome.wrong[name] = f"epoch {number}: {told}"
                del self.there[name]
        for name, late in self.streams.late.items():
            found = self.pond.sql(f"SELECT count(*) FROM {name}_late").fetchone()
            if found != (late,):
                self.outcome.wrong[BROKEN] = f"epoch {number}: {found} late rows of {name}, not {late}"

    def compare(self, name: str, engines: list[Remembering]) -> str | None:
        given: Rows | None = None
        for engine in engines:
            wanted = engine.rows(name)
            if isinstance(wanted, str):
                self.outcome.left_out[f"{engine.name}: {why(wanted)}"] += 1
                if engine.name == "duckdb":
                    return None  # the view has error rows
                continue
            if given is None:
                found = self.pond.sql(f"SELECT * FROM {self.names.of(name)}")
                given = as_rows(found.fetchall())
                self.shown[-1].rows[self.names.of(name)] = given
                self.shown[-1].columns[self.names.of(name)] = found.columns
            self.outcome.compared[engine.name] += 1
            if given != wanted:
                return (
                    f"{engine.name} has it otherwise: missing {list((wanted - given).items())[:3]}, too many "
                    f"{list((given - wanted).items())[:3]}, errors {self.pond.errors().to_pylist()[:2]}"
                )
        return None

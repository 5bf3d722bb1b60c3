"""A case: tables, views over them and over each other, and changes, epoch by epoch; all of it is text of SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.sql.fuzz.dialect import written


@dataclass(frozen=True)
class Table:
    name: str
    columns: Mapping[str, str]
    keyed: bool  # by `id`; else a bag
    delay_h: int | None = None  # of a stream: how far its watermark for `ts` is behind

    def sql(self, key: bool = True) -> str:
        listed = [
            f"{c} {k}" + (" PRIMARY KEY" if key and self.keyed and c == "id" else "")
            for c, k in self.columns.items()
        ]
        if key and self.delay_h is not None:
            listed.append(f"WATERMARK FOR ts AS ts - INTERVAL '{self.delay_h} hours'")
        ends = " APPEND ONLY" if key and self.delay_h is not None else ""
        return f"CREATE TABLE {self.name} ({', '.join(listed)}){ends}"


@dataclass(frozen=True)
class View:
    name: str
    query: str
    epoch: int  # created before the changes of this one
    stored: bool = True  # else a plain view, which others may read
    closes: bool = False  # shows windows when they are over

    def sql(self, word: str = "CREATE") -> str:
        ends = " EMIT ON WINDOW CLOSE" if self.closes else ""
        return f"{word} {'MATERIALIZED ' if self.stored else ''}VIEW {self.name} AS {self.query}{ends}"

    def batch(self, engine: str, word: str = "CREATE") -> str:
        return f"{word} VIEW {self.name} AS {written(self.query, engine, self.closes)}"


@dataclass(frozen=True)
class Edit:
    """The program changes before an epoch: another query in a view's place, no view, or a column more."""

    epoch: int
    view: View | None = None  # with its new query; of the same columns where others read it
    dropped: bool = False
    table: str = ""
    column: str = ""  # with its type and default

    def sql(self) -> str:
        if self.view is None:
            return f"ALTER TABLE {self.table} ADD COLUMN {self.column}"
        kind = "MATERIALIZED VIEW" if self.view.stored else "VIEW"
        return f"DROP {kind} {self.view.name}" if self.dropped else self.view.sql("CREATE OR REPLACE")

    def batch(self, engine: str) -> list[str]:
        if self.view is None:
            return [self.sql()]
        gone = f"DROP VIEW {self.view.name}"
        return [gone] if self.dropped else [self.view.batch(engine, "CREATE OR REPLACE")]


@dataclass(frozen=True)
class Change:
    """Rows put into a table, or a statement as it stands."""

    table: Table
    rows: tuple[tuple[str, ...], ...] = ()
    text: str = ""

    def sql(self) -> str:
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        columns = ", ".join(self.table.columns)
        return self.text or f"INSERT INTO {self.table.name} ({columns}) VALUES {rows}"

    def batch(self) -> list[str]:
        """The same for an engine whose tables have no key: rows of an old key take its place."""
        if self.text or not self.table.keyed:
            return [self.sql()]
        place = list(self.table.columns).index("id")
        gone = ", ".join(row[place] for row in self.rows)
        return [f"DELETE FROM {self.table.name} WHERE id IN ({gone})", self.sql()]


@dataclass(frozen=True)
class Shake:
    """What happens to the pond before an epoch."""

    parallelism: int = 2
    restart: bool = False
    compact: bool = False
    back: int = 0  # epochs, and all they did is undone
    hours: int = 0  # that the clock goes on

    def sql(self) -> str:
        words = [f"parallelism {self.parallelism}", *["restart"] * self.restart, *["compact"] * self.compact]
        words += [f"back by {self.back} epochs"] * (self.back > 0) + [f"{self.hours} hours later"]
        return f"-- {', '.join(words)}"


def reads(query: str, name: str) -> bool:
    """Does a query read a table or view, by itself or in windows?"""
    return f"{name} AS " in query or f"({name}, " in query


@dataclass(frozen=True)
class Case:
    seed: int
    shared: bool
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    epochs: tuple[tuple[Change, ...], ...]
    shakes: tuple[Shake, ...] = field(default=())
    edits: tuple[Edit, ...] = field(default=())

    def only(self, names: Sequence[str]) -> Case:
        """With these views and what they read."""
        kept: list[View] = []
        wanted = " ".join(names)
        for view in reversed(self.views):
            if (
                view.name in names
                or any(reads(v.query, view.name) for v in kept)
                or view.name in wanted.split()
            ):
                kept.append(view)
        left = {view.name for view in kept}
        edits = tuple(e for e in self.edits if e.view is None or e.view.name in left)
        return replace(self, views=tuple(reversed(kept)), edits=edits)

    def texts(self) -> str:
        """All that is said, to look for words in it."""
        return self.sql()

    def sql(self) -> str:
        """The case as a script; FLUSH ends an epoch."""
        lines = [f"{table.sql()};" for table in self.tables]
        for number, changes in enumerate(self.epochs):
            lines += [f"{view.sql()};" for view in self.views if view.epoch == number]
            if self.shakes:
                lines.append(self.shakes[number].sql())
            lines += [f"{edit.sql()};" for edit in self.edits if edit.epoch == number]
            lines += [f"{change.sql()};" for change in changes]
            lines.append("FLUSH;")
        return "\n".join(lines)

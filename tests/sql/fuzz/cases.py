"""A case: tables, views over them and over each other, and changes, epoch by epoch; all of it is text of SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.sql.fuzz.dialect import AS_OF_NOW, written
from tests.sql.fuzz.functions import SQL, are_called
from tests.sql.fuzz.names import Names


@dataclass(frozen=True)
class Table:
    name: str
    columns: Mapping[str, str]
    keyed: bool  # by `id`; else a bag
    delay_h: int | None = None  # of a stream: how far its watermark for `ts` is behind
    defaults: Mapping[str, str] = field(default_factory=dict)  # what stands where a row does not say
    generated: Mapping[str, str] = field(default_factory=dict)  # computed of others; these columns come last

    @property
    def written(self) -> list[str]:
        """The columns that rows say."""
        return [c for c in self.columns if c not in self.generated]

    def sql(self, engine: str = "millpond") -> str:
        """For engines that answer in batch without what keeps rows apart or ends them."""
        key = engine == "millpond"
        listed = [self._column(c, k, engine) for c, k in self.columns.items()]
        if key and self.delay_h is not None:
            listed.append(f"WATERMARK FOR ts AS ts - INTERVAL '{self.delay_h} hours'")
        ends = " APPEND ONLY" if key and self.delay_h is not None else ""
        return f"CREATE TABLE {self.name} ({', '.join(listed)}){ends}"

    def _column(self, name: str, kind: str, engine: str) -> str:
        if name in self.generated:
            kept = " STORED" if engine == "postgresql" else ""
            return f"{name} {kind} GENERATED ALWAYS AS ({self.generated[name]}){kept}"
        unique = engine == "millpond" and self.keyed and name == "id"
        default = f" DEFAULT {self.defaults[name]}" if name in self.defaults else ""
        return f"{name} {kind}{default}{' PRIMARY KEY' if unique else ''}"

    def without(self, column: str) -> Table:
        return replace(self, columns={c: k for c, k in self.columns.items() if c != column})


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

    def batch(self, engine: str, word: str = "CREATE", tick: int = 0) -> str:
        return f"{word} VIEW {self.name} AS {written(self.query, engine, self.closes, tick)}"


@dataclass(frozen=True)
class Edit:
    """The program changes before an epoch; see `edits`."""

    epoch: int

    def about(self) -> tuple[str, ...]:
        """The views that it changes, which must be there."""
        return ()

    def sql(self) -> str:
        raise NotImplementedError

    def batch(self, engine: str) -> list[str]:
        """What an engine hears of it."""
        return []

    def rename(self, names: Names) -> None:
        """What is called otherwise afterwards."""


@dataclass(frozen=True)
class Change:
    """Rows put into a table, or a statement as it stands."""

    table: Table
    rows: tuple[tuple[str, ...], ...] = ()
    text: str = ""
    alike: tuple[str, ...] = ()  # the statement for engines without keys, where it needs other words
    unsaid: tuple[str, ...] = ()  # columns that the rows leave to their defaults

    def sql(self) -> str:
        said = [n for n, c in enumerate(self.table.written) if c not in self.unsaid]
        rows = ", ".join(f"({', '.join(row[n] for n in said)})" for row in self.rows)
        columns = ", ".join(self.table.written[n] for n in said)
        return self.text or f"INSERT INTO {self.table.name} ({columns}) VALUES {rows}"

    def batch(self) -> list[str]:
        """The same for an engine whose tables have no key: rows of an old key take its place."""
        if self.alike:
            return list(self.alike)
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
    """Does a query read a table or view, by itself, in windows, or as of now?"""
    return f"{name} AS " in query or f"({name}, " in query or f"{name} {AS_OF_NOW}" in query


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
        for view in reversed(self.views):
            if view.name in names or any(reads(v.query, view.name) for v in kept):
                kept.append(view)
        left = {view.name for view in kept}
        edits = tuple(e for e in self.edits if left.issuperset(e.about()))
        return replace(self, views=tuple(reversed(kept)), edits=edits)

    def texts(self) -> str:
        """All that is said, to look for words in it."""
        return "\n".join([*(v.query for v in self.views), *(c.sql() for e in self.epochs for c in e)])

    def sql(self) -> str:
        """The case as a script, in the order in which it is played; FLUSH ends an epoch."""
        return "\n".join([*self._script()])

    def _script(self) -> Iterator[str]:
        if are_called(self.texts()):
            yield "-- with the functions in Python of tests/sql/fuzz/functions.py, and"
            yield from (f"{statement};" for statement in SQL)
        yield from (f"{table.sql()};" for table in self.tables)
        names, before = Names(), [Names()]
        for number, changes in enumerate(self.epochs):
            if self.shakes:
                yield self.shakes[number].sql()
                names = before[-1 - self.shakes[number].back].copy()
            for edit in self.edits:
                if edit.epoch == number:
                    yield f"{names.spoken(edit.sql())};"
                    edit.rename(names)
            for text in [v.sql() for v in self.views if v.epoch == number] + [c.sql() for c in changes]:
                yield f"{names.spoken(text)};"
            yield "FLUSH;"
            before.append(names.copy())

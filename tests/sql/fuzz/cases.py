"""A case: tables, views over them and over each other, and changes, epoch by epoch; all of it is text of SQL."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.sql.fuzz.expressions import Expressions
from tests.sql.fuzz.kinds import literal, names
from tests.sql.fuzz.queries import Queries

VIEWS = 12
EPOCHS = 5


@dataclass(frozen=True)
class Table:
    name: str
    columns: Mapping[str, str]
    keyed: bool  # by `id`; else a bag

    def sql(self, key: bool = True) -> str:
        listed = [
            f"{c} {k}" + (" PRIMARY KEY" if key and self.keyed and c == "id" else "")
            for c, k in self.columns.items()
        ]
        return f"CREATE TABLE {self.name} ({', '.join(listed)})"


@dataclass(frozen=True)
class View:
    name: str
    query: str
    epoch: int  # created before the changes of this one
    stored: bool = True  # else a plain view, which others may read

    def sql(self) -> str:
        return f"CREATE {'MATERIALIZED ' if self.stored else ''}VIEW {self.name} AS {self.query}"


@dataclass(frozen=True)
class Change:
    """Rows put into a table, or a statement as it stands."""

    table: Table
    rows: tuple[tuple[str, ...], ...] = ()
    text: str = ""

    def sql(self) -> str:
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        return self.text or f"INSERT INTO {self.table.name} VALUES {rows}"

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

    def sql(self) -> str:
        words = [f"parallelism {self.parallelism}", *["restart"] * self.restart, *["compact"] * self.compact]
        return f"-- {', '.join(words)}"


@dataclass(frozen=True)
class Case:
    seed: int
    shared: bool
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    epochs: tuple[tuple[Change, ...], ...]
    shakes: tuple[Shake, ...] = field(default=())

    def only(self, names: Sequence[str]) -> Case:
        """With these views and what they read."""
        kept: list[View] = []
        wanted = " ".join(names)
        for view in reversed(self.views):
            if (
                view.name in names
                or any(f"{view.name} AS " in v.query for v in kept)
                or view.name in wanted.split()
            ):
                kept.append(view)
        return replace(self, views=tuple(reversed(kept)))

    def sql(self) -> str:
        """The case as a script; FLUSH ends an epoch."""
        lines = [f"{table.sql()};" for table in self.tables]
        for number, changes in enumerate(self.epochs):
            lines += [f"{view.sql()};" for view in self.views if view.epoch == number]
            if self.shakes:
                lines.append(self.shakes[number].sql())
            lines += [f"{change.sql()};" for change in changes]
            lines.append("FLUSH;")
        return "\n".join(lines)


def case(seed: int) -> Case:
    rng = random.Random(seed)
    shared = rng.random() < 0.5
    made = tables(rng, shared)
    queries = Queries({t.name: t.columns for t in made}, rng, shared)
    queries.keyed = {t.name for t in made if t.keyed}
    views = []
    for number in range(VIEWS):
        text, kinds = queries.query()
        stored = rng.random() < 0.9
        view = View(f"v{number}", text, rng.choice([0, 0, 0, 1, 3]), stored)
        at = [v.epoch for v in views if f"{v.name} AS " in text]
        view = replace(view, epoch=max([view.epoch, *at]))
        views.append(view)
        if rng.random() < 0.3 or not stored:
            queries.tables[view.name] = dict(kinds)
    epochs = [changes(made, rng, shared, number) for number in range(EPOCHS)]
    shakes = [Shake(rng.randint(1, 7), rng.random() < 0.3, rng.random() < 0.3) for _ in epochs]
    return Case(seed, shared, tuple(made), tuple(views), tuple(epochs), tuple(shakes))


def tables(rng: random.Random, shared: bool) -> list[Table]:
    found = []
    for number in range(rng.randint(1, 3)):
        columns = {"id": "INTEGER", "k": "INTEGER"}
        for n in range(rng.randint(1, 5)):
            columns[f"c{n}"] = rng.choice(names(shared))
        found.append(Table(f"t{number}", columns, rng.random() < 0.7))
    return found


def changes(made: Sequence[Table], rng: random.Random, shared: bool, epoch: int) -> tuple[Change, ...]:
    """One epoch's worth of statements."""
    found = []
    for table in made:
        for _ in range(rng.choice([0, 1, 1, 2]) if epoch else 1):
            found.append(
                _put(table, rng)
                if epoch == 0 or rng.random() < 0.5
                else _logic(table, rng, shared, 10 * epoch + len(found))
            )
    return tuple(found)


def _put(table: Table, rng: random.Random) -> Change:
    rows: dict[str, tuple[str, ...]] = {}
    for number in range(rng.choice([1, 2, 6])):
        row = tuple(
            str(rng.randrange(14)) if c == "id" else literal(k, rng) for c, k in table.columns.items()
        )
        rows[row[0] if table.keyed else str(number)] = row
    return Change(table, tuple(rows.values()))


def _logic(table: Table, rng: random.Random, shared: bool, number: int) -> Change:
    """UPDATE, DELETE and INSERT … SELECT; its number keeps new keys apart from all others."""
    write = Expressions(rng, shared)
    scope = list(table.columns.items())
    where = write.condition(scope, 1)
    if rng.random() < 0.4:
        where = f"id IN ({rng.randrange(14)}, {rng.randrange(14)})"
    verb = rng.random()
    if verb < 0.4:
        return Change(table, text=f"DELETE FROM {table.name} WHERE {where}")
    if verb < 0.8:
        free = [c for c in table.columns if c != "id"]
        some = rng.sample(free, rng.randint(1, min(2, len(free))))
        listed = ", ".join(f"{c} = {write.expression(table.columns[c], scope, 1)}" for c in some)
        return Change(table, text=f"UPDATE {table.name} SET {listed} WHERE {where}")
    listed = ", ".join(f"id + {100 * (number + 1)}" if c == "id" else c for c in table.columns)
    return Change(
        table, text=f"INSERT INTO {table.name} SELECT {listed} FROM {table.name} WHERE id < 14 AND {where}"
    )

"""Cases by chance: what tables there are, what is asked of them, and what happens to them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import replace

from tests.sql.fuzz.cases import Case, Change, Edit, Shake, Table, View, reads
from tests.sql.fuzz.expressions import Expressions
from tests.sql.fuzz.kinds import literal, names
from tests.sql.fuzz.queries import Queries

VIEWS = 12
EPOCHS = 5
START = datetime.datetime(2024, 2, 28)  # of streams, and of the clock
DELAY_H = 3


def case(seed: int) -> Case:
    rng = random.Random(seed)
    shared = rng.random() < 0.5
    made = tables(rng, shared)
    queries = Queries({t.name: t.columns for t in made}, rng, shared)
    queries.keyed = {t.name for t in made if t.keyed}
    queries.streams = frozenset(t.name for t in made if t.delay_h is not None)
    views: list[View] = []
    for number in range(VIEWS):
        closes = bool(queries.streams) and rng.random() < 0.35
        text, kinds = queries.closing() if closes else queries.query()
        stored = closes or rng.random() < 0.9
        view = View(f"v{number}", text, rng.choice([0, 0, 0, 1, 3]), stored, closes)
        at = [v.epoch for v in views if reads(text, v.name)]
        view = replace(view, epoch=max([view.epoch, *at]))
        views.append(view)
        if rng.random() < 0.3 or not stored:
            queries.tables[view.name] = dict(kinds)
    epochs = [changes(made, rng, shared, number) for number in range(EPOCHS)]
    shakes = [_shake(rng, number) for number in range(EPOCHS)]
    found = edits(made, views, queries, rng)
    return Case(seed, shared, tuple(made), tuple(views), tuple(epochs), tuple(shakes), tuple(found))


def _shake(rng: random.Random, number: int) -> Shake:
    back = rng.randint(1, number - 1) if number > 2 and rng.random() < 0.25 else 0
    return Shake(rng.randint(1, 7), rng.random() < 0.3, rng.random() < 0.3, back, rng.choice([0, 1, 1, 3, 7]))


def tables(rng: random.Random, shared: bool) -> list[Table]:
    found = []
    for number in range(rng.randint(1, 3)):
        columns = {"id": "INTEGER", "k": "INTEGER"}
        stream = rng.random() < 0.25
        if stream:
            columns["ts"] = "TIMESTAMP"
        for n in range(rng.randint(1, 5)):
            columns[f"c{n}"] = rng.choice(names(shared))
        keyed = rng.random() < 0.7 and not stream
        found.append(Table(f"t{number}", columns, keyed, DELAY_H if stream else None))
    return found


def edits(made: Sequence[Table], views: Sequence[View], queries: Queries, rng: random.Random) -> list[Edit]:
    """Views that are replaced by a part of themselves, or dropped where nobody reads them; columns that come."""
    found = []
    for view in views:
        at = rng.randint(view.epoch + 1, EPOCHS)
        read = any(reads(v.query, view.name) for v in views)
        if at < EPOCHS and rng.random() < 0.12:
            some = rng.choice(["1 = 1", "1 = 0"]) if rng.random() < 0.3 else f"length('{view.name}') = 2"
            part = f"SELECT * FROM ({view.query}) AS {queries.name('q')} WHERE {some}"
            found.append(Edit(at, replace(view, query=part)))
        elif at < EPOCHS and not read and rng.random() < 0.08:
            found.append(Edit(at, view, dropped=True))
    for table in made:
        if rng.random() < 0.15 and table.delay_h is None:
            kind = rng.choice(["INTEGER", "VARCHAR", "BIGINT"])
            column = f"more {kind} DEFAULT {literal(kind, rng)}"
            found.append(Edit(rng.randint(1, EPOCHS - 1), table=table.name, column=column))
    return found


def changes(made: Sequence[Table], rng: random.Random, shared: bool, epoch: int) -> tuple[Change, ...]:
    """One epoch's worth of statements."""
    found = []
    for table in made:
        if table.delay_h is not None:
            found += [_pushed(table, rng, epoch)] * (rng.random() < 0.85)
            continue
        for _ in range(rng.choice([0, 1, 1, 2]) if epoch else 1):
            found.append(
                _put(table, rng)
                if epoch == 0 or rng.random() < 0.5
                else _logic(table, rng, shared, 10 * epoch + len(found))
            )
    return tuple(found)


def _pushed(table: Table, rng: random.Random, epoch: int) -> Change:
    """Rows of a stream, out of order, some of them late."""
    rows = []
    for _ in range(rng.choice([1, 4, 8])):
        at = START + datetime.timedelta(minutes=30 * (6 * epoch + rng.randint(-12, 7)))
        row = {c: literal(k, rng) for c, k in table.columns.items()}
        rows.append(tuple({**row, "id": str(rng.randrange(14)), "ts": f"CAST('{at}' AS TIMESTAMP)"}.values()))
    return Change(table, tuple(rows))


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
    columns = ", ".join(table.columns)
    listed = ", ".join(f"id + {100 * (number + 1)}" if c == "id" else c for c in table.columns)
    return Change(
        table,
        text=f"INSERT INTO {table.name} ({columns}) SELECT {listed} FROM {table.name} WHERE id < 14 AND {where}",
    )

"""Statements that change rows: INSERT with old keys and new, ON CONFLICT, UPDATE, DELETE and MERGE, over one table or two."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence

from tests.sql.fuzz.cases import Change, Table
from tests.sql.fuzz.expressions import Expressions
from tests.sql.fuzz.kinds import literal

START = datetime.datetime(2024, 2, 28)  # of streams, and of the clock


def changes(made: Sequence[Table], rng: random.Random, shared: bool, epoch: int) -> tuple[Change, ...]:
    """One epoch's worth of statements."""
    found = []
    for table in made:
        if table.delay_h is not None:
            found += [_pushed(table, rng, epoch)] * (rng.random() < 0.85)
            continue
        for _ in range(rng.choice([0, 1, 1, 2]) if epoch else 1):
            if epoch == 0 or rng.random() < 0.45:
                found.append(_put(table, rng))
            elif table.keyed and rng.random() < 0.15:
                found.append(_on_conflict(table, rng))
            elif rng.random() < 0.04:
                found.append(
                    Change(table, text=f"TRUNCATE {table.name}", alike=(f"DELETE FROM {table.name}",))
                )
            elif rng.random() < 0.15 and (beside := [t for t in made if t.keyed and t.name != table.name]):
                found.append(_merge(table, rng.choice(beside), rng, shared))
            else:
                others = [t for t in made if t.name != table.name and t.delay_h is None]
                found.append(_logic(table, others, rng, shared, 10 * epoch + len(found)))
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
        row = _row(table, rng)
        rows[row[0] if table.keyed else str(number)] = row
    unsaid = tuple(c for c in table.defaults if c in table.columns and rng.random() < 0.4)
    return Change(table, tuple(rows.values()), unsaid=unsaid)


def _row(table: Table, rng: random.Random) -> tuple[str, ...]:
    return tuple(
        str(rng.randrange(14)) if c == "id" else literal(table.columns[c], rng) for c in table.written
    )


def _on_conflict(table: Table, rng: random.Random) -> Change:
    """A row that does nothing, or something else, where its key is there."""
    row = dict(zip(table.written, _row(table, rng), strict=True))
    same = f"{table.name}.id = {row['id']}"
    one = rng.choice([c for c in table.written if c != "id"])
    does, updates = "DO NOTHING", []
    if rng.random() < 0.6:
        does = f"DO UPDATE SET {one} = coalesce(excluded.{one}, {table.name}.{one})"
        updates = [f"UPDATE {table.name} SET {one} = coalesce({row[one]}, {one}) WHERE {same}"]
    listed, values = ", ".join(row), ", ".join(row.values())
    text = f"INSERT INTO {table.name} ({listed}) VALUES ({values}) ON CONFLICT (id) {does}"
    absent = f"WHERE NOT EXISTS (SELECT 1 FROM {table.name} WHERE {same})"
    return Change(
        table, text=text, alike=(*updates, f"INSERT INTO {table.name} ({listed}) SELECT {values} {absent}")
    )


def _merge(table: Table, other: Table, rng: random.Random, shared: bool) -> Change:
    """A MERGE by a key of the other: one row of it at most for each row."""
    write = Expressions(rng, shared)
    theirs = [(f"o.{c}", k) for c, k in other.columns.items()]
    both = [*theirs, *((f"{table.name}.{c}", k) for c, k in table.columns.items())]
    one = rng.choice([c for c in table.written if c != "id"])
    changed = f"UPDATE SET {one} = {write.expression(table.columns[one], both, 1)}"
    found = [
        f"WHEN MATCHED AND {write.condition(both, 1)} THEN {rng.choice(['DELETE', 'DO NOTHING', changed])}"
    ]
    if rng.random() < 0.6:
        found.append(f"WHEN MATCHED THEN {changed}")
    if rng.random() < 0.7 and table.keyed:
        asked = f" AND {write.condition(theirs, 1)}" if rng.random() < 0.4 else ""
        found.append(f"WHEN NOT MATCHED{asked} THEN INSERT (id, k) VALUES (o.id, o.k)")
    by = "id" if table.keyed else "k"
    return Change(
        table,
        text=f"MERGE INTO {table.name} USING {other.name} AS o ON o.id = {table.name}.{by} {' '.join(found)}",
    )


def _logic(table: Table, others: Sequence[Table], rng: random.Random, shared: bool, number: int) -> Change:
    """UPDATE, DELETE and INSERT … SELECT; its number keeps new keys apart from all others."""
    write = Expressions(rng, shared)
    scope = [(f"{table.name}.{c}", k) for c, k in table.columns.items()]
    where, source = write.condition(scope, 1), ""
    if rng.random() < 0.4:
        where = f"{table.name}.id IN ({rng.randrange(14)}, {rng.randrange(14)})"
    beside = [t for t in others if t.keyed]
    if beside and rng.random() < 0.35:  # by a key of the other: one row at most
        other = rng.choice(beside)
        scope += [(f"o.{c}", k) for c, k in other.columns.items()]
        source = f"{other.name} AS o"
        where = f"o.id = {table.name}.{rng.choice(['id', 'k'])} AND {write.condition(scope, 1)}"
    elif others and rng.random() < 0.2:
        other = rng.choice(others)
        inner = write.condition([(f"o.{c}", k) for c, k in other.columns.items()], 1)
        where = (
            f"{table.name}.k {rng.choice(['IN', 'NOT IN'])} (SELECT o.k FROM {other.name} AS o WHERE {inner})"
        )
    verb = rng.random()
    if verb < 0.4:
        using = f" USING {source}" if source else ""
        return Change(table, text=f"DELETE FROM {table.name}{using} WHERE {where}")
    if verb < 0.8 or source:
        free = [c for c in table.written if c != "id"]
        some = rng.sample(free, rng.randint(1, min(2, len(free))))
        listed = ", ".join(f"{c} = {write.expression(table.columns[c], scope, 1)}" for c in some)
        tail = f" FROM {source}" if source else ""
        return Change(table, text=f"UPDATE {table.name} SET {listed}{tail} WHERE {where}")
    columns = ", ".join(table.written)
    listed = ", ".join(f"id + {100 * (number + 1)}" if c == "id" else c for c in table.written)
    return Change(
        table,
        text=f"INSERT INTO {table.name} ({columns}) SELECT {listed} FROM {table.name} WHERE id < 14 AND {where}",
    )

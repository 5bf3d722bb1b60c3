"""Cases by chance: what tables there are, what is asked of them, and what happens to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.sql.fuzz.calls import calls
from tests.sql.fuzz.cases import Case, Edit, Shake, Table, View, reads
from tests.sql.fuzz.changes import changes
from tests.sql.fuzz.dialect import AS_OF_NOW, WINDOWS
from tests.sql.fuzz.edits import AddColumn, Drop, DropColumn, Index, Rename, RenameColumn, Replace, Swap
from tests.sql.fuzz.kinds import KINDS, literal, names
from tests.sql.fuzz.queries import Queries

VIEWS = 12
EPOCHS = 5
DELAY_H = 3
GENERATED = (  # kind, and what it is made of
    ("INTEGER", "coalesce(k, 0) * 2 + id"),
    ("VARCHAR", "CASE WHEN k > 0 THEN 'a' WHEN id > 5 THEN 'b' END"),
    # NULL if id is: DuckDB computes these columns above outer joins, where `k IS NULL` would be true.
    ("BOOLEAN", "k IS NULL AND id > 2"),
    ("BIGINT", "CAST(k AS BIGINT) - id"),
)


def case(seed: int) -> Case:
    rng = random.Random(seed)
    shared = rng.random() < 0.5
    made = tables(rng, shared)
    altered = [edit for table in made for edit in of_columns(table, rng)]
    queries = Queries({t.name: t.columns for t in made}, rng, shared)
    queries.keyed = {t.name for t in made if t.keyed}
    queries.streams = frozenset(t.name for t in made if t.delay_h is not None)
    queries.bases = frozenset(t.name for t in made)
    views: list[View] = []
    indexed: list[Edit] = []
    known: list[tuple[int, str, Mapping[str, str]]] = []  # views that others may read, from an epoch on
    for number in range(VIEWS):
        epoch = rng.choice([0, 0, 0, 1, 3])
        queries.tables = {
            **{t.name: t.columns for t in at(made, altered, epoch)},
            **{name: columns for since, name, columns in known if since <= epoch},
        }
        closes = bool(queries.streams) and rng.random() < 0.35
        if closes:  # all windows of a query close, those of plain views too: the batch knows nothing of them
            for view in views:
                if not view.stored and view.name in queries.tables and has_windows(view, views):
                    del queries.tables[view.name]
        text, kinds = queries.closing() if closes else queries.query()
        stored = closes or AS_OF_NOW in text or rng.random() < 0.9
        views.append(View(f"view{number}", text, epoch, stored, closes))
        if stored and epoch + 1 < EPOCHS and rng.random() < 0.08:
            some = [c for c, k in kinds if KINDS[k].compares]
            indexed += [Index(epoch + 1, f"by_view{number}", f"view{number}", c, True) for c in some[:1]]
        if rng.random() < 0.3 or not stored:
            known.append((epoch, f"view{number}", dict(kinds)))
    epochs = [changes(at(made, altered, number), rng, shared, number) for number in range(EPOCHS)]
    shakes = [_shake(rng, number) for number in range(EPOCHS)]
    edits = [*altered, *indexed, *of_views(views, altered, queries, rng)]
    return Case(seed, shared, tuple(made), tuple(views), tuple(epochs), tuple(shakes), tuple(edits))


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
        for special in ("moved", "gone"):  # what may be renamed, and dropped
            if rng.random() < 0.3:
                columns[f"{special}{number}"] = rng.choice(names(shared))
        keyed = rng.random() < 0.7 and not stream
        given = [c for c in columns if c.startswith("c") and rng.random() < 0.15]
        defaults = {c: literal(columns[c], rng) for c in given if not stream}
        generated = {}
        if not stream and rng.random() < 0.3:
            columns["made"], generated["made"] = rng.choice(GENERATED)
        found.append(Table(f"t{number}", columns, keyed, DELAY_H if stream else None, defaults, generated))
    return found


def at(made: Sequence[Table], altered: Sequence[Edit], epoch: int) -> list[Table]:
    """The tables as statements of an epoch know them: without the columns that were dropped by then."""
    found = {t.name: t for t in made}
    for edit in altered:
        if isinstance(edit, DropColumn) and edit.epoch <= epoch:
            found[edit.table] = found[edit.table].without(edit.column)
    return list(found.values())


def of_columns(table: Table, rng: random.Random) -> Iterator[Edit]:
    """Columns that come, go and are renamed, and indexes by them."""
    for column in table.columns:
        epoch = rng.randint(1, EPOCHS - 1)
        if column.startswith("moved") and rng.random() < 0.7:
            heir = rng.choice(["", f"{(kind := table.columns[column])} DEFAULT {literal(kind, rng)}"])
            yield RenameColumn(epoch, table.name, column, f"{column}_so", heir)
        elif column.startswith("gone") and rng.random() < 0.7:
            yield DropColumn(epoch, table.name, column, rng.random() < 0.5)
        elif KINDS[table.columns[column]].compares and rng.random() < 0.05:
            yield Index(epoch - 1, f"by_{table.name}_{column}", table.name, column)
    if rng.random() < 0.15:
        kind = rng.choice(["INTEGER", "VARCHAR", "BIGINT"])
        yield AddColumn(rng.randint(1, EPOCHS - 1), table.name, f"more {kind} DEFAULT {literal(kind, rng)}")


def of_views(
    views: Sequence[View], altered: Sequence[Edit], queries: Queries, rng: random.Random
) -> Iterator[Edit]:
    """Views that are replaced by a part of themselves, renamed, swapped, or dropped where nobody reads them."""
    gone = [e.column for e in altered if isinstance(e, DropColumn)]
    for view in views:
        epoch = rng.randint(view.epoch + 1, EPOCHS)
        if epoch == EPOCHS:
            continue
        known = [v for v in views if v.epoch < epoch and v.stored and v.name != view.name]
        does = rng.random()
        if does < 0.12 and not _rejoins(view, views) and not any(c in view.query for c in gone):
            some = rng.choice(["1 = 1", "1 = 0"]) if rng.random() < 0.3 else f"length('{view.name}') > 2"
            part = f"SELECT * FROM ({view.query}) AS {queries.name('q')} WHERE {some}"
            yield Replace(epoch, replace(view, query=part))
        elif does < 0.2 and not any(reads(v.query, view.name) for v in views):
            yield Drop(epoch, view)
        elif does < 0.3 and view.stored:
            yield Rename(epoch, view.name, f"{view.name}_so")
        elif does < 0.38 and view.stored and known:
            yield Swap(epoch, view.name, rng.choice(known).name)


def has_windows(view: View, views: Sequence[View]) -> bool:
    """Does a view hold windows of time, itself or in a plain view that it reads?"""
    plain = [v for v in views if not v.stored and v is not view and reads(view.query, v.name)]
    return bool(calls(view.query, WINDOWS)) or any(has_windows(v, views) for v in plain)


def _rejoins(view: View, views: Sequence[View]) -> bool:
    """Would a view anew join rows with a table as it is by now, itself or one that is made of it?"""
    made_of = [v for v in views if reads(v.query, view.name)]
    return AS_OF_NOW in view.query or any(_rejoins(v, views) for v in made_of)

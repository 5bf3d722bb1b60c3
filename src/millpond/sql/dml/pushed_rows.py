"""Rows that come without a statement, for a table with rules: from Python, Spark, HTTP or another client.

Law: a row that violates a rule of its table is left out and told with its reason; the others are written.
The outcome depends only on the order of the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.plan.objects import SqlObject
from millpond.sql.binding.types import quoted
from millpond.sql.dml.table_rules import (
    Key,
    broken_rules,
    given_values,
    not_unique,
    shown_row,
    stored_partners,
    uniques,
)
from millpond.sql.reads.scratch import PLACE

if TYPE_CHECKING:
    from millpond.sql.dml.changeable_tables import ChangeableTables


def push(tables: ChangeableTables, target: SqlObject, given: pa.Table) -> tuple[int, list[str]]:
    """Write rows (`_w` 1) and delete rows (-1), in order; returns their number, and why others were not."""
    count, refused = 0, []
    for weight, rows in _by_weight(given):
        if weight > 0:
            kept, reasons = _keeping_rules(tables, target, tables.numbered(target, rows))
            tables.write(target, kept)
        else:
            kept, reasons = _deleted(tables, target, rows)
        count += kept.num_rows
        refused += reasons
    return count, refused


def _by_weight(given: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Consecutive rows with the same weight."""
    weights = given.column("_w").to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(weights)) + 1).tolist(), len(weights)]
    rows = given.drop_columns(["_w"])
    for start, end in itertools.pairwise(cuts):
        if end > start:
            yield int(weights[start]), rows.slice(start, end - start)


def _keeping_rules(tables: ChangeableTables, target: SqlObject, rows: pa.Table) -> tuple[pa.Table, list[str]]:
    broken = broken_rules(tables.scratch, target, rows)
    for rule, names in uniques(target):
        left = [n for n in range(rows.num_rows) if n not in broken]
        owners = _owners(tables, target, rule, names, rows)
        keys = _listed(rows, [_stored_name(target, k) for k in target.key])
        values = _listed(rows, names)
        mine = {owner: value for value, owner in owners.items()}
        for n in left:
            value, owner = values[n], keys[n] if target.key else (n,)
            if None not in value and owners.get(value, owner) != owner:
                broken[n] = not_unique(target, rule, names, value).message
                continue
            if target.key and owner in mine:
                owners.pop(mine[owner], None)  # the row that it replaces
            if None not in value:
                owners[value] = owner
                mine[owner] = value
    reasons = [f"{reason}: {shown_row(target, rows, n)}" for n, reason in sorted(broken.items())]
    return rows.filter(pa.array([n not in broken for n in range(rows.num_rows)], pa.bool_())), reasons


def _owners(
    tables: ChangeableTables, target: SqlObject, rule: str, names: tuple[str, ...], rows: pa.Table
) -> dict[Key, Key]:
    """By unique values: the key of the row that has them now, or a mark if the table has no key."""
    held_key = [_stored_name(target, k) for k in target.key]
    table = tables.load(target, _listed(rows, held_key) if target.key else [])
    by_held = {c.stored_name: c.name for c in target.columns}
    listed = ", ".join(f"{quoted(by_held[n])} AS {quoted(n)}" for n in (*names, *held_key))
    loaded = tables.scratch.arrow(f"select {listed} from {quoted(table.loaded_name)}")
    found = dict(zip(_listed(loaded, names), _owned_by(loaded, held_key), strict=True))
    values = given_values(rows, names)
    if table.keys is not None and values:
        stored = stored_partners(tables.catalog, tables.snapshot, target, rule, names, values)
        for value, owner in zip(_listed(stored, names), _owned_by(stored, held_key), strict=True):
            if not target.key or owner not in table.keys:
                found[value] = owner
    return {value: owner for value, owner in found.items() if None not in value}


def _owned_by(rows: pa.Table, held_key: list[str]) -> list[Key]:
    return _listed(rows, held_key) if held_key else [("stored",)] * rows.num_rows


def _listed(rows: pa.Table, names: tuple[str, ...] | list[str]) -> list[Key]:
    return list(zip(*(rows.column(n).to_pylist() for n in names), strict=True))


def _stored_name(target: SqlObject, name: str) -> str:
    return next(c.stored_name for c in target.columns if c.name == name)


def _deleted(tables: ChangeableTables, target: SqlObject, rows: pa.Table) -> tuple[pa.Table, list[str]]:
    """Delete rows: by their key, or equal ones of a table without a key, each once."""
    names = [_stored_name(target, k) for k in target.key] or [c.stored_name for c in target.columns]
    table = tables.load(target, _listed(rows, names) if target.key else None)
    by_held = {c.stored_name: c.name for c in target.columns}
    listed = tables.scratch.rows(
        rows.select(names).append_column("__n", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    )
    place, partition = quoted(PLACE), ", ".join(quoted(by_held[n]) for n in names)
    asked = ", ".join(quoted(n) for n in names)
    same = " and ".join(f"t.{quoted(by_held[n])} is not distinct from r.{quoted(n)}" for n in names)
    met = tables.scratch.arrow(
        f"select t.{place} as place, r.__n as n from "
        f"(select *, row_number() over (partition by {partition} order by {place}) as __r "
        f"from {quoted(table.loaded_name)}) t, "
        f"(select *, row_number() over (partition by {asked} order by __n) as __r from {listed}) r "
        f"where t.__r = r.__r and {same}"
    )
    gone = set(met.column("n").to_pylist())
    tables.delete(target, met.column("place"))
    reasons = [
        f"a row to delete is not there: {shown_row(target, rows, n)}"
        for n in range(rows.num_rows)
        if n not in gone
    ]
    return rows.filter(pa.array([n in gone for n in range(rows.num_rows)], pa.bool_())), reasons

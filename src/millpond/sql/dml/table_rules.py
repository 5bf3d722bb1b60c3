"""The rules of a table: NOT NULL, CHECK and UNIQUE.

Law: every row that a statement writes keeps all rules of its table when the statement ends, or the statement
changes nothing.  The reasons are told in PostgreSQL's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import quoted
from millpond.sql.dml.conflicts import shared_key
from millpond.sql.reads.scratch import Scratch
from millpond.state.manifest.snapshot import Snapshot

CHECKED = "__checked"  # the rows that a rule is checked for

Key = tuple[Any, ...]


def check_rows(scratch: Scratch, target: SqlObject, rows: pa.Table) -> None:
    """Refuse rows that violate NOT NULL or CHECK; the columns have their stored names."""
    broken = broken_rules(scratch, target, rows)
    if broken:
        place, reason = next(iter(broken.items()))
        raise InvalidError(reason, detail=f"failing row contains {shown_row(target, rows, place)}")


def check_given_rows(scratch: Scratch, target: SqlObject, rows: pa.Table) -> None:
    """The same for rows whose identity columns are not numbered yet."""
    columns = tuple(replace(c, required=c.required and c.identity is None) for c in target.columns)
    check_rows(scratch, replace(target, columns=columns), rows)


def broken_rules(scratch: Scratch, target: SqlObject, rows: pa.Table) -> dict[int, str]:
    """By position: the first rule of NOT NULL and CHECK that a row violates."""
    found: dict[int, str] = {}
    if not rows.num_rows:
        return found
    for column in target.columns:
        if column.required and column.generated is None and rows.column(column.stored_name).null_count:
            reason = (
                f'null value in column "{column.name}" of relation "{target.name}" '
                "violates not-null constraint"
            )
            for place in pc.indices_nonzero(pc.is_null(rows.column(column.stored_name))).to_pylist():
                found.setdefault(place, reason)
    checks = [c for c in target.constraints if c.check is not None]
    if not checks:
        return found
    with scratch.registered_for_now():
        scratch.relation(replace(target, name=CHECKED), rows)
        listed = ", ".join(f"({rule.check}) as c{n}" for n, rule in enumerate(checks))
        held = scratch.arrow(f"select {listed} from {quoted(CHECKED)} as {quoted(target.name)}")
    for n, rule in enumerate(checks):
        reason = f'new row for relation "{target.name}" violates check constraint "{rule.name}"'
        failed = pc.fill_null(pc.invert(held.column(n).cast(pa.bool_())), False)
        for place in pc.indices_nonzero(failed).to_pylist():
            found.setdefault(place, reason)
    return dict(sorted(found.items()))


def shown_row(target: SqlObject, rows: pa.Table, place: int) -> str:
    """A row as PostgreSQL shows it: (1, null, x)."""
    values = (rows.column(c.stored_name)[place].as_py() for c in target.columns)
    return f"({', '.join('null' if v is None else str(v) for v in values)})"


def uniques(target: SqlObject) -> list[tuple[str, tuple[str, ...]]]:
    """The name of each UNIQUE constraint, and the stored names of its columns."""
    held = {c.name: c.stored_name for c in target.columns}
    return [(c.name, tuple(held[n] for n in c.unique)) for c in target.constraints if c.unique]


def given_values(rows: pa.Table, names: Sequence[str]) -> list[Key]:
    """The different values of some columns, without those that are partly NULL: these are never equal."""
    listed = zip(*(rows.column(n).to_pylist() for n in names), strict=True)
    return [key for key in dict.fromkeys(listed) if None not in key]


def stored_partners(
    catalog: Catalog,
    snapshot: Snapshot,
    target: SqlObject,
    rule: str,
    names: Sequence[str],
    values: Sequence[Key],
) -> pa.Table:
    """The rows of the epoch that have one of these values in the columns of a UNIQUE constraint."""
    spec = catalog.stored(catalog.get(rule, "index"))
    assert spec is not None
    held = {c.name: c.stored_name for c in target.columns}
    wanted = dict.fromkeys([*names, *(held[k] for k in target.key)])
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    by = [list(names).index(k) for k in spec.key]
    columns = [pa.array([v[n] for v in values], schema.field(at).type) for at, n in enumerate(by)]
    return snapshot.lookup(spec, pa.table(columns, schema=schema), list(wanted))


def require_unique(
    catalog: Catalog,
    snapshot: Snapshot,
    scratch: Scratch,
    target: SqlObject,
    loaded_name: str,
    loaded_keys: frozenset[Key] | None,
    rows: pa.Table,
) -> None:
    """Refuse rows, which are in the loaded table now, if another row has the same unique values.

    Rows of the epoch whose keys are not loaded are found by the index of the constraint.
    """
    by_held = {c.stored_name: c.name for c in target.columns}
    held_key = [{c.name: c.stored_name for c in target.columns}[k] for k in target.key]
    for rule, names in uniques(target):
        values = given_values(rows, names)
        if not values:
            continue
        given = rows.select(list(names)).group_by(list(names), use_threads=False).aggregate([])
        with scratch.registered_for_now():
            listed = scratch.rows(given)
            same = " and ".join(f"c.{quoted(by_held[n])} = r.{quoted(n)}" for n in names)
            shown = ", ".join(f"r.{quoted(n)}" for n in names)
            found = scratch.arrow(f"select {shown} from {quoted(loaded_name)} c, {listed} r where {same}")
        twice = shared_key(found)
        if twice is None and loaded_keys is not None:
            stored = stored_partners(catalog, snapshot, target, rule, names, values)
            keys = zip(*(stored.column(k).to_pylist() for k in held_key), strict=True) if held_key else ()
            others = [n for n, key in enumerate(keys) if key not in loaded_keys]
            if not held_key:
                others = list(range(stored.num_rows))
            if others:
                twice = tuple(stored.column(n)[others[0]].as_py() for n in names)
        if twice is not None:
            raise not_unique(target, rule, names, twice)


def not_unique(target: SqlObject, rule: str, names: Sequence[str], value: Sequence[Any]) -> InvalidError:
    by_held = {c.stored_name: c.name for c in target.columns}
    listed = ", ".join(by_held[n] for n in names)
    return InvalidError(
        f'duplicate key value violates unique constraint "{rule}"',
        detail=f"key ({listed})=({', '.join(map(str, value))}) already exists",
    )

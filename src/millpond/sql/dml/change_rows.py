"""INSERT, UPDATE and DELETE as logic: executed when their turn in the inbox comes.

Law: a change sees the table as all earlier changes left it, and nothing of later ones,
no matter which process sent them.  DuckDB runs the statements themselves over the rows
that they may touch; the old versions of touched rows are retracted, and the new versions
inserted.  The same entries over the same epoch give the same rows (law 3): the current
time was written into the text when the statement was made, and random functions are
refused there.

Consecutive changes of one table that read no other rows form one batch (`batch`): they
run one after the other over the same rows, in one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.functions import check_known
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.dml.conflicts import check_given, same_key, shared_key
from millpond.sql.dml.refusal_reasons import reason_of
from millpond.sql.reads.scratch import PLACE, Scratch, returned, thread_scratch
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.table_spec import TableSpec

RETURNED = "__returned"  # the rows that RETURNING reads
ENTRIES_MAX = 256  # maximum number of changes in one epoch

Args = Mapping[str, Any]
Answer = tuple[list[tuple[str, str]], pa.Table]  # (names and types, rows)


@dataclass
class ChangedRows:
    """Rows retracted (`_w` -1) and then inserted (1); and why changes were refused, by position."""

    rows: pa.Table
    refused: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)  # rows that each change touched
    answers: dict[int, Answer] = field(default_factory=dict)  # results of RETURNING


def goes_with(first: Args, other: Args) -> bool:
    """Can two changes be executed in one batch?"""
    same = first["table"] == other["table"] and first.get("columns") == other.get("columns")
    return (
        same
        and zone_of(first) == zone_of(other)
        and _reads_only_its_row(first)
        and _reads_only_its_row(other)
    )


def zone_of(args: Args) -> str:
    """The time zone of the session that made a change."""
    return str(args.get("time_zone", UTC))


def _reads_only_its_row(args: Args) -> bool:
    return args["verb"] != "insert" and not args["reads"] and not args.get("moves")


def changed_rows(plan: Plan, snapshot: Snapshot, batch: Sequence[Args]) -> ChangedRows:
    """Compute what a batch of changes of one table does, in order; a change that fails does nothing."""
    catalog = Catalog(plan)
    for args in batch:
        check_known(args["sql"], catalog.objects.values())
    target = _target(catalog, batch[0])
    spec = catalog.stored(target)
    assert spec is not None
    with thread_scratch(zone_of(batch[0])).for_statement(batch[0].get("now_us")) as scratch:
        if batch[0]["verb"] == "insert":
            return _inserted(scratch, catalog, snapshot, target, spec, batch[0])
        return _touched(scratch, catalog, snapshot, target, spec, batch)


def _target(catalog: Catalog, args: Args) -> SqlObject:
    for found in catalog.objects.values():
        if found.kind == "table" and found.scan == args["table"]:
            if found.name != args["name"]:
                raise InvalidError(f"table {args['name']!r} is called {found.name!r} now")
            return _as_it_was(found, args)
    raise InvalidError(f"the pond has no table {args['name']!r}")


def _as_it_was(found: SqlObject, args: Args) -> SqlObject:
    """Return the table with the columns for which a change was written, so that it keeps its meaning."""
    pairs = args.get("columns")
    if pairs is None or args.get("conflict") or any(c.generated for c in found.columns):
        return found
    now = {c.stored_name: c for c in found.columns}
    then = {held: name for name, held in pairs}
    columns = tuple(replace(now[held], name=name) for held, name in then.items() if held in now)
    held_by = {c.name: c.stored_name for c in found.columns}
    return replace(found, columns=columns, key=tuple(then.get(held_by[k], k) for k in found.key))


def _inserted(
    scratch: Scratch, catalog: Catalog, snapshot: Snapshot, target: SqlObject, spec: TableSpec, args: Args
) -> ChangedRows:
    names, reads = [c.stored_name for c in target.columns], _reads(catalog, args)
    looks = args.get("conflict") or any(o.name == target.name for o in reads)
    before = snapshot.scan(spec, names) if looks else spec.schema.empty_table().select(names)
    scratch.table(target, before, key=bool(args.get("conflict")))
    _show(scratch, catalog, snapshot, target, reads)
    if args.get("conflict"):
        check_given(scratch, target, args["sql"])
    rows = scratch.arrow(f"{args['sql']} RETURNING {returned(target.columns)}", shown=args["sql"])
    rows = rows.cast(before.schema)
    answers = {0: answer(scratch, target, rows, args["returning"])} if args.get("returning") else {}
    return ChangedRows(_weighted(before.slice(0, 0), rows), {}, {0: rows.num_rows}, answers)


def answer(
    scratch: Scratch, target: SqlObject, rows: pa.Table, returning: Sequence[str], number: int = 0
) -> Answer:
    """Compute RETURNING over rows of a table, which is named by its alias if it has one."""
    listed, called = returning
    name = f"{RETURNED}_{number}"
    scratch.relation(replace(target, name=name), rows)
    sql = f"select {listed} from {quoted(name)} as {quoted(called)}"
    if not rows.num_rows:
        scratch.run(sql, shown=listed, before=len("select "))  # its error message is the best one
    return scratch.query(sql, shown=listed)


def _touched(
    scratch: Scratch,
    catalog: Catalog,
    snapshot: Snapshot,
    target: SqlObject,
    spec: TableSpec,
    batch: Sequence[Args],
) -> ChangedRows:
    names = [c.stored_name for c in target.columns]
    unseen = [n for n in spec.schema.names if n not in names]  # dropped columns: their values stay unchanged
    before = _stored_rows(snapshot, spec, [*names, *unseen], batch)
    scratch.table(target, before, places=True)
    _show(scratch, catalog, snapshot, target, _reads(catalog, batch[0]))
    found = ChangedRows(before)
    touched: list[pa.ChunkedArray] = []
    for number, args in enumerate(batch):
        try:
            with scratch.all_or_nothing():
                rows = scratch.arrow(_returning(target, args), shown=args["sql"])
                if args.get("moves"):
                    _check_keys(target, rows, before, snapshot, spec)
                if args.get("returning"):
                    whole = rows.select(names).cast(before.select(names).schema)
                    found.answers[number] = answer(scratch, target, whole, args["returning"], number)
        except InvalidError as error:
            found.answers.pop(number, None)
            found.refused[number] = reason_of(error)
        else:
            found.counts[number] = rows.num_rows
            touched.append(rows.column(PLACE))
    places = pa.chunked_array([c for part in touched for c in part.chunks], pa.int64()).unique()
    listed, place = scratch.rows(pa.table({"place": places})), quoted(PLACE)
    there = f"{quoted(target.name)} where {place} in (select place from {listed}) order by {place}"
    come = scratch.arrow(f"select {returned(target.columns)}, {place} from {there}")
    kept = before.select(unseen).take(come.column(PLACE))
    come = pa.table([*come.select(names).columns, *kept.columns], names=before.column_names)
    return replace(found, rows=_weighted(before.take(places), come.cast(before.schema)))


def _returning(target: SqlObject, args: Args) -> str:
    """Add RETURNING to the statement: the positions of touched rows, and all columns if they are needed."""
    whole = f"{returned(target.columns)}, " if args.get("moves") or args.get("returning") else ""
    return f"{args['sql']} RETURNING {whole}{quoted(PLACE)}"


def _stored_rows(snapshot: Snapshot, spec: TableSpec, names: list[str], batch: Sequence[Args]) -> pa.Table:
    """Return the rows that these changes may touch."""
    keys: dict[tuple[Any, ...], None] = {}
    for args in batch:
        if args.get("keys") is None:
            return snapshot.scan(spec, names)
        keys.update((tuple(k), None) for k in args["keys"])
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    wanted = pa.Table.from_pylist([dict(zip(spec.key, k, strict=True)) for k in keys], schema=schema)
    return snapshot.lookup(spec, wanted, names)


def _reads(catalog: Catalog, args: Args) -> list[SqlObject]:
    return catalog.expanded([catalog.get(n) for n in args["reads"]])


def _show(
    scratch: Scratch, catalog: Catalog, snapshot: Snapshot, target: SqlObject, reads: Sequence[SqlObject]
) -> None:
    for found in reads:
        if found.name == target.name:
            continue
        if found.kind == "view":
            scratch.view(found.name, found.text)
            continue
        spec = catalog.stored(found)
        if spec is None:
            raise InvalidError(f"the rows of {found.kind} {found.name!r} are not kept")
        scratch.relation(found, snapshot.scan(spec, [c.stored_name for c in found.columns]))


def _weighted(gone: pa.Table, come: pa.Table) -> pa.Table:
    weights = np.concatenate((np.full(gone.num_rows, -1, np.int64), np.ones(come.num_rows, np.int64)))
    return pa.concat_tables([gone, come]).append_column("_w", pa.array(weights))


def _check_keys(
    target: SqlObject, rows: pa.Table, before: pa.Table, snapshot: Snapshot, spec: TableSpec
) -> None:
    """Refuse an UPDATE after which two rows would have the same key: the second would replace the first."""
    if not target.key:
        return
    held = {c.name: c.stored_name for c in target.columns}
    names = [held[k] for k in target.key]
    keys = rows.select(names).cast(pa.schema([spec.schema.field(k) for k in names]))
    twice = shared_key(keys)
    if twice is None:
        left = before.take(rows.column(PLACE)).select(names)  # the old keys of these rows
        met = snapshot.lookup(spec, keys, names).join(left, names, join_type="left anti").slice(0, 1)
        twice = next((tuple(row.values()) for row in met.to_pylist()), None)
    if twice is not None:
        raise same_key(target, twice)

"""SELECT: runs in DuckDB over the rows of one epoch, or of the epochs that AS OF names, without the pipeline.

Only the relations that a query names are opened; with a condition on the key, only
the rows of that key are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.known_columns import by_column_types
from millpond.sql.reads.as_of_epoch import Read, as_of, renamed_relations
from millpond.sql.reads.key_lookup import Keys, own_names, wanted_keys
from millpond.sql.reads.lazy_columns import LazyRows
from millpond.sql.reads.limits import ReadLimits
from millpond.sql.reads.scratch import SMALL, Relations, Scratch
from millpond.sql.reads.system_names import SystemRead, is_system, system_reads
from millpond.sql.reads.system_rows import system_rows, without_epoch
from millpond.sql.reads.window_rows import computes_windows, errors_of_windows, with_windows
from millpond.sql.result import Result
from millpond.sql.text.duckdb_parser import reads_only
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parameters import Params, canonical, for_duckdb
from millpond.sql.text.parse import SqlFragment, closest_name
from millpond.sql.text.time_windows import as_plain_sql
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.repeat_by_weight import repeat_by_weight, repeat_in_batches
from millpond.state.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession
    from millpond.sql.transaction import SqlTransaction


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    about_catalog = session.catalog_reads.answer(session, fragment, params)
    if about_catalog is not None:
        return about_catalog
    begun = session.has_epoch()
    if not begun and any(fragment.has(n, "AS", "OF") for n in range(len(fragment))):
        session.require_epoch()
    read = as_of(session.host, fragment, params)
    renamed, system = system_reads(read.fragment, params)
    system += [SystemRead(one.path, one.called, one.when) for one in read.reads if is_system(one.path)]
    plain_reads = [one for one in read.reads if not is_system(one.path)]
    asked, values = for_duckdb(renamed, params)
    sql = readable(asked)
    if not reads_only(sql):
        fragment.fail(
            "only a query can begin like this", 0, "begin with INSERT, UPDATE or DELETE to change rows"
        )
    written = sql
    sql = with_windows(as_plain_sql(sql))
    windowed = written != sql
    if not begun:  # the pond has no epoch yet: a query of constants
        catalog = session.catalog
        sql = inlined(sql, catalog.objects).sql
        nothing = [without_epoch(session, one) for one in system]
        with session.scratch.for_statement() as scratch:
            bound = not system and not windowed
            names, table = answer(
                scratch, catalog, nothing, sql, values, limits=session.read_limits, bound=bound
            )
        return Result.of_rows([n for n, _ in names], [t for _, t in names], table)
    plain = readable(for_duckdb(read.plain, params)[0]) if read.reads and not system else None
    if windowed:
        plain = written
    host = session.host
    with ExitStack() as pins:
        block = session.transaction if read.when is None else None
        snapshot = pins.enter_context(host.pinned(read.when)) if block is None else block.snapshot
        catalog = session.catalog_of(host.plan_of(snapshot.manifest))
        now = catalog if read.when is None else session.catalog_of(host.plan_of(host.head()))
        sql = inlined(sql, now.objects).sql  # the functions of the newest epoch
        plain = None if plain is None else inlined(plain, now.objects).sql
        sql = by_column_types(sql, catalog, fragment.dialect)
        if block is not None and catalog.read_by(sql) and not (system and block.read_only):
            if read.reads or system:
                raise InvalidError(
                    "a query of a transaction reads tables of its epoch, and nothing else",
                    hint="read older epochs and what the pond knows about itself in queries of their own",
                )
            return _in_transaction(session, block, read.fragment, params, now)
        shown = [*shown_rows(catalog, snapshot, sql, values or {})]
        epochs = {snapshot.epoch} if shown or not plain_reads else set()
        for one in system:
            then = snapshot if one.when is None else pins.enter_context(host.pinned(one.when))
            known = session.catalog_of(host.plan_of(then.manifest))
            shown.append(system_rows(session, known, then, one, sql, values or {}))
        for when in dict.fromkeys(one.when for one in plain_reads):
            then = snapshot if when == read.when else pins.enter_context(host.pinned(when))
            known = session.catalog_of(host.plan_of(then.manifest))
            reads = [one for one in plain_reads if one.when == when]
            shown += rows_then(known, then, sql, values or {}, reads, len(shown))
            epochs.add(then.epoch)
        with session.scratch_for(sql, shown).for_statement() as scratch:
            bound = not system and not windowed
            names, table = answer(scratch, now, shown, sql, values, plain, session.read_limits, bound)
    epoch = epochs.pop() if len(epochs) == 1 else snapshot.epoch
    return Result.of_rows([n for n, _ in names], [t for _, t in names], table, epoch)


def _in_transaction(
    session: SqlSession, block: SqlTransaction, fragment: SqlFragment, params: Params, now: Catalog
) -> Result:
    """Answer a query from the epoch of a transaction and its own changes."""
    sql = with_windows(as_plain_sql(inlined(canonical(fragment, params).sql, now.objects).sql))
    sql = by_column_types(sql, block.catalog, fragment.dialect)
    snapshot = block.snapshot
    if block.sees_own_changes(sql):
        names, table = block.read(sql)
    else:
        shown = shown_rows(block.catalog, snapshot, sql, {})
        with session.scratch_for(sql, shown).for_statement(block.now_us) as scratch:
            names, table = answer(scratch, now, shown, sql, None, None, session.read_limits)
    block.note_read(sql, names, table)
    return Result.of_rows([n for n, _ in names], [t for _, t in names], table, snapshot.epoch)


def shown_rows(catalog: Catalog, snapshot: Snapshot, sql: str, values: Any) -> Relations:
    """Return the relations that a query names, with the rows of each that it can need."""
    return needed_rows(catalog, snapshot, sql, values, catalog.expanded(catalog.read_by(sql)))


def rows_then(
    catalog: Catalog, snapshot: Snapshot, sql: str, values: Any, reads: Sequence[Read], taken: int
) -> Relations:
    """Return the relations that a query reads at another epoch, under their names in the rewritten query."""
    own = own_names(sql)
    called: dict[str, str] = {}
    for one in reads:
        if one.name.lower() in own:
            raise InvalidError(
                f"AS OF cannot follow {one.name!r}, which the query defines itself",
                hint="write it inside WITH, after each table",
            )
        found = catalog.find(one.name)
        if found is None or found.kind in ("sink", "index", "function"):
            raise InvalidError(
                f"there is no table or view named {one.name!r} at epoch {snapshot.epoch}",
                detail=f"there are {', '.join(sorted(catalog.objects)) or 'none'}",
                hint=closest_name(one.name, list(catalog.objects)),
                epoch=snapshot.epoch,
            )
        called[found.name] = one.called
    named = catalog.expanded([catalog.objects[name] for name in called])
    for found in named:  # relations that plain views among them read
        called.setdefault(found.name, f"{reads[0].called}_{taken}_{len(called)}")
    return needed_rows(catalog, snapshot, sql, values, named, called)


def needed_rows(
    catalog: Catalog,
    snapshot: Snapshot,
    sql: str,
    values: Any,
    named: Sequence[SqlObject],
    called: Mapping[str, str] = MappingProxyType({}),
) -> Relations:
    """Return relations with the rows of each that a query can need, some under other names."""
    behind = {name for o in named if o.kind == "view" for name in o.uses}  # a view may need other rows
    kept: list[tuple[SqlObject, TableSpec]] = []
    for found in named:
        spec = catalog.stored(found)
        if spec is not None and found.kind != "view" and found.name not in behind:
            kept.append((found, spec))
    tables = [*kept, *_indexes(catalog, kept)]
    in_query = [(replace(o, name=called.get(o.name, o.name)), spec) for o, spec in tables]
    keys = wanted_keys(sql, in_query, values) if kept else {}
    lower = {name.lower(): now for name, now in called.items()}
    shown = []
    for found in named:
        if found.kind in ("sink", "index"):
            continue
        rows, name = _rows(catalog, snapshot, found, keys), called.get(found.name)
        if name is not None:
            text = renamed_relations(found.text, lower) if found.kind == "view" else found.text
            found = replace(found, name=name, text=text)
        shown.append((found, rows))
    return shown


def answer(
    scratch: Scratch,
    catalog: Catalog,
    shown: Relations,
    sql: str,
    values: Any,
    plain: str | None = None,
    limits: ReadLimits | None = None,
    bound: bool = True,
) -> tuple[list[tuple[str, str]], pa.Table]:
    """Return the names and types of a query's columns, and its rows; `plain` is the query as written.

    `bound`: does the binder know all its names, so that it can explain an error?
    """
    for found, rows in shown:
        if rows is None:
            scratch.view(found.name, with_windows(found.text))
        else:
            scratch.relation(found, rows)
    said = sql if plain is None or computes_windows(sql) else plain  # positions are of the text that runs
    try:
        with errors_of_windows(sql):
            return scratch.query(sql, values, shown=said, limits=limits)
    except InvalidError:
        if not bound:
            raise
        catalog.binder.run(
            f"prepare checked as {said}", said, len("prepare checked as ")
        )  # the binder knows all names
        catalog.binder.run("deallocate checked", said)
        raise


def _rows(
    catalog: Catalog, snapshot: Snapshot, found: SqlObject, keys: Mapping[str, Keys]
) -> pa.Table | LazyRows | None:
    """Return the rows of a relation that a query can need; None for a plain view."""
    if found.kind == "view":
        return None
    spec = catalog.stored(found)
    if spec is None:
        raise InvalidError(
            f"the rows of {found.kind} {found.name!r} are not kept",
            hint=f"CREATE MATERIALIZED VIEW … AS SELECT * FROM {found.name}",
        )
    columns = [c.stored_name for c in found.columns]
    for _, table in [(found, spec), *_indexes(catalog, [(found, spec)])]:
        if table.name in keys:
            schema = pa.schema([table.schema.field(k) for k in table.key])
            rows = [dict(zip(table.key, k, strict=True)) for k in keys[table.name]]
            wanted = pa.Table.from_pylist(rows, schema=schema)
            found_rows = snapshot.lookup_counted(table, wanted, columns)
            if table.rule == "latest" or deltas.weights(found_rows).sum() <= SMALL:
                return repeat_by_weight(found_rows, columns)
            return LazyRows(found_rows.select(columns).schema, partial(repeat_in_batches, found_rows))
    few = snapshot.scan_at_most(spec, columns, SMALL)
    if few is not None:
        return few
    schema = pa.schema([spec.schema.field(c) for c in columns])
    return LazyRows(schema, partial(snapshot.scan_batches, spec))


def _indexes(catalog: Catalog, kept: list[tuple[SqlObject, TableSpec]]) -> list[tuple[SqlObject, TableSpec]]:
    """Return the tables of the indexes on these relations, each with its relation."""
    relations = {o.name: o for o, _ in kept}
    found = []
    for one in catalog.objects.values():
        if one.kind == "index" and one.uses and one.uses[0] in relations:
            spec = catalog.stored(one)
            if spec is not None:
                found.append((relations[one.uses[0]], spec))
    return found

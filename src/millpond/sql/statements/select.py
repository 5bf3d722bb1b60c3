"""SELECT: DuckDB over the rows of one epoch; the pipeline has no part in it.

Only the relations that a query names are opened, and of those with a condition on
the key only the rows of that key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.catalog import Catalog
from millpond.sql.functions import inlined
from millpond.sql.keys import Keys, wanted_keys
from millpond.sql.lazy import LazyRows
from millpond.sql.moments import as_of
from millpond.sql.parameters import Params, for_duckdb
from millpond.sql.parse import Piece, readable, reads_only
from millpond.sql.result import Result
from millpond.sql.scratch import SMALL, Relations, Scratch
from millpond.sql.session import Session
from millpond.sql.time_windows import MARK, as_plain_sql
from millpond.state.snapshot import Snapshot
from millpond.state.table_spec import TableSpec


def run(session: Session, piece: Piece, params: Params) -> Result:
    session.require_epoch()
    piece, epoch = as_of(session.pond, piece, params)
    asked, values = for_duckdb(piece, params)
    sql = readable(asked)
    if not reads_only(sql):
        piece.fail(
            "only a query can begin like this", 0, "begin with INSERT, UPDATE or DELETE to change rows"
        )
    if MARK in as_plain_sql(sql):
        raise InvalidError(
            "TUMBLE, HOP and SESSION are for materialized views",
            hint="read such a view, or use time_bucket(INTERVAL '10 minutes', ts)",
        )
    reader = session.pond._reader
    with reader.pinned(epoch) as snapshot:
        catalog = session.catalog_of(reader.plan_of(snapshot.manifest))
        now = catalog if epoch is None else session.catalog_of(reader.plan_of(reader.head()))
        sql = inlined(sql, now.objects).sql  # functions of now
        shown = shown_rows(catalog, snapshot, sql, values or {})
        with session.scratch_for(sql, shown).turn() as scratch:
            names, table = answer(scratch, catalog, shown, sql, values)
    return Result.of_rows([n for n, _ in names], [t for _, t in names], table, snapshot.epoch)


def shown_rows(catalog: Catalog, snapshot: Snapshot, sql: str, values: Any) -> Relations:
    """What a query names, and the rows of it that the query can need."""
    named = catalog.expanded(catalog.read_by(sql))
    behind = {name for o in named if o.kind == "view" for name in o.uses}  # views may need other rows
    kept: list[tuple[SqlObject, TableSpec]] = []
    for found in named:
        spec = catalog.stored(found)
        if spec is not None and found.kind != "view" and found.name not in behind:
            kept.append((found, spec))
    keys = wanted_keys(sql, [*kept, *_indexes(catalog, kept)], values) if kept else {}
    relations = [o for o in named if o.kind not in ("sink", "index")]
    return [(found, _rows(catalog, snapshot, found, keys)) for found in relations]


def answer(
    scratch: Scratch, catalog: Catalog, shown: Relations, sql: str, values: Any
) -> tuple[list[tuple[str, str]], pa.Table]:
    """The names and types of a query's columns, and its rows."""
    for found, rows in shown:
        if rows is None:
            scratch.view(found.name, found.text)
        else:
            scratch.relation(found, rows)
    try:
        return scratch.query(sql, values)
    except InvalidError:
        catalog.binder.run(f"prepare checked as {sql}", sql, len("prepare checked as "))  # it knows all names
        catalog.binder.run("deallocate checked", sql)
        raise


def _rows(
    catalog: Catalog, snapshot: Snapshot, found: SqlObject, keys: Mapping[str, Keys]
) -> pa.Table | LazyRows | None:
    """The rows of a relation that a query can need; None for a plain view."""
    if found.kind == "view":
        if MARK in found.text:
            raise InvalidError(
                f"view {found.name!r} has windows of time, which only materialized views have",
                hint=f"CREATE MATERIALIZED VIEW … AS SELECT * FROM {found.name}",
            )
        return None
    spec = catalog.stored(found)
    if spec is None:
        raise InvalidError(
            f"the rows of {found.kind} {found.name!r} are not kept",
            hint=f"CREATE MATERIALIZED VIEW … AS SELECT * FROM {found.name}",
        )
    columns = [c.held for c in found.columns]
    for _, table in [(found, spec), *_indexes(catalog, [(found, spec)])]:
        if table.name in keys:
            schema = pa.schema([table.schema.field(k) for k in table.key])
            rows = [dict(zip(table.key, k, strict=True)) for k in keys[table.name]]
            wanted = pa.Table.from_pylist(rows, schema=schema)
            return snapshot.lookup(table, wanted, columns)
    if snapshot.table(spec).count_rows_upper() <= SMALL:
        return snapshot.whole(spec, columns)
    schema = pa.schema([spec.schema.field(c) for c in columns])
    return LazyRows(schema, partial(snapshot.whole, spec))


def _indexes(catalog: Catalog, kept: list[tuple[SqlObject, TableSpec]]) -> list[tuple[SqlObject, TableSpec]]:
    """The tables of indexes on some relations, with the relation that each can be read for."""
    relations = {o.name: o for o, _ in kept}
    found = []
    for one in catalog.objects.values():
        if one.kind == "index" and one.uses and one.uses[0] in relations:
            spec = catalog.stored(one)
            if spec is not None:
                found.append((relations[one.uses[0]], spec))
    return found

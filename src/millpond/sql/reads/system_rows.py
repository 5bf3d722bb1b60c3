"""The rows of the relations that the system provides, as a query needs them.

Law: they come from manifests and from the storage, so they can be read without a running pipeline.
User values are never unpickled here: a pickle can run code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.catalog import Catalog, columns_of
from millpond.sql.host import Host
from millpond.sql.reads.key_lookup import wanted_keys
from millpond.sql.reads.lazy_columns import LazyRows
from millpond.sql.reads.running_jobs import JOBS, jobs_table
from millpond.sql.reads.system_names import DIFF, STATE, SystemRead
from millpond.sql.text.parse import closest_name
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

Shown = tuple[SqlObject, pa.Table | LazyRows]


def system_schemas(host: Host) -> dict[str, pa.Schema]:
    """The columns of every relation of schema `millpond`, by name."""
    return {**host.system_relations(), "jobs": JOBS}


def system_rows(
    session: SqlSession,
    catalog: Catalog,
    snapshot: Snapshot,
    read: SystemRead,
    sql: str,
    values: Any,
) -> Shown:
    """Return a relation of the system at one epoch, under its name in the rewritten query."""
    host = session.host
    if read.path[0].lower() == DIFF:
        return _difference(host, catalog, read)
    if read.path[0].lower() == STATE:
        return _state(host, snapshot, read, sql, values)
    name = _known(host, read)
    if name == "jobs":
        if read.when is not None:
            raise InvalidError(
                "millpond.jobs has no past", detail="it lists what runs now", hint="read it without AS OF"
            )
        return _relation(read, jobs_table(host))
    schema = system_schemas(host)[name]
    return _relation(read, LazyRows(schema, partial(_projected, host, name, snapshot)))


def without_epoch(session: SqlSession, read: SystemRead) -> Shown:
    """Return a relation of the system in a pond that has no epoch yet: it has no rows."""
    if read.path[0].lower() in (DIFF, STATE):
        session.require_epoch()
    return _relation(read, system_schemas(session.host)[_known(session.host, read)].empty_table())


def system_columns(host: Host, read: SystemRead) -> tuple[SqlColumn, ...]:
    """Return the columns of a relation of schema `millpond`."""
    return columns_of(system_schemas(host)[_known(host, read)])


def _known(host: Host, read: SystemRead) -> str:
    name, known = read.path[1].lower(), system_schemas(host)
    if name not in known:
        raise InvalidError(
            f"there is no system relation {'.'.join(read.path)!r}",
            detail=f"there are {', '.join(f'millpond.{one}' for one in sorted(known))}",
            hint=closest_name(name, list(known)),
        )
    return name


def _relation(read: SystemRead, rows: pa.Table | LazyRows) -> Shown:
    return SqlObject("table", read.called, columns_of(rows.schema)), rows


def _projected(host: Host, name: str, snapshot: Snapshot, columns: Sequence[str]) -> Iterator[pa.Table]:
    for part in host.system_rows(name, snapshot):
        yield part.select(list(columns))


# -- the state of process steps ----------------------------------------------------------


def _state(host: Host, snapshot: Snapshot, read: SystemRead, sql: str, values: Any) -> Shown:
    spec, columns = host.state_table(snapshot, ".".join(read.path[1:-1]), read.path[-1])
    schema = pa.schema([spec.schema.field(name).remove_metadata() for name in columns])
    found = SqlObject("table", read.called, columns_of(schema), spec.key)
    keys = wanted_keys(sql, [(found, spec)], values).get(spec.name)
    if keys is not None:
        rows = [dict(zip(spec.key, key, strict=True)) for key in keys]
        wanted = pa.Table.from_pylist(rows, schema=pa.schema([spec.schema.field(k) for k in spec.key]))
        (part,) = host.state_batches(snapshot, spec, wanted)
        return found, part.cast(schema)
    return found, LazyRows(schema, partial(_state_batches, host, snapshot, spec, schema))


def _state_batches(
    host: Host, snapshot: Snapshot, spec: TableSpec, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.Table]:
    for part in host.state_batches(snapshot, spec, None):
        yield part.cast(schema).select(list(columns))


# -- differences ---------------------------------------------------------------------------


def _difference(host: Host, catalog: Catalog, read: SystemRead) -> Shown:
    """Return the changes of a view between two epochs: a weight, then the columns of the view."""
    assert read.between is not None
    view = catalog.get(read.path[1], "table", "materialized view")
    rows = host.diff(view.name, *read.between)
    known = {column.name: column for column in view.columns}
    shown = [name for name in rows.column_names if name != WEIGHT]
    weight = "weight" if "weight" not in shown else WEIGHT
    columns = [
        replace(known[name], stored=None) if name in known else _column(rows.schema.field(name))
        for name in shown
    ]
    made = SqlObject("table", read.called, (SqlColumn(weight, "BIGINT"), *columns))
    return made, rows.select([WEIGHT, *shown]).rename_columns([weight, *shown])


def _column(field: pa.Field) -> SqlColumn:
    return columns_of(pa.schema([field.remove_metadata()]))[0]

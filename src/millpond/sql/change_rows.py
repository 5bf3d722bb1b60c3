"""INSERT, UPDATE and DELETE as logic: executed when their turn in the inbox comes.

Law: a change sees the table as all changes before it left it, and nothing of
those after it, whoever sent them.  DuckDB runs the very statement over the rows
that it may touch; what it returns are the rows that come, and what stood at
their places are the rows that go.  The same entry over the same epoch gives the
same rows (law 3): time was written into the text when the statement was made,
and functions of chance are refused there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject
from millpond.sql.catalog import Catalog
from millpond.sql.scratch import PLACE, Scratch, own_scratch, returned
from millpond.sql.types import quoted
from millpond.state.table_spec import TableSpec

KIND = "sql"  # of the inbox entry


class Rows(Protocol):
    """A snapshot."""

    def scan(self, spec: TableSpec, columns: Any) -> pa.Table: ...

    def lookup(self, spec: TableSpec, keys: pa.Table, columns: Any) -> pa.Table: ...


def changed_rows(plan: Plan, snapshot: Rows, args: Mapping[str, Any]) -> pa.Table:
    """The rows of a table that a statement takes out (`_w` -1) and puts in (1), in this order."""
    catalog = Catalog(plan)
    target = next(
        (o for o in catalog.objects.values() if o.kind == "table" and o.scan == args["table"]), None
    )
    if target is None:
        raise InvalidError(f"the pond has no table {args['name']!r}")
    if target.name != args["name"]:
        raise InvalidError(f"table {args['name']!r} is called {target.name!r} now")
    spec = catalog.stored(target)
    assert spec is not None
    names = [c.name for c in target.columns]
    verb, reads = args["verb"], catalog.expanded([catalog.get(n) for n in args["reads"]])
    looks = verb != "insert" or args.get("conflict") or target in reads
    with own_scratch().turn() as scratch:
        before = _held(snapshot, spec, names, args) if looks else spec.schema.empty_table().select(names)
        scratch.table(target, before, key=bool(args.get("conflict")), places=verb != "insert")
        for found in reads:
            if found.name != target.name:
                _show(scratch, catalog, snapshot, found)
        listed = [] if verb == "delete" else [returned(target.columns)]
        listed += [] if verb == "insert" else [quoted(PLACE)]
        rows = scratch.arrow(f"{args['sql']} RETURNING {', '.join(listed)}", shown=args["sql"])
    return _delta(target, before, rows, names, verb)


def _held(snapshot: Rows, spec: TableSpec, names: list[str], args: Mapping[str, Any]) -> pa.Table:
    keys = args.get("keys")
    if keys is None:
        return snapshot.scan(spec, names)
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    wanted = pa.Table.from_pylist([dict(zip(spec.key, k, strict=True)) for k in keys], schema=schema)
    return snapshot.lookup(spec, wanted, names)


def _show(scratch: Scratch, catalog: Catalog, snapshot: Rows, found: SqlObject) -> None:
    if found.kind == "view":
        scratch.view(found.name, found.text)
        return
    spec = catalog.stored(found)
    if spec is None:
        raise InvalidError(f"the rows of {found.kind} {found.name!r} are not kept")
    scratch.relation(found, snapshot.scan(spec, [c.name for c in found.columns]))


def _delta(target: SqlObject, before: pa.Table, found: pa.Table, names: list[str], verb: str) -> pa.Table:
    gone = before.slice(0, 0) if verb == "insert" else before.take(found.column(PLACE))
    come = found.select(names).cast(before.schema) if verb != "delete" else before.slice(0, 0)
    if target.key and verb == "update":
        _check_keys(target, come)
    weights = np.concatenate((np.full(gone.num_rows, -1, np.int64), np.ones(come.num_rows, np.int64)))
    return pa.concat_tables([gone, come]).append_column("_w", pa.array(weights))


def _check_keys(target: SqlObject, rows: pa.Table) -> None:
    keys = rows.select(list(target.key))
    if keys.group_by(list(target.key)).aggregate([]).num_rows < keys.num_rows:
        raise InvalidError(f"two rows of {target.name!r} would get the same key {', '.join(target.key)}")

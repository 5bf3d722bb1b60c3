"""The catalog: every name that SQL can use, derived from the plan.

It includes tables, sources and views that the flow API created, with the types that
DuckDB gives their Arrow columns.  Names are case-insensitive, as in DuckDB, and keep
the spelling in which they were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.bag import Bag
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ConstantRows, ReadsInbox
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlColumn, SqlObject, in_order, schemas_of
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.relation import Relation
from millpond.sql.text.duckdb_parser import ask, parser
from millpond.sql.text.memoized_text import of_short_texts
from millpond.sql.text.parse import closest_name
from millpond.sql.text.schema_names import Names
from millpond.state.tables.table_spec import TableSpec


class Shown:
    """A binder and the objects registered in it; updating it is cheaper than creating a new one."""

    def __init__(self) -> None:
        self.binder = Binder()
        self._objects: dict[str, SqlObject] = {}

    def of(self, objects: Mapping[str, SqlObject]) -> Binder:
        wanted = {n: o for n, o in objects.items() if o.step is not None or o.kind == "view"}
        wanted = {n: o for n, o in wanted.items() if o.kind not in ("sink", "index")}
        if wanted == self._objects:
            return self.binder
        for name in reversed([n for n, o in self._objects.items() if wanted.get(n) != o]):
            self.binder.drop(name)
            del self._objects[name]
        for name, found in wanted.items():
            if name in self._objects:
                continue
            if found.kind == "view":
                self.binder.view(name, found.text)
            else:
                self.binder.table(name, [StepColumn(c.name, c.type) for c in found.columns])
            self._objects[name] = found
        return self.binder


class Catalog:
    """The names of one plan, and a binder that knows them."""

    def __init__(self, plan: Plan, shown: Shown | None = None) -> None:
        self.plan = plan
        self.objects = all_objects(plan)
        self.schemas = schemas_of(plan.objects)
        self._lower = {name.lower(): name for name in self.objects}
        self._shown = shown

    # -- names ----------------------------------------------------------------------

    def names(self, path: tuple[str, ...]) -> Names:
        """What names with and without a schema mean over a search path."""
        functions = [lower for lower, name in self._lower.items() if self.objects[name].kind == "function"]
        return Names(self.schemas, self._lower, frozenset(functions), path)

    def find(self, name: str) -> SqlObject | None:
        known = self._lower.get(name.lower())
        return None if known is None else self.objects[known]

    def get(self, name: str, *kinds: str) -> SqlObject:
        """Return the object with that name, which must be of one of these kinds."""
        found = self.find(name)
        if found is not None and (not kinds or found.kind in kinds):
            return found
        what = _either(kinds) if kinds else "table or view"
        if found is not None:
            raise InvalidError(f"{found.name!r} is a {found.kind}, not a {what}")
        known = [o.name for o in self.objects.values() if not kinds or o.kind in kinds]
        raise InvalidError(
            f"no {what} named {name!r}",
            detail=f"there are {', '.join(sorted(known)) or 'none'}",
            hint=closest_name(name, known),
        )

    def free(self, name: str) -> None:
        found = self.find(name)
        if found is not None:
            raise InvalidError(
                f"there is a {found.kind} named {found.name!r} already",
                hint="choose another name, or say IF NOT EXISTS",
            )

    # -- rows in the plan -----------------------------------------------------------

    def relations(self) -> dict[str, Relation]:
        return {
            o.name: Relation(o.step, tuple(StepColumn(c.stored_name, c.type) for c in o.columns), _stamped(o))
            for o in self.objects.values()
            if o.step is not None and o.kind not in ("sink", "index")
        }

    @property
    def binder(self) -> Binder:
        """A DuckDB database with an empty table or view for each of these names."""
        if self._shown is None:
            self._shown = Shown()
        return self._shown.of(self.objects)

    def read_by(self, sql: str) -> list[SqlObject]:
        """Return the objects that a query names, in the order of the catalog."""
        named = {name.lower() for name in table_names(sql)}
        return [o for o in self.objects.values() if o.name.lower() in named]

    def expanded(self, objects: Iterable[SqlObject]) -> list[SqlObject]:
        """Return these objects and everything that plain views among them read, each before its readers."""
        wanted = {o.name for o in objects}
        waiting = list(wanted)
        while waiting:
            found = self.objects[waiting.pop()]
            if found.kind == "view":
                fresh = [n for n in found.uses if n in self.objects and n not in wanted]
                wanted.update(fresh)
                waiting += fresh
        return [o for o in self.objects.values() if o.name in wanted and o.kind != "function"]

    def stored(self, found: SqlObject) -> TableSpec | None:
        """Return the table that stores the rows of an object, if there is one."""
        if found.kind == "late rows":
            tables = self.plan.nodes[found.options["watermark"]].binding.tables
            return next(t for t in tables if t.name == f"{found.options['watermark']}/late")
        view = self.plan.views.get(found.name)
        if view is None or found.kind in ("source", "sink"):
            return None
        return next(t for t in self.plan.nodes[view.step].binding.tables if t.name == view.table)


def all_objects(plan: Plan) -> dict[str, SqlObject]:
    """Return the objects that SQL defined, and those that the flow API created."""
    found = {name: o for name, o in plan.objects.items() if o.kind != "schema"}
    lower = {name.lower() for name in found}
    steps = {o.step for o in found.values()} | {o.scan for o in found.values()}
    for view in plan.views.values():
        if view.name.lower() not in lower:
            made = _of_view(plan, view.name, view.step)
            found[view.name] = made
            steps |= {made.step, made.scan}
            lower.add(view.name.lower())
    for node in plan.nodes.values():
        if isinstance(node.operator, Scan) and node.step not in steps and node.step.lower() not in lower:
            source = node.operator.source
            if isinstance(source, ReadsInbox | ConstantRows):
                continue
            end = next((s for s in (f"{node.step}.watermark", f"{node.step}.rows") if s in plan.nodes), None)
            step = end or node.step
            columns = columns_of(plan.shape(step).schema)
            found[node.step] = SqlObject("source", node.step, columns, step=step, scan=node.step)
    return in_order(found | _late_rows(plan, found))


def _late_rows(plan: Plan, objects: Mapping[str, SqlObject]) -> dict[str, SqlObject]:
    """Return the late rows of each table or source with a watermark, under its name plus `_late`."""
    found = {}
    for one in objects.values():
        name = f"{one.name}_late"
        node = plan.nodes.get(one.step or "")
        taken = name.lower() in {n.lower() for n in objects}
        if node is not None and isinstance(node.operator, Watermark) and not taken:
            found[name] = SqlObject("late rows", name, one.columns, options={"watermark": node.step})
    return found


def _of_view(plan: Plan, name: str, step: str) -> SqlObject:
    node = plan.nodes[step]
    columns = columns_of(node.binding.shape.schema)
    if isinstance(node.operator, Upsert | Bag):
        scan = plan.nodes[node.inputs[0]]
        if isinstance(scan.operator, Scan) and isinstance(scan.operator.source, ReadsInbox):
            key = node.operator.key if isinstance(node.operator, Upsert) else ()
            return SqlObject("table", name, columns, key, step=step, scan=scan.step)
    return SqlObject("materialized view", name, columns, step=step)


def columns_of(schema: pa.Schema) -> tuple[SqlColumn, ...]:
    """Return columns with the logical types that DuckDB gives to Arrow types."""
    return tuple(SqlColumn(n, t) for n, t in zip(schema.names, _types(schema), strict=True))


@lru_cache(maxsize=1024)
def _types(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(str(t) for t in parser().from_arrow(schema.empty_table()).types)


def _stamped(found: SqlObject) -> tuple[str, ...]:
    """Return the processing-time columns of a source; its rows lack them, so each view adds them itself."""
    return tuple(c.name for c in found.columns if found.kind == "source" and c.generated is not None)


@of_short_texts
def table_names(sql: str) -> frozenset[str]:
    """Return the names of tables in a query; names of its own CTEs may be among them."""
    return frozenset(_base_tables(tree_of(sql)))


@lru_cache(maxsize=256)
def tree_of(sql: str) -> Any:
    """Return a query as DuckDB parses it; callers must not change it."""
    return json.loads(ask("select json_serialize_sql(?)", [sql]))


def _base_tables(node: Any) -> Iterable[str]:
    if isinstance(node, Mapping):
        if node.get("type") == "BASE_TABLE":
            yield str(node["table_name"])
        for value in node.values():
            yield from _base_tables(value)
    elif isinstance(node, list):
        for value in node:
            yield from _base_tables(value)


def _either(words: Iterable[str]) -> str:
    listed = list(words)
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]

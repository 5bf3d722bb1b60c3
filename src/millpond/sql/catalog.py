"""The catalog: every name that SQL can use, from what the plan holds.

Tables, sources and views that the flow API made are known by name as well, with
the types that DuckDB gives their Arrow columns.  Names are found without regard
to case, as DuckDB does, and kept as they were written.
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
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlColumn, SqlObject, in_order
from millpond.sql.bind import Binder
from millpond.sql.expressions import Column
from millpond.sql.parse import ask, near_miss, parser
from millpond.sql.relation import Relation
from millpond.sql.short_texts import of_short_texts
from millpond.state.table_spec import TableSpec


class Shown:
    """A binder, and what it was shown: a new one costs more than to show it what changed."""

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
                self.binder.table(name, [Column(c.name, c.type) for c in found.columns])
            self._objects[name] = found
        return self.binder


class Catalog:
    """The names of one plan, and a binder that knows them."""

    def __init__(self, plan: Plan, shown: Shown | None = None) -> None:
        self.plan = plan
        self.objects = all_objects(plan)
        self._lower = {name.lower(): name for name in self.objects}
        self._shown = shown

    # -- names ----------------------------------------------------------------------

    def find(self, name: str) -> SqlObject | None:
        known = self._lower.get(name.lower())
        return None if known is None else self.objects[known]

    def get(self, name: str, *kinds: str) -> SqlObject:
        """The object of that name, of one of these kinds."""
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
            hint=near_miss(name, known),
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
            o.name: Relation(o.step, tuple(Column(c.held, c.type) for c in o.columns), _stamped(o))
            for o in self.objects.values()
            if o.step is not None and o.kind not in ("sink", "index")
        }

    @property
    def binder(self) -> Binder:
        """DuckDB with all these names, empty."""
        if self._shown is None:
            self._shown = Shown()
        return self._shown.of(self.objects)

    def read_by(self, sql: str) -> list[SqlObject]:
        """The objects that a query names, in the order of the catalog."""
        named = {name.lower() for name in table_names(sql)}
        return [o for o in self.objects.values() if o.name.lower() in named]

    def expanded(self, objects: Iterable[SqlObject]) -> list[SqlObject]:
        """These, and what plain views among them read, each before who reads it."""
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
        """The table that keeps the rows of an object, if one does."""
        if found.kind == "late rows":
            tables = self.plan.nodes[found.options["watermark"]].binding.tables
            return next(t for t in tables if t.name == f"{found.options['watermark']}/late")
        view = self.plan.views.get(found.name)
        if view is None or found.kind in ("source", "sink"):
            return None
        return next(t for t in self.plan.nodes[view.step].binding.tables if t.name == view.table)


def all_objects(plan: Plan) -> dict[str, SqlObject]:
    """What SQL defined, and what the flow API did."""
    found = dict(plan.objects)
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
            if getattr(source, "inbox", False) or getattr(source, "constant", False):
                continue
            end = next((s for s in (f"{node.step}.watermark", f"{node.step}.rows") if s in plan.nodes), None)
            step = end or node.step
            columns = columns_of(plan.shape(step).schema)
            found[node.step] = SqlObject("source", node.step, columns, step=step, scan=node.step)
    return in_order(found | _late_rows(plan, found))


def _late_rows(plan: Plan, objects: Mapping[str, SqlObject]) -> dict[str, SqlObject]:
    """What came too late for a table or source with a watermark, under its name and `_late`."""
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
        if getattr(getattr(scan.operator, "source", None), "inbox", False):
            key = node.operator.key if isinstance(node.operator, Upsert) else ()
            return SqlObject("table", name, columns, key, step=step, scan=scan.step)
    return SqlObject("materialized view", name, columns, step=step)


def columns_of(schema: pa.Schema) -> tuple[SqlColumn, ...]:
    """The logical types that DuckDB gives to Arrow columns."""
    return tuple(SqlColumn(n, t) for n, t in zip(schema.names, _types(schema), strict=True))


@lru_cache(maxsize=1024)
def _types(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(str(t) for t in parser().from_arrow(schema.empty_table()).types)


def _stamped(found: SqlObject) -> tuple[str, ...]:
    """The columns that the rows of a source lack: when they came, which each view notes for itself."""
    return tuple(c.name for c in found.columns if found.kind == "source" and c.generated is not None)


@of_short_texts
def table_names(sql: str) -> frozenset[str]:
    """The names of tables in a query; those of its own CTEs may be among them."""
    return frozenset(_base_tables(tree_of(sql)))


@lru_cache(maxsize=256)
def tree_of(sql: str) -> Any:
    """A query as DuckDB parses it; not to be changed."""
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

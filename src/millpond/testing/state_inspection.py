"""Reads states and timers as user code would see them now.

Expired values are not returned, although they may still be stored: user code would not see them either.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.python_values import python_values
from millpond.plan.nodes import Node
from millpond.pond import Pond
from millpond.pond.harness_access import pinned
from millpond.process.batch_process import BatchProcess
from millpond.process.context import Timer
from millpond.process.keyed_process import KeyedProcess
from millpond.process.spec import AT, ENTRY, EXPIRES, POSITION, StateSpec
from millpond.process.timers import TIMER
from millpond.process.values import decode
from millpond.state.tables.table_spec import TableSpec
from millpond.testing.notation import EPOCH, US
from millpond.testing.row_differences import Seen


def process_step(pond: Pond, step: str) -> tuple[Node, KeyedProcess | BatchProcess]:
    nodes = pond.plan.nodes
    kinds = KeyedProcess | BatchProcess
    found = {name: node.operator for name, node in nodes.items() if isinstance(node.operator, kinds)}
    if step in found:
        return nodes[step], found[step]
    matches = difflib.get_close_matches(step, found, 1)
    raise InvalidError(
        f"no process step named {step!r}",
        detail=f"process steps are {', '.join(found) or 'none'}",
        hint=f"did you mean {matches[0]!r}?" if matches else "name the step with process(..., id=...)",
    )


def state_spec(pond: Pond, step: str, name: str) -> StateSpec:
    states = {s.name: s for s in process_step(pond, step)[1].states}
    if name in states:
        return states[name]
    matches = difflib.get_close_matches(name, states, 1)
    raise InvalidError(
        f"step {step!r} has no state {name!r}",
        detail=f"its states are {', '.join(states) or 'none'}",
        hint=f"did you mean {matches[0]!r}?" if matches else None,
        step=step,
    )


# ---------------------------------------------------------------- states


def state_by_key(pond: Pond, now_us: int, step: str, name: str) -> dict[Any, Any]:
    """Values by key: lists for a list state, dicts for a map state; a broadcast state is one dict."""
    state = state_spec(pond, step, name)
    rows = _living(pond, now_us, step, state)
    values = _values(state, rows)
    if state.kind == "broadcast":
        return dict(zip(python_values(rows.column(ENTRY)), values, strict=True))
    keys = _keys(pond, step, rows)
    if state.kind == "value":
        return dict(zip(keys, values, strict=True))
    found: dict[Any, Any] = {}
    if state.kind == "list":
        for key, value in zip(keys, values, strict=True):
            found.setdefault(key, []).append(value)
        return found
    for key, entry, value in zip(keys, python_values(rows.column(ENTRY)), values, strict=True):
        found.setdefault(key, {})[entry] = value
    return found


def nothing(state: StateSpec) -> Any:
    """What user code sees for a key without a value."""
    if state.kind == "list":
        return []
    if state.kind in ("map", "broadcast"):
        return {}
    if state.adds is not None and state.adds.create is not None:
        created = state.adds.create()
        return created if state.adds.result is None else state.adds.result(created)
    return state.default() if callable(state.default) else state.default


def state_seen(pond: Pond, now_us: int, step: str, name: str) -> Seen:
    """The state as rows: the key, the position or entry, and the value or its fields."""
    state = state_spec(pond, step, name)
    rows = _living(pond, now_us, step, state)
    result = state.adds is not None and state.adds.result is not None
    columns: dict[str, list[Any]] = {}
    kinds: dict[str, Any] = {}
    made = state.form == "pickle" or result  # the value is not stored directly in the columns
    for place, field in enumerate(rows.schema):
        if field.name != EXPIRES and not (made and field.name in state.fields.names):
            columns[field.name], kinds[field.name] = python_values(rows.column(place)), field.type
    if made:
        columns[state.name], kinds[state.name] = _values(state, rows), None
    found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Seen(f"state {name!r} of step {step!r}", kinds, found)


def _values(state: StateSpec, rows: pa.Table) -> list[Any]:
    values = decode(state, rows)
    if state.adds is not None and state.adds.result is not None:
        return [state.adds.result(value) for value in values]
    return values


def _living(pond: Pond, now_us: int, step: str, state: StateSpec) -> pa.Table:
    node, _ = process_step(pond, step)
    spec = next(t for t in node.binding.tables if t.name == f"{step}/{state.name}")
    rows = scan(pond, spec)
    if state.kind == "list":  # by position within each key; the order of keys does not matter
        rows = rows.sort_by(POSITION)
    if state.ttl is None:
        return rows
    now = now_us
    if state.ttl.clock == "event":
        mark = pond.head().watermarks.get(node.binding.extra.watermark)
        if mark is None:
            return rows
        now = int(mark["bound"])
    ends = rows.column(EXPIRES).cast(pa.int64())
    return rows.filter(pa.compute.greater(ends, now))


def _keys(pond: Pond, step: str, rows: pa.Table) -> list[Any]:
    """One value per row, or a tuple if the key has several columns."""
    key = process_step(pond, step)[1].key
    columns = [python_values(rows.column(name)) for name in key]
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


# ---------------------------------------------------------------- timers


def timers_by_key(pond: Pond, step: str) -> dict[Any, list[Timer]]:
    """The timers that are set, in the order of their times."""
    rows, aware = _timers(pond, step)
    found: dict[Any, list[Timer]] = {}
    keys = _keys(pond, step, rows)
    for key, timer in zip(keys, _timer_values(rows, aware), strict=True):
        found.setdefault(key, []).append(timer)
    return {key: sorted(timers, key=_when) for key, timers in found.items()}


def timers_seen(pond: Pond, step: str) -> Seen:
    rows, aware = _timers(pond, step)
    key = process_step(pond, step)[1].key
    kinds = {name: rows.schema.field(name).type for name in key}
    kinds |= {"timer": pa.string(), "at": pa.timestamp("us"), "clock": pa.string()}
    keys = zip(*(python_values(rows.column(name)) for name in key), strict=True) if key else None
    found = [
        {**dict(zip(key, given, strict=True)), "timer": t.name, "at": t.at, "clock": t.clock}
        for given, t in zip(keys or [()] * rows.num_rows, _timer_values(rows, aware), strict=True)
    ]
    plain = [{**row, "at": row["at"].replace(tzinfo=None)} for row in found]
    return Seen(f"the timers of step {step!r}", kinds, plain)


def _timers(pond: Pond, step: str) -> tuple[pa.Table, bool]:
    node, _ = process_step(pond, step)
    spec = next((t for t in node.binding.tables if t.name == f"{step}/timers"), None)
    if spec is None:
        raise InvalidError(
            f"step {step!r} has no timers", hint="a process class with on_timer has", step=step
        )
    return scan(pond, spec), bool(node.binding.extra.aware)


def _timer_values(rows: pa.Table, aware: bool) -> list[Timer]:
    found = []
    for full, us in zip(
        python_values(rows.column(TIMER)), rows.column(AT).cast(pa.int64()).to_pylist(), strict=True
    ):
        clock, _, name = full.partition(":")
        at = EPOCH + us * US
        if aware or clock == "processing":
            at = at.replace(tzinfo=datetime.UTC)
        found.append(Timer(name, at, clock))
    return found


def _when(timer: Timer) -> tuple[Any, ...]:
    return timer.at.replace(tzinfo=None), timer.clock, timer.name


# ---------------------------------------------------------------- tables


def scan(pond: Pond, spec: TableSpec) -> pa.Table:
    """All rows of a table at the head."""
    with pinned(pond) as snapshot:
        return snapshot.scan(spec, spec.schema.names)


def table_seen(what: str, table: pa.Table) -> Seen:
    columns = [python_values(column) for column in table.columns]
    rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return Seen(what, kinds_of(table.schema), rows)


def kinds_of(schema: pa.Schema) -> Mapping[str, pa.DataType]:
    return {field.name: field.type for field in schema}

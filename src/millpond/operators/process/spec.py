"""What a process step declares: its states, their time to live, their tables.

A state is a *latest* table keyed like the step, one for each state, so that a
state can be read, exported, added and dropped by its name alone.  Lists and
maps have one row per element, ordered by position or entry: touching one
element costs one element, however many there are (law 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.ordering import Order
from millpond.state.table_spec import TableSpec

Kind = Literal["value", "list", "map", "broadcast"]
Form = Literal["scalar", "record", "pickle"]
Clock = Literal["event", "processing"]

POSITION, ENTRY, EXPIRES, AT = "position", "entry", "expires", "at"
RESERVED = ("timers", "out", "rows", "late", "due", "ttl")
INSTANT = pa.timestamp("us")
PICKLED = {b"millpond": b"pickle"}

TTL_PARTS = 64  # buckets between now and the end of a time to live
TTL_WIDTH_US_MIN = 1_000_000


@dataclass(frozen=True)
class Ttl:
    us: int
    clock: Clock
    reset: Literal["write", "read"]  # what makes the time start again


@dataclass(frozen=True)
class Adds:
    """How `add` changes a value: reducing (a function of two), or aggregating (create, add, result)."""

    add: Callable[[Any, Any], Any]
    create: Callable[[], Any] | None = None
    result: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class StateSpec:
    name: str
    kind: Kind
    form: Form
    fields: pa.Schema  # the columns of one value
    record: type | None = None  # the class of a record; without one it is a dict
    entry: pa.DataType | None = None  # of a map
    default: Any = None  # of a value; a function makes a new one each time
    adds: Adds | None = None
    ttl: Ttl | None = None

    @property
    def mutable(self) -> bool:
        """Can a value change without being set?"""
        return self.form != "scalar" or any(pa.types.is_nested(f.type) for f in self.fields)

    def table(self, step: str, key: pa.Schema) -> TableSpec:
        fields = [] if self.kind == "broadcast" else list(key)
        names: tuple[str, ...] = tuple(f.name for f in fields)
        order: tuple[Order, ...] = ()
        if self.kind == "list":
            fields.append(pa.field(POSITION, pa.int64()))
            order = (Order(POSITION),)
        elif self.kind in ("map", "broadcast"):
            fields.append(pa.field(ENTRY, self.entry))
            if self.kind == "map":
                order = (Order(ENTRY),)
            else:
                names = (ENTRY,)
        fields += list(self.fields)
        if self.ttl is not None:
            fields.append(pa.field(EXPIRES, INSTANT))
        _check_columns(step, self.name, [f.name for f in fields])
        return TableSpec(f"{step}/{self.name}", pa.schema(fields), names, order)

    def sweep(self, step: str, key: pa.Schema) -> TableSpec | None:
        """Where the ends of lives lie, by time; only whole buckets that passed are looked at."""
        if self.ttl is None:
            return None
        fields = list(key)
        order: tuple[Order, ...] = ()
        if self.kind == "list":
            fields.append(pa.field(POSITION, pa.int64()))
            order = (Order(POSITION),)
        elif self.kind == "map":
            fields.append(pa.field(ENTRY, self.entry))
            order = (Order(ENTRY),)
        fields.append(pa.field(AT, INSTANT))
        return TableSpec(
            f"{step}/ttl.{self.name}",
            pa.schema(fields),
            tuple(key.names),
            order,
            time=AT,
            bucket_width=max(TTL_WIDTH_US_MIN, self.ttl.us // TTL_PARTS),
        )


def _check_columns(step: str, state: str, names: list[str]) -> None:
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InvalidError(
            f"state {state!r} would have two columns named {twice!r}",
            detail=f"columns are {', '.join(names)}",
            hint="a state, its fields and the key columns need different names; "
            f"{POSITION!r}, {ENTRY!r} and {EXPIRES!r} are the table's own",
            step=step,
        )

"""The declaration of a process step: its states, their time to live, their tables.

Each state is a *latest* table with the key of the step, so that a state can be
read, exported, added and dropped by its name.  Lists and maps have one row per
element, ordered by position or entry: accessing one element costs one element,
however many there are (law 5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.timer_wheel import TimerWheel
from millpond.ordering import Order
from millpond.process.nested import Rebuilt
from millpond.state.tables.table_spec import TableSpec

Kind = Literal["value", "list", "map", "broadcast"]
Form = Literal["scalar", "record", "pickle"]
Clock = Literal["event", "processing"]

POSITION, ENTRY, EXPIRES, AT = "position", "entry", "expires", "at"
RESERVED = ("timers", "out", "rows", "late", "due", "ttl")
INSTANT = pa.timestamp("us")
PICKLED = {b"millpond": b"pickle"}

SWEEPS = tuple(1_000_000 * 8**tier for tier in range(7))  # 1 s, 8 s, 64 s, 8.5 min, 68 min, 9.1 h, 3 d
SWEEP_BUCKETS_MIN = 16  # the least number of buckets between now and the end of a time to live


@dataclass(frozen=True)
class Ttl:
    us: int
    clock: Clock
    reset: Literal["write", "read"]  # what restarts the time to live


@dataclass(frozen=True)
class Adds:
    """How `add` changes a value: reducing (a function of two values) or aggregating (create, add, result)."""

    add: Callable[[Any, Any], Any]
    create: Callable[[], Any] | None = None
    result: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class StateSpec:
    name: str
    kind: Kind
    form: Form
    fields: pa.Schema  # the columns of one value
    record: type | None = None  # the class of a record; a dict if None
    entry: pa.DataType | None = None  # the type of a map's entries
    default: Any = None  # the default value; a function is called for each new one
    adds: Adds | None = None
    ttl: Ttl | None = None
    rebuilt: Rebuilt | None = None  # how to convert values from Arrow, if needed

    @property
    def mutable(self) -> bool:
        """Can a value change in place, without being set?"""
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
        return TableSpec(f"{step}/{self.name}", pa.schema(fields), names, order, defaults=self.defaults)

    def sweeps(self, step: str, key: pa.Schema) -> tuple[TableSpec, ...]:
        """The expiry tables, bucketed by time; only buckets that have passed completely are read.

        There is a table for each width, so that after a change of the time to live the older rows are found.
        """
        if self.ttl is None:
            return ()
        fields = list(key)
        order: tuple[Order, ...] = ()
        if self.kind == "list":
            fields.append(pa.field(POSITION, pa.int64()))
            order = (Order(POSITION),)
        elif self.kind == "map":
            fields.append(pa.field(ENTRY, self.entry))
            order = (Order(ENTRY),)
        fields.append(pa.field(AT, INSTANT))
        return sweep_wheel(step, self.name).tables(pa.schema(fields), tuple(key.names), order)

    @property
    def sweep_tier(self) -> int:
        """The bucket width for this time to live."""
        assert self.ttl is not None
        return max(
            (t for t, width in enumerate(SWEEPS) if width * SWEEP_BUCKETS_MIN <= self.ttl.us), default=0
        )

    @property
    def defaults(self) -> tuple[tuple[str, Any], ...]:
        """The values of a record's fields in rows that were written before the fields were added."""
        values: dict[str, Any] = {}
        if self.record is not None and dataclasses.is_dataclass(self.record):
            for f in dataclasses.fields(self.record):
                if _given(f.default):
                    values[f.name] = f.default
                elif _given(f.default_factory):
                    make: Any = f.default_factory
                    values[f.name] = make()
        elif self.record is not None:
            values = dict(getattr(self.record, "_field_defaults", {}))
        return tuple((name, value) for name, value in values.items() if value is not None)


def _given(default: Any) -> bool:
    """Does the field have a default?  A class that was sent by value has its own MISSING object."""
    return not isinstance(default, type(dataclasses.MISSING))


def sweep_wheel(step: str, state: str) -> TimerWheel:
    """The timer wheel of the expiry tables.

    A row stays in the bucket in which it was written; only buckets that have passed completely are read.
    """
    return TimerWheel(f"{step}/ttl.{state}", SWEEPS, (), AT, passed_only=True)


def sweep_name(step: str, state: str, tier: int) -> str:
    return sweep_wheel(step, state).name(tier)


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

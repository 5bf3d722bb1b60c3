"""States as people declare them: what a process step keeps for each key.

A declaration is an attribute of a `Process` class, or the default of a
parameter of a process function.  Inside the step it is replaced by a handle on
the current key, with the methods written here.  With a type the state is
stored in columns, which SQL and people can read; without one, any value that
can be pickled will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.calls import checked, need_callable
from millpond.flow.durations import Duration, microseconds
from millpond.flow.names import check_columns
from millpond.flow.schemas import arrow_type, is_record, schema_of
from millpond.operators.operator import Shape
from millpond.operators.process.nested import rebuilt
from millpond.operators.process.spec import PICKLED, RESERVED, Adds, Clock, Form, Kind, StateSpec, Ttl

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@checked
class State:
    """What all states have: a name, a type, a time to live.

    `ttl` lets go of a value so long after it was written (or, with reset="read", last used), by event
    time or by the clock of the machine; without `clock` it is event time where the stream has one.
    """

    kind: Kind = "value"

    def __init__(
        self,
        type: Any = None,
        *,
        ttl: Duration | None = None,
        clock: Clock | None = None,
        reset: Literal["write", "read"] = "write",
        name: str | None = None,
    ) -> None:
        self._type = type
        self._ttl = ttl
        self._clock: Clock | None = clock
        self._reset: Literal["write", "read"] = reset
        self._name = name
        self._default: Any = None
        self._adds: Adds | None = None
        self._entry: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def spec(self, attribute: str, shape: Shape, step: str) -> StateSpec:
        """The state made concrete for a stream."""
        name = attribute if self._name is None else self._name
        if (
            not isinstance(name, str)
            or name in RESERVED
            or not name
            or "/" in name
            or "." in name
            or name.startswith("_")
        ):
            raise InvalidError(
                f"a state cannot be called {name!r}",
                hint=f"use letters and digits; {', '.join(RESERVED)} are the step's own",
                step=step,
            )
        form, fields, record = _columns(name, self._type, step)
        check_columns(fields.names, f"state {name!r}")
        if form == "scalar" and self._default is not None and not callable(self._default):
            _check_default(name, self._default, fields.field(0).type, step)
        entry = None
        if self._entry is not None:
            entry = arrow_type(self._entry, step=step, at=f"{name}'s entries")
            if pa.types.is_nested(entry):
                raise InvalidError(
                    f"the entries of state {name!r} must be plain values", detail=str(entry), step=step
                )
        return StateSpec(
            name,
            self.kind,
            form,
            fields,
            record,
            entry,
            self._default,
            self._adds,
            self._life(name, shape, step),
            rebuilt(self._type),
        )

    def _life(self, name: str, shape: Shape, step: str) -> Ttl | None:
        if self._ttl is None:
            if self._clock is not None:
                raise InvalidError(
                    f"state {name!r} has a clock but no ttl", hint='for example ttl="1h"', step=step
                )
            return None
        us = microseconds(self._ttl)
        clock: Clock = self._clock or ("event" if shape.watermark is not None else "processing")
        if us <= 0 or clock not in ("event", "processing") or self._reset not in ("write", "read"):
            raise InvalidError(
                f"the time to live of state {name!r} cannot be read",
                detail=f"ttl={self._ttl!r}, clock={self._clock!r}, reset={self._reset!r}",
                hint='ttl="1h", clock="event" or "processing", reset="write" or "read"',
                step=step,
            )
        if self.kind == "list" and self._reset == "read":
            raise InvalidError(
                f"items of list state {name!r} live from when they were appended",
                hint='leave out reset="read", or use a MapState',
                step=step,
            )
        return Ttl(us, clock, self._reset)


@checked
class ValueState(State, Generic[T]):
    """One value per key: `.value` to read and set, `.clear()`.  No value is `default`, else None."""

    value: T

    @overload
    def __init__(self: ValueState[T], type: type[T], default: Any = None, **settings: Any) -> None: ...
    @overload
    def __init__(self: ValueState[Any], type: Any = None, default: Any = None, **settings: Any) -> None: ...
    def __init__(self, type: Any = None, default: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)
        self._default = default

    def get(self) -> T:
        _outside(self)

    def set(self, value: T) -> None:
        _outside(self)

    def clear(self) -> None:
        _outside(self)


@checked
class ReducingState(State, Generic[T]):
    """One value per key, and a function that takes another into it: `.add(x)`, `.value`, `.clear()`."""

    value: T

    @overload
    def __init__(
        self: ReducingState[T], function: Callable[[T, T], T], type: type[T], **settings: Any
    ) -> None: ...
    @overload
    def __init__(
        self: ReducingState[Any], function: Callable[[Any, Any], Any], type: Any = None, **settings: Any
    ) -> None: ...
    def __init__(self, function: Callable[[Any, Any], Any], type: Any = None, **settings: Any) -> None:
        need_callable("what a ReducingState adds with", function)
        super().__init__(type, **settings)
        self._adds = Adds(function)

    def add(self, item: T) -> None:
        _outside(self)

    def get(self) -> T:
        _outside(self)

    def clear(self) -> None:
        _outside(self)


@checked
class AggregatingState(State, Generic[V, A, T]):
    """An accumulator per key: `.add(x)` takes items in, `.value` is what they come to.

    `create()` makes an empty accumulator, `add(accumulator, item)` gives the next one, `result`
    (if given) turns it into the value; `type` is that of the accumulator.
    """

    value: T

    def __init__(
        self,
        create: Callable[[], A],
        add: Callable[[A, V], A],
        result: Callable[[A], T] | None = None,
        type: Any = None,
        **settings: Any,
    ) -> None:
        for what, part in (("create", create), ("add", add), ("result", result)):
            if part is not None or what != "result":
                need_callable(f"{what} of an AggregatingState", part)
        super().__init__(type, **settings)
        self._adds = Adds(add, create, result)

    def add(self, item: V) -> None:
        _outside(self)

    def get(self) -> T:
        _outside(self)

    def clear(self) -> None:
        _outside(self)


@checked
class ListState(State, Generic[T]):
    """Items in the order they were appended; appending costs nothing for what is already there."""

    kind: Kind = "list"

    @overload
    def __init__(self: ListState[T], type: type[T], **settings: Any) -> None: ...
    @overload
    def __init__(self: ListState[Any], type: Any = None, **settings: Any) -> None: ...
    def __init__(self, type: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)

    def append(self, item: T) -> None:
        _outside(self)

    def extend(self, items: Iterable[T]) -> None:
        _outside(self)

    def last(self, n: int) -> list[T]:
        """The newest n items."""
        _outside(self)

    def keep(self, n: int) -> None:
        """Drop all but the newest n items."""
        _outside(self)

    def clear(self) -> None:
        _outside(self)

    def __iter__(self) -> Iterator[T]:
        _outside(self)

    def __len__(self) -> int:
        _outside(self)

    def __getitem__(self, which: int) -> T:
        _outside(self)


@checked
class MapState(State, Generic[K, V]):
    """A dict per key; each entry is read and written by itself.  `MapState(str, int)`."""

    kind: Kind = "map"

    @overload
    def __init__(self: MapState[K, V], entry: type[K], type: type[V], **settings: Any) -> None: ...
    @overload
    def __init__(self: MapState[Any, Any], entry: Any = str, type: Any = None, **settings: Any) -> None: ...
    def __init__(self, entry: Any = str, type: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)
        self._entry = entry

    def get(self, entry: K, default: Any = None) -> V:
        _outside(self)

    def put(self, entry: K, value: V) -> None:
        _outside(self)

    def remove(self, entry: K) -> None:
        _outside(self)

    def pop(self, entry: K, default: Any = None) -> V:
        """Remove an entry and give what it held."""
        _outside(self)

    def setdefault(self, entry: K, default: V) -> V:
        """What the entry holds, after putting the default there if it holds nothing."""
        _outside(self)

    def update(self, other: Mapping[K, V]) -> None:
        _outside(self)

    def items(self) -> Iterator[tuple[K, V]]:
        _outside(self)

    def keys(self) -> Iterator[K]:
        _outside(self)

    def values(self) -> Iterator[V]:
        _outside(self)

    def clear(self) -> None:
        _outside(self)

    def __getitem__(self, entry: K) -> V:
        _outside(self)

    def __setitem__(self, entry: K, value: V) -> None:
        _outside(self)

    def __delitem__(self, entry: K) -> None:
        _outside(self)

    def __contains__(self, entry: K) -> bool:
        _outside(self)

    def __iter__(self) -> Iterator[K]:
        _outside(self)

    def __len__(self) -> int:
        _outside(self)


@checked
class BroadcastState(MapState[K, V]):
    """A dict that all keys see, changed by the control stream alone: `BroadcastState(str, float)`."""

    kind: Kind = "broadcast"

    def _life(self, name: str, shape: Shape, step: str) -> Ttl | None:
        if self._ttl is not None:
            raise InvalidError(
                f"broadcast state {name!r} has no time to live",
                hint="remove entries in on_control",
                step=step,
            )
        return None


def _columns(name: str, hint: Any, step: str) -> tuple[Form, pa.Schema, type | None]:
    if hint is None:
        return "pickle", pa.schema([pa.field(name, pa.binary(), metadata=PICKLED)]), None
    if isinstance(hint, pa.Schema | Mapping):
        return "record", schema_of(hint, step=step), None
    if is_record(hint):
        return "record", schema_of(hint, step=step), hint
    return "scalar", pa.schema([(name, arrow_type(hint, step=step, at=name))]), None


def _check_default(name: str, default: Any, kind: pa.DataType, step: str) -> None:
    try:
        pa.scalar(default, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            f"the default of state {name!r} is not of its type",
            detail=f"{default!r} is not {kind}: {error}"[:200],
            step=step,
        ) from error


def _outside(state: State) -> NoReturn:
    raise InvalidError(
        f"a {type(state).__name__} holds values only inside the process step that declares it",
        hint="use it in on_row() or the process function; from outside, read it with pond.state(step, name)",
    )

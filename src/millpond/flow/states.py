"""Declarations of state: what a process step stores for each key.

A declaration is an attribute of a `Process` class, or the default of a
parameter of a process function.  Inside the step it is replaced by a handle on
the current key, with the methods written here.  With a type the state is
stored in columns, which SQL and users can read; without one it holds any value
that can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

import pyarrow as pa

from millpond.arguments.call_errors import checked, need_callable
from millpond.arguments.durations import Duration, microseconds
from millpond.arguments.names import check_columns
from millpond.arguments.schemas import arrow_type, is_record, schema_of
from millpond.errors import InvalidError
from millpond.operators.operator import Shape
from millpond.process.nested import rebuilt
from millpond.process.spec import PICKLED, RESERVED, Adds, Clock, Form, Kind, StateSpec, Ttl

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@checked
class State:
    """What all states have: a name, a type, a time to live.

    `ttl` drops a value so long after it was written (or, with reset="read", last used), by event
    time or by processing time; without `clock` it is event time where the stream has one.
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
    """One value per key: `.value` to read and set, `.clear()`.  Without a value it is `default`, or None.

    >>> from millpond.testing import Harness
    >>> def number(row, n=ValueState(int, default=0)):
    ...     n.value += 1
    ...     return {"n": n.value}
    >>> def pipeline(pond, words):
    ...     by_word = pond.stream("words", words).key_by("word")
    ...     by_word.process(number, {"n": int}, id="number").view("numbers")
    >>> harness = Harness(pipeline, {"words": {"word": str}})
    >>> harness.feed("words", {"word": "mill"}, {"word": "mill"})
    >>> epoch = harness.epoch()
    >>> harness.state("number", "n", "mill")
    2
    """

    value: T

    @overload
    def __init__(self: ValueState[T], type: type[T], default: Any = None, **settings: Any) -> None: ...
    @overload
    def __init__(self: ValueState[Any], type: Any = None, default: Any = None, **settings: Any) -> None: ...
    def __init__(self, type: Any = None, default: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)
        self._default = default

    def get(self) -> T:
        """The value of the current key."""
        _outside(self)

    def set(self, value: T) -> None:
        """Replace the value of the current key."""
        _outside(self)

    def clear(self) -> None:
        """Remove the value of the current key."""
        _outside(self)


@checked
class ReducingState(State, Generic[T]):
    """One value per key, and a function that combines it with another: `.add(x)`, `.value`, `.clear()`.

    >>> from millpond.testing import Harness
    >>> def longest(row, letters=ReducingState(max, int)):
    ...     letters.add(len(row.word))
    ...     return {"letters": letters.value}
    >>> def pipeline(pond, words):
    ...     by_page = pond.stream("words", words).key_by("page")
    ...     by_page.process(longest, {"letters": int}, id="longest").view("lengths")
    >>> harness = Harness(pipeline, {"words": {"page": int, "word": str}})
    >>> harness.feed("words", {"page": 1, "word": "mill"}, {"page": 1, "word": "ox"})
    >>> epoch = harness.epoch()
    >>> harness.state("longest", "letters", 1)
    4
    """

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
        """Combine the value with another."""
        _outside(self)

    def get(self) -> T:
        """The value of the current key."""
        _outside(self)

    def clear(self) -> None:
        """Remove the value of the current key."""
        _outside(self)


@checked
class AggregatingState(State, Generic[V, A, T]):
    """An accumulator per key: `.add(x)` adds an item, `.value` is the result of all items.

    `create()` makes an empty accumulator, `add(accumulator, item)` returns the next one, `result`
    (if given) turns it into the value; `type` is that of the accumulator.

    >>> from millpond.testing import Harness
    >>> average = AggregatingState(lambda: [0, 0], lambda a, x: [a[0] + 1, a[1] + x], lambda a: a[1] / a[0])
    >>> def mean(row, n=average):
    ...     n.add(row.n)
    ...     return {"mean": n.value}
    >>> def pipeline(pond, numbers):
    ...     pond.stream("numbers", numbers).key_by("k").process(mean, {"mean": float}).view("means")
    >>> harness = Harness(pipeline, {"numbers": {"k": int, "n": int}})
    >>> harness.feed("numbers", {"k": 1, "n": 2}, {"k": 1, "n": 5})
    >>> epoch = harness.epoch()
    >>> harness.view("means")
    [{'mean': 2.0}, {'mean': 3.5}]
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
        """Add an item to the accumulator."""
        _outside(self)

    def get(self) -> T:
        """The result of all items of the current key."""
        _outside(self)

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        _outside(self)


@checked
class ListState(State, Generic[T]):
    """Items in the order in which they were appended; an append does not touch earlier items.

    >>> from millpond.testing import Harness
    >>> def remember(row, words=ListState(str)):
    ...     words.append(row.word)
    ...     words.keep(2)
    >>> def pipeline(pond, words):
    ...     by_page = pond.stream("words", words).key_by("page")
    ...     by_page.process(remember, {"word": str}, id="last").view("none")
    >>> harness = Harness(pipeline, {"words": {"page": int, "word": str}})
    >>> harness.feed("words", {"page": 1, "word": "a"}, {"page": 1, "word": "b"}, {"page": 1, "word": "c"})
    >>> epoch = harness.epoch()
    >>> harness.state("last", "words", 1)
    ['b', 'c']
    """

    kind: Kind = "list"

    @overload
    def __init__(self: ListState[T], type: type[T], **settings: Any) -> None: ...
    @overload
    def __init__(self: ListState[Any], type: Any = None, **settings: Any) -> None: ...
    def __init__(self, type: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)

    def append(self, item: T) -> None:
        """Add an item behind the others."""
        _outside(self)

    def extend(self, items: Iterable[T]) -> None:
        """Add several items behind the others."""
        _outside(self)

    def last(self, n: int) -> list[T]:
        """The newest n items."""
        _outside(self)

    def keep(self, n: int) -> None:
        """Drop all but the newest n items."""
        _outside(self)

    def clear(self) -> None:
        """Remove all items of the current key."""
        _outside(self)

    def __iter__(self) -> Iterator[T]:
        _outside(self)

    def __len__(self) -> int:
        _outside(self)

    def __getitem__(self, which: int) -> T:
        _outside(self)


@checked
class MapState(State, Generic[K, V]):
    """A dict per key; each entry is read and written separately.

    >>> from millpond.testing import Harness
    >>> def count(row, counts=MapState(str, int)):
    ...     counts[row.word] = counts.get(row.word, 0) + 1
    >>> def pipeline(pond, words):
    ...     pond.stream("words", words).key_by("page").process(count, {"n": int}, id="count").view("none")
    >>> harness = Harness(pipeline, {"words": {"page": int, "word": str}})
    >>> harness.feed("words", {"page": 1, "word": "a"}, {"page": 1, "word": "a"})
    >>> epoch = harness.epoch()
    >>> harness.state("count", "counts", 1)
    {'a': 2}
    """

    kind: Kind = "map"

    @overload
    def __init__(self: MapState[K, V], entry: type[K], type: type[V], **settings: Any) -> None: ...
    @overload
    def __init__(self: MapState[Any, Any], entry: Any = str, type: Any = None, **settings: Any) -> None: ...
    def __init__(self, entry: Any = str, type: Any = None, **settings: Any) -> None:
        super().__init__(type, **settings)
        self._entry = entry

    def get(self, entry: K, default: Any = None) -> V:
        """The value of an entry, or `default`."""
        _outside(self)

    def put(self, entry: K, value: V) -> None:
        """Set the value of an entry."""
        _outside(self)

    def remove(self, entry: K) -> None:
        """Remove an entry, if it exists."""
        _outside(self)

    def pop(self, entry: K, default: Any = None) -> V:
        """Remove an entry and return its value."""
        _outside(self)

    def setdefault(self, entry: K, default: V) -> V:
        """The value of an entry, after setting it to the default if there is none."""
        _outside(self)

    def update(self, other: Mapping[K, V]) -> None:
        """Set several entries."""
        _outside(self)

    def items(self) -> Iterator[tuple[K, V]]:
        """The entries with their values."""
        _outside(self)

    def keys(self) -> Iterator[K]:
        """The entries."""
        _outside(self)

    def values(self) -> Iterator[V]:
        """The values of all entries."""
        _outside(self)

    def clear(self) -> None:
        """Remove all entries of the current key."""
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
    """A dict that all keys read and only the control stream changes.

    >>> from millpond import Process
    >>> from millpond.testing import Harness
    >>> class Priced(Process):
    ...     prices = BroadcastState(str, float)
    ...     def on_control(self, row, ctx):
    ...         self.prices[row.item] = row.price
    ...     def on_row(self, row, ctx):
    ...         return {"price": self.prices.get(row.item)}
    >>> def pipeline(pond, sales, prices):
    ...     control = pond.stream("prices", prices)
    ...     sales = pond.stream("sales", sales).key_by("item")
    ...     sales.process(Priced, {"price": float}, control=control).view("priced")
    >>> harness = Harness(pipeline, {"sales": {"item": str}, "prices": {"item": str, "price": float}})
    >>> harness.feed("prices", item="tea", price=2.5)
    >>> harness.feed("sales", item="tea")
    >>> epoch = harness.epoch()
    >>> harness.view("priced")
    [{'price': 2.5}]
    """

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

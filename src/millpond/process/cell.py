"""A value state that user code reads as a plain attribute, at the cost of one.

A handle runs Python for every read and write of `.value`: to return the default
where there is no value, and to record what was set.  A cell needs neither where
the result is the same: a missing value reads as None; or user code never sets
None (`bytecode_facts.never_emptied`), and the key already has a value or every
row sets one (`bytecode_facts.always_set`).  Then `value` is loaded before the
key's rows run and read back after them; if it is another object, it was set.

Law: user code reads and writes the same values as through the handle.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn


class NotItsValue:
    """Refuses to be compared or tested for truth: a state is not its value, and the code meant the value."""

    __slots__ = ()

    def _state(self) -> str:
        raise NotImplementedError

    def _is_no_value(self, *others: Any) -> NoReturn:
        name = self._state()
        raise TypeError(f"{name} is a state, not its value: write {name}.value")

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _is_no_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _is_no_value
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __int__ = __float__ = _is_no_value
    __hash__ = object.__hash__


class Cell(NotItsValue):
    """The object by which user code reads and sets such a state."""

    __slots__ = ("_name", "value")

    def __init__(self, name: str) -> None:
        self._name = name
        self.value: Any = None

    def _state(self) -> str:
        return self._name

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    def add(self, item: Any) -> NoReturn:
        raise TypeError(f"state {self._name!r} is a ValueState: set .value, or declare a ReducingState")


class Shared(NamedTuple):
    """A cell and the lists it shares with its handle: values shown and stored by key, and which were set."""

    cell: Cell
    shown: list[Any]
    values: list[Any]
    touched: bytearray

"""A value state as a plain attribute, at the cost of a plain attribute.

A handle runs Python for every read and write of `.value`: to give the default
where there is no value, and to know what was set.  Neither is needed where it
comes out the same: no value is shown as None; or user code never sets None
(`uses.never_emptied`), and the key has a value already or is given one by every
row (`uses.always_set`).  Then `value` is loaded when the key's turn comes and
taken back after its rows; what is another object than before was set.

Law: the values seen and the values written are those of the handle.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn


class NotItsValue:
    """A state is always true and equal to nothing: who asks meant its value."""

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
    """What user code holds of such a state."""

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
    """A cell and what it has in common with its handle: what all keys show and hold, and which were set."""

    cell: Cell
    shown: list[Any]
    values: list[Any]
    touched: bytearray

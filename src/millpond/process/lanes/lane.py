"""The values of many keys as one object for user code: one lane per key.

Law: an operator returns in each lane what Python returns for that lane's value.
Where numpy would return anything else (integers beyond 64 bits, a division by
zero, integers that no float represents) `Unfit` is raised, and the rows run
through user code one by one.  A condition that holds only in some lanes raises
`LanesDisagree`: the lanes are split, and user code is called for each side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_INT = np.dtype(np.int64)  # the usual dtype object; arrays made elsewhere may have another one
INT_LOW, INT_HIGH = -(2**63), 2**63 - 1
EXACT = 2**53  # integers up to this are exact as floats


class Unfit(Exception):
    """Lanes cannot compute what Python would return."""


class LanesDisagree(BaseException):
    """A condition holds in some lanes but not in others."""

    def __init__(self, holds: Bools) -> None:
        self.holds = holds


class _Number(NamedTuple):
    """One operand: an array with a value per lane, or one number for all lanes."""

    values: Any
    is_float: bool
    low: int  # a lower bound of all integer lanes
    high: int

    def tight(self) -> _Number:
        """The same operand with the exact bounds of its lanes."""
        if self.is_float or not isinstance(self.values, np.ndarray) or not len(self.values):
            return self
        return _Number(self.values, False, int(self.values.min()), int(self.values.max()))

    def as_float(self) -> Any:
        if self.is_float:
            return self.values
        if not (self.low >= -EXACT and self.high <= EXACT):
            _, _, low, high = self.tight()
            if not (low >= -EXACT and high <= EXACT):
                raise Unfit("a whole number that no float holds")
        return self.values.astype(np.float64) if isinstance(self.values, np.ndarray) else float(self.values)

    def not_zero(self) -> None:
        if not np.all(self.values):
            raise Unfit("a division by zero")


class _Bounded(Protocol):
    """Integers between bounds."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...


Bounds = Callable[[_Bounded, _Bounded], tuple[int, int]]


class Lane:
    """
    >>> price = Lane(np.array([3, 4]), 3, 4)
    >>> (price * 2 + 1).array
    array([7, 9])
    """

    __slots__ = ("array", "column", "high", "low")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Values, low: int = 0, high: int = 0, column: str | None = None) -> None:
        self.array = array  # int64, float64 or bool
        self.low = low
        self.high = high
        self.column = column  # the input column, if this is one unchanged

    def __add__(self, other: Any) -> Lane:
        return _whole_or_float(np.add, _sum, self, other)

    def __radd__(self, other: Any) -> Lane:
        return _whole_or_float(np.add, _sum, other, self)

    def __sub__(self, other: Any) -> Lane:
        return _whole_or_float(np.subtract, _difference, self, other)

    def __rsub__(self, other: Any) -> Lane:
        return _whole_or_float(np.subtract, _difference, other, self)

    def __mul__(self, other: Any) -> Lane:
        return _whole_or_float(np.multiply, _product, self, other)

    def __rmul__(self, other: Any) -> Lane:
        return _whole_or_float(np.multiply, _product, other, self)

    def __floordiv__(self, other: Any) -> Lane:
        return _integer_division(np.floor_divide, _quotient, self, other)

    def __rfloordiv__(self, other: Any) -> Lane:
        return _integer_division(np.floor_divide, _quotient, other, self)

    def __mod__(self, other: Any) -> Lane:
        return _integer_division(np.remainder, _remainder, self, other)

    def __rmod__(self, other: Any) -> Lane:
        return _integer_division(np.remainder, _remainder, other, self)

    def __truediv__(self, other: Any) -> Lane:
        return _divided(self, other)

    def __rtruediv__(self, other: Any) -> Lane:
        return _divided(other, self)

    def __neg__(self) -> Lane:
        return (
            _whole_or_float(np.subtract, _difference, 0, self) if not _is_float(self) else Lane(-self.array)
        )

    def __abs__(self) -> Lane:
        if _is_float(self):
            return Lane(np.abs(self.array))
        mine = _number(self)
        most = max(abs(mine.low), abs(mine.high))
        if most > INT_HIGH:
            raise Unfit("a whole number beyond 64 bits")
        return Lane(np.abs(mine.values), 0, most)

    def __lt__(self, other: Any) -> Lane:
        return _compared(np.less, self, other)

    def __le__(self, other: Any) -> Lane:
        return _compared(np.less_equal, self, other)

    def __gt__(self, other: Any) -> Lane:
        return _compared(np.greater, self, other)

    def __ge__(self, other: Any) -> Lane:
        return _compared(np.greater_equal, self, other)

    def __eq__(self, other: object) -> Lane:  # type: ignore[override]
        return _compared(np.equal, self, other)

    def __ne__(self, other: object) -> Lane:  # type: ignore[override]
        return _compared(np.not_equal, self, other)

    def __bool__(self) -> bool:
        return agreed(self.array if self.array.dtype == np.bool_ else self.array != 0)


class TextLane:
    """Text, which can only be compared for equality."""

    __slots__ = ("codes", "column", "words")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, codes: Values, words: dict[str, int], column: str) -> None:
        self.codes = codes
        self.words = words
        self.column = column

    def __eq__(self, other: object) -> Lane:  # type: ignore[override]
        if type(other) is not str:
            raise Unfit("text is only compared with text that is written in the code")
        return Lane(self.codes == self.words.get(other, -1))

    def __ne__(self, other: object) -> Lane:  # type: ignore[override]
        return Lane(~(self == other).array)

    def __bool__(self) -> bool:
        return agreed(self.codes != self.words.get("", -1))


class OtherLane:
    """A value of any other type, which can only be returned unchanged."""

    __slots__ = ("column",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, column: str) -> None:
        self.column = column

    def __eq__(self, other: object) -> bool:
        raise Unfit("only numbers, truth values and text are compared")

    def __bool__(self) -> bool:
        raise Unfit("only numbers, truth values and text are true or false")


def agreed(holds: Bools) -> bool:
    """The value of a condition if it is the same in all lanes; else raises LanesDisagree."""
    count = np.count_nonzero(holds)
    if 0 < count < len(holds):
        raise LanesDisagree(holds)
    return bool(count)


def _is_float(lane: Lane) -> bool:
    return lane.array.dtype == np.float64


def _number(value: Any) -> _Number:
    if type(value) is Lane:
        kind = value.array.dtype
        if kind == np.bool_:
            return _Number(value.array.astype(np.int64), False, 0, 1)
        return _Number(value.array, kind == np.float64, value.low, value.high)
    if type(value) is float:
        return _Number(value, True, 0, 0)
    if type(value) is bool or type(value) is int:
        whole = int(value)
        if INT_LOW <= whole <= INT_HIGH:
            return _Number(whole, False, whole, whole)
    raise Unfit(f"a number is needed, not {type(value).__name__}")


def _whole_or_float(do: Any, bounds: Bounds, left: Any, right: Any) -> Lane:
    # The common case; the general code below takes longer than the arithmetic.
    if type(left) is Lane and left.array.dtype is _INT:
        if type(right) is Lane and right.array.dtype is _INT:
            low, high = bounds(left, right)
            if low >= INT_LOW and high <= INT_HIGH:
                return Lane(do(left.array, right.array), low, high)
        elif type(right) is int:
            low, high = bounds(left, _Number(right, False, right, right))
            if low >= INT_LOW and high <= INT_HIGH and INT_LOW <= right <= INT_HIGH:
                return Lane(do(left.array, right), low, high)
    one, two = _number(left), _number(right)
    if one.is_float or two.is_float:
        return Lane(do(one.as_float(), two.as_float()))
    return _bounded(do, bounds, one, two)


def _integer_division(do: Any, bounds: Bounds, left: Any, right: Any) -> Lane:
    one, two = _number(left), _number(right)
    if one.is_float or two.is_float:
        raise Unfit("whole division of floats")
    two.not_zero()
    return _bounded(do, bounds, one, two)


def _bounded(do: Any, bounds: Bounds, one: _Number, two: _Number) -> Lane:
    low, high = bounds(one, two)
    if low < INT_LOW or high > INT_HIGH:
        low, high = bounds(one.tight(), two.tight())
        if low < INT_LOW or high > INT_HIGH:
            raise Unfit("a whole number beyond 64 bits")
    return Lane(do(one.values, two.values), low, high)


def _divided(left: Any, right: Any) -> Lane:
    one, two = _number(left), _number(right)
    two.not_zero()
    return Lane(np.true_divide(one.as_float(), two.as_float()))


def _compared(do: Any, left: Any, right: Any) -> Lane:
    one, two = _number(left), _number(right)
    if one.is_float or two.is_float:
        return Lane(do(one.as_float(), two.as_float()))
    return Lane(do(one.values, two.values))


def _sum(one: _Bounded, two: _Bounded) -> tuple[int, int]:
    return one.low + two.low, one.high + two.high


def _difference(one: _Bounded, two: _Bounded) -> tuple[int, int]:
    return one.low - two.high, one.high - two.low


def _product(one: _Bounded, two: _Bounded) -> tuple[int, int]:
    corners = [a * b for a in (one.low, one.high) for b in (two.low, two.high)]
    return min(corners), max(corners)


def _quotient(one: _Bounded, two: _Bounded) -> tuple[int, int]:
    most = max(abs(one.low), abs(one.high))
    return -most, most


def _remainder(one: _Bounded, two: _Bounded) -> tuple[int, int]:
    most = max(abs(two.low), abs(two.high))
    return -most, most

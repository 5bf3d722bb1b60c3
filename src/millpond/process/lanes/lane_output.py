"""Collects the output of user code in lanes, as columns: a slot for each row, filled call by call.

Law: a column contains what Arrow makes of the values that the same code returns
row by row; anything else raises `Unfit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.process.lanes.lane import EXACT, INT_HIGH, INT_LOW, Lane, OtherLane, TextLane, Unfit
from millpond.process.lanes.lane_inputs import LaneSelection

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Column = Callable[[str], "pa.Array | None"]

_LANES = (Lane, TextLane, OtherLane)
_NULL = -1  # the code of a NULL text


class LaneOutput:
    """The rows of the main output."""

    def __init__(self, schema: pa.Schema, rows: int, column: Column) -> None:
        self._names = schema.names
        self._fields = [_field(f.type, rows, column) for f in schema]
        self._schema = schema
        self.has_row = np.ones(rows, np.bool_)  # which rows returned an output row

    def put(self, selection: LaneSelection, item: Any) -> None:
        """Store what the call for these lanes returned."""
        if item is None:
            selection.put(self.has_row, False, selection.begin)
            return
        if type(item) is dict and len(item) == len(self._names):
            try:
                item = tuple([item[name] for name in self._names])
            except KeyError:
                raise Unfit("a row with other columns") from None
        if type(item) is not tuple or len(item) != len(self._names):
            raise Unfit("not a row")
        for field, value in zip(self._fields, item, strict=True):
            field.put(selection, value)

    def columns(self) -> list[pa.Array]:
        """The columns of the output rows, round by round."""
        arrays = [field.array() for field in self._fields]
        if self.has_row.all():
            return arrays
        some = pa.array(self.has_row)
        return [array.filter(some) for array in arrays]


class _Field(ABC):
    """One output column: either an unchanged input column in every call, or values."""

    def __init__(self, kind: pa.DataType, rows: int, column: Column) -> None:
        self._kind = kind
        self._rows = rows
        self._column = column
        self._same: str | None = None  # the input column returned by all calls so far
        self._begun = False
        self._null: Bools | None = None

    def put(self, selection: LaneSelection, value: Any) -> None:
        name = value.column if isinstance(value, _LANES) else None
        if not self._begun and name is not None and self._is_mine(name):
            self._same, self._begun = name, True
        if self._same is not None:
            if name == self._same:
                return
            self._start(self._column(self._same))
            self._same = None
        elif not self._begun:
            self._start(None)
        self._begun = True
        if value is None:
            if self._null is None:
                self._null = np.zeros(self._rows, np.bool_)
            selection.put(self._null, True, selection.begin)
        else:
            self._put(selection, value)

    def array(self) -> pa.Array:
        if self._same is not None:
            return self._column(self._same)
        if not self._begun:
            return pa.nulls(self._rows, self._kind)
        return self._array()

    def _is_mine(self, name: str) -> bool:
        array = self._column(name)
        return array is not None and array.type == self._kind

    @abstractmethod
    def _start(self, array: pa.Array | None) -> None:
        """Switch to values; the rows so far get those of this input column."""

    @abstractmethod
    def _put(self, selection: LaneSelection, value: Any) -> None: ...

    @abstractmethod
    def _array(self) -> pa.Array: ...


class _Other(_Field):
    """A column of any other type: it must be an unchanged input column in every call."""

    def _start(self, array: pa.Array | None) -> None:
        raise Unfit("a value of another type")

    def _put(self, selection: LaneSelection, value: Any) -> None:
        raise Unfit("a value of another type")

    def _array(self) -> pa.Array:
        raise Unfit("a value of another type")


class _Numbers(_Field):
    """Integers, floats or booleans."""

    def _start(self, array: pa.Array | None) -> None:
        dtype = _dtype(self._kind)
        if array is None:
            self._values: Values = np.zeros(self._rows, dtype)
        else:
            self._values = array.to_numpy(zero_copy_only=False).astype(dtype)

    def _put(self, selection: LaneSelection, value: Any) -> None:
        dtype = self._values.dtype
        if isinstance(value, Lane):
            numbers = value.array
            if numbers.dtype is not dtype and numbers.dtype != dtype:
                if numbers.dtype != np.int64 or dtype != np.float64:
                    raise Unfit("a value of another type")
                if value.low < -EXACT or value.high > EXACT:
                    raise Unfit("a whole number that no float holds")
            selection.put(self._values, numbers, selection.begin)
            return
        if type(value) is int and dtype == np.float64 and -EXACT <= value <= EXACT:
            value = float(value)
        if type(value) is not {"i": int, "f": float, "b": bool}[dtype.kind]:
            raise Unfit("a value of another type")
        plain: Any = value
        if dtype.kind == "i" and not INT_LOW <= plain <= INT_HIGH:
            raise Unfit("a whole number beyond 64 bits")
        selection.put(self._values, plain, selection.begin)

    def _array(self) -> pa.Array:
        array = pa.array(self._values, mask=self._null)
        try:
            return array if array.type == self._kind else array.cast(self._kind)
        except pa.ArrowInvalid:
            raise Unfit("a number that the column does not hold") from None


class _Words(_Field):
    """Text constants of the code."""

    def _start(self, array: pa.Array | None) -> None:
        if array is not None:
            raise Unfit("text of the rows and of the code")
        self._codes = np.full(self._rows, _NULL, np.int32)
        self._words: dict[str, int] = {}

    def _put(self, selection: LaneSelection, value: Any) -> None:
        if type(value) is not str:
            raise Unfit("a value of another type")
        selection.put(self._codes, self._words.setdefault(value, len(self._words)), selection.begin)

    def _array(self) -> pa.Array:
        return pa.array(list(self._words), self._kind).take(pa.array(self._codes, mask=self._codes == _NULL))


def _field(kind: pa.DataType, rows: int, column: Column) -> _Field:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Words(kind, rows, column)
    return (_Other if _dtype(kind) is None else _Numbers)(kind, rows, column)


def _dtype(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return None if kind == pa.uint64() else np.int64
    if pa.types.is_float64(kind):
        return np.float64
    return np.bool_ if pa.types.is_boolean(kind) else None

"""The row and states that user code sees while one call runs for many keys.

Law: nothing outlives a call except what `LaneState.keep` stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.process.cell import NotItsValue
from millpond.process.columns import ColumnHandle
from millpond.process.lanes.lane import INT_HIGH, INT_LOW, Lane, LanesDisagree, OtherLane, TextLane, Unfit
from millpond.process.spec import StateSpec

Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_YEARS = np.array(["0001-01-02", "9999-12-31"], "datetime64[D]")  # Python's range, in any time zone
_KINDS = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}


class LaneSelection:
    """The rows and lanes of the current call."""

    __slots__ = ("begin", "chosen", "size")

    def __init__(self) -> None:
        self.begin = 0  # the first row of the round
        self.size = 0  # the number of lanes in the round
        self.chosen: Ints | None = None  # the selected lanes of the round, None for all

    def of_rows(self, values: Values) -> Values:
        lanes = values[self.begin : self.begin + self.size]
        return lanes if self.chosen is None else lanes[self.chosen]

    def of_lanes(self, values: Values) -> Values:
        lanes = values[: self.size]
        return lanes if self.chosen is None else lanes[self.chosen]

    def put(self, into: Values, values: Any, begin: int = 0) -> None:
        """Set these lanes of an array."""
        if self.chosen is None:
            into[begin : begin + self.size] = values
        else:
            into[begin : begin + self.size][self.chosen] = values


class LaneColumns:
    """The columns of the rows, in the lanes of this turn."""

    def __init__(self, selection: LaneSelection, column: Callable[[str], pa.Array | None]) -> None:
        self._selection = selection
        self._column = column
        self._known: list[tuple[str, Callable[[], Any]]] = []
        self.row = LaneRow(self)

    def build(self, name: str) -> Any:
        """Build a column on its first use."""
        array = self._column(name)
        if array is None:
            raise Unfit(f"no column {name!r}")
        make = _lanes_of(name, array, self._selection)
        self._known.append((name, make))
        column = self.row.__dict__[name] = make()
        return column

    def refresh(self) -> None:
        """Build the known columns for a new turn, as attributes: reading these is cheaper than `build`."""
        mine = self.row.__dict__
        for name, make in self._known:
            mine[name] = make()


class LaneRow:
    """`row.price` is the column in the lanes of this turn; user code can read only columns."""

    def __init__(self, rows: LaneColumns) -> None:
        self.__dict__[""] = rows

    def __getattr__(self, name: str) -> Any:
        return self.__dict__[""].build(name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise Unfit("rows are read-only")


def _lanes_of(name: str, array: pa.Array, selection: LaneSelection) -> Callable[[], Any]:
    """The value of `row.name` in the current turn."""
    if array.null_count:
        raise Unfit(f"NULL in column {name!r}")
    kind = array.type
    if pa.types.is_integer(kind):
        bounds = pc.min_max(array).as_py() if len(array) else {"min": 0, "max": 0}
        low, high = bounds["min"], bounds["max"]
        if high > INT_HIGH:
            raise Unfit("a whole number beyond 64 bits")
        integers = array.cast(pa.int64()).to_numpy()
        return lambda: Lane(selection.of_rows(integers), low, high, name)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        floats = array.cast(pa.float64()).to_numpy()
        return lambda: Lane(selection.of_rows(floats), 0, 0, name)
    if pa.types.is_boolean(kind):
        truth = array.to_numpy(zero_copy_only=False)
        return lambda: Lane(selection.of_rows(truth), 0, 1, name)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = array.dictionary_encode()
        codes = encoded.indices.to_numpy()
        words = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
        return lambda: TextLane(selection.of_rows(codes), words, name)
    if not _is_kept(array):
        raise Unfit(f"column {name!r} may be another one as Python values")
    return lambda: OtherLane(name)


def _is_kept(array: pa.Array) -> bool:
    """Is this column unchanged after a conversion to Python values and back?"""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit != "ns":  # Python truncates nanoseconds
        ends = pc.min_max(array.cast(pa.int64()))
        a_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[kind.unit]
        years = _YEARS.astype("datetime64[s]").astype(np.int64) * a_second
        return not len(array) or bool(years[0] <= ends["min"].as_py() <= ends["max"].as_py() < years[1])
    return bool(pa.types.is_binary(kind) or pa.types.is_decimal128(kind))


class LaneState(NotItsValue):
    """`state.value` is the value of the keys of this turn."""

    __slots__ = (
        *(
            "_absent",
            "_all",
            "_array",
            "_high",
            "_kind",
            "_low",
            "_missing",
            "_new",
            "_set",
            "_spec",
            "_selection",
        ),
    )

    def __init__(self, spec: StateSpec, handle: ColumnHandle, lanes: Ints, selection: LaneSelection) -> None:
        kind = _KINDS.get(spec.fields[0].type)
        if spec.default is not None and type(spec.default) is not kind:
            raise Unfit("a default of another type")
        assert kind is not None
        values = handle.values.take(pa.array(lanes))
        absent = ~handle.found[lanes]
        self._spec = spec
        self._selection = selection
        self._kind: type = kind
        self._array: Values = values.fill_null(kind()).to_numpy(zero_copy_only=False).copy()
        self._absent: Bools | None = absent if spec.default is None and absent.any() else None
        self._missing = absent  # lanes that will have no value unless one is set
        self._set = np.zeros(len(values), np.bool_)
        self._all = False  # has every lane that still has rows been set?
        self._new: Any = None
        self._low = self._high = 0
        if kind is int and len(values):
            self._low, self._high = int(self._array.min()), int(self._array.max())

    def _state(self) -> str:
        return self._spec.name

    @property
    def value(self) -> Any:
        if self._new is not None:
            return self._new
        if self._absent is not None and not self._all:
            absent = self._selection.of_lanes(self._absent)
            count = np.count_nonzero(absent)
            if count == len(absent):
                return None
            if count:
                raise LanesDisagree(absent)
        return Lane(self._selection.of_lanes(self._array), self._low, self._high)

    @value.setter
    def value(self, value: Any) -> None:
        self._new = self._fitted(value)

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        self.value = value

    def _fitted(self, value: Any) -> Lane:
        if isinstance(value, Lane):
            if value.array.dtype is not self._array.dtype and value.array.dtype != self._array.dtype:
                raise Unfit("a value of another type")
            return value
        is_mine = type(value) is self._kind
        plain: Any = value
        if not is_mine or (self._kind is int and not INT_LOW <= plain <= INT_HIGH):
            raise Unfit("a value of another type")
        repeated = np.full(len(self._selection.of_lanes(self._array)), plain, self._array.dtype)
        return Lane(repeated, plain, plain)

    def keep(self) -> None:
        """Store what the call set as the values of these keys; the call is complete."""
        new, self._new = self._new, None
        if new is None:
            return
        self._selection.put(self._array, new.array)
        if not self._all:
            self._selection.put(self._set, True)
            if self._absent is not None:
                self._selection.put(self._absent, False)
            self._all = self._selection.chosen is None  # later rounds have a subset of these lanes
        if self._kind is int:
            self._low, self._high = min(self._low, new.low), max(self._high, new.high)

    def forget(self) -> None:
        self._new = None

    def store(self, handle: ColumnHandle, lanes: Ints) -> None:
        """Write the values to the keys of the lanes; a key that had no value and set none stays without."""
        if not self._set.any():
            return
        back = np.empty(len(lanes), np.int64)
        back[lanes] = np.arange(len(lanes))
        handle.values = pa.array(self._array[back], mask=(self._missing & ~self._set)[back])


def keeps_lanes(spec: StateSpec) -> bool:
    """Can this state be used in lanes?"""
    return (
        spec.kind == "value"
        and spec.form == "scalar"
        and spec.ttl is None
        and spec.adds is None
        and spec.rebuilt is None
        and spec.fields[0].type in _KINDS
    )

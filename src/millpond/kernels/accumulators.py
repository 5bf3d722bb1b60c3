"""Accumulators: aggregates that are sums, so they can be updated from changes alone.

Each kind turns rows into *fields* (columns that add up exactly, in any order,
including retractions), adds fields, and computes the visible value from them.
One field may be stored in the visible column itself; the others are hidden columns
of the group's row.  Groups are defined by `starts`, the first row of each in
rows sorted by group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError
from millpond.identity import canonical, fixed_view, one_chunk, take
from millpond.kernels import exact_sum, int128
from millpond.kernels.dense_groups import DenseGroups
from millpond.kernels.numeric_quotients import NUMERIC, NUMERIC_SCALE, integers, quotients
from millpond.ordering import Order, ranks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_INT64, _FLOAT64 = pa.int64(), pa.float64()
Fields = dict[str, Any]  # field name -> numpy int64 array, or Arrow array


class Accumulator(Protocol):
    """See the module docstring; `fields` maps each field to its Arrow type."""

    @property
    def visible(self) -> pa.DataType: ...

    @property
    def visible_field(self) -> str | None:
        """The field that is stored in the visible column."""

    counts: ClassVar[bool]  # int64 fields are numbers that start at 0; else values that start as NULL
    reason: ClassVar[str]  # why a value is undefined

    @property
    def fields(self) -> Mapping[str, pa.DataType]: ...

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields: ...

    def combine(self, fields: Fields, starts: Ints) -> Fields: ...

    def add(self, old: Fields, delta: Fields) -> Fields: ...

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        """The visible values; `rows` is the number of rows in each group.  NULL where it fails."""

    def fails(self, fields: Fields) -> Bools | None:
        """The groups whose value is undefined, each an error row; None if that cannot happen."""


class SumsDenseKeys(ABC):
    """An accumulator that can sum rows of dense keys without sorting them."""

    @abstractmethod
    def dense(self, arg: pa.ChunkedArray, places: DenseGroups) -> Fields | None:
        """The fields of each place that are not zero everywhere; None if these values do not allow it."""


class Invertible(ABC):
    """An accumulator whose fields can be subtracted: a group can lose another one that is part of it."""

    @abstractmethod
    def negate(self, fields: Fields) -> Fields: ...


class BoundsState(ABC):
    """An accumulator whose combined fields can grow: their owner bounds them once per epoch."""

    @abstractmethod
    def bounded(self, fields: Fields) -> Fields:
        """The same groups in bounded space; fields that are small enough stay as they are."""


def bounded(kind: Accumulator, fields: Fields) -> Fields:
    """Fields as they are stored."""
    return kind.bounded(fields) if isinstance(kind, BoundsState) else fields


class _Always:
    """Every group has a value."""

    reason: ClassVar[str] = ""

    def fails(self, fields: Fields) -> Bools | None:
        return None


def _segment_sum(values: Ints, starts: Ints) -> Ints:
    if not values.any():  # most columns are all zero: counts of NULLs, and the upper halves of sums
        return np.zeros(len(starts), np.int64)
    return np.add.reduceat(values, starts)


def _weighted(values: Ints, weights: Ints | None) -> Ints:
    return values if weights is None else values * weights


def _valid(arg: pa.Array) -> Bools:
    valid: Bools = arg.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _count_valid(arg: pa.Array, weights: Ints | None, starts: Ints, counts: Ints) -> Ints:
    if arg.null_count == 0:
        return counts
    return _segment_sum(_weighted(_valid(arg).astype(np.int64), weights), starts)


def _integers(arg: pa.Array) -> tuple[Ints | None, Ints]:
    """(hi, lo) of a column of integers; NULL counts as 0."""
    filled = arg.fill_null(0) if arg.null_count else arg
    if arg.type == pa.uint64():
        hi, lo = int128.from_unsigned(filled.to_numpy())
        return (hi if hi.any() else None), lo
    values: Ints = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return None, values


def _masked(values: Any, dead: Bools) -> pa.Array:
    return pa.array(values, mask=dead if dead.any() else None)


class _Linear(_Always, Invertible):
    """Fields that are int64 columns and are simply added."""

    def negate(self, fields: Fields) -> Fields:
        return {name: -values for name, values in fields.items()}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        return {name: _segment_sum(values, starts) for name, values in fields.items()}

    def add(self, old: Fields, delta: Fields) -> Fields:
        return {name: old[name] + delta[name] for name in delta}


@dataclass(frozen=True)
class Count(_Linear, SumsDenseKeys):
    """count(*) without an argument, else the count of non-NULL values."""

    counts: ClassVar[bool] = True

    visible: pa.DataType = _INT64
    visible_field: str | None = "n"

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"n": pa.int64()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        return {"n": counts if arg is None else _count_valid(arg, weights, starts, counts)}

    def dense(self, arg: pa.ChunkedArray, places: DenseGroups) -> Fields | None:
        return {"n": places.valid(arg) if arg.null_count else places.counts}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return pa.array(fields["n"])


@dataclass(frozen=True)
class IntSum(SumsDenseKeys, Invertible):
    """sum of integers: exact in 128 bits, returned as int64; a sum that does not fit is an error."""

    counts: ClassVar[bool] = True
    reason: ClassVar[str] = "sum does not fit a 64-bit integer"

    visible: pa.DataType = _INT64
    visible_field: str | None = "lo"

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"lo": pa.int64(), "hi": pa.int64(), "nulls": pa.int64()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        hi, lo = _integers(arg)
        if weights is not None and not (weights == 1).all():
            high = 0 if hi is None else hi * weights
            hi, lo = int128.times(lo, weights)
            hi = hi + high
        total = int128.group_sum(hi, lo, starts)
        if arg.null_count:
            nulls = _segment_sum(_weighted((~_valid(arg)).astype(np.int64), weights), starts)
        else:
            nulls = np.zeros(len(starts), np.int64)
        return {"lo": total[1], "hi": total[0], "nulls": nulls}

    def dense(self, arg: pa.ChunkedArray, places: DenseGroups) -> Fields | None:
        """Only fields that are not zero: without NULLs and within 64 bits, all but `lo` are zero."""
        if arg.null_count or arg.type == pa.uint64():
            return None
        total = places.sums(arg)
        return None if total is None else {"lo": total}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        hi, lo = int128.group_sum(fields["hi"], fields["lo"], starts)
        return {"lo": lo, "hi": hi, "nulls": _segment_sum(fields["nulls"], starts)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        hi, lo = int128.add((old["hi"], old["lo"]), (delta["hi"], delta["lo"]))
        return {"lo": lo, "hi": hi, "nulls": old["nulls"] + delta["nulls"]}

    def negate(self, fields: Fields) -> Fields:
        hi, lo = int128.negate((fields["hi"], fields["lo"]))
        return {"lo": lo, "hi": hi, "nulls": -fields["nulls"]}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return _masked(fields["lo"], (rows <= fields["nulls"]) | ~int128.fits64((fields["hi"], fields["lo"])))

    def fails(self, fields: Fields) -> Bools | None:
        return ~int128.fits64((fields["hi"], fields["lo"]))


@dataclass(frozen=True)
class WideSum(IntSum):
    """sum of integers as in SQL: a wide integer, which no sum of 64-bit ones exceeds."""

    visible: pa.DataType = field(default_factory=lambda: pa.decimal128(38, 0))
    visible_field: str | None = None

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return int128.to_decimal((fields["hi"], fields["lo"]), self.visible, rows <= fields["nulls"])

    def fails(self, fields: Fields) -> Bools | None:
        return None


@dataclass(frozen=True)
class IntNumericAvg(IntSum):
    """avg of integers as a numeric, exact."""

    visible: pa.DataType = NUMERIC
    visible_field: str | None = None

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return quotients((fields["hi"], fields["lo"]), rows - fields["nulls"], 0)

    def fails(self, fields: Fields) -> Bools | None:
        return None


@dataclass(frozen=True)
class IntAvg(IntSum):
    visible: pa.DataType = _FLOAT64
    visible_field: str | None = None

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        count = rows - fields["nulls"]
        empty = count <= 0
        total = int128.to_float((fields["hi"], fields["lo"]))
        return _masked(total / np.where(empty, 1, count), empty)

    def fails(self, fields: Fields) -> Bools | None:
        return None


@dataclass(frozen=True)
class DecimalSum(Invertible):
    """sum of decimals: exact in 192 bits, same scale, precision 38; a sum with more digits is an error."""

    counts: ClassVar[bool] = True
    reason: ClassVar[str] = "sum does not fit 38 digits"

    scale: int
    visible_field: str | None = None

    @property
    def visible(self) -> pa.DataType:
        return pa.decimal128(38, self.scale)

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"lo": pa.int64(), "hi": pa.int64(), "top": pa.int64(), "nulls": pa.int64()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        pair = int128.from_decimal(arg.cast(pa.decimal128(38, self.scale)))
        if weights is None or (weights == 1).all():
            triple = (np.zeros_like(pair[0]), *pair)
        else:
            triple = int128.times3(pair, weights)
        nulls = _segment_sum(_weighted((~_valid(arg)).astype(np.int64), weights), starts)
        return {**_words(int128.group_sum3(triple, starts)), "nulls": nulls}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        total = int128.group_sum3(_triple(fields), starts)
        return {**_words(total), "nulls": _segment_sum(fields["nulls"], starts)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        total = int128.add3(_triple(old), _triple(delta))
        return {**_words(total), "nulls": old["nulls"] + delta["nulls"]}

    def negate(self, fields: Fields) -> Fields:
        return {**_words(int128.negate3(_triple(fields))), "nulls": -fields["nulls"]}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        top, hi, lo = _triple(fields)
        dead = (rows <= fields["nulls"]) | ~int128.fits38((top, hi, lo))
        return int128.to_decimal((hi, lo), self.visible, dead)

    def fails(self, fields: Fields) -> Bools | None:
        return ~int128.fits38(_triple(fields))


def _triple(fields: Fields) -> int128.Triple:
    return fields["top"], fields["hi"], fields["lo"]


def _words(total: int128.Triple) -> Fields:
    return dict(zip(("top", "hi", "lo"), total, strict=True))


@dataclass(frozen=True)
class DecimalAvg(DecimalSum):
    @property
    def visible(self) -> pa.DataType:
        return pa.float64()

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        count = rows - fields["nulls"]
        empty = count <= 0
        top, hi, lo = _triple(fields)
        total = (top.astype(np.float64) * 2.0**128 + int128.to_float((hi, lo))) / 10.0**self.scale
        return _masked(total / np.where(empty, 1, count), empty)

    def fails(self, fields: Fields) -> Bools | None:
        return None


@dataclass(frozen=True)
class DecimalNumericAvg(DecimalSum):
    """avg of numerics as a numeric, exact; 22 digits before the point."""

    reason: ClassVar[str] = "numeric field overflow: a sum has more digits than its average may have"

    @property
    def visible(self) -> pa.DataType:
        return NUMERIC

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        counts = np.where(self._is_long(fields), 0, rows - fields["nulls"])
        return quotients((fields["top"], fields["hi"], fields["lo"]), counts, self.scale)

    def fails(self, fields: Fields) -> Bools | None:
        return self._is_long(fields)

    def _is_long(self, fields: Fields) -> Bools:
        """Could an average have more digits than fit?  It is at most the sum, whose digits are counted."""
        words = fields["top"], fields["hi"], fields["lo"]
        if not words[0].any() and not words[1].any():
            return np.zeros(len(words[2]), np.bool_)  # 64 bits have fewer than 22 digits
        most = 10 ** min(38, 38 - NUMERIC_SCALE + self.scale)
        return np.array([abs(total) >= most for total in integers(words)], np.bool_)


@dataclass(frozen=True)
class FloatSum(_Always, Invertible):
    """sum of floats: exact bins, rounded once; independent of order and retractions."""

    counts: ClassVar[bool] = True

    visible: pa.DataType = _FLOAT64
    visible_field: str | None = None
    squares: bool = False

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        kinds = {"acc": exact_sum.ACCUMULATOR, "nulls": pa.int64()}
        return {**kinds, "sq": exact_sum.ACCUMULATOR} if self.squares else kinds

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        values = arg.cast(pa.float64(), safe=False)  # an integer beyond 2**53 is rounded, as in a batch query
        w = np.ones(len(values), np.int64) if weights is None else weights
        nulls = _segment_sum(_weighted((~_valid(arg)).astype(np.int64), weights), starts)
        if values.null_count:
            w = np.where(_valid(arg), w, 0)
            values = values.fill_null(0.0)
        groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
        out: Fields = {"acc": exact_sum.from_values(values, w, groups, len(starts)), "nulls": nulls}
        if self.squares:
            out["sq"] = exact_sum.from_squares(values, w, groups, len(starts))
        return out

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        length = len(fields["nulls"])
        groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, length)))
        out: Fields = {"nulls": _segment_sum(fields["nulls"], starts)}
        for name in ("acc", "sq") if self.squares else ("acc",):
            out[name] = exact_sum.combine(fields[name], groups, len(starts))
        return out

    def add(self, old: Fields, delta: Fields) -> Fields:
        out: Fields = {"nulls": old["nulls"] + delta["nulls"]}
        for name in ("acc", "sq") if self.squares else ("acc",):
            out[name] = exact_sum.add(old[name], delta[name])
        return out

    def negate(self, fields: Fields) -> Fields:
        out: Fields = {"nulls": -fields["nulls"]}
        for name in ("acc", "sq") if self.squares else ("acc",):
            out[name] = exact_sum.negate(fields[name])
        return out

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return _masked(exact_sum.to_float(fields["acc"]), rows <= fields["nulls"])


@dataclass(frozen=True)
class FloatAvg(FloatSum):
    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        count = rows - fields["nulls"]
        empty = count <= 0
        total = exact_sum.to_float(fields["acc"])
        with np.errstate(invalid="ignore"):
            values = total / np.where(empty, 1, count)
        return _masked(values, empty)


@dataclass(frozen=True)
class Variance(FloatSum):
    squares: bool = True
    sample: bool = True
    root: bool = False

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        count = rows - fields["nulls"]
        least = 2 if self.sample else 1
        empty = count < least
        values = exact_sum.variance(np.where(empty, least, count), fields["acc"], fields["sq"], self.sample)
        if self.root:
            with np.errstate(invalid="ignore"):
                values = np.sqrt(values)
        return _masked(values, empty)


def _whole_numbers(values: pa.Array) -> npt.NDArray[Any] | None:
    """The values as numbers in the same order, if they are signed integers or times without NULL."""
    t = pa.types
    kind = values.type
    if values.null_count or not (t.is_signed_integer(kind) or t.is_timestamp(kind) or t.is_date(kind)):
        return None
    raw = fixed_view(values)
    return None if raw is None else raw.view(np.dtype(f"i{raw.itemsize}"))


def _typed(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _zero_of(kind: pa.DataType) -> pa.Scalar:
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(8))])[0]


@dataclass(frozen=True)
class Extremum(_Always, SumsDenseKeys):
    """min or max over append-only input: the value itself is the accumulator."""

    counts: ClassVar[bool] = False

    kind: pa.DataType
    largest: bool
    visible_field: str | None = "value"

    @property
    def visible(self) -> pa.DataType:
        return self.kind

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"value": self.kind}

    @property
    def _order(self) -> Order:
        return Order("", descending=self.largest)

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        return self.combine({"value": canonical(arg)}, starts)  # else either of two zeros could win

    def dense(self, arg: pa.ChunkedArray, places: DenseGroups) -> Fields | None:
        if arg.type != pa.int64() or arg.null_count:
            return None
        return {"value": pa.array(places.extremes(arg, self.largest))}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        values = one_chunk(fields["value"])
        if not len(starts):
            return {"value": values.slice(0, 0)}
        numbers = _whole_numbers(values)
        if numbers is not None:
            best = (np.maximum if self.largest else np.minimum).reduceat(numbers, starts)
            return {"value": _typed(best, values.type)}
        rank = ranks(values, self._order)
        best = np.minimum.reduceat(rank, starts)
        lengths = np.diff(np.append(starts, len(values)))
        hit = np.flatnonzero(rank == np.repeat(best, lengths))
        group = np.searchsorted(starts, hit, side="right") - 1
        first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
        return {"value": take(values, hit[first])}

    def add(self, old: Fields, delta: Fields) -> Fields:
        a, b = one_chunk(old["value"]), one_chunk(delta["value"])
        now = _whole_numbers(b)
        before = None if now is None else _whole_numbers(a.fill_null(_zero_of(a.type)) if a.null_count else a)
        if now is not None and before is not None:
            best = np.maximum(before, now) if self.largest else np.minimum(before, now)
            if a.null_count:
                best = np.where(_valid(a), best, now)
            return {"value": _typed(best, a.type)}
        both = pa.concat_arrays([a, b])
        rank = ranks(both, self._order)
        better = rank[len(a) :] < rank[: len(a)]
        return {"value": pc.if_else(pa.array(better), b, a)}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return one_chunk(fields["value"])


def is_number(kind: Accumulator, field: str) -> bool:
    """Whether a field is an int64 column that starts at zero."""
    return kind.counts and kind.fields[field] == pa.int64()


LINEAR = ("count", "sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop", "variance", "stddev")
EXTREMES = ("min", "max")
WIDE_SUM = "wide_sum"  # of integers, as a wide integer
NUMERIC_AVG = "numeric_avg"  # of integers and decimals, as a decimal


def accumulator(function: str, kind: pa.DataType | None, *, step: str) -> Accumulator:
    """Return the accumulator of an aggregate function for an argument type."""
    if function == "count":
        return Count()
    if kind is None:
        raise InvalidError(f"{function} needs an argument", hint=f'write "{function}(column)"', step=step)
    if function in EXTREMES:
        return Extremum(kind, function == "max")
    floats = pa.types.is_floating(kind)
    integers = pa.types.is_integer(kind)
    decimals = pa.types.is_decimal128(kind)
    if function == WIDE_SUM and integers:
        return WideSum()
    if function == NUMERIC_AVG and (integers or decimals):
        return IntNumericAvg() if integers else DecimalNumericAvg(kind.scale)
    if function in LINEAR and (floats or integers or decimals):
        if function == "sum":
            return IntSum() if integers else FloatSum() if floats else DecimalSum(kind.scale)
        if function == "avg":
            return IntAvg() if integers else FloatAvg() if floats else DecimalAvg(kind.scale)
        return Variance(sample=not function.endswith("_pop"), root=function.startswith("stddev"))
    raise InvalidError(
        f"{function} of {kind} cannot be maintained",
        hint=f"functions over numbers: {', '.join(LINEAR)}; over anything with an order: min, max",
        step=step,
    )

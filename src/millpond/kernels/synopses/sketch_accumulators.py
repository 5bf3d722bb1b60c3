"""Accumulators whose field is a sketch: constant state per group, mergeable, with a stated error.

Law: `combine` is associative and commutative, and only `add` bounds the size of summaries that depend
on what they have seen before (quantiles, frequent values, samples).  So the outcome of an epoch depends
on the stored sketch and the epoch's rows alone, whatever the number of tasks (law 3).

Sketches of cells that are sums (count-min, AMS) also take retractions; the others need rows that are
only inserted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.identity import canonical, one_chunk
from millpond.kernels.accumulators import Accumulator, Bools, BoundsState, Fields, Ints, Invertible
from millpond.kernels.synopses import (
    bloom_filter,
    count_min,
    frequent_values,
    hyperloglog,
    quantile_summary,
    row_sample,
    second_moment,
)
from millpond.kernels.synopses.cell_sketch import CellSketch
from millpond.kernels.synopses.item_hashes import U64, item_hashes

_CALL = re.compile(r"(\w+)\((.*)\)")
TOP_K_MAX = SAMPLE_MAX = 10_000

CELLS: Mapping[str, CellSketch] = {
    "hll": hyperloglog.SKETCH,
    "count_min": count_min.SKETCH,
    "ams": second_moment.SKETCH,
    "bloom": bloom_filter.SKETCH,
}
# Functions of a column that hashes the items (`hashed_item`), functions of sketches, and functions of values.
OF_HASHES = ("hll_sketch", "count_min_sketch", "ams_sketch", "bloom_sketch", "approx_second_moment")
OF_SKETCHES = ("hll_merge", "count_min_merge", "ams_merge", "bloom_merge", "kll_merge")
OF_VALUES = ("approx_count_distinct", "approx_quantile", "approx_top_k", "approx_sample", "kll_sketch")
RETRACTABLE = frozenset(
    ["count_min_sketch", "count_min_merge", "ams_sketch", "ams_merge", "approx_second_moment"]
)
PARAMETERS = {"approx_quantile": "q", "approx_top_k": "k", "approx_sample": "k"}
STATED_ERROR = {
    "approx_count_distinct": "standard error 1.6 %",
    "hll_sketch": "standard error 1.6 %",
    "hll_merge": "standard error 1.6 %",
    "approx_quantile": "rank within 1.65 % for 99 % of all answers",
    "kll_sketch": "rank within 1.65 % for 99 % of all answers",
    "kll_merge": "rank within 1.65 % for 99 % of all answers",
    "approx_top_k": "counts too low by at most n / max(257, 8 k + 1)",
    "approx_second_moment": "standard error at most 4.4 %",
    "ams_sketch": "standard error at most 4.4 %",
    "ams_merge": "standard error at most 4.4 %",
    "count_min_sketch": "counts too high by at most 0.27 % of n for 98 % of the values",
    "count_min_merge": "counts too high by at most 0.27 % of n for 98 % of the values",
    "bloom_sketch": "false positives at most 1 % up to 10,000 values",
    "bloom_merge": "false positives at most 1 % up to 10,000 values",
    "approx_sample": "a uniform sample of k rows",
}


def hashed_item(value: str) -> str:
    """SQL: the hash by which sketches that can be stored know a value; equal texts are equal values."""
    return f"md5_number_lower(CAST({value} AS VARCHAR))"


def with_parameter(function: str, parameter: str) -> str:
    """The name of an aggregate function with its constant parameter."""
    return f"{function}({parameter})"


def is_synopsis(function: str) -> bool:
    return function.partition("(")[0] in STATED_ERROR


def needs_inserts(function: str) -> bool:
    """Does the function need rows that are never retracted?"""
    return is_synopsis(function) and function not in RETRACTABLE


def stated_error(function: str) -> str | None:
    """The error of an approximate aggregate as a text, or None if it is exact.

    >>> stated_error("approx_quantile(0.5)"), stated_error("sum")
    ('rank within 1.65 % for 99 % of all answers', None)
    """
    return STATED_ERROR.get(function.partition("(")[0])


class _Whole:
    """Every group has a value."""

    reason: ClassVar[str] = ""
    counts: ClassVar[bool] = True

    def fails(self, fields: Fields) -> Bools | None:
        return None


def _given(arg: pa.Array, starts: Ints, weights: Ints | None) -> tuple[pa.Array, Ints, Ints]:
    """The values that are not NULL, their groups and weights."""
    groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(arg))))
    w = np.ones(len(arg), np.int64) if weights is None else weights
    if not arg.null_count:
        return arg, groups, w
    valid = arg.is_valid().to_numpy(zero_copy_only=False)
    return arg.drop_null(), groups[valid], w[valid]


def _pairs(length: int) -> Ints:
    return np.arange(0, 2 * length, 2)


def _beside(old: pa.Array, delta: pa.Array) -> pa.Array:
    """old 0, delta 0, old 1, delta 1, …"""
    n = len(old)
    return pa.concat_arrays([one_chunk(old), one_chunk(delta)]).take(
        pa.array(np.arange(2 * n).reshape(2, n).T.ravel())
    )


@dataclass(frozen=True)
class CellAccumulator(_Whole):
    """A sketch of cells, shown as it is or as its estimate."""

    kind: str  # of CELLS
    takes: Literal["values", "hashes", "sketches"]
    shows: Literal["sketch", "count", "moment"]

    @property
    def sketch(self) -> CellSketch:
        return CELLS[self.kind]

    @property
    def visible(self) -> pa.DataType:
        return {"sketch": pa.binary(), "count": pa.int64(), "moment": pa.float64()}[self.shows]

    @property
    def visible_field(self) -> str | None:
        return "sketch" if self.shows == "sketch" else None

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        if self.takes == "sketches":
            return self._partial_of_sketches(one_chunk(arg), weights, starts)
        items, groups, w = _given(one_chunk(arg), starts, weights)
        hashes = item_hashes(items, self.takes == "hashes")
        made = self.sketch.of_cells(*self._cells(hashes, groups, w), len(starts))
        empty = np.bincount(groups, minlength=len(starts)) == 0
        return {"sketch": _null_where(made, empty)}

    def _partial_of_sketches(self, arg: pa.Array, weights: Ints | None, starts: Ints) -> Fields:
        if weights is not None and self.sketch.unit == "count" and not (weights == 1).all():
            number, index, value = self.sketch.cells_of(arg)
            groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(arg))))
            made = self.sketch.of_cells(groups[number], index, value * weights[number], len(starts))
            return {"sketch": made}
        self.sketch.cells_of(arg)  # refuse what is no such sketch
        return {"sketch": self.sketch.merged(arg, starts)}

    def _cells(self, hashes: U64, groups: Ints, weights: Ints) -> tuple[Ints, Ints, Ints]:
        if self.kind == "hll":
            return groups, *hyperloglog.cells(hashes)
        if self.kind == "count_min":
            index = count_min.cells(hashes)
            sign = np.ones_like(index)
        elif self.kind == "ams":
            index, sign = second_moment.cells(hashes)
        else:
            index = bloom_filter.cells(hashes)
            return np.repeat(groups, index.shape[1]), index.ravel(), np.ones(index.size, np.int64)
        return np.repeat(groups, index.shape[1]), index.ravel(), (sign * weights[:, None]).ravel()

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        return {"sketch": self.sketch.merged(one_chunk(fields["sketch"]), starts)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        return self.combine({"sketch": _beside(old["sketch"], delta["sketch"])}, _pairs(len(old["sketch"])))

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        sketches = one_chunk(fields["sketch"])
        if self.shows == "sketch":
            return sketches
        if self.shows == "count":
            return pa.array(np.rint(hyperloglog.estimates(sketches)).astype(np.int64))
        return pa.array(second_moment.estimates(sketches))


@dataclass(frozen=True)
class LinearCellAccumulator(CellAccumulator, Invertible):
    """A sketch whose cells are sums: rows can be retracted."""

    def negate(self, fields: Fields) -> Fields:
        return {"sketch": self.sketch.negated(one_chunk(fields["sketch"]))}


def _null_where(made: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return made.take(pa.array(np.arange(len(made)), mask=mask)) if mask.any() else made


@dataclass(frozen=True)
class QuantileAccumulator(_Whole, BoundsState):
    """A quantile summary, shown as it is or as one quantile."""

    q: float | None = None
    merges: bool = False

    @property
    def visible(self) -> pa.DataType:
        return pa.binary() if self.q is None else pa.float64()

    @property
    def visible_field(self) -> str | None:
        return "sketch" if self.q is None else None

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        if self.merges:
            sketches = one_chunk(arg)
            return {"sketch": quantile_summary.union(sketches, starts, compact=False)}
        items, groups, w = _given(one_chunk(arg), starts, weights)
        values = canonical(items.cast(pa.float64(), safe=False)).to_numpy(zero_copy_only=False)
        if (w != 1).any():
            values, groups = np.repeat(values, w), np.repeat(groups, w)
        return {"sketch": quantile_summary.raw(values, groups, len(starts))}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        return {"sketch": quantile_summary.union(one_chunk(fields["sketch"]), starts, compact=False)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        both = _beside(old["sketch"], delta["sketch"])
        return {"sketch": quantile_summary.union(both, _pairs(len(old["sketch"])), compact=True)}

    def bounded(self, fields: Fields) -> Fields:
        sketches = one_chunk(fields["sketch"])
        return {"sketch": quantile_summary.union(sketches, np.arange(len(sketches)), compact=True)}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        sketches = one_chunk(fields["sketch"])
        if self.q is None:
            return sketches
        return quantile_summary.quantiles(sketches, self.q)


@dataclass(frozen=True)
class FrequentAccumulator(_Whole, BoundsState):
    """The k most frequent values, from bounded counters."""

    kind: pa.DataType
    k: int
    visible_field: str | None = None

    @property
    def visible(self) -> pa.DataType:
        return pa.list_(self.kind)

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"top": frequent_values.listed_type(self.kind)}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        items, groups, w = _given(canonical(one_chunk(arg)), starts, weights)
        return {"top": frequent_values.counted(items, w, groups, len(starts), None)}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        return self._combined(fields, starts, None)

    def _combined(self, fields: Fields, starts: Ints, limit: int | None) -> Fields:
        lists = one_chunk(fields["top"])
        values, n, number = frequent_values.unlisted(lists)
        groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(lists))))[number]
        n = n.to_numpy(zero_copy_only=False)
        return {"top": frequent_values.counted(values, n, groups, len(starts), limit)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        both = {"top": _beside(old["top"], delta["top"])}
        return self._combined(both, _pairs(len(old["top"])), frequent_values.counters(self.k))

    def bounded(self, fields: Fields) -> Fields:
        return self._combined(fields, np.arange(len(fields["top"])), frequent_values.counters(self.k))

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return frequent_values.first_values(one_chunk(fields["top"]), self.k)


@dataclass(frozen=True)
class SampleAccumulator(_Whole, BoundsState):
    """A uniform sample of k rows."""

    kind: pa.DataType
    k: int
    visible_field: str | None = None

    @property
    def visible(self) -> pa.DataType:
        return pa.list_(self.kind)

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return {"sample": row_sample.sample_type(self.kind), "seen": pa.int64()}

    def partial(self, arg: pa.Array | None, weights: Ints | None, starts: Ints, counts: Ints) -> Fields:
        assert arg is not None
        items, groups, w = _given(canonical(one_chunk(arg)), starts, weights)
        if (w != 1).any():
            copies = np.repeat(np.arange(len(w)), w)
            items, groups = items.take(pa.array(copies)), groups[copies]
        seen = np.bincount(groups, minlength=len(starts)).astype(np.int64)
        return {"sample": row_sample.collected(items, groups, len(starts)), "seen": seen}

    def combine(self, fields: Fields, starts: Ints) -> Fields:
        lists = one_chunk(fields["sample"])
        values, priority, number = frequent_values.unlisted(lists)
        groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(lists))))[number]
        made = frequent_values.listed(values, priority, groups, len(starts))
        return {"sample": made, "seen": np.add.reduceat(fields["seen"], starts)}

    def add(self, old: Fields, delta: Fields) -> Fields:
        n = len(old["seen"])
        zipped = np.stack([old["seen"], delta["seen"]], axis=1).ravel()
        both = self.combine({"sample": _beside(old["sample"], delta["sample"]), "seen": zipped}, _pairs(n))
        return self.bounded(both)

    def bounded(self, fields: Fields) -> Fields:
        return {**fields, "sample": row_sample.drawn(one_chunk(fields["sample"]), fields["seen"], self.k)}

    def finish(self, fields: Fields, rows: Ints) -> pa.Array:
        return frequent_values.first_values(self.bounded(fields)["sample"], self.k)


def synopsis(function: str, kind: pa.DataType | None, *, step: str) -> Accumulator | None:
    """The accumulator of an approximate aggregate for an argument type; None for any other function."""
    if not is_synopsis(function):
        return None
    found = _CALL.fullmatch(function)
    name, parameter = (function, "") if found is None else (found[1], found[2])
    if kind is None:
        raise InvalidError(f"{name} needs an argument", hint=f'write "{name}(column)"', step=step)
    if name in OF_HASHES and kind != pa.uint64():
        raise InvalidError(f"{name} takes hashes of values", detail=f"got {kind}", step=step)
    if name in OF_SKETCHES and kind != pa.binary():
        raise InvalidError(
            f"{name} takes sketches",
            detail=f"got {kind}",
            hint=f"pass a column made by {name.removesuffix('_merge')}_sketch(x)",
            step=step,
        )
    if name in ("kll_sketch", "approx_quantile") and not _is_number_type(kind):
        raise InvalidError(f"{name} takes numbers", detail=f"got {kind}", step=step)
    match name:
        case "approx_count_distinct":
            return CellAccumulator("hll", "values", "count")
        case "approx_second_moment":
            return LinearCellAccumulator("ams", "hashes", "moment")
        case "approx_quantile":
            return QuantileAccumulator(_parameter(name, parameter, 0, 1, step))
        case "kll_sketch" | "kll_merge":
            return QuantileAccumulator(merges=name == "kll_merge")
        case "approx_top_k":
            return FrequentAccumulator(kind, int(_parameter(name, parameter, 1, TOP_K_MAX, step)))
        case "approx_sample":
            return SampleAccumulator(kind, int(_parameter(name, parameter, 1, SAMPLE_MAX, step)))
    base, _, verb = name.rpartition("_")
    form = LinearCellAccumulator if CELLS[base].unit == "count" else CellAccumulator
    return form(base, "sketches" if verb == "merge" else "hashes", "sketch")


def _is_number_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _parameter(name: str, text: str, least: int, most: int, step: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    whole = PARAMETERS[name] == "k"
    if not least <= value <= most or (whole and value != int(value)):
        wanted = f"{'a whole number' if whole else 'a number'} from {least} to {most}"
        raise InvalidError(
            f"{name} needs {wanted} as its second argument",
            detail=f"got {text}" if text else None,
            hint=f'for example "{name}(x, {"10" if whole else "0.5"})"',
            step=step,
        )
    return value

"""Reads a state table at one epoch: its runs as one table, over a hash range.

Law: every method returns what a scan of the merged table would return, in table order, and costs what it
touches: the requested keys, the returned rows and the number of runs, never the size of the table or of a key
(law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing, tuning
from millpond.delta import WEIGHT
from millpond.errors import InternalError, InvalidError
from millpond.identity import canonical, one_chunk, refine, same_rows, take, ties
from millpond.ordering import Order, argsort_runs, in_stretches
from millpond.state.runs import key_search, point_lookup
from millpond.state.runs.dense_keys import numbered
from millpond.state.runs.key_search import KeyRanges
from millpond.state.runs.merge import (
    OpenFile,
    RowLocations,
    arrange,
    bucket_numbers,
    newest_first,
    settle,
)
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.read_ahead import fetch_rows
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import expand
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeySet:
    """The distinct keys of a batch, sorted by hash (and by value if two keys share a hash).

    >>> keys = KeySet.of(pa.table({"k": [5, 7, 5]}), ["k"])
    >>> keys.columns.num_rows, keys.columns["k"].take(pa.array(keys.inverse)).to_pylist()
    (2, [5, 7, 5])
    """

    hashes: Hashes
    columns: pa.Table  # the key columns, in the same order
    inverse: Ints  # row of the batch -> position here

    def __len__(self) -> int:
        return len(self.hashes)

    @staticmethod
    def of(batch: pa.Table, key: Sequence[str], hashes: Hashes | None = None) -> KeySet:
        values = {name: canonical(one_chunk(batch.column(name))) for name in key}
        if hashes is not None and (hashes.dtype != np.uint64 or len(hashes) != batch.num_rows):
            raise InternalError(
                "key hashes must be uint64, one per row",
                detail=f"{len(hashes)} of {hashes.dtype} for {batch.num_rows} rows",
            )
        if hashes is None or not in_stretches(hashes):
            dense = numbered(list(values.values()))
            if dense is not None:
                return KeySet(dense[0], pa.table([dense[1]], names=list(key)), dense[2])
        if hashes is None:
            hashes = hashing.hash_columns(list(values.values()), batch.num_rows)
        length = len(hashes)
        if not length or (hashes[1:] > hashes[:-1]).all():
            return KeySet(hashes, _key_table(values, length), np.arange(length))
        few = _few_keys(values, hashes)
        if few is not None:
            return few
        perm = argsort_runs(hashes)
        same = ties(hashes[perm])
        again = np.flatnonzero(same)
        before, after = perm[again - 1], perm[again]
        columns = list(values.values())
        if not hashing.is_injective(columns) and not same_rows(columns, before, after):
            for column in columns:
                refine(perm, same, partial(take, column), Order(""))
        inverse = np.empty(length, np.int64)
        inverse[perm] = np.cumsum(~same) - 1
        first = perm[np.flatnonzero(~same)]
        distinct = {name: take(column, first) for name, column in values.items()}
        return KeySet(hashes[first], _key_table(distinct, len(first)), inverse)


def _few_keys(values: dict[str, pa.Array], hashes: Hashes) -> KeySet | None:
    """For keys with many rows each: find them in a small table of hashes, and sort only the distinct keys.

    None if there are many keys, or if two of them share a hash.
    """
    sample = tuning.LOOKUP_SAMPLE_ROWS
    if len(hashes) < sample or 4 * len(np.unique(hashes[:: len(hashes) // sample])) > sample:
        return None
    encoded = pa.array(hashes).dictionary_encode()
    distinct: Hashes = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    inverse = rank[encoded.indices.to_numpy()]
    first = np.empty(len(order), np.int64)
    # the last assignment wins: the first row of each key
    first[inverse[::-1]] = np.arange(len(inverse) - 1, -1, -1)
    if not same_rows(list(values.values()), first[inverse], np.arange(len(inverse))):
        return None
    columns = {name: take(column, first) for name, column in values.items()}
    return KeySet(distinct[order], _key_table(columns, len(first)), inverse)


def _key_table(values: dict[str, pa.Array], length: int) -> pa.Table:
    if values:
        return pa.table(list(values.values()), names=list(values))
    return pa.table({"": pa.nulls(length)}).select([])  # no key: all rows are one group


@dataclass(frozen=True)
class RowsByKey:
    """Rows of several keys; the rows of one key are one slice, in table order."""

    table: pa.Table  # the requested columns, and _w
    key_index: Ints  # position in KeySet.hashes, non-decreasing


class Table:
    """The rows of a table with a hash in [h_min, h_max]."""

    def __init__(
        self,
        spec: TableSpec,
        runs: Sequence[RunRef],
        open_file: OpenFile,
        h_min: int = 0,
        h_max: int = 2**64 - 1,
    ) -> None:
        self.spec = spec
        self.h_min = h_min
        self.h_max = h_max
        self.runs = [ref for ref in newest_first(runs) if ref.rows and ref.meets(h_min, h_max)]
        self._open_file = open_file

    def with_runs(self, runs: Sequence[RunRef], files: Mapping[str, PackedFile]) -> Table:
        """The same table with additional runs, which are in these files."""

        def open_file(name: str) -> PackedFile:
            return files[name] if name in files else self._open_file(name)

        return Table(self.spec, [*self.runs, *runs], open_file, self.h_min, self.h_max)

    def count_rows_upper(self) -> int:
        """An upper bound of the number of rows, from the manifest alone."""
        return sum(ref.rows for ref in self.runs)

    def scan(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All live rows: _h, the columns, _w."""
        names = self.spec.schema.names if columns is None else columns
        return TableScan(self.spec, self.runs, self._open_file, names, self.h_min, self.h_max).sorted()

    def lookup(self, keys: KeySet, columns: Sequence[str] | None = None) -> RowsByKey:
        """All rows of these keys."""
        if self.spec.rule == "latest" and not self.spec.order_within_key:
            return self._rows(self._newest_ranges(keys), columns)
        return self._rows(self._ranges(keys), columns)

    def lookup_one(self, keys: KeySet, columns: Sequence[str] | None = None) -> tuple[Bools, pa.Table]:
        """The one row of each key of a *latest* table without order columns: (found, one row per key).

        If nothing is found, the key columns contain the key, numbers and times are zero (so that accumulators
        can be added to), and all other columns are NULL.
        """
        if self.spec.rule != "latest" or self.spec.order_within_key:
            raise InternalError(f"table {self.spec.name!r} may hold several rows per key", hint="use lookup")
        names = tuple(self.spec.schema.names if columns is None else columns)
        own = self._key_columns(keys)
        rows = point_lookup.find(
            self.spec,
            self.runs,
            self._open_file,
            keys.hashes,
            own,
            (self.h_min, self.h_max),
            [name for name in names if name not in own],
        )
        is_found = np.zeros(len(keys), np.bool_)
        for one in rows:
            is_found[one.key] = True
        arrays = [
            own[name] if name in own else point_lookup.gather(self.spec, name, rows, len(keys))
            for name in names
        ]
        return is_found, pa.table(arrays, schema=self.spec.some(names))

    def head(self, keys: KeySet, n: int | Ints, *, reverse: bool = False) -> RowsByKey:
        """The first (last) n rows of each key in table order; a row counts once, whatever its weight."""
        wanted = np.broadcast_to(np.asarray(n, np.int64), (len(keys),))
        return self._head(self._ranges(keys), wanted, reverse)

    def range(self, keys: KeySet, lo: pa.Array | None, hi: pa.Array | None) -> RowsByKey:
        """The rows of each key whose first order column is in [lo, hi].

        Bounds have one value per key; None, or NULL for one key, leaves that side open.  A row with a NULL
        order value is in no range that has a bound.
        """
        order = self._first_order()
        low, high = self._bound(keys, lo), self._bound(keys, hi)
        refs = self._in_buckets(low, high) if self.spec.time == order.column else self.runs
        return self._rows([_between(ranges, order, low, high) for ranges in self._ranges(keys, refs)], None)

    def neighbours(self, keys: KeySet, at: pa.Array) -> tuple[RowsByKey, RowsByKey]:
        """For each key, the nearest row with a first order value <= at, and the nearest with one > at."""
        order = self._first_order()
        bound = self._bound(keys, at)
        assert bound is not None
        if bound.null_count:
            raise InternalError(f"neighbours of NULL in table {self.spec.name!r}", hint="ask for values only")
        upto, beyond = [], []
        for ranges in self._ranges(keys):
            lo, hi = ranges.segment.without_nulls(order, ranges.lo, ranges.hi)
            split = ranges.segment.bisect(
                order, lo, hi, take(bound, ranges.key), "left" if order.descending else "right"
            )
            upto.append(replace(ranges, lo=lo, hi=split))
            beyond.append(replace(ranges, lo=split, hi=hi))
        if order.descending:
            upto, beyond = beyond, upto
        one = np.ones(len(keys), np.int64)
        return (
            self._head(upto, one, reverse=not order.descending),
            self._head(beyond, one, reverse=order.descending),
        )

    # ------------------------------------------------------------ finding

    def _key_columns(self, keys: KeySet) -> dict[str, pa.Array]:
        """The keys, cast to the types of the table."""
        out = {}
        for name in self.spec.key:
            if name not in keys.columns.column_names:
                raise InternalError(
                    f"keys for table {self.spec.name!r} lack a column",
                    detail=f"{name!r} not in {keys.columns.column_names}",
                )
            out[name] = self._typed(name, keys.columns.column(name))
        return out

    def _typed(self, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Values cast to the type of a column; only between types whose equal values have equal hashes."""
        array = one_chunk(column)
        kind = self.spec.schema.field(name).type
        if array.type == kind or isinstance(kind, pa.BaseExtensionType):
            return array if array.type == kind else pa.ExtensionArray.from_storage(kind, array)
        refusal = InvalidError(
            f"values do not fit table {self.spec.name!r}",
            detail=f"column {name!r} is {kind}, the values are {array.type}",
            hint="cast both sides to one type",
        )
        if family(array.type) != family(kind):
            raise refusal
        try:
            return array.cast(kind)
        except pa.ArrowInvalid as error:
            raise refusal from error

    def _in_buckets(self, low: pa.Array | None, high: pa.Array | None) -> list[RunRef]:
        """The runs of the time buckets that contain times between these bounds."""
        if self.spec.bucket_width is None:
            return self.runs
        first = None if low is None or low.null_count else self.spec.bucket_of(low).min(initial=2**62)
        last = None if high is None or high.null_count else self.spec.bucket_of(high).max(initial=-(2**62))
        return [
            ref
            for ref in self.runs
            if ref.bucket is None
            or ((first is None or first <= ref.bucket) and (last is None or ref.bucket <= last))
        ]

    def _ranges(self, keys: KeySet, runs: Sequence[RunRef] | None = None) -> list[KeyRanges]:
        """The ranges of all rows of the keys, in these runs or else in all, newest first."""
        own = self._key_columns(keys) if len(keys) else {}
        runs = self.runs if runs is None else runs
        return key_search.all_rows(runs, self._open_file, keys.hashes, own, (self.h_min, self.h_max))

    def _newest_ranges(self, keys: KeySet) -> list[KeyRanges]:
        """The ranges of the newest rows of the keys."""
        own = self._key_columns(keys) if len(keys) else {}
        return key_search.newest_rows(self.runs, self._open_file, keys.hashes, own, (self.h_min, self.h_max))

    def _first_order(self) -> Order:
        if not self.spec.order:
            raise InternalError(f"table {self.spec.name!r} has no order columns")
        return self.spec.order[0]

    def _bound(self, keys: KeySet, bound: pa.Array | None) -> pa.Array | None:
        if bound is None:
            return None
        if len(bound) != len(keys):
            raise InternalError(
                "one bound per key is needed", detail=f"{len(bound)} bounds, {len(keys)} keys"
            )
        return self._typed(self._first_order().column, bound)

    # ------------------------------------------------------------ merging what was found

    def _rows(self, found: Sequence[KeyRanges], columns: Sequence[str] | None) -> RowsByKey:
        """The rows of these ranges, merged."""
        names = self.spec.schema.names if columns is None else list(columns)
        found = [ranges for ranges in found if len(ranges.key)]
        fetch_rows(((r.segment, expand(r.lo, r.hi)) for r in found if r.segment.is_partial), names)
        rows_at, group = _row_locations(self.spec, found)
        if not len(rows_at):
            return self._table(names, rows_at, group, np.empty(0, np.int64))
        weights = rows_at.weights()
        buckets = bucket_numbers([ranges.ref for ranges in found])
        perm, same = arrange(self.spec, rows_at, group, buckets, grouped_by_key=True)
        rows, total = settle(self.spec, weights, perm, same)
        alive = np.flatnonzero(total)
        if len(alive) < len(rows):
            rows, total = rows[alive], total[alive]
        return self._table(names, rows_at.select(rows), group[rows], total)

    def _table(
        self, names: Sequence[str], rows_at: RowLocations, key_index: Ints, weights: Ints
    ) -> RowsByKey:
        fields = [self.spec.schema.field(name) for name in names]
        arrays = [rows_at.column(f.name) if len(rows_at) else pa.array([], f.type) for f in fields]
        schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
        return RowsByKey(pa.table([*arrays, pa.array(weights)], schema=schema), key_index)

    def _head(self, found: Sequence[KeyRanges], wanted: Ints, reverse: bool) -> RowsByKey:
        """Take m rows per key from each run, accept them up to the nearest frontier, double m.

        A run that is not exhausted for a key may contain, after the last row taken, rows that cancel or
        precede others, but none at or before that row.  So all rows up to the smallest such frontier are
        final.
        """
        names = self.spec.schema.names
        pending = np.zeros(len(wanted), np.bool_)
        for ranges in found:
            pending[ranges.key[ranges.hi > ranges.lo]] = True
        pending &= wanted > 0
        take_rows = wanted.copy()
        parts = []
        while pending.any():
            rows, done = self._head_once(found, wanted, take_rows, pending, reverse)
            parts.append(rows)
            pending &= ~done
            take_rows[pending] *= 2
        if not parts:
            nothing = np.empty(0, np.int64)
            return self._table(names, RowLocations.of(self.spec, []), nothing, nothing)
        if len(parts) == 1:
            return parts[0]
        key_index = np.concatenate([part.key_index for part in parts])
        perm = np.argsort(key_index, kind="stable")
        table = pa.concat_tables([part.table for part in parts]).combine_chunks()
        return RowsByKey(table.take(pa.array(perm)), key_index[perm])

    def _head_once(
        self, found: Sequence[KeyRanges], wanted: Ints, take_rows: Ints, pending: Bools, reverse: bool
    ) -> tuple[RowsByKey, Bools]:
        """One round: the rows of the keys that are settled, and which keys those are."""
        fetched, whole = [], []
        for ranges in found:
            ranges = ranges.some(pending[ranges.key] & (ranges.hi > ranges.lo))
            if len(ranges.key):
                size = np.minimum(take_rows[ranges.key], ranges.hi - ranges.lo)
                whole.append(size == ranges.hi - ranges.lo)
                fetched.append(
                    replace(ranges, lo=ranges.hi - size) if reverse else replace(ranges, hi=ranges.lo + size)
                )
        rows_at, group = _row_locations(self.spec, fetched)
        buckets = bucket_numbers([ranges.ref for ranges in fetched])
        perm, same = arrange(self.spec, rows_at, group, buckets, grouped_by_key=True)
        rows, total = settle(self.spec, rows_at.weights(), perm, same)
        number = np.empty(len(perm), np.int64)  # row -> its position among the settled rows
        number[perm] = np.cumsum(~same) - 1
        nowhere = -1 if reverse else len(rows)
        frontier = np.full(len(wanted), nowhere)
        first = 0
        for ranges, complete in zip(fetched, whole, strict=True):
            ends = first + np.cumsum(ranges.hi - ranges.lo)
            edge = (ends - (ranges.hi - ranges.lo) if reverse else ends - 1)[~complete]
            key = ranges.key[~complete]
            frontier[key] = (np.maximum if reverse else np.minimum)(frontier[key], number[edge])
            first = int(ends[-1])
        key_of = group[rows]
        positions = np.arange(len(rows))
        certain = positions >= frontier[key_of] if reverse else positions <= frontier[key_of]
        live = np.flatnonzero(certain & (total != 0))
        key_live = key_of[live]
        count = np.bincount(key_live, minlength=len(wanted))
        done = pending & ((count >= wanted) | (frontier == nowhere))
        before = np.arange(len(live)) - (np.cumsum(count) - count)[key_live]
        within = count[key_live] - before <= wanted[key_live] if reverse else before < wanted[key_live]
        chosen = live[within & done[key_live]]
        return self._table(
            self.spec.schema.names, rows_at.select(rows[chosen]), key_of[chosen], total[chosen]
        ), done


def family(kind: pa.DataType) -> str:
    """The family of a type: types of one family represent the same values and hash them alike."""
    t = pa.types
    families = {
        "number": t.is_integer(kind) or t.is_decimal(kind),
        "float": t.is_floating(kind),
        "timestamp": t.is_timestamp(kind),
        "time": t.is_time(kind),
        "date": t.is_date(kind),
        "duration": t.is_duration(kind),
        "text": t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind),
        "bytes": t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind),
    }
    return next((name for name, member in families.items() if member), str(kind))


def _row_locations(spec: TableSpec, found: Sequence[KeyRanges]) -> tuple[RowLocations, Ints]:
    """All rows of these ranges, run by run, and the key number of each."""
    rows_at = RowLocations.of(spec, [(ranges.segment, expand(ranges.lo, ranges.hi)) for ranges in found])
    if not found:
        return rows_at, np.empty(0, np.int64)
    return rows_at, np.concatenate([np.repeat(ranges.key, ranges.hi - ranges.lo) for ranges in found])


def _between(ranges: KeyRanges, order: Order, low: pa.Array | None, high: pa.Array | None) -> KeyRanges:
    """The subrange of each range whose order value is within the bounds."""
    if order.descending:
        low, high = high, low
    lo, hi = ranges.lo.copy(), ranges.hi.copy()
    for bound, side in ((low, "left"), (high, "right")):
        if bound is None:
            continue
        asked = np.flatnonzero(take(bound, ranges.key).is_valid().to_numpy(zero_copy_only=False))
        lo[asked], hi[asked] = ranges.segment.without_nulls(order, lo[asked], hi[asked])
        at = take(bound, ranges.key[asked])
        if side == "left":
            lo[asked] = ranges.segment.bisect(order, lo[asked], hi[asked], at, "left")
        else:
            hi[asked] = ranges.segment.bisect(order, lo[asked], hi[asked], at, "right")
    return replace(ranges, lo=lo, hi=hi).some(hi > lo)

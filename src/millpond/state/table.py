"""A state table at one epoch: its runs seen as one, over a hash range.

Law: every method gives what a scan of the merged table would give, in table
order, and costs what it touches: keys asked, rows returned, runs present,
never the size of the table or of a key (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.errors import InternalError, InvalidError
from millpond.identity import canonical, fixed_view, one_chunk, refine, same_rows, take, ties
from millpond.ordering import Order, argsort_runs, in_stretches
from millpond.state.dense_keys import numbered
from millpond.state.merge import (
    OpenFile,
    Places,
    arrange,
    bucket_numbers,
    merge_segments,
    newest_first,
    settle,
)
from millpond.state.newest import alive, column, newest
from millpond.state.packed import PackedFile
from millpond.state.run_ref import RunRef
from millpond.state.segment import Segment, expand, repeat
from millpond.state.table_spec import WEIGHT, TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


FEW_OF = 4096  # rows that are looked at to tell whether keys are few


@dataclass(frozen=True)
class KeySet:
    """The distinct keys of a batch, sorted by hash (and by value where two share one).

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
    """Where keys have many rows each: they are found in a small table of hashes, and only they are sorted.

    None if the keys are not few, or if two of them share a hash.
    """
    if len(hashes) < FEW_OF or 4 * len(np.unique(hashes[:: len(hashes) // FEW_OF])) > FEW_OF:
        return None
    encoded = pa.array(hashes).dictionary_encode()
    distinct: Hashes = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    inverse = rank[encoded.indices.to_numpy()]
    first = np.empty(len(order), np.int64)
    first[inverse[::-1]] = np.arange(len(inverse) - 1, -1, -1)  # of several, what is set last stays
    if not same_rows(list(values.values()), first[inverse], np.arange(len(inverse))):
        return None
    columns = {name: take(column, first) for name, column in values.items()}
    return KeySet(distinct[order], _key_table(columns, len(first)), inverse)


def _key_table(values: dict[str, pa.Array], length: int) -> pa.Table:
    if values:
        return pa.table(list(values.values()), names=list(values))
    return pa.table({"": pa.nulls(length)}).select([])  # the global group: rows without columns


@dataclass(frozen=True)
class Rows:
    """Rows of several keys: the rows of one key are one slice, in table order."""

    table: pa.Table  # the columns asked for, and _w
    key_index: Ints  # position in KeySet.hashes, non-decreasing


@dataclass(frozen=True)
class _Hit:
    """The stretches of one run in which keys lie: rows [lo, hi) of key number key[i]."""

    ref: RunRef
    segment: Segment
    key: Ints
    lo: Ints
    hi: Ints

    def some(self, which: Bools | Ints) -> _Hit:
        return replace(self, key=self.key[which], lo=self.lo[which], hi=self.hi[which])


class Table:
    """The rows of a table whose hash lies in [h_min, h_max]."""

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
        """The same table with more runs, which lie in these files."""

        def open_file(name: str) -> PackedFile:
            return files[name] if name in files else self._open_file(name)

        return Table(self.spec, [*self.runs, *runs], open_file, self.h_min, self.h_max)

    def count_rows_upper(self) -> int:
        """At most this many rows, from the manifest alone."""
        return sum(ref.rows for ref in self.runs)

    def scan(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows that live: _h, the columns, _w."""
        return merge_segments(
            self.spec,
            self.runs,
            self._open_file,
            self.h_min,
            self.h_max,
            drop_tombstones=True,
            columns=columns,
        )

    def lookup(self, keys: KeySet, columns: Sequence[str] | None = None) -> Rows:
        """All rows of these keys."""
        if self.spec.rule == "latest" and not self.spec.order_within_key:
            return self._rows(self._newest(keys), columns)
        return self._rows(self._hits(keys), columns)

    def lookup_one(self, keys: KeySet, columns: Sequence[str] | None = None) -> tuple[Bools, pa.Table]:
        """The one row of each key of a *latest* table without order columns: (found, one row per key).

        Where nothing is found the key columns hold the key, numbers and times
        are zero (so that accumulators can be added to), all else is NULL.
        """
        if self.spec.rule != "latest" or self.spec.order_within_key:
            raise InternalError(f"table {self.spec.name!r} may hold several rows per key", hint="use lookup")
        names = tuple(self.spec.schema.names if columns is None else columns)
        own = self._key_columns(keys)
        pieces = newest(self.spec, self.runs, self._open_file, keys.hashes, own, (self.h_min, self.h_max))
        if pieces is None:
            return self._settled_one(keys, names, own)
        pieces = alive(pieces)
        found = np.zeros(len(keys), np.bool_)
        for piece in pieces:
            found[piece.key] = True
        arrays = [own[name] if name in own else column(self.spec, name, pieces, len(keys)) for name in names]
        return found, pa.table(arrays, schema=self.spec.some(names))

    def _settled_one(
        self, keys: KeySet, names: Sequence[str], own: dict[str, pa.Array]
    ) -> tuple[Bools, pa.Table]:
        """The same where hashes do not tell keys apart: keys are compared in every run."""
        hits = self._newest(keys)
        places, key_index = _places(self.spec, hits)
        if len(places):
            live = np.flatnonzero(places.weights())
            if len(live) < len(places):
                places, key_index = places.select(live), key_index[live]
        found = np.zeros(len(keys), np.bool_)
        found[key_index] = True
        if len(hits) > 1 and np.count_nonzero(found) != len(key_index):
            raise InternalError(
                f"table {self.spec.name!r} holds a key in two time buckets",
                detail=f"{len(key_index)} rows for {np.count_nonzero(found)} keys",
            )
        arrays = []
        for name in names:
            if name in own:
                arrays.append(own[name])
            else:
                kind = self.spec.schema.field(name).type
                arrays.append(
                    _scatter(places.column(name) if len(places) else None, kind, key_index, len(keys))
                )
        return found, pa.table(arrays, schema=self.spec.some(tuple(names)))

    def head(self, keys: KeySet, n: int | Ints, *, reverse: bool = False) -> Rows:
        """The first (last) n rows of each key in table order; a row counts once whatever its weight."""
        wanted = np.broadcast_to(np.asarray(n, np.int64), (len(keys),))
        return self._head(self._hits(keys), wanted, reverse)

    def range(self, keys: KeySet, lo: pa.Array | None, hi: pa.Array | None) -> Rows:
        """The rows of each key whose first order column lies in [lo, hi].

        Bounds are one value per key; None, or NULL for one key, leaves that
        side open. A row without a value lies in no range that has a bound.
        """
        order = self._first_order()
        low, high = self._bound(keys, lo), self._bound(keys, hi)
        refs = self._in_buckets(low, high) if self.spec.time == order.column else self.runs
        return self._rows([_between(hit, order, low, high) for hit in self._hits(keys, refs)], None)

    def neighbours(self, keys: KeySet, at: pa.Array) -> tuple[Rows, Rows]:
        """For each key the nearest row with first order value <= at, and the nearest with one > at."""
        order = self._first_order()
        bound = self._bound(keys, at)
        assert bound is not None
        if bound.null_count:
            raise InternalError(f"neighbours of NULL in table {self.spec.name!r}", hint="ask for values only")
        upto, beyond = [], []
        for hit in self._hits(keys):
            lo, hi = hit.segment.without_nulls(order, hit.lo, hit.hi)
            split = hit.segment.bisect(
                order, lo, hi, take(bound, hit.key), "left" if order.descending else "right"
            )
            upto.append(replace(hit, lo=lo, hi=split))
            beyond.append(replace(hit, lo=split, hi=hi))
        if order.descending:
            upto, beyond = beyond, upto
        one = np.ones(len(keys), np.int64)
        return (
            self._head(upto, one, reverse=not order.descending),
            self._head(beyond, one, reverse=order.descending),
        )

    # ------------------------------------------------------------ finding

    def _key_columns(self, keys: KeySet) -> dict[str, pa.Array]:
        """The keys as the table types them."""
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
        """Values in the type of a column; only between types whose equal values hash equal."""
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

    def _find(self, ref: RunRef, hashes: Hashes, key: dict[str, pa.Array], which: Ints | None) -> _Hit:
        """One run, asked for some of the keys (all when `which` is None)."""
        wanted = hashes if which is None else hashes[which]
        edges = np.array([max(ref.h_min, self.h_min), min(ref.h_max, self.h_max)], np.uint64)
        start = int(np.searchsorted(wanted, edges[0], "left"))
        stop = int(np.searchsorted(wanted, edges[1], "right"))
        segment = self._open_file(ref.file).segment(ref.segment)
        if stop <= start:
            nothing = np.empty(0, np.int64)
            return _Hit(ref, segment, nothing, nothing, nothing)
        numbers = np.arange(start, stop) if which is None else which[start:stop]
        return _Hit(ref, segment, *segment.find(wanted[start:stop], numbers, key))

    def _in_buckets(self, low: pa.Array | None, high: pa.Array | None) -> list[RunRef]:
        """The runs of time buckets that times between these bounds can lie in."""
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

    def _hits(self, keys: KeySet, refs: Sequence[RunRef] | None = None) -> list[_Hit]:
        """Where the keys lie in these runs (else in all), newest first."""
        if not len(keys):
            return []
        key = self._key_columns(keys)
        low, high = int(keys.hashes[0]), int(keys.hashes[-1])
        runs = self.runs if refs is None else refs
        hits = (self._find(ref, keys.hashes, key, None) for ref in runs if ref.meets(low, high))
        return [hit for hit in hits if len(hit.key)]

    def _newest(self, keys: KeySet) -> list[_Hit]:
        """Where the newest row of each key lies; a key found is not looked for again (in its bucket)."""
        if not len(keys):
            return []
        key = self._key_columns(keys)
        low, high = int(keys.hashes[0]), int(keys.hashes[-1])
        open_keys: dict[int | None, Ints | None] = {}
        hits = []
        for ref in self.runs:
            which = open_keys.get(ref.bucket)
            if not ref.meets(low, high) or (which is not None and not len(which)):
                continue
            hit = self._find(ref, keys.hashes, key, which)
            if len(hit.key):
                hits.append(hit)
                left = np.ones(len(keys), np.bool_)
                left[hit.key] = False
                open_keys[ref.bucket] = np.flatnonzero(left) if which is None else which[left[which]]
        return hits

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

    def _rows(self, hits: Sequence[_Hit], columns: Sequence[str] | None) -> Rows:
        """The rows of these stretches, merged."""
        names = self.spec.schema.names if columns is None else list(columns)
        hits = [hit for hit in hits if len(hit.key)]
        places, group = _places(self.spec, hits)
        if not len(places):
            return self._table(names, places, group, np.empty(0, np.int64))
        weights = places.weights()
        buckets = bucket_numbers([hit.ref for hit in hits])
        perm, same = arrange(self.spec, places, group, buckets, grouped_by_key=True)
        rows, total = settle(self.spec, weights, perm, same)
        alive = np.flatnonzero(total)
        if len(alive) < len(rows):
            rows, total = rows[alive], total[alive]
        return self._table(names, places.select(rows), group[rows], total)

    def _table(self, names: Sequence[str], places: Places, key_index: Ints, weights: Ints) -> Rows:
        fields = [self.spec.schema.field(name) for name in names]
        arrays = [places.column(f.name) if len(places) else pa.array([], f.type) for f in fields]
        schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
        return Rows(pa.table([*arrays, pa.array(weights)], schema=schema), key_index)

    def _head(self, hits: Sequence[_Hit], wanted: Ints, reverse: bool) -> Rows:
        """Take m rows per key from each run, believe them up to the nearest frontier, double m.

        A run not yet exhausted for a key may hold, beyond the last row taken,
        rows that cancel or precede others; but none at or before that row. So
        rows up to the least such frontier are certain.
        """
        names = self.spec.schema.names
        pending = np.zeros(len(wanted), np.bool_)
        for hit in hits:
            pending[hit.key[hit.hi > hit.lo]] = True
        pending &= wanted > 0
        take_rows = wanted.copy()
        parts = []
        while pending.any():
            rows, done = self._head_once(hits, wanted, take_rows, pending, reverse)
            parts.append(rows)
            pending &= ~done
            take_rows[pending] *= 2
        if not parts:
            nothing = np.empty(0, np.int64)
            return self._table(names, Places.of(self.spec, []), nothing, nothing)
        if len(parts) == 1:
            return parts[0]
        key_index = np.concatenate([part.key_index for part in parts])
        perm = np.argsort(key_index, kind="stable")
        table = pa.concat_tables([part.table for part in parts]).combine_chunks()
        return Rows(table.take(pa.array(perm)), key_index[perm])

    def _head_once(
        self, hits: Sequence[_Hit], wanted: Ints, take_rows: Ints, pending: Bools, reverse: bool
    ) -> tuple[Rows, Bools]:
        """One round: the rows of the keys it could settle, and which keys those are."""
        fetched, whole = [], []
        for hit in hits:
            hit = hit.some(pending[hit.key] & (hit.hi > hit.lo))
            if len(hit.key):
                size = np.minimum(take_rows[hit.key], hit.hi - hit.lo)
                whole.append(size == hit.hi - hit.lo)
                fetched.append(replace(hit, lo=hit.hi - size) if reverse else replace(hit, hi=hit.lo + size))
        places, group = _places(self.spec, fetched)
        buckets = bucket_numbers([hit.ref for hit in fetched])
        perm, same = arrange(self.spec, places, group, buckets, grouped_by_key=True)
        rows, total = settle(self.spec, places.weights(), perm, same)
        number = np.empty(len(perm), np.int64)  # row -> its place among the settled rows
        number[perm] = np.cumsum(~same) - 1
        nowhere = -1 if reverse else len(rows)
        frontier = np.full(len(wanted), nowhere)
        first = 0
        for hit, complete in zip(fetched, whole, strict=True):
            ends = first + np.cumsum(hit.hi - hit.lo)
            edge = (ends - (hit.hi - hit.lo) if reverse else ends - 1)[~complete]
            key = hit.key[~complete]
            frontier[key] = (np.maximum if reverse else np.minimum)(frontier[key], number[edge])
            first = int(ends[-1])
        key_of = group[rows]
        place = np.arange(len(rows))
        certain = place >= frontier[key_of] if reverse else place <= frontier[key_of]
        live = np.flatnonzero(certain & (total != 0))
        key_live = key_of[live]
        count = np.bincount(key_live, minlength=len(wanted))
        done = pending & ((count >= wanted) | (frontier == nowhere))
        before = np.arange(len(live)) - (np.cumsum(count) - count)[key_live]
        within = count[key_live] - before <= wanted[key_live] if reverse else before < wanted[key_live]
        chosen = live[within & done[key_live]]
        return self._table(
            self.spec.schema.names, places.select(rows[chosen]), key_of[chosen], total[chosen]
        ), done


def family(kind: pa.DataType) -> str:
    """Types of one family hold the same values and hash them alike."""
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


def _places(spec: TableSpec, hits: Sequence[_Hit]) -> tuple[Places, Ints]:
    """All rows of these stretches, run by run, and the key number of each."""
    places = Places.of(spec, [(hit.segment, expand(hit.lo, hit.hi)) for hit in hits])
    if not hits:
        return places, np.empty(0, np.int64)
    return places, np.concatenate([np.repeat(hit.key, hit.hi - hit.lo) for hit in hits])


def _between(hit: _Hit, order: Order, low: pa.Array | None, high: pa.Array | None) -> _Hit:
    """The part of each stretch whose order value lies within the bounds."""
    if order.descending:
        low, high = high, low
    lo, hi = hit.lo.copy(), hit.hi.copy()
    for bound, side in ((low, "left"), (high, "right")):
        if bound is None:
            continue
        asked = np.flatnonzero(take(bound, hit.key).is_valid().to_numpy(zero_copy_only=False))
        lo[asked], hi[asked] = hit.segment.without_nulls(order, lo[asked], hi[asked])
        at = take(bound, hit.key[asked])
        if side == "left":
            lo[asked] = hit.segment.bisect(order, lo[asked], hi[asked], at, "left")
        else:
            hi[asked] = hit.segment.bisect(order, lo[asked], hi[asked], at, "right")
    return replace(hit, lo=lo, hi=hi).some(hi > lo)


def _scatter(values: pa.Array | None, kind: pa.DataType, where: Ints, length: int) -> pa.Array:
    """The values at their places among `length` rows; elsewhere zero for fixed-width types, else NULL."""
    if values is not None and len(values) == length and (where[1:] > where[:-1]).all():
        return values
    zero = _zero(kind)
    if zero is None:
        if values is None:
            return pa.nulls(length, kind)
        return _take_or_null(values, where, length)
    raw = fixed_view(zero if values is None else values)
    if raw is not None and (values is None or not values.null_count):
        out = np.zeros(length, raw.dtype)
        out[where] = raw[: len(where)]
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(out)])
    if values is None:
        return repeat(zero, length)
    there = np.zeros(length, np.bool_)
    there[where] = True
    return pc.if_else(pa.array(there), _take_or_null(values, where, length), zero[0])


def _take_or_null(values: pa.Array, where: Ints, length: int) -> pa.Array:
    place = np.full(length, -1, np.int64)
    place[where] = np.arange(len(where))
    return pc.take(values, pa.array(place, mask=place < 0))


def _zero(kind: pa.DataType) -> pa.Array | None:
    """One zero of a fixed-width type, or None for other types."""
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(32))])
    return None

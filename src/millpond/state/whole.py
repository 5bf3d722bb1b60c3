"""Reading a table whole: what only one run can hold is handed out as it lies.

Law: together the pieces are the rows that a merge of all runs gives, repeated by
weight.  A run that is alone in its stretch of hashes is neither merged nor copied;
where small runs lie over a large one, only the hashes that they name are merged,
and of all others the large run's rows stand (law 5, for readers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.state.merge import Found, OpenFile, merge_found, merge_segments, newest_first
from millpond.state.run_ref import RunRef
from millpond.state.segment import Segment, expand
from millpond.state.table_spec import WEIGHT, TableSpec

SMALL = 4  # runs that are together so many times smaller than another lie over it
ROWS_MAX = 1 << 27  # of one table of repeated rows; their places alone are a gigabyte
BYTES_MAX = 4 << 30  # of one table of repeated rows
PART_ROWS = 122_880  # of repeated rows that are handed out one after the other
SLICE_ROWS = 8192  # between two rows that are left out, on average: below it copying is cheaper

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """A range of hashes of one bucket, and the runs that may hold some of it; the largest is first."""

    h_min: int
    h_max: int
    refs: tuple[RunRef, ...]


def stretches(refs: Sequence[RunRef]) -> list[Stretch]:
    """The ranges of hashes between which the largest run changes, in order of hash; refs of one bucket.

    >>> def run(name, low, high, rows):
    ...     return RunRef("t", name, 0, None, 0, 0, rows, 0, low, high, "delta")
    >>> found = stretches([run("a", 0, 9, 100), run("b", 5, 7, 1), run("c", 10, 19, 100)])
    >>> [(s.h_min, s.h_max, [r.file for r in s.refs]) for s in found]
    [(0, 4, ['a']), (5, 7, ['a', 'b']), (8, 9, ['a']), (10, 19, ['c'])]
    """
    edges = sorted({e for r in refs for e in (r.h_min, r.h_max + 1)})
    found: list[Stretch] = []
    for low, after in pairwise(edges):
        here = [r for r in refs if r.h_min <= low and after - 1 <= r.h_max]
        if not here:
            continue
        here.sort(key=lambda r: -r.rows)
        last = found[-1] if found else None
        alone = len(here) == 1
        if (
            last is not None
            and last.h_max + 1 == low
            and last.refs[0] is here[0]
            and (len(last.refs) == 1) == alone
        ):
            more = tuple(r for r in here if r not in last.refs)
            found[-1] = Stretch(last.h_min, after - 1, last.refs + more)
        else:
            found.append(Stretch(low, after - 1, tuple(here)))
    return found


def pieces(
    spec: TableSpec, refs: Sequence[RunRef], open_file: OpenFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """All rows that live, repeated by weight, in no order; only these columns are looked at."""
    return (repeated(rows, columns) for rows in counted(spec, refs, open_file, columns))


def parts(
    spec: TableSpec, refs: Sequence[RunRef], open_file: OpenFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The same; rows that come often are repeated part by part."""
    for rows in counted(spec, refs, open_file, columns):
        yield from repeated_parts(rows, columns)


def counted(
    spec: TableSpec, refs: Sequence[RunRef], open_file: OpenFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The same, with a weight instead where some come more than once."""
    for bucket in _by_bucket(refs):
        for stretch in stretches(bucket):
            if len(stretch.refs) == 1:
                yield from _alone(spec, stretch, open_file, columns)
            else:
                yield from _overlaid(spec, stretch, open_file, columns)


def in_order(refs: Sequence[RunRef]) -> bool:
    """Do the pieces of these runs come in table order: one bucket, and no two runs in one place?"""
    buckets = _by_bucket(refs)
    return len(buckets) < 2 and all(len(s.refs) == 1 for b in buckets for s in stretches(b))


def _by_bucket(refs: Sequence[RunRef]) -> list[list[RunRef]]:
    """A row is replaced or cancelled only within its time bucket."""
    found: dict[int | None, list[RunRef]] = {}
    for ref in refs:
        if ref.rows:
            found.setdefault(ref.bucket, []).append(ref)
    return list(found.values())


def _cut(stretch: Stretch, ref: RunRef, open_file: OpenFile) -> tuple[Segment, int, int]:
    segment = open_file(ref.file).segment(ref.segment)
    low, high = max(stretch.h_min, ref.h_min), min(stretch.h_max, ref.h_max)
    return segment, *segment.cut(low, high)


def _alone(
    spec: TableSpec, stretch: Stretch, open_file: OpenFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    segment, start, stop = _cut(stretch, stretch.refs[0], open_file)
    if stop > start:
        yield _slice(spec, segment, start, stop, columns)


def _overlaid(
    spec: TableSpec, stretch: Stretch, open_file: OpenFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    cuts = {ref: _cut(stretch, ref, open_file) for ref in stretch.refs}
    base, (segment, start, stop) = stretch.refs[0], cuts[stretch.refs[0]]
    above = [(ref, *cuts[ref]) for ref in newest_first(stretch.refs) if ref is not base]
    if sum(stop - start for _, _, start, stop in above) * SMALL > stop - start:
        rows = merge_segments(
            spec,
            stretch.refs,
            open_file,
            stretch.h_min,
            stretch.h_max,
            drop_tombstones=True,
            columns=columns,
        )
        yield rows
        return
    touched = np.unique(np.concatenate([segment.hashes(a, b) for _, segment, a, b in above]))
    own = segment.hashes(start, stop)
    low, high = np.searchsorted(own, touched, "left"), np.searchsorted(own, touched, "right")
    held = np.flatnonzero(high > low)
    low, high = low[held] + start, high[held] + start
    found: list[Found] = [(ref, part, np.arange(a, b)) for ref, part, a, b in above if b > a]
    found.append((base, segment, expand(low, high)))
    order = {ref: place for place, ref in enumerate(newest_first(stretch.refs))}
    found.sort(key=lambda one: order[one[0]])
    yield merge_found(spec, found, columns, drop_tombstones=True)
    yield from _without(spec, segment, start, stop, low, high, columns)


def _without(
    spec: TableSpec, segment: Segment, start: int, stop: int, low: Ints, high: Ints, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows [start, stop) of a segment, but for the stretches [low, high)."""
    if len(low) * SLICE_ROWS < stop - start:
        for a, b in zip([start, *high.tolist()], [*low.tolist(), stop], strict=True):
            if b > a:
                yield _slice(spec, segment, a, b, columns)
        return
    kept = np.ones(stop - start, np.bool_)
    kept[expand(low, high) - start] = False
    yield _slice(spec, segment, start, stop, columns, pa.array(kept))


def _slice(
    spec: TableSpec,
    segment: Segment,
    start: int,
    stop: int,
    columns: Sequence[str],
    kept: pa.Array | None = None,
) -> pa.Table:
    """Rows [start, stop) of a segment, those alone that are kept; nothing is copied if all are."""
    weight = segment.entry.constants.get(WEIGHT)
    plain = bool(columns) and weight is not None and weight[0].as_py() == 1
    names = [*columns] if plain else [*columns, WEIGHT]
    arrays = [segment.slice(name, start, stop, spec.fill.get(name)) for name in names]
    rows = pa.table(arrays, schema=_schema(spec, columns, weight=not plain))
    if kept is not None:
        rows = rows.filter(kept)
    return rows


def _schema(spec: TableSpec, columns: Sequence[str], *, weight: bool = False) -> pa.Schema:
    last = [pa.field(WEIGHT, pa.int64())] if weight else []
    return pa.schema([*(spec.schema.field(name) for name in columns), *last])


def repeated(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """A multiset as plain rows: a row of weight n comes n times."""
    if columns and WEIGHT not in rows.column_names:
        return rows.select(list(columns))
    weights = deltas.weights(rows)
    plain = rows.select(list(columns))
    if (weights == 1).all():
        return plain
    total = int(weights.sum())
    if not columns:
        return pa.table({"": pa.nulls(total)}).select([])
    check_size(total, plain.nbytes * total // max(1, plain.num_rows))
    return plain.take(pa.array(np.repeat(np.arange(len(weights)), weights)))


def check_size(rows: int, size: int) -> None:
    """Refuse a table of more repeated rows than memory is likely to hold."""
    if rows > ROWS_MAX or size > BYTES_MAX:
        raise InvalidError(
            f"{rows} rows do not fit into one table",
            detail="equal rows are kept once, with a count, and there are too many of them to write them out",
            hint="ask for less with SELECT, which reads them part by part, or follow the view's changes",
        )


def repeated_parts(rows: pa.Table, columns: Sequence[str], part_rows: int = PART_ROWS) -> Iterator[pa.Table]:
    """The same in parts of a bounded number of rows."""
    if columns and WEIGHT not in rows.column_names:
        yield rows.select(list(columns))
        return
    weights = deltas.weights(rows)
    plain = rows.select(list(columns))
    if (weights == 1).all() or not columns:
        yield repeated(rows, columns)
        return
    ends = np.cumsum(weights)
    for start in range(0, int(ends[-1]) if len(ends) else 0, part_rows):
        places = np.arange(start, min(start + part_rows, int(ends[-1])))
        yield plain.take(pa.array(np.searchsorted(ends, places, "right")))

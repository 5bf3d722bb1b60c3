"""The rows of a table in a range of hashes, in no order: what needs no merging is handed out as it lies.

Law: the sum of the pieces is what a merge of all runs gives, weights and all.  Only
rows whose hash several runs hold can replace or cancel each other: they are merged, and
of all others each run's own rows stand, without a copy where few are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import ties
from millpond.state.merge import Cut, Found, OpenFile, cut_runs, merge_found
from millpond.state.run_ref import RunRef
from millpond.state.segment import Segment
from millpond.state.table_spec import WEIGHT, TableSpec

Bools = npt.NDArray[np.bool_]


def held_rows(
    spec: TableSpec,
    refs: Sequence[RunRef],
    open_file: OpenFile,
    h_min: int,
    h_max: int,
    columns: Sequence[str],
) -> pa.Table:
    """The columns and _w, which is left out where there are columns and every weight is 1."""
    cuts = cut_runs(refs, open_file, h_min, h_max)
    shared = _shared(cuts)
    plain = bool(columns) and all(_is_one(segment) for _, segment, _, _ in cuts)
    plain &= shared is None or spec.rule == "latest"  # equal rows of several runs would be summed
    names = [*columns] if plain else [*columns, WEIGHT]
    schema = _schema(spec, columns, weight=not plain)
    parts: list[pa.Table] = []
    if shared is not None:
        both: list[Found] = [
            (ref, segment, start + np.flatnonzero(mask))
            for (ref, segment, start, _), mask in zip(cuts, shared, strict=True)
        ]
        merged = merge_found(spec, [one for one in both if len(one[2])], columns, drop_tombstones=True)
        parts.append(pa.table(merged.select(names).columns, schema=schema))
    for number, (_, segment, start, stop) in enumerate(cuts):
        arrays = [segment.slice(name, start, stop, spec.fill.get(name)) for name in names]
        rows = pa.table(arrays, schema=schema)
        alive = None if shared is None or not shared[number].any() else ~shared[number]
        if not plain and not _is_one(segment):  # a tombstone under which nothing lies
            there = segment.slice(WEIGHT, start, stop).to_numpy() != 0
            if not there.all():
                alive = there if alive is None else alive & there
        parts.append(rows if alive is None else rows.filter(pa.array(alive)))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _shared(cuts: Sequence[Cut]) -> list[Bools] | None:
    """For each run which of its rows have a hash that another run holds as well; None if there are none."""
    if len(cuts) < 2:
        return None
    hashes = np.concatenate([segment.hashes(start, stop) for _, segment, start, stop in cuts])
    sizes = [stop - start for _, _, start, stop in cuts]
    run = np.repeat(np.arange(len(cuts), dtype=np.uint32), sizes)
    order = np.argsort(hashes, kind="stable")  # each run is sorted: they are merged
    same = ties(hashes[order])
    crossing = same.copy()
    crossing[1:] &= run[order[1:]] != run[order[:-1]]
    if not crossing.any():
        return None
    group = np.cumsum(~same) - 1
    mixed = np.zeros(int(group[-1]) + 1, np.bool_)
    mixed[group[crossing]] = True
    mask = np.zeros(len(hashes), np.bool_)
    mask[order] = mixed[group]
    return np.split(mask, np.cumsum(sizes)[:-1])


def _is_one(segment: Segment) -> bool:
    weight = segment.entry.constants.get(WEIGHT)
    return weight is not None and weight[0].as_py() == 1


def _schema(spec: TableSpec, columns: Sequence[str], *, weight: bool) -> pa.Schema:
    last = [pa.field(WEIGHT, pa.int64())] if weight else []
    return pa.schema([*(spec.schema.field(name) for name in columns), *last])

"""Sheds rows of a split as it is read, and reads those that were shed again.

Law: whether a row is kept depends on its place in the split, its key, its window or its score alone.  So a
split that is read again keeps the same rows (law 3), and a recovery adds exactly the rows that were shed:
afterwards every row of the split counts once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import WEIGHT, weights
from millpond.identity import one_chunk
from millpond.kernels.event_time import micros
from millpond.kernels.expression_kernel import evaluate
from millpond.kernels.sample_hashes import kept_keys, kept_windows, limits
from millpond.kernels.synopses.item_hashes import mixed
from millpond.sources.sample import Sample
from millpond.sources.source import Split

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PLACE, _SCORE = "__place", "__score"


def with_key(columns: Sequence[str], split: Split) -> tuple[str, ...]:
    """The columns to read: also those that decide which rows are kept."""
    more = () if split.sample is None else split.sample.columns
    return tuple(dict.fromkeys((*columns, *more)))


def without_shed_rows(
    table: pa.Table, columns: Sequence[str], split: Split, before: int
) -> tuple[pa.Table, int]:
    """The rows that the epoch takes, with weights, and how many of this table are left out.

    `before` rows of the split were read already.
    """
    assert split.sample is not None
    kept, divisors = _sampled(table, split, split.sample, before)
    counts = np.where(kept, divisors if split.sample.scales else 1, 0)
    if split.recovers:
        counts = 1 - counts
    taken = np.flatnonzero(counts)
    left_out = int((~kept).sum())
    read = [name for name in table.column_names if name in columns]
    row_weights = weights(table) if WEIGHT in table.column_names else np.ones(table.num_rows, np.int64)
    rows = pa.table(
        [
            *(table.column(name).take(pa.array(taken)) for name in read),
            pa.array((counts * row_weights)[taken], pa.int64()),
        ],
        schema=pa.schema([*(table.schema.field(name) for name in read), pa.field(WEIGHT, pa.int64())]),
    )
    return rows, -left_out if split.recovers else left_out


def _sampled(table: pa.Table, split: Split, sample: Sample, before: int) -> tuple[Bools, Ints | int]:
    """Which rows are kept, and for how many rows each of them stands."""
    if sample.window is not None:
        at, usable = micros(table.column(sample.columns[0]))
        kept = np.ones(table.num_rows, np.bool_)  # rows without a time become error rows
        kept[usable] = kept_windows(at[usable], sample.window, sample.fates)
        return kept, 1
    if sample.score is None and sample.columns:
        return kept_keys([one_chunk(table.column(n)) for n in sample.columns], sample.divisor), 1
    name = json.dumps(split.what, sort_keys=True)
    first = hashing.hash_array(pa.array([name]))[0]
    places = np.arange(before, before + table.num_rows, dtype=np.uint64)
    drawn = mixed(mixed(places, 92) ^ first, 93)
    divisors: Ints | int = sample.divisor if sample.score is None else _by_score(table, sample)
    return drawn <= limits(divisors), divisors


def _by_score(table: pa.Table, sample: Sample) -> Ints:
    """For how many rows each row stands if it is kept; a score that fails or is NULL is the lowest."""
    assert sample.score is not None
    scored = table.select([n for n in sample.columns if n in table.column_names])
    for index, field in enumerate(scored.schema):
        if pa.types.is_dictionary(field.type):
            plain: Any = scored.column(index).cast(field.type.value_type)
            scored = scored.set_column(index, field.name, plain)
    scored = scored.append_column(_PLACE, pa.array(np.arange(table.num_rows)))
    found = evaluate(scored, [(_PLACE, _PLACE), (_SCORE, f"cast(({sample.score}) as double)")]).rows
    scores = np.zeros(table.num_rows)
    values = found.column(_SCORE).to_numpy()
    scores[found.column(_PLACE).to_numpy()] = np.nan_to_num(values.astype(np.float64), nan=0.0)
    with np.errstate(divide="ignore"):
        wanted = np.minimum(sample.divisor / np.maximum(scores, 0.0), sample.divisor_limit)
    return np.maximum(np.rint(wanted), 1).astype(np.int64)

"""Matches rows by key, for every kind of join.

Rows are sorted by the number of their key, so the partners of a row are one
slice on the other side, and all pairs of a batch are an arithmetic expansion
of slices.  Pairs are made in chunks of bounded size; rows are gathered only
for the pairs that satisfy the residual condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.delta import HASH, WEIGHT
from millpond.identity import one_chunk, take
from millpond.kernels.expression_kernel import join_errors, keep
from millpond.kernels.expressions import Expression
from millpond.kernels.keyed_rows import Keyed, as_declared, plain_type

Ints = npt.NDArray[np.int64]


def pairs(a: Keyed, b: Keyed, chunk_rows: int) -> Iterator[tuple[Ints, Ints]]:
    """(rows of a, rows of b) with equal keys, at most `chunk_rows` at a time, in the order of a.

    The keys of b ascend; those of a may be in any order.
    """
    first, count = key_ranges(b.key, a.key)
    if count.max(initial=0) <= 1:  # each row of a has at most one partner
        rows = np.flatnonzero(count)
        for start in range(0, len(rows), chunk_rows):
            here = rows[start : start + chunk_rows]
            yield here, first[here]
        return
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, chunk_rows):
        stop = min(start + chunk_rows, total)
        low, high = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left") + 1
        began = ends[low:high] - count[low:high]
        here = np.minimum(ends[low:high], stop) - np.maximum(began, start)
        rows_a = np.repeat(np.arange(low, high), here)
        rows_b = np.arange(start, stop) + np.repeat(first[low:high] - began, here)
        yield rows_a, rows_b


def key_ranges(key: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """The first row of each wanted key among sorted keys, and the number of its rows.

    >>> [found.tolist() for found in key_ranges(np.array([0, 2, 2]), np.array([7, 1, 2]))]
    [[3, 1, 1], [0, 0, 2]]
    """
    highest = int(max(key[-1], wanted.max())) if len(key) and len(wanted) else 0
    if tuning.JOIN_SEARCH_ROWS_PER_KEY * len(wanted) < max(len(key), highest) or not highest:
        first = np.searchsorted(key, wanted, "left")
        return first, np.searchsorted(key, wanted, "right") - first
    # Keys are numbers from 0, hardly more than there are rows: counting them is cheaper than searching.
    counts = np.bincount(key, minlength=highest + 1)
    return (np.cumsum(counts) - counts)[wanted], counts[wanted]


@dataclass(frozen=True)
class Met:
    """The result of matching two groups of rows."""

    out: list[pa.Table]
    errors: pa.Table | None
    left: Ints | None  # for each left row, the weight of its partners; only with a residual
    right: Ints | None


@dataclass(frozen=True)
class Matcher:
    """How pairs are tested, and the rows they produce."""

    columns: tuple[tuple[str, int, str], ...]  # (output name, side, input name)
    schema: pa.Schema  # of the output, with _w: all these columns, or only the left's if no pairs are emitted
    residual: Expression | None
    emits: bool
    chunk_rows: int = field(default_factory=lambda: tuning.JOIN_CHUNK_ROWS)

    def meet(self, left: Keyed, right: Keyed) -> Met:
        """All matching pairs of the two sides."""
        judged = self.residual is not None
        found = Met(
            [],
            None,
            np.zeros(len(left), np.int64) if judged else None,
            np.zeros(len(right), np.int64) if judged else None,
        )
        errors = None
        for rows in pairs(left, right, self.chunk_rows):
            if self.residual is not None:
                rows, bad = self._judge(self.residual, left, right, *rows)
                errors = join_errors(errors, bad)
                assert found.left is not None and found.right is not None
                np.add.at(found.left, rows[0], right.weights[rows[1]])
                np.add.at(found.right, rows[1], left.weights[rows[0]])
            if self.emits and len(rows[0]):
                found.out.append(self._give(left, right, *rows))
        return Met(found.out, errors, found.left, found.right)

    def _judge(
        self, residual: Expression, left: Keyed, right: Keyed, i: Ints, j: Ints
    ) -> tuple[tuple[Ints, Ints], pa.Table | None]:
        """The pairs for which the residual is true, and errors for those on which it fails."""
        seen = {
            name: take(left.columns[column], i) if side == 0 else take(right.columns[column], j)
            for name, side, column in self.columns
            if name in residual.needs
        }
        # The kernel carries _w and _h along unchanged: the pair's number is passed as its hash.
        seen[WEIGHT] = pa.array(left.weights[i] * right.weights[j])
        seen[HASH] = pa.array(np.arange(len(i), dtype=np.uint64))
        met = keep(pa.table(seen), residual)
        rows = one_chunk(met.rows.column(HASH)).to_numpy().view(np.int64)
        return (i[rows], j[rows]), met.errors

    def _give(self, left: Keyed, right: Keyed, i: Ints, j: Ints) -> pa.Table:
        arrays = [
            take(left.columns[column], i) if side == 0 else take(right.columns[column], j)
            for _, side, column in self.columns
        ]
        return as_declared(self.schema, [*arrays, pa.array(left.weights[i] * right.weights[j])])

    def alone(self, rows: Keyed, side: int) -> pa.Table:
        """Rows of one side without a partner: NULL in the columns of the other."""
        shown = [c for c in self.columns if self.emits or c[1] == side]
        arrays = [
            rows.columns[column] if of == side else pa.nulls(len(rows), plain_type(field.type))
            for (_, of, column), field in zip(shown, self.schema.remove(len(shown)), strict=True)
        ]
        return as_declared(self.schema, [*arrays, pa.array(rows.weights)])

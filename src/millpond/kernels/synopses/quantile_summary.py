"""Quantile summary (KLL): values of a group at levels, where one at level h stands for 2**h rows.

Law: the result of `compacted` is a function of the values it receives.  Levels are sorted before every
second value of a full one is promoted, and which half goes on is decided by a hash of the number of
rows, not by chance.  `union` never compacts, so it does not depend on order; the owner of a group
compacts once per epoch.

A summary is: header, number of rows, least and largest value (two words each), number of levels, then
the size of each level, padded to an even number of words, then the values as doubles, level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.synopses.item_hashes import mixed

K = 200
RANK_ERROR = 0.0165  # exceeded by less than 1 % of all answers
_SHRINK = 2 / 3
_SMALLEST = 8
_HEAD = np.dtype([("mark", "<u4"), ("levels", "<u4"), ("rows", "<i8"), ("least", "<f8"), ("largest", "<f8")])
_MARK = 0x5C | 5 << 8 | K << 16

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Levels = list[Floats]


def raw(values: Floats, groups: Ints, n_groups: int) -> pa.Array:
    """Summaries of all values of each group, not compacted; NULL for a group without values."""
    order = np.lexsort((values, groups))
    values, groups = values[order], groups[order]
    sizes = np.bincount(groups, minlength=n_groups)
    ends = np.cumsum(sizes)
    heads = np.zeros(n_groups, _HEAD)
    full = sizes > 0
    heads["mark"], heads["levels"], heads["rows"] = _MARK, 1, sizes
    heads["least"][full] = values[(ends - sizes)[full]]
    heads["largest"][full] = values[ends[full] - 1]
    # head (4 doubles), the size of level 0 and its padding (1 double), values
    lengths = np.where(full, 5 + sizes, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    out = np.zeros(int(offsets[-1]), np.float64)
    at = offsets[:-1][full]
    plain = heads[full].view(np.float64).reshape(-1, 4)
    for column in range(4):
        out[at + column] = plain[:, column]
    out[at + 4] = sizes[full].astype(np.uint64).view(np.float64)
    rank = np.arange(len(values)) - np.repeat(ends - sizes, sizes)
    out[np.repeat(offsets[:-1] + 5, sizes) + rank] = values
    made = pa.Array.from_buffers(
        pa.binary(),
        n_groups,
        [None, pa.py_buffer((offsets * 8).astype(np.int32)), pa.py_buffer(out)],
    )
    return made if full.all() else made.take(pa.array(np.arange(n_groups), mask=~full))


def union(summaries: pa.Array, starts: Ints, *, compact: bool) -> pa.Array:
    """The summary of all rows of each group; NULL for none.  With `compact`, of bounded size."""
    parts: list[Any] = summaries.to_pylist()
    out: list[bytes | None] = []
    for first, last in zip(starts.tolist(), [*starts.tolist()[1:], len(parts)], strict=True):
        mine = [s for s in parts[first:last] if s is not None]
        if not mine:
            out.append(None)
        elif len(mine) == 1 and not (compact and len(mine[0]) > _bytes_max(1)):
            out.append(mine[0])
        else:
            out.append(_united(mine, compact))
    return pa.array(out, pa.binary())


def _united(summaries: Sequence[bytes], compact: bool) -> bytes:
    parts = [_decoded(s) for s in summaries]
    depth = max(len(levels) for _, _, _, levels in parts)
    levels: Levels = [
        np.sort(np.concatenate([p[3][h] for p in parts if len(p[3]) > h])) for h in range(depth)
    ]
    rows = sum(p[0] for p in parts)
    if compact:
        levels = compacted(levels, rows)
    return _encoded(rows, min(p[1] for p in parts), _largest([p[2] for p in parts]), levels)


def _largest(values: Sequence[float]) -> float:
    return float(np.sort(np.array(values))[-1])  # NaN is the largest value


def capacity(level: int, depth: int) -> int:
    """How many values a level keeps: K at the top, fewer below."""
    return max(_SMALLEST, int(np.ceil(K * _SHRINK ** (depth - level - 1))))


def compacted(levels: Levels, rows: int) -> Levels:
    """The levels in bounded space; the weights still add up to the number of rows."""
    levels = list(levels)
    while sum(map(len, levels)) > sum(capacity(h, len(levels)) for h in range(len(levels))):
        h = next(h for h, level in enumerate(levels) if len(level) > capacity(h, len(levels)))
        level = levels[h]
        odd = len(level) % 2
        bits = int(mixed(np.array([rows], np.uint64), 101 + h)[0])
        remaining, pairs = (
            (level[:odd], level[odd:]) if bits & 2 else (level[len(level) - odd :], level[: len(level) - odd])
        )
        levels[h] = remaining
        promoted = pairs[bits & 1 :: 2]
        if h + 1 == len(levels):
            levels.append(np.empty(0))
        levels[h + 1] = np.sort(np.concatenate([levels[h + 1], promoted]))
    return levels


def _bytes_max(depth: int) -> int:
    return 40 + 8 * sum(capacity(h, depth) for h in range(depth))


def _encoded(rows: int, least: float, largest: float, levels: Levels) -> bytes:
    head = np.zeros(1, _HEAD)
    head[0] = (_MARK, len(levels), rows, least, largest)
    sizes = np.zeros(len(levels) + len(levels) % 2, np.uint32)
    sizes[: len(levels)] = [len(level) for level in levels]
    return head.tobytes() + sizes.tobytes() + np.concatenate(levels).tobytes()


def _decoded(summary: bytes) -> tuple[int, float, float, Levels]:
    if len(summary) < _HEAD.itemsize or int.from_bytes(summary[:4], "little") != _MARK:
        raise InvalidError("not a kll sketch", hint="pass a column made by kll_sketch(x)")
    head = np.frombuffer(summary, _HEAD, 1)[0]
    depth = int(head["levels"])
    sizes = np.frombuffer(summary, np.uint32, depth, _HEAD.itemsize)
    values = np.frombuffer(summary, np.float64, offset=_HEAD.itemsize + 4 * (depth + depth % 2))
    levels = np.split(values, np.cumsum(sizes)[:-1])
    return int(head["rows"]), float(head["least"]), float(head["largest"]), levels


def quantiles(summaries: pa.Array, q: float) -> pa.Array:
    """The value at rank q of each summary; those of one level, which are exact, without a loop."""
    valid = np.flatnonzero(summaries.is_valid().to_numpy(zero_copy_only=False))
    out = np.zeros(len(summaries))
    present = summaries.drop_null() if summaries.null_count else summaries
    if not len(present):
        return pa.nulls(len(summaries), pa.float64())
    ends = np.frombuffer(present.buffers()[1], np.int32, len(present) + 1, present.offset * 4).astype(
        np.int64
    )
    raw = present.buffers()[2][int(ends[0]) : int(ends[-1])].to_pybytes()
    data, at = np.frombuffer(raw, np.float64), (ends - ends[0])[:-1] // 8
    flat = (data[at].view(np.uint64) >> np.uint64(32)) == 1
    rows = data[at + 1].view(np.int64)
    position = 5 + np.clip(np.ceil(q * rows - 1e-9), 1, rows).astype(np.int64) - 1
    position = np.full(len(at), 2) if q <= 0 else np.full(len(at), 3) if q >= 1 else position
    out[valid[flat]] = data[(at + position)[flat]]
    for number in np.flatnonzero(~flat).tolist():
        out[valid[number]] = quantile(present[number].as_py(), q)
    mask = summaries.is_null().to_numpy(zero_copy_only=False)
    return pa.array(out, mask=mask if mask.any() else None)


def quantile(summary: bytes | None, q: float) -> float | None:
    """The value at rank q: the least one that at least a share q of the rows does not exceed."""
    if summary is None:
        return None
    rows, least, largest, levels = _decoded(summary)
    if q <= 0:
        return least
    if q >= 1:
        return largest
    values = np.concatenate(levels)
    weights = np.repeat(1 << np.arange(len(levels)), [len(level) for level in levels])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    position = int(np.searchsorted(reached, max(1.0, np.ceil(q * rows - 1e-9))))
    return float(values[order[min(position, len(values) - 1)]])


def rank(summary: bytes | None, value: float) -> float | None:
    """The share of rows that do not exceed a value."""
    if summary is None:
        return None
    rows, _, _, levels = _decoded(summary)
    below = sum((1 << h) * int(np.searchsorted(level, value, "right")) for h, level in enumerate(levels))
    return below / rows

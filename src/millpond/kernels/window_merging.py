"""Merges windows of one key that overlap, for many keys at once.

Windows that only touch stay apart.  The result does not depend on the order of the windows (law 3).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import wraps
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.errors import InvalidError
from millpond.kernels.custom_windows import Instants, few, window_us
from millpond.kernels.limited_calls import limited_calls

Ints = npt.NDArray[np.int64]
Merge = Callable[[list[Instants]], Iterable[Instants]]


class MergedWindows(NamedTuple):
    """Windows made of others: of each old one the number of the new one, and the new ones."""

    into: Ints
    key: Ints
    start: Ints
    end: Ints


def merge_overlapping(key: Ints, start: Ints, end: Ints) -> MergedWindows:
    """
    >>> found = merge_overlapping(np.array([0, 0, 0]), np.array([0, 20, 5]), np.array([10, 30, 15]))
    >>> found.into.tolist(), found.start.tolist(), found.end.tolist()
    ([0, 1, 0], [0, 20], [15, 30])
    """
    order = np.lexsort((end, start, key))
    k, s, e = key[order], start[order], end[order]
    reach = _running_max(k, e)
    begins = np.ones(len(k), np.bool_)
    begins[1:] = (k[1:] != k[:-1]) | (s[1:] >= reach[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(k))[: len(first)] - 1
    into = np.empty(len(k), np.int64)
    into[order] = np.cumsum(begins) - 1
    return MergedWindows(into, k[first], s[first], reach[last])


def merge_by(merge: Merge | None, key: Ints, start: Ints, end: Ints) -> MergedWindows:
    """Merge windows by a user's function, or where they overlap."""
    if merge is None:
        return merge_overlapping(key, start, end)
    into = np.empty(len(key), np.int64)
    found: list[tuple[int, int, int]] = []
    order = np.argsort(key, kind="stable")
    groups = [g for g in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(g)]
    with limited_calls("the merge function of custom windows") as call:
        merged = [call(_checked(merge), sorted({(int(start[n]), int(end[n])) for n in g})) for g in groups]
    for mine, made in zip(groups, merged, strict=True):
        one = int(key[mine[0]])
        for n in mine.tolist():
            around = [i for i, (s, e) in enumerate(made) if s <= start[n] and end[n] <= e]
            if len(around) != 1:
                window = f"{_instant(int(start[n]))} to {_instant(int(end[n]))}"
                raise InvalidError(
                    "a merge of windows must return one window around each that it got",
                    detail=f"{len(around)} of the {len(made)} windows contain {window}",
                )
            into[n] = len(found) + around[0]
        found += [(one, s, e) for s, e in made]
    columns = np.array(found, np.int64).reshape(-1, 3)
    return MergedWindows(into, columns[:, 0], columns[:, 1], columns[:, 2])


def _checked(merge: Merge) -> Callable[[list[tuple[int, int]]], list[tuple[int, int]]]:
    """A user's function over windows in microseconds."""

    @wraps(merge)
    def made(given: list[tuple[int, int]]) -> list[tuple[int, int]]:
        windows = merge([(_instant(s), _instant(e)) for s, e in given])
        return sorted({window_us(window) for window in few(windows, len(given))})

    return made


def _instant(us: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=us)


def _running_max(key: Ints, values: Ints) -> Ints:
    """The greatest value of each key so far; keys are sorted."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    numbers = np.cumsum(np.append(False, key[1:] != key[:-1])[: len(key)])
    best: Ints = np.maximum.accumulate(numbers * len(values) + rank) - numbers * len(values)
    found: Ints = values[order[best]]
    return found

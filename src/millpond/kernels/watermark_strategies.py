"""Strategies: how the times of rows that were seen become a watermark.

A strategy summarises the rows of one partition, joins summaries, and says the bound that follows.
Law: joining is commutative and associative, so tasks may summarise any parts of the rows (law 3).

A *summary* and the *entry* of a partition in the manifest are the same kind of JSON object:

    max     the newest time, in microseconds
    reach   a time before which no row will come, said by the source
    top     of `Slack`: the newest times, the newest first
    own     of `Custom`: the bound that the function gave, and `state`, its state

The *delays* of rows behind the newest time are a histogram of the step: buckets of logarithmic width, an
eighth of a power of two wide, so a quantile is at most an eighth too large.
"""

from __future__ import annotations

import datetime
import heapq
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError
from millpond.kernels.event_time import FIRST_US, LAST_US
from millpond.kernels.limited_calls import limited_calls

Ints = npt.NDArray[np.int64]
Summary = Mapping[str, Any]
Delays = Mapping[str, int]  # by bucket: how many rows

LEARN_WINDOW_US = 3_600_000_000  # event time over which delays are learnt, if nothing else is said
SLACK_ROWS_MAX = 10_000  # their times are in every manifest
_FINE = 8  # buckets per power of two of a millisecond


@dataclass(frozen=True)
class Bounded:
    """No row comes more than `delay_us` behind the newest one."""

    delay_us: int
    learns: ClassVar[bool] = False

    def summary(self, times: Ints) -> dict[str, Any]:
        return {"max": int(times.max())}

    def joined(self, one: Summary, other: Summary) -> dict[str, Any]:
        return _newest(one, other)

    def bound(self, entry: Summary, delay_us: int) -> int | None:
        return int(entry["max"]) - self.delay_us


@dataclass(frozen=True)
class Slack:
    """A row may be overtaken by at most `rows` newer ones of its partition."""

    rows: int
    learns: ClassVar[bool] = False

    def summary(self, times: Ints) -> dict[str, Any]:
        kept = min(self.rows + 1, len(times))
        top = np.sort(np.partition(times, len(times) - kept)[-kept:])[::-1]
        return {"max": int(top[0]), "top": top.tolist()}

    def joined(self, one: Summary, other: Summary) -> dict[str, Any]:
        top = heapq.nlargest(self.rows + 1, [*one.get("top", ()), *other.get("top", ())])
        return {**_newest(one, other), "top": top}

    def bound(self, entry: Summary, delay_us: int) -> int | None:
        top = entry.get("top", ())
        return int(top[self.rows]) if len(top) > self.rows else None


@dataclass(frozen=True)
class Percentile:
    """No row comes later than this share of the rows did, in the last `window_us` of event time."""

    share: float
    window_us: int = LEARN_WINDOW_US
    learns: ClassVar[bool] = True

    def summary(self, times: Ints) -> dict[str, Any]:
        return {"max": int(times.max())}

    def joined(self, one: Summary, other: Summary) -> dict[str, Any]:
        return _newest(one, other)

    def bound(self, entry: Summary, delay_us: int) -> int | None:
        return int(entry["max"]) - delay_us


@dataclass(frozen=True)
class Custom:
    """A user's function `(batch, state) -> (bound, state)`, called for each partition, with rows in order."""

    function: Callable[[Any, Any], tuple[Any, Any]]
    learns: ClassVar[bool] = False

    def summary(self, times: Ints) -> dict[str, Any]:
        return {"max": int(times.max())}

    def joined(self, one: Summary, other: Summary) -> dict[str, Any]:
        found = _newest(one, other)
        owns = [s["own"] for s in (one, other) if s.get("own") is not None]
        if owns:
            found["own"] = max(owns)
        for summary in (one, other):  # of an entry and a later summary; one task has all rows of a partition
            if "state" in summary:
                found["state"] = summary["state"]
        return found

    def bound(self, entry: Summary, delay_us: int) -> int | None:
        return entry.get("own")

    def call(self, rows: Any, state: Any, step: str) -> dict[str, Any]:
        """The bound and the state after these rows."""
        with limited_calls("the function of a custom watermark") as call:
            given: Any = call(self.function, rows, state)
        if not isinstance(given, tuple) or len(given) != 2:
            raise InvalidError(
                "a watermark function returns (bound, state)", detail=f"got {given!r}"[:200], step=step
            )
        bound, after = given
        try:
            after = json.loads(json.dumps(after, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidError(
                "the state of a watermark function must be JSON", detail=str(error), step=step
            ) from error
        return {"own": None if bound is None else instant_us(bound), "state": after}


@dataclass(frozen=True)
class NewestOf:
    """A function for `Custom`: rows say in a column up to which time their partition is complete."""

    column: str

    def __call__(self, rows: Any, state: Any) -> tuple[Any, Any]:
        found = pc.max(rows.column(self.column))
        kind = pa.timestamp("us", getattr(found.type, "tz", None))
        return (found.cast(kind).as_py() if found.is_valid else None), None


@dataclass(frozen=True)
class Inherited:
    """The watermark of the rows that these were computed from; the step knows which one that is."""

    learns: ClassVar[bool] = False

    def summary(self, times: Ints) -> dict[str, Any]:
        return {"max": int(times.max())}

    def joined(self, one: Summary, other: Summary) -> dict[str, Any]:
        return _newest(one, other)

    def bound(self, entry: Summary, delay_us: int) -> int | None:
        return None


Strategy = Bounded | Slack | Percentile | Custom | Inherited


def _newest(one: Summary, other: Summary) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("max", "reach"):
        times = [s[name] for s in (one, other) if s.get(name) is not None]
        if times:
            found[name] = max(times)
    return found


def instant_us(at: datetime.datetime | int) -> int:
    """A time in microseconds since 1970; a datetime without a zone is taken as UTC."""
    if isinstance(at, int) and not isinstance(at, bool):
        if not FIRST_US <= at <= LAST_US:
            raise InvalidError(
                f"not a time: {at}",
                detail="it is not between the years 1 and 9999",
                hint="microseconds since 1970, or a datetime",
            )
        return at
    if isinstance(at, datetime.datetime):
        at = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
        return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    raise InvalidError(f"not a time: {at!r}", hint="a datetime, or microseconds since 1970")


# -- delays --------------------------------------------------------------------------------


def delays(behind_us: Ints) -> dict[str, int]:
    """The histogram of delays.

    >>> delays(np.array([0, 1, 2_000, 100_000]))
    {'0': 1, '1': 1, '2': 1, '36': 1}
    """
    ms = -(-np.maximum(behind_us, 0) // 1000)
    _, exponent = np.frexp(ms.astype(np.float64))
    shift = np.maximum(exponent.astype(np.int64) - 4, 0)
    buckets = np.where(ms < _FINE, ms, shift * _FINE + (ms >> shift))
    values, counts = np.unique(buckets, return_counts=True)
    return {str(b): n for b, n in zip(values.tolist(), counts.tolist(), strict=True)}


def summed(*parts: Delays) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for bucket, count in part.items():
            found[bucket] = found.get(bucket, 0) + count
    return {bucket: found[bucket] for bucket in sorted(found, key=int)}


def quantile_us(found: Delays, share: float) -> int:
    """The delay that this share of the rows did not exceed.

    >>> quantile_us({"0": 98, "2": 1, "36": 1}, 0.99)
    2000
    """
    wanted = math.ceil(share * sum(found.values()))
    for bucket in sorted(map(int, found)):
        wanted -= found[str(bucket)]
        if wanted <= 0:
            return _upper_ms(bucket) * 1000
    return 0


def _upper_ms(bucket: int) -> int:
    if bucket < 2 * _FINE:
        return bucket
    shift, top = bucket // _FINE - 1, bucket % _FINE + _FINE
    return ((top + 1) << shift) - 1

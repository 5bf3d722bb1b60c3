"""What an aggregate computes, and the feeds by which its rows arrive; see `operators.aggregate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from millpond.kernels.accumulators import EXTREMES
from millpond.kernels.bounds import Bound


@dataclass(frozen=True)
class Agg:
    """One output column: a function over an argument column (None for count(*))."""

    name: str
    function: str
    argument: str | None = None
    distinct: bool = False

    def __str__(self) -> str:
        return f"{self.name}={self.function}({'distinct ' * self.distinct}{self.argument or '*'})"


@dataclass(frozen=True)
class AggregateFeed:
    """One input edge: the kind of rows that arrive, and for which aggregates (by number)."""

    kind: Literal["rows", "values", "distinct", "always"]
    aggs: tuple[int, ...]
    column: str | None = None


@dataclass(frozen=True)
class Close:
    """Windows end at the value of a key column, and close when a step's watermark passes it."""

    column: str
    watermark: str
    bucket_us: int
    marks: tuple[tuple[str, int], ...] = ()  # if several watermarks must pass: each one, shifted by a time

    @property
    def bound(self) -> Bound:
        return Bound(self.column, self.marks or ((self.watermark, 0),), self.bucket_us, grid=True)


def feeds_for(aggs: Sequence[Agg], append_only: bool, *, staged: bool = False) -> tuple[AggregateFeed, ...]:
    """The feeds that a list of aggregates needs; the first is always `rows`.

    With `staged`, min and max get a feed each, because a ranking in front of this
    step sends only the candidates of one of them.
    """
    plain = tuple(
        i for i, a in enumerate(aggs) if not a.distinct and (append_only or a.function not in EXTREMES)
    )
    found = [AggregateFeed("rows", plain)]
    indexed: dict[tuple[str, str], list[int]] = {}
    apart: dict[str, list[int]] = {}
    for i, agg in enumerate(aggs):
        if i in plain:
            continue
        assert agg.argument is not None
        # DISTINCT does not change a minimum or a maximum.
        if agg.function in EXTREMES:
            indexed.setdefault((agg.argument, agg.function if staged else ""), []).append(i)
        else:
            apart.setdefault(agg.argument, []).append(i)
    found += [AggregateFeed("values", tuple(n), column) for (column, _), n in indexed.items()]
    found += [AggregateFeed("distinct", tuple(n), column) for column, n in apart.items()]
    return tuple(found)

"""Admission: decides how much input the next epoch takes, which creates backpressure.

An epoch is bounded in rows and bytes, and steered towards a target duration by measured rates.  A pond that
is behind takes larger epochs within the same hard bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.sources.source import Split

# In simulated loads whose epochs differ by a third, twice the deviation keeps lag below its target; the plain
# line exceeded it in a quarter of them (`tests/unit/control/test_shedding.py`).
CARE = 2.0
DEVIATION_DECAY = 0.8
DEVIATION_MAX = 1.0
FIRST_ROWS = 2_000_000  # of the first epoch, when nothing is known about speed


@dataclass(frozen=True)
class Bounds:
    rows_max: int = 16_000_000
    bytes_max: int = 1 << 30
    rows_min: int = 10_000
    target_ms: int = 1_000
    catch_up_ms: int = 4_000

    def within(self, ms: int) -> Bounds:
        """The same, but no epoch should take longer than this.

        >>> Bounds(target_ms=300).within(500).catch_up_ms
        500
        """
        if max(self.target_ms, self.catch_up_ms) <= ms:
            return self
        return replace(self, target_ms=min(self.target_ms, ms), catch_up_ms=min(self.catch_up_ms, ms))


@dataclass(frozen=True)
class Pace:
    """What is known about speed: a smoothed fixed cost and rows per millisecond."""

    rows_per_ms: float | None = None
    floor_ms: float = 150.0

    def measured(self, rows: int, ms: float) -> Pace:
        if rows < 1000:
            return replace(self, floor_ms=0.8 * self.floor_ms + 0.2 * ms)
        rate = rows / max(1.0, ms - self.floor_ms)
        if self.rows_per_ms is None:
            return replace(self, rows_per_ms=rate)
        # A higher rate counts more than a lower one: the first epochs of a process are always slow.
        share = 0.8 if rate > self.rows_per_ms else 0.4
        return replace(self, rows_per_ms=(1 - share) * self.rows_per_ms + share * rate)


@dataclass(frozen=True)
class EpochCost:
    """The line through the newest epochs: a fixed time, and a time for each row; older ones count less.

    `Pace` takes all time beyond a floor for that of rows.  An epoch of few rows then makes rows look slow.
    """

    weight: float = 0.0
    rows: float = 0.0
    ms: float = 0.0
    rows_squared: float = 0.0
    rows_ms: float = 0.0
    deviation: float = 0.0  # by which share an epoch took longer than the line said; it decays slowly

    def measured(self, rows: int, ms: float) -> EpochCost:
        if not rows:
            return self
        known = self.fitted()
        late = 0.0 if known is None else ms / (known[1] + rows / known[0]) - 1
        return EpochCost(
            0.9 * self.weight + 1,
            0.9 * self.rows + rows,
            0.9 * self.ms + ms,
            0.9 * self.rows_squared + rows * rows,
            0.9 * self.rows_ms + rows * ms,
            min(DEVIATION_MAX, max(late, DEVIATION_DECAY * self.deviation)),
        )

    def careful(self) -> tuple[float, float] | None:
        """The line for decisions that must hold: the less epochs follow the line, the slower it is.

        >>> steady = EpochCost(4, 40, 80, 500, 900)
        >>> steady.fitted(), steady.careful(), replace(steady, deviation=0.5).careful()
        ((1.0, 10.0), (1.0, 10.0), (0.5, 20.0))
        """
        found = self.fitted()
        if found is None:
            return None
        slower = 1 + CARE * self.deviation
        return found[0] / slower, found[1] * slower

    def fitted(self) -> tuple[float, float] | None:
        """(rows per millisecond, fixed milliseconds); None if epochs are too much alike to tell.

        >>> cost = EpochCost()
        >>> for rows in (10_000, 50_000, 20_000, 5_000):
        ...     cost = cost.measured(rows, 300 + rows / 50)
        >>> [round(n) for n in cost.fitted()]
        [50, 300]
        """
        if self.weight < 2:
            return None
        rows, ms = self.rows / self.weight, self.ms / self.weight
        variance = self.rows_squared / self.weight - rows * rows
        slope = (self.rows_ms / self.weight - rows * ms) / variance if variance > (0.1 * rows) ** 2 else 0.0
        if slope <= 0:
            return None
        return 1 / slope, min(ms, max(0.0, ms - slope * rows))


def budget_rows(bounds: Bounds, pace: Pace, backlog_rows: int) -> int:
    """Rows the next epoch may take.

    >>> budget_rows(Bounds(), Pace(rows_per_ms=100.0, floor_ms=100.0), backlog_rows=50_000)
    90000
    >>> budget_rows(Bounds(), Pace(rows_per_ms=100.0, floor_ms=100.0), backlog_rows=10**9)
    390000
    """
    if pace.rows_per_ms is None:
        return min(bounds.rows_max, max(bounds.rows_min, FIRST_ROWS))
    steady = pace.rows_per_ms * max(1.0, bounds.target_ms - pace.floor_ms)
    # What does not fit into one epoch waits for the next anyway: one long epoch ends sooner than two.
    behind = backlog_rows > steady
    catch_up_ms = max(bounds.catch_up_ms, bounds.target_ms)
    wanted = pace.rows_per_ms * max(1.0, catch_up_ms - pace.floor_ms) if behind else steady
    return int(min(bounds.rows_max, max(bounds.rows_min, wanted)))


def admit(offers: Mapping[str, Sequence[Split]], rows: int, bytes_max: int) -> dict[str, list[Split]]:
    """A prefix of each source's splits, taken round-robin until the budget is spent.

    Every source gives at least one split, so none starves beside another whose splits are smaller; the
    budget is passed by no more than these.  Splits that belong together (`with_next`) count as one.
    """
    taken: dict[str, list[Split]] = {}
    left_rows, left_bytes = rows, bytes_max
    waiting = {step: list(splits) for step, splits in sorted(offers.items()) if splits}
    while waiting:
        for step in list(waiting):
            unit = _first(waiting[step])
            unit_rows, unit_bytes = sum(s.rows for s in unit), sum(s.bytes for s in unit)
            if step in taken and (unit_rows > left_rows or unit_bytes > left_bytes):
                del waiting[step]
                continue
            taken.setdefault(step, []).extend(unit)
            del waiting[step][: len(unit)]
            left_rows -= unit_rows
            left_bytes -= unit_bytes
            if not waiting[step]:
                del waiting[step]
    return taken


def _first(splits: Sequence[Split]) -> list[Split]:
    """The first split, and those that belong with it."""
    end = 0
    while splits[end].with_next and end + 1 < len(splits):
        end += 1
    return list(splits[: end + 1])


Dealt = tuple[str, int, Split]  # step, number among all splits of the epoch, split


def spread(
    admitted: Mapping[str, Sequence[Split]],
    tasks: int,
    shared: Collection[str] = (),
    whole: Collection[str] = (),
) -> tuple[tuple[Dealt, ...], ...]:
    """Deal splits to tasks, the largest first to the least loaded; the same input gives the same deal.

    Those of shared steps go to every task.  Of steps in `whole` a task gets all splits of a partition.
    A split's number is its place in the admission, source by source: it does not depend on the tasks (law 3).
    """
    piles: list[list[Dealt]] = [[] for _ in range(tasks)]
    load = [0] * tasks
    homes: dict[tuple[str, str], int] = {}  # by step and partition
    in_order = [(step, split) for step in sorted(admitted) for split in admitted[step]]
    numbered = [(step, number, split) for number, (step, split) in enumerate(in_order)]
    for dealt in sorted(numbered, key=lambda d: (-max(d[2].bytes, d[2].rows), d[1])):
        if dealt[0] in shared:
            for pile in piles:
                pile.append(dealt)
            continue
        task = load.index(min(load))
        if dealt[0] in whole:
            task = homes.setdefault((dealt[0], dealt[2].partition), task)
        piles[task].append(dealt)
        load[task] += max(dealt[2].bytes, dealt[2].rows, 1)
    return tuple(tuple(sorted(pile, key=lambda d: d[1])) for pile in piles)

"""Triggers: state machines that decide when the contents of a window are emitted.

A trigger is frozen data.  Its state is one row of cells per window, and every method works on
the cells of many windows at once.  The meaning is that of Apache Beam:

* `on_rows` records that windows received rows;
* `asks` says which windows want to fire now;
* `on_fire` records a firing, and says which windows are finished: they never fire again;
* `reset` returns windows to the initial state;
* `deadlines` says when windows may fire without rows, on each of the trigger's clocks.

Law 3: the result depends on the state and on the number of rows, never on their order.  All rows of an
epoch are recorded before a window is asked, so a count can overshoot within an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millpond.errors import InvalidError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Clock = Literal["processing"] | float  # or the share of rows for which a watermark is complete: 1.0 for all

NEVER = 2**62
PROCESSING: Clock = "processing"
WATERMARK: Clock = 1.0

MergeRule = Literal["sum", "max", "max_at_end", "least_set"]


@dataclass(frozen=True)
class StateCell:
    """One column of a trigger's state, and how the cells of windows that merge are combined."""

    name: str
    rule: MergeRule


class Cells:
    """The cells of a number of windows; a cell that was never set is 0."""

    def __init__(self, count: int, columns: Mapping[str, Any] | None = None) -> None:
        self.count = count
        self.columns: dict[str, Any] = dict(columns or {})

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            self.columns[name] = np.zeros(self.count, np.int64)
        return self.columns[name]

    def put(self, name: str, some: Bools, values: Any) -> None:
        """Set a cell of some windows to a value, or to the values of all windows at their places."""
        self.columns[name] = np.where(some, values, self[name])


@dataclass(frozen=True)
class TriggerTime:
    """What a trigger sees of time, and of the windows that it is asked about."""

    now_us: int
    marks: Mapping[Clock, int | None]  # the watermark of each clock; None while it is unknown
    starts: Ints
    ends: Ints

    def time_of(self, clock: Clock) -> int | None:
        return self.now_us if clock == PROCESSING else self.marks.get(clock)

    def reached(self, clock: Clock, at: Ints) -> Bools:
        """Which of these times a clock has reached."""
        mark = self.time_of(clock)
        return np.zeros(len(at), np.bool_) if mark is None else at <= mark


class Trigger(ABC):
    """Decides when the contents of a window are emitted; see `millpond.triggers`."""

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return ()

    @property
    def clocks(self) -> frozenset[Clock]:
        """The clocks on which it can fire without rows."""
        return frozenset().union(*(part.clocks for part in self.parts))

    @property
    def may_fire(self) -> bool:
        """Can it fire at all, if rows and time come?"""
        return True

    @property
    def may_finish(self) -> bool:
        """Can it fire for the last time before the end of the window?"""
        return False

    def cells(self, path: str) -> Iterator[StateCell]:
        for number, part in enumerate(self.parts):
            yield from part.cells(f"{path}_{number}")

    @abstractmethod
    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None: ...

    @abstractmethod
    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools: ...

    @abstractmethod
    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        """Record that some windows fire; returns which of them are finished."""

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        for number, part in enumerate(self.parts):
            part.reset(cells, f"{path}_{number}", some)

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        """The earliest time on a clock at which each window may fire without rows; NEVER if there is none."""
        found = np.full(cells.count, NEVER)
        for number, part in enumerate(self.parts):
            if clock in part.clocks:
                found = np.minimum(found, part.deadlines(cells, f"{path}_{number}", at, clock))
        return found

    def or_finally(self, other: Trigger) -> Trigger:
        """Fire like this trigger until the other one fires; that firing is the last.

        >>> from millpond.triggers import after_count, repeatedly
        >>> repeatedly(after_count(2)).or_finally(after_count(5)).may_fire
        True
        """
        if not isinstance(other, Trigger):
            raise InvalidError(
                f"{other!r} is no trigger"[:200],
                hint="call one of millpond.triggers, such as after_count(10)",
            )
        return AfterAny((self, other))


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires when a window has received `n` rows since the last reset, and finishes."""

    n: int

    @property
    def may_finish(self) -> bool:
        return True

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_rows", "sum")

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        cells.put(f"{path}_rows", some, cells[f"{path}_rows"] + rows)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        found: Bools = cells[f"{path}_rows"] >= self.n
        return found

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        return some

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_rows", some, 0)


@dataclass(frozen=True)
class AfterDelay(Trigger):
    """Fires a time after the first row since the last reset, and finishes.

    With `aligned` it fires at the next multiple of the time instead.
    """

    us: int
    aligned: bool = False

    @property
    def clocks(self) -> frozenset[Clock]:
        return frozenset({PROCESSING})

    @property
    def may_finish(self) -> bool:
        return True

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_at", "least_set")

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        due = (at.now_us // self.us + 1) * self.us if self.aligned else at.now_us + self.us
        cells.put(f"{path}_at", some & (cells[f"{path}_at"] == 0), due)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        due: Ints = cells[f"{path}_at"]
        armed: Bools = due != 0
        return armed & at.reached(PROCESSING, due)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        cells.put(f"{path}_at", some, 0)
        return some

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_at", some, 0)

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        due = cells[f"{path}_at"]
        return np.where(due == 0, NEVER, due)


@dataclass(frozen=True)
class AtShare(Trigger):
    """Fires when the watermark of a share of the rows passes the end of the window, and finishes."""

    share: float

    @property
    def clocks(self) -> frozenset[Clock]:
        return frozenset({self.share})

    @property
    def may_finish(self) -> bool:
        return True

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_armed", "max_at_end")

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        cells.put(f"{path}_armed", some, 1)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        armed: Bools = cells[f"{path}_armed"] != 0
        return armed & at.reached(self.share, at.ends)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        cells.put(f"{path}_armed", some, 0)
        return some

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_armed", some, 0)

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        return np.where(cells[f"{path}_armed"] != 0, at.ends, NEVER)


@dataclass(frozen=True)
class Always(Trigger):
    """Fires in every epoch that brings rows, and never finishes."""

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        pass

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        return np.ones(cells.count, np.bool_)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        return np.zeros(cells.count, np.bool_)


@dataclass(frozen=True)
class Never(Trigger):
    """Does not fire: the window is emitted when it expires."""

    @property
    def may_fire(self) -> bool:
        return False

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        pass

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        return np.zeros(cells.count, np.bool_)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        return some


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Fires whenever its part does; the part starts again when it has finished."""

    part: Trigger

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.part,)

    @property
    def may_fire(self) -> bool:
        return self.part.may_fire

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        self.part.on_rows(cells, f"{path}_0", at, some, rows)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        return self.part.asks(cells, f"{path}_0", at)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        finished = self.part.on_fire(cells, f"{path}_0", at, some)
        self.part.reset(cells, f"{path}_0", some & finished)
        return np.zeros(cells.count, np.bool_)


class _Several(Trigger):
    """A trigger whose parts all see the rows of a window at the same time."""

    several: tuple[Trigger, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.several

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        for number, part in enumerate(self.several):
            part.on_rows(cells, f"{path}_{number}", at, some, rows)

    def each_asks(self, cells: Cells, path: str, at: TriggerTime) -> list[Bools]:
        """What each part asks for."""
        return [part.asks(cells, f"{path}_{number}", at) for number, part in enumerate(self.several)]


@dataclass(frozen=True)
class AfterAny(_Several):
    """Fires when one of its parts does, and finishes when a part that fires finishes."""

    several: tuple[Trigger, ...]

    @property
    def may_fire(self) -> bool:
        return any(part.may_fire for part in self.several)

    @property
    def may_finish(self) -> bool:
        return any(part.may_finish for part in self.several)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        any_of: Bools = np.logical_or.reduce(self.each_asks(cells, path, at))
        return any_of

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        finished = np.zeros(cells.count, np.bool_)
        for number, part in enumerate(self.several):
            fires = some & part.asks(cells, f"{path}_{number}", at)
            finished |= fires & part.on_fire(cells, f"{path}_{number}", at, fires)
        return finished


@dataclass(frozen=True)
class AfterAll(_Several):
    """Fires when all of its parts want to, and finishes when all of them finish."""

    several: tuple[Trigger, ...]

    @property
    def may_fire(self) -> bool:
        return all(part.may_fire for part in self.several)

    @property
    def may_finish(self) -> bool:
        return all(part.may_finish for part in self.several)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        all_of: Bools = np.logical_and.reduce(self.each_asks(cells, path, at))
        return all_of

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        finished = some.copy()
        for number, part in enumerate(self.several):
            fires = some & part.asks(cells, f"{path}_{number}", at)
            finished &= ~fires | part.on_fire(cells, f"{path}_{number}", at, fires)
        return finished


@dataclass(frozen=True)
class AfterEach(Trigger):
    """Its parts one after the other: the next one begins when one has finished; finishes with the last."""

    several: tuple[Trigger, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.several

    @property
    def may_fire(self) -> bool:
        return self.several[0].may_fire

    @property
    def may_finish(self) -> bool:
        return all(part.may_finish for part in self.several)

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_turn", "max")
        yield from super().cells(path)

    def _current(self, cells: Cells, path: str) -> Iterator[tuple[str, Trigger, Bools]]:
        turn = cells[f"{path}_turn"]
        for number, part in enumerate(self.several):
            yield f"{path}_{number}", part, turn == number

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        for place, part, mine in self._current(cells, path):
            part.on_rows(cells, place, at, some & mine, rows)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        found = np.zeros(cells.count, np.bool_)
        for place, part, mine in self._current(cells, path):
            found |= mine & part.asks(cells, place, at)
        return found

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        ended = np.zeros(cells.count, np.bool_)
        for place, part, mine in self._current(cells, path):
            ended |= some & mine & part.on_fire(cells, place, at, some & mine)
        cells.put(f"{path}_turn", ended, cells[f"{path}_turn"] + 1)
        through: Bools = cells[f"{path}_turn"] == len(self.several)
        return some & through

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_turn", some, 0)
        super().reset(cells, path, some)

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        if clock != PROCESSING:  # the end of the window asks, whichever part it was that waited for it
            return super().deadlines(cells, path, at, clock)
        found = np.full(cells.count, NEVER)
        for place, part, mine in self._current(cells, path):
            if clock in part.clocks:
                found = np.where(mine, part.deadlines(cells, place, at, clock), found)
        return found


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires when the watermark passes the end of the window.

    `early` fires repeatedly before that, `late` after it.  Without `late` it finishes at the end.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (Repeatedly(self.early or Never()), Repeatedly(self.late or Never()))

    @property
    def clocks(self) -> frozenset[Clock]:
        return super().clocks | {WATERMARK}

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_late", "max")
        yield StateCell(f"{path}_armed", "max_at_end")
        yield from super().cells(path)

    def _in_late_phase(self, cells: Cells, path: str) -> Bools:
        """The windows whose on-time pane has fired, if there is a late part to follow it."""
        found: Bools = cells[f"{path}_late"] != 0
        return found if self.late is not None else np.zeros(cells.count, np.bool_)

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        late = self._in_late_phase(cells, path)
        cells.put(f"{path}_armed", some & ~late, 1)
        self.parts[0].on_rows(cells, f"{path}_0", at, some & ~late, rows)
        self.parts[1].on_rows(cells, f"{path}_1", at, some & late, rows)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        late, ended = self._in_late_phase(cells, path), at.reached(WATERMARK, at.ends)
        early_asks = self.parts[0].asks(cells, f"{path}_0", at)
        late_asks = self.parts[1].asks(cells, f"{path}_1", at)
        return np.where(late, late_asks, ended | early_asks)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        late, ended = self._in_late_phase(cells, path), at.reached(WATERMARK, at.ends)
        self.parts[0].on_fire(cells, f"{path}_0", at, some & ~late & ~ended)
        self.parts[1].on_fire(cells, f"{path}_1", at, some & late)
        cells.put(f"{path}_late", some & ended, 1)
        cells.put(f"{path}_armed", some & ended, 0)
        return some & ended if self.late is None else np.zeros(cells.count, np.bool_)

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_late", some, 0)  # the deadline at the end of the window stays
        super().reset(cells, path, some)

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        late = self._in_late_phase(cells, path)
        found = [np.full(cells.count, NEVER)] * 2
        for number, part in enumerate(self.parts):
            if clock in part.clocks:
                found[number] = part.deadlines(cells, f"{path}_{number}", at, clock)
        due: Ints = np.where(late, found[1], found[0])
        if clock == WATERMARK:
            # A session in its late phase that merged with one that was not is asked at its new end.
            due = np.where(cells[f"{path}_armed"] != 0, np.minimum(due, at.ends), due)
        return due


def merged(trigger: Trigger, path: str, cells: Cells, into: Ints, count: int, at_end: Bools) -> Cells:
    """The cells of `count` windows, each merged from the windows that go into it.

    `at_end` says which of those end with the merged window: only their deadlines at the end stay.
    """
    found = Cells(count)
    for cell in trigger.cells(path):
        values = cells[cell.name]
        if cell.rule == "sum":
            found.columns[cell.name] = np.bincount(into, values, count).astype(np.int64)
        elif cell.rule in ("max", "max_at_end"):
            best = np.zeros(count, np.int64)
            np.maximum.at(best, into, values if cell.rule == "max" else np.where(at_end, values, 0))
            found.columns[cell.name] = best
        else:
            least = np.full(count, NEVER)
            np.minimum.at(least, into, np.where(values == 0, NEVER, values))
            found.columns[cell.name] = np.where(least == NEVER, 0, least)
    return found

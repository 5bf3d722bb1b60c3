"""One batch of keys through a user's code: rows and timers in time order, key by key.

The first pass is fast and assumes that nothing fails.  The keys for which
something did are done again from their stored state, with care: each call may
fail alone, its key then holds what it held before, and the row is an error row
(law 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.flat_map import Row
from millpond.operators.process.context import ProcessContext, Timer
from millpond.operators.process.function import Code
from millpond.operators.process.handle import Handle, Times
from millpond.operators.process.timers import NEVER, Timers
from millpond.operators.process.watchdog import TooLong
from millpond.operators.user_code import FATAL, told

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRES_MAX = 1_000_000  # timers of one key in one epoch


@dataclass
class Output:
    """Rows of one output as the user gave them, each with its key; and as columns, once made."""

    items: list[Any] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    columns: list[pa.Array] | None = None


@dataclass(frozen=True)
class Failure:
    key: int
    place: int  # of the row, or -1 for a timer
    timer: str
    reason: str


@dataclass
class Batch:
    """Everything one pass works on."""

    step: str
    epoch: int
    code: Code
    calls: Mapping[str, Callable[..., Any]]
    handles: Sequence[Handle]
    timers: Timers | None
    ctx: ProcessContext
    times: Times
    rows: list[Row]  # by key, in order
    row_times: list[int] | None
    starts: list[int]  # of each key among the rows, and the end
    limits: Mapping[str, int]  # clock -> where it stands after this epoch
    event_before: int
    outputs: dict[str, Output]
    fits: Callable[[str, Any], None]  # raises when a row does not fit an output
    failures: list[Failure] = field(default_factory=list)

    # -- passes ----------------------------------------------------------------

    def fast(self, keys: Sequence[int]) -> list[int]:
        """Run these keys; those that failed, to be done again with care."""
        if self.timers is None and self.row_times is None:
            return self._fastest(keys)
        again = []
        run = self._timed if self.timers is not None else self._plain
        for key in keys:
            try:
                run(key, None)
            except TooLong:
                self._too_long(key)
            except FATAL:
                raise
            except Exception:
                again.append(key)
        return again

    def _fastest(self, keys: Sequence[int]) -> list[int]:
        """Without event time and timers: what `_plain` does, in one loop."""
        again = []
        ctx, rows, starts, handles = self.ctx, self.rows, self.starts, self.handles
        on_row = self.calls["on_row"]
        main = self.outputs[""]
        add, owner = main.items.append, main.keys.append
        key = 0
        try:
            for key in keys:
                for handle in handles:
                    handle.at = key
                ctx.at = key
                try:
                    for place in range(starts[key], starts[key + 1]):
                        ctx.place = place
                        ctx.calls = place
                        found = on_row(rows[place], ctx)
                        if found is None:
                            continue
                        kind = type(found)
                        if kind is GeneratorType or kind is list:
                            for item in found:
                                add(item)
                                owner(key)
                        else:
                            add(found)
                            owner(key)
                except FATAL:
                    raise
                except Exception:
                    again.append(key)
        except TooLong:
            self._too_long(key)
        return again

    def careful(self, keys: Sequence[int]) -> None:
        run = self._timed if self.timers is not None else self._plain
        for key in keys:
            try:
                run(key, self._guarded)
            except TooLong:
                self._too_long(key)

    # -- one key -----------------------------------------------------------------

    def _look(self, key: int) -> None:
        for handle in self.handles:
            handle.at = key
        if self.timers is not None:
            self.timers.at = key
        self.ctx.at = key

    def _plain(self, key: int, guard: Callable[..., None] | None) -> None:
        """Without timers: rows in order."""
        self._look(key)
        ctx, times = self.ctx, self.times
        on_row = self.calls["on_row"]
        main = self.outputs[""]
        add, owner = main.items.append, main.keys.append
        at = self.row_times
        bound = self.limits["event"]
        times.event = self.event_before
        for place in range(self.starts[key], self.starts[key + 1]):
            ctx.place = place
            ctx.calls += 1
            if at is not None:
                times.here = at[place]
                times.event = max(times.event, min(times.here, bound))
            if guard is not None:
                guard(on_row, self.rows[place], key, "")
                continue
            found = on_row(self.rows[place], ctx)
            if found is None:
                continue
            kind = type(found)
            if kind is GeneratorType or kind is list:
                for item in found:
                    add(item)
                    owner(key)
            else:
                add(found)
                owner(key)

    def _timed(self, key: int, guard: Callable[..., None] | None) -> None:
        """The clock's timers first, then rows and event-time timers in time order, then what was set late."""
        self._look(key)
        assert self.timers is not None
        pop, ctx, times = self.timers.pop, self.ctx, self.times
        call = guard or self._call
        on_row, on_timer = self.calls["on_row"], self.calls["on_timer"]
        at, bound, now = self.row_times, self.limits["event"], self.limits["processing"]
        times.event = times.here = self.event_before
        fired = 0

        def fire(clock: Any, upto: int) -> bool:
            nonlocal fired
            due = pop(clock, upto)
            if due is None:
                return False
            fired += 1
            if fired > FIRES_MAX:
                raise _endless(self.step, self.ctx.key, self.epoch)
            ctx.place = -1
            ctx.calls += 1
            if clock == "event":
                times.event = max(times.event, due[0])
            times.here = times.event
            call(on_timer, Timer(due[1], ctx.moment(clock, due[0]), clock), key, due[1] or clock)
            return True

        while fire("processing", now):
            pass
        for place in range(self.starts[key], self.starts[key + 1]):
            if at is not None:
                upto = min(at[place], bound)
                while fire("event", upto):
                    pass
                times.event = max(times.event, upto)
                times.here = at[place]
            ctx.place = place
            ctx.calls += 1
            call(on_row, self.rows[place], key, "")
        ctx.place = -1
        while fire("event", bound) or fire("processing", now):
            pass
        if bound > NEVER:
            times.event = bound

    def _call(self, function: Callable[..., Any], given: Any, key: int, timer: str) -> None:
        found = function(given, self.ctx)
        if found is None:
            return
        main = self.outputs[""]
        kind = type(found)
        if kind is GeneratorType or kind is list:
            for item in found:
                main.items.append(item)
                main.keys.append(key)
        else:
            main.items.append(found)
            main.keys.append(key)

    def _guarded(self, function: Callable[..., Any], given: Any, key: int, timer: str) -> None:
        """One call that may fail without a trace but its error."""
        saved = [handle.saved() for handle in self.handles]
        kept = self.timers.save() if self.timers is not None else None
        lengths = {side: len(output.items) for side, output in self.outputs.items()}
        try:
            self._call(function, given, key, timer)
            for side, output in self.outputs.items():
                for item in output.items[lengths[side] :]:
                    self.fits(side, item)
        except FATAL:
            raise
        except Exception as error:
            for handle, held in zip(self.handles, saved, strict=True):
                handle.restore(held)
            if self.timers is not None:
                self.timers.restore(kept)
            for side, output in self.outputs.items():
                del output.items[lengths[side] :], output.keys[lengths[side] :]
            method = "on_timer" if self.ctx.place < 0 else "on_row"
            reason = told(error, self.code.where(method))
            self.failures.append(Failure(key, self.ctx.place, timer, reason))

    def _too_long(self, key: int) -> None:
        self.ctx.at = key
        raise InvalidError(
            "user code does not come back",
            detail=f"one call for key {_shown(self.ctx.key)} took longer than the step's timeout",
            hint="look for a loop that does not end, or pass a longer timeout= to process()",
            step=self.step,
            epoch=self.epoch,
        )


def _endless(step: str, key: Row, epoch: int) -> InvalidError:
    return InvalidError(
        "timers do not come to an end",
        detail=f"key {_shown(key)} fired {FIRES_MAX} timers in one epoch",
        hint="set timers after the current time: one set in the past fires again at once",
        step=step,
        epoch=epoch,
    )


def _shown(key: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.as_dict().items()) or "of all rows"

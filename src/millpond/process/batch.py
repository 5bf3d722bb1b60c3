"""Runs the keys of a batch through a user's code: rows and timers in time order, key by key.

The first pass is fast and assumes that nothing fails.  Keys for which something
failed are run again from their stored state in a careful pass: each call may
fail separately; its key then returns to the state before the call, and the row
becomes an error row (law 9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import GeneratorType
from typing import Any

import numpy as np

from millpond.errors import InvalidError
from millpond.kernels.python_rows import Row
from millpond.kernels.user_code import TooLong, error_text, is_row_fault
from millpond.process.cell import Shared
from millpond.process.context import ProcessContext, Timer
from millpond.process.feed import RowFeed
from millpond.process.function import Code
from millpond.process.handle import Handle, Times
from millpond.process.outputs import CHUNK_ROWS, MAIN, Outputs
from millpond.process.timers import NEVER, Timers

FIRES_MAX = 1_000_000  # the most timers that one key may fire in one epoch

Guard = Callable[[Callable[..., Any], Any, int, str], None]


@dataclass(frozen=True)
class Failure:
    key: int
    place: int  # the number of the row, or -1 for a timer
    timer: str
    reason: str


@dataclass(frozen=True)
class Swift:
    """The user's methods, bound to cells instead of handles for some states."""

    on: Mapping[str, Callable[..., Any]]
    shared: Sequence[Shared]
    rest: Sequence[Handle]  # handles of states that have no cell
    awaited: Sequence[list[Any]]  # values that a key must have before its rows can use cells
    ready: Sequence[bool]  # by key: does it have rows, and had it these values before this epoch?

    def load(self, key: int) -> None:
        for cell, shown, _, _ in self.shared:
            cell.value = shown[key]

    def store(self, key: int) -> None:
        for cell, _, values, touched in self.shared:
            if cell.value is not values[key]:
                values[key] = cell.value
                touched[key] = 1


@dataclass
class Batch:
    """Everything that one pass works on."""

    step: str
    epoch: int
    code: Code
    on: Mapping[str, Callable[..., Any]]  # the user's methods, bound to the handles
    swift: Swift
    handles: Sequence[Handle]
    timers: Timers | None
    ctx: ProcessContext
    times: Times
    feed: RowFeed  # the rows of the keys of this pass, by key and in order
    row_times: list[int] | None  # of all rows, in microseconds
    starts: list[int]  # where the rows of each key begin among all rows, and the end
    limits: Mapping[str, int]  # clock -> its time after this epoch
    event_before: int
    outputs: Outputs
    fits: Callable[[str, Any], None]  # raises if a row does not fit an output
    failures: list[Failure] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """The number of calls of user code so far; it grows with every call."""
        return self.feed.rows_read + self.ctx.fired

    # -- passes ----------------------------------------------------------------

    def fast(self, keys: range) -> set[int]:
        """Run these keys; returns those that failed and must be run again carefully."""
        if self.timers is None and self.row_times is None:
            return self._fastest(keys)
        return self._run(keys, None)

    def careful(self, keys: Sequence[int]) -> None:
        self._run(keys, self._guarded)

    def _run(self, keys: Sequence[int], guard: Guard | None) -> set[int]:
        run = self._timed if self.timers is not None else self._plain
        again: set[int] = set()
        failed: set[int] = set()  # in the current chunk of keys
        key = begun = 0
        try:
            for number, key in enumerate(keys, 1):
                mine = islice(self.feed.rows, self.starts[key + 1] - self.starts[key])
                try:
                    run(key, mine, guard)
                except BaseException as error:
                    if not is_row_fault(error):
                        raise
                    if guard is not None:
                        raise
                    failed.add(key)
                    _skip(mine)
                if self.outputs.end_key():
                    again |= failed | self.outputs.close(keys[begun:number], failed)
                    begun = number
                    failed.clear()
        except TooLong:
            self._too_long(key)
        return again | failed | self.outputs.close(keys[begun:], failed)

    def _fastest(self, keys: range) -> set[int]:
        """Run keys without event time and timers: what `_run` and `_plain` do, in one loop."""
        again: set[int] = set()
        failed: set[int] = set()  # in the current chunk of keys
        ctx, rows = self.ctx, self.feed.rows
        sizes = np.diff(self.starts)[keys.start : keys.stop].tolist()
        ready = self.swift.ready[keys.start : keys.stop]
        on_row, shared, handles = self.swift.on["on_row"], self.swift.shared, self.swift.rest
        items, ends = self.outputs[MAIN].items, self.outputs[MAIN].ends
        add, more, end = items.append, items.extend, ends.append
        others = [output for side, output in self.outputs.items() if side != MAIN]
        ctx.place = 0
        key = begun = 0
        try:
            for key, size, is_ready in zip(keys, sizes, ready, strict=True):
                for handle in handles:
                    handle.at = key
                ctx.at = key
                mine = islice(rows, size)
                try:
                    if is_ready or self._begin(key, mine):
                        for cell, shown, _, _ in shared:
                            cell.value = shown[key]
                        for row in mine:
                            returned = on_row(row, ctx)
                            if returned is None:
                                continue
                            kind = type(returned)
                            if kind is GeneratorType or kind is list:
                                more(returned)
                            else:
                                add(returned)
                        for cell, _, values, touched in shared:
                            if cell.value is not values[key]:
                                values[key] = cell.value
                                touched[key] = 1
                except BaseException as error:
                    if not is_row_fault(error):
                        raise
                    failed.add(key)
                    _skip(mine)
                length = len(items)
                end(length)
                for output in others:
                    output.ends.append(len(output.items))
                    length += len(output.items)
                if length >= CHUNK_ROWS:
                    done = begun + len(ends)
                    again |= failed | self.outputs.close(keys[begun:done], failed)
                    begun = done
                    failed.clear()
        except TooLong:
            self._too_long(key)
        return again | failed | self.outputs.close(keys[begun:], failed)

    def _begin(self, key: int, rows: Iterator[Row]) -> bool:
        """Run the first rows of a key until it has all awaited values; returns whether it then has them."""
        for handle in self.handles:
            handle.at = key
        for row in rows:
            self._call(self.on["on_row"], row, key, "")
            if all(values[key] is not None for values in self.swift.awaited):
                return True
        return False

    # -- one key -----------------------------------------------------------------

    def _look(self, key: int) -> None:
        for handle in self.handles:
            handle.at = key
        if self.timers is not None:
            self.timers.at = key
        self.ctx.at = key

    def _plain(self, key: int, rows: Iterator[Row], guard: Guard | None) -> None:
        """Run a key without timers: its rows in order."""
        self._look(key)
        ctx, times = self.ctx, self.times
        swift = guard is None and self.swift.ready[key]
        on_row = (self.swift if swift else self).on["on_row"]
        if swift:
            self.swift.load(key)
        items = self.outputs[MAIN].items
        at, bound, event = self.row_times, self.limits["event"], self.event_before
        times.event = event
        for index, row in enumerate(rows, self.starts[key]):
            ctx.place = index
            if at is not None:
                here = times.here = at[index]
                if here > bound:
                    here = bound
                if here > event:
                    event = times.event = here
            if guard is not None:
                guard(on_row, row, key, "")
                continue
            returned = on_row(row, ctx)
            if returned is None:
                continue
            kind = type(returned)
            if kind is GeneratorType or kind is list:
                items.extend(returned)
            else:
                items.append(returned)
        if swift:
            self.swift.store(key)

    def _timed(self, key: int, rows: Iterator[Row], guard: Guard | None) -> None:
        """Run a key with timers.

        Due processing-time timers fire first, then rows and event-time timers run in time order, then timers
        that were set meanwhile and are due.
        """
        self._look(key)
        assert self.timers is not None
        pop, armed, ctx, times = self.timers.pop, self.timers.armed, self.ctx, self.times
        call = guard or self._call
        swift = guard is None and self.swift.ready[key]
        on = self.swift.on if swift else self.on
        on_row, on_timer = on["on_row"], on["on_timer"]
        if swift:
            self.swift.load(key)
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
            ctx.fired += 1
            if clock == "event":
                times.event = max(times.event, due[0])
            times.here = times.event
            call(on_timer, Timer(due[1], ctx.moment(clock, due[0]), clock), key, due[1] or clock)
            return True

        while fire("processing", now):
            pass
        for index, row in enumerate(rows, self.starts[key]):
            if at is not None:
                upto = min(at[index], bound)
                while key in armed and fire("event", upto):
                    pass
                times.event = max(times.event, upto)
                times.here = at[index]
            ctx.place = index
            call(on_row, row, key, "")
        ctx.place = -1
        while fire("event", bound) or fire("processing", now):
            pass
        if bound > NEVER:
            times.event = bound
        if swift:
            self.swift.store(key)

    def _call(self, function: Callable[..., Any], argument: Any, key: int, timer: str) -> None:
        returned = function(argument, self.ctx)
        if returned is None:
            return
        kind = type(returned)
        if kind is GeneratorType or kind is list:
            self.outputs[MAIN].items.extend(returned)
        else:
            self.outputs[MAIN].items.append(returned)

    def _guarded(self, function: Callable[..., Any], argument: Any, key: int, timer: str) -> None:
        """Make one call; if it fails, undo all its effects and record the error."""
        saved = [handle.saved() for handle in self.handles]
        timers_before = self.timers.save() if self.timers is not None else None
        lengths = {side: len(output.items) for side, output in self.outputs.items()}
        try:
            self._call(function, argument, key, timer)
            for side, output in self.outputs.items():
                for item in output.items[lengths[side] :]:
                    self.fits(side, item)
        except BaseException as error:
            if not is_row_fault(error):
                raise
            for handle, state in zip(self.handles, saved, strict=True):
                handle.restore(state)
            if self.timers is not None:
                self.timers.restore(timers_before)
            for side, output in self.outputs.items():
                del output.items[lengths[side] :]
            method = "on_timer" if self.ctx.place < 0 else "on_row"
            reason = error_text(error, self.code.where(method))
            self.failures.append(Failure(key, self.ctx.place, timer, reason))

    def _too_long(self, key: int) -> None:
        self.ctx.at = key
        raise InvalidError(
            "a call of user code took longer than its timeout",
            detail=f"one call for key {_shown(self.ctx.key)} took longer than the step's timeout",
            hint="look for a loop that does not end, or pass a longer timeout= to process()",
            step=self.step,
            epoch=self.epoch,
        )


def _skip(rows: Iterator[Row]) -> None:
    deque(rows, maxlen=0)


def _endless(step: str, key: Row, epoch: int) -> InvalidError:
    return InvalidError(
        "too many timers fired for one key",
        detail=f"key {_shown(key)} fired {FIRES_MAX} timers in one epoch",
        hint="set timers after the current time: one set in the past fires again at once",
        step=step,
        epoch=epoch,
    )


def _shown(key: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.as_dict().items()) or "of all rows"

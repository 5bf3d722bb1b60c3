"""The inbox from this side: rows and commands go in, and are waited for.

Law: what is put is durable on return and has a number; entries are executed in the order of their numbers, by
whichever process runs the pond.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from millpond.errors import InvalidError, UnavailableError
from millpond.pond import rows as rows_of
from millpond.pond.driver import WAIT_S, Driver
from millpond.pond.parts import Parts
from millpond.state import history, inbox
from millpond.state.manifest import Manifest


class Door:
    def __init__(self, parts: Parts, driver: Driver) -> None:
        self.parts = parts
        self.driver = driver
        self._last = -1  # the highest number that this object appended

    def append(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        """An entry behind all others; its number."""
        self.driver.require_open()
        number = inbox.append(self.parts.store, kind, args, payload, start=executed(self.parts.head()))
        self._last = max(self._last, number)
        return number

    def put(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        """An entry, and word of it to who runs the pond, if that is us."""
        self.driver.check()
        number = self.append(kind, args, payload)
        runner = self.driver.runner
        if runner is not None:
            runner.wake()
        return number

    def rows(self, table: str, rows: rows_of.Rows, weight: int) -> int:
        """Put rows into a table or take them out; their columns have the names they are kept by."""
        return self.put("rows", *rows_of.entry(self.driver.plan, table, rows, weight))

    def command(
        self,
        kind: str,
        args: Mapping[str, Any],
        wait_s: float = WAIT_S,
        done: Callable[[int], bool] | None = None,
    ) -> int:
        """Like from any process; `done` before this returns if we are the runner."""
        driver = self.driver
        driver.check()
        number = self.append(kind, args)
        if driver.runner is None or driver.is_this_thread:
            return number  # from on_epoch: this very thread executes it, once that returns
        is_done = done or (lambda number: self._executed() > number)
        if driver.thread is not None:
            driver.wait_until(
                lambda: is_done(number) or driver.thread is None, wait_s, f"inbox entry {number}"
            )
            return number
        driver.drive(lambda: is_done(number))
        self._require_kept(number)
        return number

    def switch_sink(self, name: str, *, attach: bool, replay: bool = False) -> None:
        """Attach or detach a sink; nothing where it is so already."""
        self.driver.require_open()
        known = self.driver.plan.sinks
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise InvalidError(
                f"no sink named {name!r}",
                detail=f"sinks are {', '.join(sorted(known)) or 'none'}",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
        head = self.parts.reader.head()
        if attach == (name not in head.detached):
            return
        if not attach:
            self.command("detach", {"name": name})
            return
        since = head.detached[name]
        if replay and since + 1 < head.floor:
            raise InvalidError(
                f"sink {name!r} cannot be shown all changes since it was detached",
                detail=f"that was in epoch {since}, and the oldest epoch that is kept is {head.floor}",
                hint="attach it without a replay: it gets the changes from the next epoch on",
                epoch=since,
            )
        self.command("attach", {"name": name, **({"replay": True} if replay else {})})

    def drain(self) -> int:
        """Run epochs until there is nothing more to read; the epoch that holds it all."""
        epoch = self.driver.drain()
        self._require_kept(self._last)
        return epoch

    def flush(self, timeout_s: float) -> int:
        """Wait until all earlier entries are in a committed epoch; that epoch."""
        driver = self.driver
        if driver.may_drive:
            return self.drain()
        found = inbox.numbers(self.parts.store)
        inbox.require_none_missing(self.parts.store, self._executed(), found)
        last = max([self._last, *found])
        what = f"a flush of inbox entry {last}"
        if driver.thread is None:  # another process does it
            driver.wait_until(lambda: self._executed() > last, timeout_s, what)
        else:
            # A poll that began after this call, and another that began after its epoch was committed.
            runner = driver.running()
            polls = runner.polls
            driver.wait_until(lambda: runner.polls >= polls + 2 and self._executed() > last, timeout_s, what)
        return self.parts.reader.head().epoch

    def has_executed(self, number: int) -> bool:
        return executed(self.parts.head()) > number

    def wait_executed(self, number: int, timeout_s: float = WAIT_S) -> None:
        """Until an entry is executed: by this process, unless another one runs the pond."""
        if self.has_executed(number):
            return
        if self.driver.is_this_thread:
            raise UnavailableError("a change cannot be waited for in on_epoch", hint="ask after it returned")
        if self.driver.may_drive:
            self.driver.drive(lambda: self.has_executed(number))
            self._require_kept(number)
            return
        what = f"the turn of inbox entry {number}"
        self.driver.wait_until(lambda: self.has_executed(number), timeout_s, what)

    def epoch_of(self, number: int) -> tuple[int, str | None]:
        """The epoch that executed an entry, and why it was refused, if it was."""
        head = self.parts.reader.head()
        while head.epoch > head.floor:
            before = history.find_manifest(self.parts.store, head.epoch - 1)
            if before is None or executed(before) <= number:
                break
            if before.filling is not None and before.filling.entry == number:
                break  # it took long, and was ended here
            head = before
        return head.epoch, head.metrics.get("refused")

    def _require_kept(self, number: int) -> None:
        """DataError when an entry that was acknowledged is neither executed nor there."""
        if number >= 0 and not self.has_executed(number) and inbox.is_lost(self.parts.store, number):
            raise inbox.lost(number)

    def _executed(self) -> int:
        """Of a pond that exists; asking again costs what came since."""
        return executed(self.parts.reader.head())


def executed(manifest: Manifest | None) -> int:
    """The number of the next entry to execute."""
    return 0 if manifest is None else int(manifest.positions.get("inbox", 0))

"""The inbox as an open pond uses it: sends rows and commands, and runs or wakes the pipeline for them.

`control.inbox_sender` appends the entries; this adds who executes them: this thread, the background thread,
or another process.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from millpond.control.inbox_sender import InboxSender
from millpond.errors import InvalidError, UnavailableError
from millpond.pond import rows as rows_of
from millpond.pond.components import Components
from millpond.pond.execution import WAIT_S, Execution
from millpond.state import inbox, request_ids


class InboxClient:
    """Sends rows and commands to the inbox of a pond, and waits for them."""

    def __init__(self, components: Components, execution: Execution) -> None:
        self.components = components
        self.execution = execution
        self.sender = InboxSender(components.store)

    def append(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        """Add an entry after all others; returns its number."""
        self.execution.require_open()
        return self.sender.append(kind, args, payload, start=self._next_here())

    def put(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        """Add an entry, and wake the runner if this process has it."""
        self.execution.check()
        number = self.append(kind, args, payload)
        runner = self.execution.runner
        if runner is not None:
            runner.wake()
        return number

    def rows(
        self, table: str, rows: rows_of.Rows, weight: int, request: request_ids.Request | None = None
    ) -> int:
        """Add rows to a table or delete them; the columns have their stored names.

        Of several calls with the same `request`, one counts; of a text, its entry is returned.
        """
        args, payload = rows_of.entry(self.execution.plan, table, rows, weight)
        if request is None:
            return self.put("rows", args, payload)
        self.execution.check()
        if isinstance(request, str):
            known = request_ids.claimed_by(self.components.store, request)
            if known is not None:
                return known
        return self.put("rows", {**args, **request_ids.args_of(request)}, payload)

    def named_rows(
        self, table: str, rows: rows_of.Rows, weight: int, request: str | tuple[str, int] | None = None
    ) -> int:
        """Add rows to a table or delete them; table and columns have the names that SQL shows."""
        id = None if request is None else request_ids.checked(request)
        plan = self.execution.plan
        step = rows_of.table_step(plan, table)
        return self.rows(step, rows_of.table_rows(plan, step, rows), weight, id)

    def row_entry(self, table: str, rows: rows_of.Rows) -> tuple[dict[str, Any], bytes]:
        """The entry that `rows` would add."""
        return rows_of.entry(self.execution.plan, table, rows, 1)

    def command(
        self,
        kind: str,
        args: Mapping[str, Any],
        wait_s: float = WAIT_S,
        done: Callable[[int], bool] | None = None,
    ) -> int:
        """Add a command; if this process runs the pond, also wait until it is `done`."""
        execution = self.execution
        execution.check()
        number = self.append(kind, args)
        if execution.runner is None or execution.is_this_thread:
            return number  # from on_epoch: this thread executes it after on_epoch returns
        is_done = done or (lambda number: self._executed() > number)
        if execution.thread is not None:
            execution.wait_until(
                lambda: is_done(number) or execution.thread is None, wait_s, f"inbox entry {number}"
            )
            return number
        execution.run_until(lambda: is_done(number))
        self.sender.require_stored(number)
        return number

    def switch_sink(self, name: str, *, attach: bool, replay: bool = False, pause: bool = False) -> None:
        """Attach, detach or pause a sink; does nothing if that is already its state."""
        self.execution.require_open()
        known = self.execution.plan.sinks
        if name not in known:
            matches = difflib.get_close_matches(name, known, 1)
            raise InvalidError(
                f"no sink named {name!r}",
                detail=f"sinks are {', '.join(sorted(known)) or 'none'}",
                hint=f"did you mean {matches[0]!r}?" if matches else None,
            )
        head = self.components.reader.head()
        if attach == (name not in head.detached):
            return
        if not attach:
            self.command("detach", {"name": name, **({"pause": True} if pause else {})})
            return
        since = head.detached[name]
        if replay and max(since, 0) < head.floor:
            raise InvalidError(
                f"sink {name!r} cannot be shown all changes since it was detached",
                detail=f"that was in epoch {since}, and the oldest epoch that is kept is {head.floor}",
                hint="attach it without a replay: it gets the changes from the next epoch on",
                epoch=since,
            )
        self.command("attach", {"name": name, **({"replay": True} if replay else {})})

    def drain(self) -> int:
        """Run epochs until there is nothing more to read; returns the newest epoch."""
        epoch = self.execution.drain()
        if self.execution.runner is not None:
            self.sender.saw(self.execution.runner.coordinator.head)
        self.sender.require_stored(self.sender.last)
        return epoch

    def flush(self, timeout_s: float) -> int:
        """Wait until all earlier entries are in a committed epoch; returns that epoch."""
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
            raise InvalidError("timeout_s must be a number of seconds", detail=f"got {timeout_s!r}")
        execution = self.execution
        if execution.may_run:
            return self.drain()
        numbers = inbox.numbers(self.components.store)
        inbox.require_none_missing(self.components.store, self._executed(), numbers)
        last = max([self.sender.last, *numbers])
        what = f"a flush of inbox entry {last}"
        if execution.thread is None:  # another process does it
            execution.wait_until(lambda: self._executed() > last, timeout_s, what)
        else:
            # One poll that began after this call, and another that began after its epoch was committed.
            runner = execution.running()
            polls = runner.polls
            execution.wait_until(
                lambda: runner.polls >= polls + 2 and self._executed() > last, timeout_s, what
            )
        return self.components.reader.head().epoch

    def has_executed(self, number: int) -> bool:
        here = self._next_here()
        return self.sender.has_executed(number) if here is None else here > number

    def _next_here(self) -> int | None:
        """The number of the next entry to execute, if a thread of this process runs the pond.

        It asks the storage for nothing: many clients wait at the same time.  If another process has taken
        over, the thread ends with an error, and so does the wait.
        """
        runner = self.execution.runner
        if runner is None or self.execution.thread is None or runner.coordinator.head is None:
            return None
        return inbox.next_entry(runner.coordinator.head)

    def wait_executed(self, number: int, timeout_s: float = WAIT_S) -> None:
        """Wait until an entry is executed; this process executes it, unless another one runs the pond."""
        if self.has_executed(number):
            return
        if self.execution.is_this_thread:
            raise UnavailableError("a change cannot be waited for in on_epoch", hint="ask after it returned")
        if self.execution.may_run:
            self.execution.run_until(lambda: self.has_executed(number))
            self.sender.require_stored(number)
            return
        what = f"the turn of inbox entry {number}"
        self.execution.wait_until(lambda: self.has_executed(number), timeout_s, what)

    def epoch_of(self, number: int) -> tuple[int, str | None]:
        """The epoch that executed an entry, and the reason if it was refused."""
        manifest = inbox.executing_epoch(self.components.store, self.components.reader.head(), number)
        return manifest.epoch, manifest.metrics.get("refused")

    def _executed(self) -> int:
        """The number of the next entry to execute; the pond must exist."""
        return inbox.next_entry(self.components.reader.head())

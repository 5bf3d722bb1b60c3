"""Changes the program of a pond that may be running.

Law: programs change one after the other, each by one inbox entry and one commit of kind `change`; with a
`base`, a plan that was derived from a program that the pond no longer runs is refused.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from millpond.arguments.names import check_name
from millpond.engine.change.backfill import OnProgress
from millpond.engine.change.long_backfill import progress_of
from millpond.engine.change.programs import release_plan, save_plan
from millpond.engine.coordinator.program_changes import CHANGED_MEANWHILE
from millpond.errors import ConflictError, InvalidError, UnavailableError
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import check_complete, plan_change, renamed, swapped, without_views
from millpond.plan.codec import with_code
from millpond.plan.nodes import Plan
from millpond.pond import definitions
from millpond.pond.components import Components
from millpond.pond.execution import Execution
from millpond.pond.inbox_client import InboxClient
from millpond.pond.listeners import Listeners
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest


class ProgramEditor:
    """Changes the program of a pond that may be running."""

    def __init__(
        self, components: Components, execution: Execution, inbox: InboxClient, listeners: Listeners
    ) -> None:
        self.components = components
        self.execution = execution
        self.inbox = inbox
        self.listeners = listeners

    def change(self, plan: Plan, on_progress: OnProgress | None = None, base: str | None = None) -> int:
        """Continue with another plan; returns the epoch that begins with it."""
        need_plan("change", plan)
        check_complete(plan)
        components, execution = self.components, self.execution
        execution.require_open()
        execution.check()
        self.wait_for_backfill()
        if execution.runner is None:
            if components.head() is None:
                components.builder.reopen(plan)
                return execution.boot_now()
            if execution.elsewhere() is None:
                execution.boot_now()
        runner = execution.runner
        if runner is not None:
            plan = with_code(plan)
        running = components.reader.plan_of(components.reader.head()) if runner is None else runner.shell.plan
        change = plan_change(running, plan)
        backfill_plan(running, change.plan, change.new, components.reader.head().positions)
        self.listeners.on_progress = on_progress
        try:
            catalog = save_plan(components.worker, change.plan, components.reader.head().catalog)
            try:
                return self._change_to(catalog, base)
            finally:
                release_plan(components.worker, catalog)
        finally:
            self.listeners.on_progress = None

    @contextlib.contextmanager
    def changing(self, on_progress: OnProgress | None = None) -> Iterator[None]:
        """Commit all definitions of the block as one change, at its end; none if an exception leaves it."""
        self.wait_for_backfill()
        builder = self.components.builder
        before, sealed = builder.plan, builder.sealed
        builder.reopen(self.execution.plan)
        try:
            yield
            wanted = builder.plan
        except BaseException:
            builder.reopen(before)
            if sealed:
                builder.seal()
            raise
        if not sealed and self.components.head() is None:
            return  # nothing runs yet: these are ordinary definitions
        builder.reopen(before)
        if sealed:
            builder.seal()
        self.change(wanted, on_progress)

    def edit(self, edit: Callable[[Plan], Plan]) -> None:
        """Change the plan now, or together with the rest inside `changing()`."""
        builder = self.components.builder
        if builder.plan.nodes and not builder.sealed:
            builder.change(edit)
        else:
            self.wait_for_backfill()
            self.change(edit(self.execution.plan))

    def wait_for_backfill(self) -> None:
        """Wait until the running backfill has ended: programs change one after the other."""
        if self._is_backfilled() or self.execution.is_this_thread:
            return
        if self.execution.may_run:
            self.execution.run_until(self._is_backfilled)
        else:
            self.execution.wait_until(self._is_backfilled, math.inf, "what is being filled")

    def drop_view(self, name: str, *, cascade: bool) -> None:
        """Drop a view now, or when the pond runs next if this program no longer defines it."""
        if not definitions.drops_later(self.components, name, cascade):
            self.edit(lambda plan: without_views(plan, [name], cascade=cascade))

    def rename_view(self, name: str, to: str) -> None:
        check_name("a view", to, taken=[view for view in self.execution.plan.views if view != name])
        self.edit(lambda plan: renamed(plan, name, to))

    def swap_views(self, one: str, other: str) -> None:
        self.edit(lambda plan: swapped(plan, one, other))

    def _change_to(self, catalog: str, base: str | None) -> int:
        execution = self.execution
        args = {"catalog": catalog} if base is None else {"catalog": catalog, "base": base}
        number = self.inbox.command("change", args, wait_s=math.inf, done=self._is_changed)
        if execution.runner is None:  # another process makes the change
            execution.wait_until(
                lambda: self._is_changed_elsewhere(number), math.inf, f"inbox entry {number}"
            )
        elif not self._is_settled(number):  # `_is_changed` is false again while a later epoch is passed on
            if not execution.is_this_thread:
                raise UnavailableError(
                    "the pond was stopped before its program changed",
                    hint="nothing is lost: it changes when the pond runs again",
                )
            return self.components.reader.head().epoch  # from on_epoch
        epoch, refused = self.inbox.epoch_of(number)
        if refused is not None:
            kind = ConflictError if CHANGED_MEANWHILE in refused else InvalidError
            raise kind("the program was not changed", detail=refused, epoch=epoch)
        return epoch

    def _is_changed(self, number: int) -> bool:
        """Is a change of the program settled, and does this process run what came of it?"""
        head, runner = self.components.reader.head(), self.execution.runner
        # The thread that commits a change starts to run the new program a moment later.
        is_running = runner is None or self.execution.known_epoch >= head.epoch
        return is_running and self._is_settled(number, head)

    def _is_settled(self, number: int, head: Manifest | None = None) -> bool:
        """Is a change of the program done or refused?"""
        head = self.components.reader.head() if head is None else head
        is_backfilling = head.backfill is not None and head.backfill.entry == number
        return inbox.next_entry(head) > number and not is_backfilling

    def _is_changed_elsewhere(self, number: int) -> bool:
        """The same if another process makes the change; reports the progress found in the manifests."""
        fill, on_progress = self.components.reader.head().backfill, self.listeners.on_progress
        if fill is not None and fill.entry == number and on_progress is not None:
            on_progress(progress_of(fill))
        return self._is_changed(number)

    def _is_backfilled(self) -> bool:
        head = self.components.head()
        return head is None or head.backfill is None


def need_plan(method: str, plan: Any) -> None:
    if not isinstance(plan, Plan):
        raise InvalidError(
            f"{method}() needs a plan",
            detail=f"got {type(plan).__name__} {plan!r}"[:200],
            hint="pass other_pond.plan",
        )

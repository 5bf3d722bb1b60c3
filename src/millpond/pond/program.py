"""The program of a pond that may be running: changed, in the making, gone back on.

Law: programs change one after the other, each by one inbox entry and one commit of kind `change`; a plan that
was made of a program that is not the pond's any more is refused where its base is told.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

from millpond.engine.backfill import OnProgress
from millpond.engine.coordinator import CHANGED_MEANWHILE
from millpond.engine.filling import progress_of
from millpond.engine.programs import release_plan, save_plan
from millpond.errors import ConflictError, InvalidError, UnavailableError
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import check_whole, plan_change, restored
from millpond.plan.codec import with_code
from millpond.plan.nodes import Plan
from millpond.plan.user_codes import with_operators
from millpond.pond.door import Door, executed
from millpond.pond.driver import Driver
from millpond.pond.parts import Parts
from millpond.pond.watch import Watch
from millpond.state import history
from millpond.state.manifest import Manifest


class Program:
    def __init__(self, parts: Parts, driver: Driver, door: Door, watch: Watch) -> None:
        self.parts = parts
        self.driver = driver
        self.door = door
        self.watch = watch

    def change(self, plan: Plan, on_progress: OnProgress | None = None, base: str | None = None) -> int:
        """Go on with another plan; the epoch that holds it."""
        check_whole(plan)
        parts, driver = self.parts, self.driver
        driver.require_open()
        driver.check()
        self.wait_for_fill()
        if driver.runner is None:
            if parts.head() is None:
                parts.builder.reopen(plan)
                return driver.boot_now()
            if driver.elsewhere() is None:
                driver.boot_now()
        runner = driver.runner
        if runner is not None:
            plan = with_code(plan)
        running = parts.reader.plan_of(parts.reader.head()) if runner is None else runner.shell.plan
        change = plan_change(running, plan)
        backfill_plan(running, change.plan, change.new, parts.reader.head().positions)
        self.watch.on_progress = on_progress
        try:
            catalog = save_plan(parts.worker, change.plan, parts.reader.head().catalog)
            try:
                return self._change_to(catalog, base)
            finally:
                release_plan(parts.worker, catalog)
        finally:
            self.watch.on_progress = None

    @contextlib.contextmanager
    def changing(self, on_progress: OnProgress | None = None) -> Iterator[None]:
        """Definitions in here are one change, at the end; none when an exception leaves it."""
        self.wait_for_fill()
        builder = self.parts.builder
        before, sealed = builder.plan, builder.sealed
        builder.reopen(self.driver.plan)
        try:
            yield
            wanted = builder.plan
        except BaseException:
            builder.reopen(before)
            if sealed:
                builder.seal()
            raise
        if not sealed and self.parts.head() is None:
            return  # nothing runs yet: these are definitions like any other
        builder.reopen(before)
        if sealed:
            builder.seal()
        self.change(wanted, on_progress)

    def edit(self, edit: Callable[[Plan], Plan]) -> None:
        """At once, or together with the rest inside of `changing()`."""
        builder = self.parts.builder
        if builder.plan.nodes and not builder.sealed:
            builder.change(edit)
        else:
            self.wait_for_fill()
            self.change(edit(self.driver.plan))

    def wait_for_fill(self) -> None:
        """Programs change one after the other: until what is being filled is there."""
        if self._is_filled() or self.driver.is_this_thread:
            return
        if self.driver.may_drive:
            self.driver.drive(self._is_filled)
        else:
            self.driver.wait_until(self._is_filled, math.inf, "what is being filled")

    def require_return(self, head: Manifest, epoch: int) -> None:
        """Refuse an epoch whose state the pipeline of today cannot read; the coordinator does so as well."""
        target = history.read_manifest(self.parts.store, epoch)
        if target.catalog is None or target.catalog == head.catalog:
            return
        old, now = (with_operators(self.parts.reader.plan_of(m)) for m in (target, head))
        try:
            restored(old, now)
        except InvalidError as error:
            raise InvalidError(
                f"this pipeline cannot go on from epoch {epoch}",
                detail=f"{error.message}: {error.detail}",
                hint="fork that epoch, and run the fork with the code of its time or migrate it",
                step=error.step,
                epoch=epoch,
            ) from error

    def _change_to(self, catalog: str, base: str | None) -> int:
        driver = self.driver
        args = {"catalog": catalog} if base is None else {"catalog": catalog, "base": base}
        number = self.door.command("change", args, wait_s=math.inf, done=self._is_changed)
        if driver.runner is None:  # another process does it
            driver.wait_until(lambda: self._told_of(number), math.inf, f"inbox entry {number}")
        elif not self._is_changed(number):
            if not driver.is_this_thread:
                raise UnavailableError(
                    "the pond was stopped before its program changed",
                    hint="nothing is lost: it changes when the pond runs again",
                )
            return self.parts.reader.head().epoch  # from on_epoch
        epoch, refused = self.door.epoch_of(number)
        if refused is not None:
            kind = ConflictError if CHANGED_MEANWHILE in refused else InvalidError
            raise kind("the program was not changed", detail=refused, epoch=epoch)
        return epoch

    def _is_changed(self, number: int) -> bool:
        """Is a change of the program done, or refused; and not what is being filled now?"""
        head = self.parts.reader.head()
        filling = head.filling is not None and head.filling.entry == number
        return executed(head) > number and not filling

    def _told_of(self, number: int) -> bool:
        """The same, where another process does it: how far it is stands in the manifests."""
        fill, on_progress = self.parts.reader.head().filling, self.watch.on_progress
        if fill is not None and fill.entry == number and on_progress is not None:
            on_progress(progress_of(fill))
        return self._is_changed(number)

    def _is_filled(self) -> bool:
        head = self.parts.head()
        return head is None or head.filling is None

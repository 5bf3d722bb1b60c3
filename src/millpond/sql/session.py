"""A session: statements run one after the other over a pond.

Definitions that follow each other in one text become one change of the program,
committed before anything else is done and before `run` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millpond.errors import ConflictError, InvalidError
from millpond.flow.builder import Builder
from millpond.plan.nodes import Plan
from millpond.sql.catalog import Catalog, Shown, table_names
from millpond.sql.functions import suggesting
from millpond.sql.limits import ReadLimits
from millpond.sql.parameters import Params
from millpond.sql.parse import Piece, statements
from millpond.sql.result import Result
from millpond.sql.scratch import KeptScratch, Relations, Scratch, may_keep
from millpond.sql.user_words import in_user_words
from millpond.state import history

if TYPE_CHECKING:
    from millpond.pond import Pond

TRIES = 10  # to change a program that others change as well


class Session:
    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.on_progress: Callable[[Any], None] | None = None
        self._pending: Plan | None = None
        self._base: str | None = None
        self._said: list[tuple[Piece, Params]] = []  # the definitions that wait
        self._dropped = False
        self._read = False  # is there an epoch, as far as is known?
        self._shown = Shown()
        self._catalogs: list[Catalog] = []
        self._scratch: Scratch | None = None
        self._kept_scratch: KeptScratch | None = None
        self._lock = threading.RLock()
        self._limits = self._made_for = ReadLimits.of(pond.settings, {})
        self._asked = threading.local()  # what the call of this thread asked for

    @property
    def read_limits(self) -> ReadLimits:
        """What a SELECT of this thread may use."""
        found: ReadLimits | None = getattr(self._asked, "limits", None)
        return self._limits if found is None else found

    def run(
        self,
        text: str,
        params: Params = None,
        dialect: str = "postgres",
        limits: Mapping[str, Any] | None = None,
    ) -> Result:
        """Run all statements of a text; what the last one answers, with the warnings of all.

        `limits` are settings of reads (`select_…`), for this call alone.
        """
        before = self.read_limits
        if limits:
            self._asked.limits = ReadLimits.of(self.pond.settings, limits)
        try:
            results = list(self.run_each(text, params, dialect))
        finally:
            self._asked.limits = before
        last = results[-1] if results else Result.said("")
        last.warnings = [warning for result in results for warning in result.warnings]
        return last

    def run_each(self, text: str, params: Params = None, dialect: str = "postgres") -> Iterator[Result]:
        """Run the statements of a text one by one; all that is defined is committed at the end."""
        if not isinstance(text, str):
            raise InvalidError("SQL is text", detail=f"got {type(text).__name__}")
        from millpond.sql.statements.table import find

        pieces = statements(text, dialect)
        for piece in pieces:
            yield self.run_one(piece, params)
        if not all(find(piece).beside for piece in pieces):
            with self._lock:
                self.settle()

    def define_all(self, text: str, dialect: str = "postgres") -> None:
        """Only definitions, as a pipeline has them; what is there already in the same words stays."""
        from millpond.sql.statements.table import find

        for piece in statements(text, dialect):
            if not find(piece).defines:
                piece.fail("a pipeline only defines", 0, "millpond sql POND -f FILE runs any statement")
            known = self.catalog.objects.values()
            if all(piece.sql not in (o.said, *o.options.get("altered", ())) for o in known):
                self.run_one(piece)
        with self._lock:
            self.settle()

    def run_one(self, piece: Piece, params: Params = None) -> Result:
        try:
            return self._run_one(piece, params)
        except InvalidError as error:
            in_user_words(error, piece.sql, self.catalog.objects)
            raise

    def _run_one(self, piece: Piece, params: Params) -> Result:
        from millpond.sql.statements.table import find  # the statements call back

        statement = find(piece)
        if statement.beside:
            return statement.run(self, piece, params)
        with self._lock:
            if not statement.defines:
                self.settle()
                if not statement.waits:
                    with suggesting(lambda: self.catalog.objects):
                        return statement.run(self, piece, params)
        if statement.waits:
            return statement.run(self, piece, params)
        with self._lock:
            try:
                with suggesting(lambda: self.catalog.objects):
                    result = statement.run(self, piece, params)
            except BaseException:
                self.settle()
                raise
            self._said.append((piece, params))
            return result

    # -- the program ------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self._program()[0] if self._pending is None else self._pending

    def _program(self) -> tuple[Plan, str | None]:
        """The program of now, and its name in the catalog."""
        pond = self.pond
        runner = pond._runner
        if runner is not None:
            return runner.shell.plan, runner.shell.catalog
        if pond._builder.plan.nodes and not pond._builder.sealed:
            return pond._builder.plan, None  # defined here, and not run yet
        head = history.read_head(pond.store)
        return (Plan(), None) if head is None else (pond._reader.plan_of(head), head.catalog)

    @property
    def catalog(self) -> Catalog:
        return self.catalog_of(self.plan)

    def catalog_of(self, plan: Plan) -> Catalog:
        found = next((c for c in self._catalogs if c.plan is plan), None)
        if found is None:
            found = Catalog(plan, self._shown)
            self._catalogs = [found, *self._catalogs[:3]]
        return found

    def define(self, edit: Callable[[Builder], None]) -> None:
        """Change the program to come; nothing is changed when the edit fails."""
        if self._dropped:
            self.settle()  # what comes under an old name is not what was there
        with self._begun() as plan:
            builder = Builder()
            builder.reopen(plan, self._program()[0])
            edit(builder)
            self._pending = builder.plan

    def edit(self, edit: Callable[[Plan], Plan]) -> None:
        with self._begun() as plan:
            self._pending = edit(plan)
        self._dropped = True

    @contextmanager
    def _begun(self) -> Iterator[Plan]:
        """One program for all that a definition looks at; as it was when the definition fails."""
        builder = self.pond._builder
        if self.pond._runner is not None and builder.plan.nodes and not builder.sealed:
            raise InvalidError(
                "SQL cannot define inside of `with pond.changing():`", hint="do it before or after the block"
            )
        before = self._pending, self._base
        if self._pending is None:
            self._pending, self._base = self._program()
        try:
            yield self._pending
        except BaseException:
            self._pending, self._base = before
            raise

    def settle(self) -> None:
        """Commit what was defined; once more over the program of then, if somebody else was faster."""
        for _ in range(TRIES):
            self._catch_up()
            plan, base = self._pending, self._base
            if plan is None or (not _begins(plan) and history.read_head(self.pond.store) is None):
                return
            said, self._said = self._said, []
            self._pending, self._base, self._dropped = None, None, False
            try:
                self.pond.change(plan, on_progress=self.on_progress, base=base)
                return
            except ConflictError:
                if not said or base is None:
                    raise
                for piece, params in said:
                    self.run_one(piece, params)
        raise ConflictError(
            "the program is changed by others all the time", hint="try again when they are done"
        )

    def _catch_up(self) -> None:
        """What waited for a pond is defined over the program that the pond was made with meanwhile."""
        waited, said = self._pending, self._said
        if waited is None or self._base is not None:
            return
        plan, base = self._program()
        if base is None:
            return  # there is no pond still, or what is defined here has not run yet
        for found in waited.objects.values():
            if found.options.get("language") == "python":
                plan = plan.with_object(found)
        self._pending, self._base, self._said = plan, base, []
        for piece, params in said:
            self.run_one(piece, params)

    # -- rows ---------------------------------------------------------------------------

    @property
    def scratch(self) -> Scratch:
        self._fit()
        if self._scratch is None:
            threads = max(1, min(4, os.cpu_count() or 1))
            self._scratch = Scratch(threads, self.pond._clock, self.read_limits)
        return self._scratch

    def _fit(self) -> None:
        """A database keeps the memory and disk that it was made with; others need another one."""
        asked = self.read_limits
        if (asked.memory_bytes, asked.spill_bytes) != (
            self._made_for.memory_bytes,
            self._made_for.spill_bytes,
        ):
            self.close()
        self._made_for = asked

    def close(self) -> None:
        """Let go of what queries left behind; the next one begins anew."""
        with self._lock:
            for scratch in (self._scratch, self._kept_scratch):
                if scratch is not None:
                    scratch.close()
            self._scratch = self._kept_scratch = None

    def scratch_for(self, sql: str, shown: Relations) -> Scratch:
        """Where a query over these rows is answered with the least work."""
        if not may_keep(table_names(sql), shown):
            return self.scratch
        self._fit()
        if self._kept_scratch is None:
            self._kept_scratch = KeptScratch(1, self.pond._clock, self.read_limits)
        return self._kept_scratch

    def has_epoch(self) -> bool:
        """Is there a pond to be read?  What is defined and has never run is committed first."""
        self.settle()
        if self._read:
            return True
        if history.read_head(self.pond.store) is None:
            if not _begins(self.plan):
                return False
            self.pond._driver.boot_now()
        self._read = True
        return True

    def require_epoch(self) -> None:
        """There must be a pond to be read."""
        if not self.has_epoch():
            raise InvalidError("the pond has no epochs yet", hint="create a table first")


def _begins(plan: Plan) -> bool:
    """Is there anything to make a pond for?  Functions in Python wait: the flow API may define the rest."""
    kept = (o for o in plan.objects.values() if o.options.get("language") != "python")
    return bool(plan.nodes) or any(kept)

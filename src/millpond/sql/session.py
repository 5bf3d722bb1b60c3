"""A session: statements run one after the other over a pond.

Definitions that follow each other in one text become one change of the program,
committed before anything else is done and before `run` returns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.errors import ConflictError, InvalidError
from millpond.flow.builder import Builder
from millpond.plan.nodes import Plan
from millpond.sql.catalog import Catalog, Shown
from millpond.sql.parameters import Params
from millpond.sql.parse import Piece, statements
from millpond.sql.result import Result
from millpond.sql.scratch import Scratch
from millpond.state import history, inbox

if TYPE_CHECKING:
    from millpond.pond import Pond

CHANGE_S = 600.0  # how long another process may take to change the program


class Session:
    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.on_progress: Callable[[Any], None] | None = None
        self._pending: Plan | None = None
        self._dropped = False
        self._shown = Shown()
        self._catalogs: list[Catalog] = []
        self._scratch: Scratch | None = None
        self._lock = threading.RLock()

    def run(self, text: str, params: Params = None, dialect: str = "postgres") -> Result:
        """Run all statements of a text; what the last one answers."""
        if not isinstance(text, str):
            raise InvalidError("SQL is text", detail=f"got {type(text).__name__}")
        result = Result.said("")
        for piece in statements(text, dialect):
            result = self.run_one(piece, params)
        with self._lock:
            self.settle()
        return result

    def run_one(self, piece: Piece, params: Params = None) -> Result:
        from millpond.sql.statements.table import find  # the statements call back

        statement = find(piece)
        with self._lock:
            if not statement.defines:
                self.settle()
            try:
                return statement.run(self, piece, params)
            except BaseException:
                self.settle()
                raise

    # -- the program ------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self.pond.plan if self._pending is None else self._pending

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
        builder = Builder()
        builder.reopen(self.plan)
        edit(builder)
        self._pending = builder.plan

    def edit(self, edit: Callable[[Plan], Plan]) -> None:
        self._pending = edit(self.plan)
        self._dropped = True

    def settle(self) -> None:
        """Commit what was defined."""
        plan = self._pending
        if plan is None or (not plan.nodes and history.read_head(self.pond.store) is None):
            return  # a program without steps cannot begin: its views wait for the first table
        self._pending, self._dropped = None, False
        self.pond.change(plan, on_progress=self.on_progress)
        self._wait_for(plan)

    def _wait_for(self, plan: Plan) -> None:
        """Another process may be the one that changes the program: until it has."""
        names = self.pond.store.list(inbox.PREFIX)
        last = int(names[-1].rsplit("/", 1)[1]) if names else -1
        until = time.monotonic() + CHANGE_S
        while self.pond._executed() <= last and self.pond._runner is None:
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        now = self.pond.plan
        if now.objects != plan.objects or now.views != plan.views:
            raise ConflictError(
                "the program was not changed as it was asked for",
                detail=str(self.pond.head().metrics.get("refused") or "another process changed it as well"),
                hint="look at SHOW TABLES and SHOW VIEWS, and try again",
            )

    # -- rows ---------------------------------------------------------------------------

    @property
    def scratch(self) -> Scratch:
        if self._scratch is None:
            self._scratch = Scratch(threads=max(1, min(4, os.cpu_count() or 1)))
        return self._scratch

    def require_epoch(self) -> None:
        """There must be a pond to be read."""
        self.settle()
        if history.read_head(self.pond.store) is None:
            if not self.plan.nodes:
                raise InvalidError("there is nothing to read yet", hint="create a table first")
            self.pond._boot_now()

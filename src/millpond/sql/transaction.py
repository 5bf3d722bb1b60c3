"""A transaction of a SQL session: its reads, its changes, and its commit.

Law: reads see one pinned epoch and the transaction's own changes.  Nothing is sent before the commit; then
all changes are one inbox entry, which is executed in one epoch or not at all.  The entry says what the client
has read and was told: if that is no longer so when its turn comes, it is aborted with ConflictError.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.dml.change_outcome import wait_for_outcome
from millpond.sql.dml.changeable_tables import Applied, ChangeableTables
from millpond.sql.dml.text_changes import SessionChange, entry_items
from millpond.sql.dml.transaction_entry import READ, REQUIRE, answer_digest, encoded, versions
from millpond.sql.dml.transaction_rows import require_condition
from millpond.sql.dml.volatile import calls_chance
from millpond.sql.reads.scratch import ZONED, Scratch
from millpond.state.inbox import TRANSACTION
from millpond.state.manifest.snapshot import Snapshot

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


class SqlTransaction:
    """The state of one transaction; `SqlSession.begin` makes it."""

    def __init__(self, session: SqlSession, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self.failed = False  # a statement failed: only ROLLBACK can follow
        self.now_us = session.host.clock.now_us()
        self._session = session
        self._pins = ExitStack()
        self._snapshot: Snapshot | None = None
        self._tables: ChangeableTables | None = None
        self._items: list[SessionChange] = []
        self._savepoints: dict[str, int] = {}  # by name: the number of items before it

    # -- reads --------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The epoch that the transaction reads, pinned by its first statement."""
        if self._snapshot is None:
            self._snapshot = self._pins.enter_context(self._session.host.pinned())
        return self._snapshot

    @property
    def catalog(self) -> Catalog:
        return self._session.catalog_of(self._session.host.plan_of(self.snapshot.manifest))

    @property
    def changes_rows(self) -> bool:
        """Has it changed anything?"""
        return any(item.args["verb"] not in (READ, REQUIRE) for item in self._items)

    @property
    def is_empty(self) -> bool:
        return not self._items

    def sees_own_changes(self, sql: str) -> bool:
        """Does a query read a table that this transaction has changed?"""
        if not self.changes_rows:
            return False
        named = self.catalog.expanded(self.catalog.read_by(sql))
        return self._changeable().has_changed([o.name for o in named])

    def read(self, sql: str) -> tuple[list[tuple[str, str]], pa.Table]:
        """Run a query over the pinned epoch and the transaction's own changes."""
        tables = self._changeable()
        with tables.all_or_nothing([sql]):
            return tables.read(sql, self.now_us, self._session.read_limits, self._session.time_zone)

    def note_read(self, sql: str, names: Sequence[tuple[str, str]], rows: pa.Table) -> None:
        """Remember what the client has read: it must be the same when the transaction is executed."""
        if self.read_only:
            return
        catalog = self.catalog
        objects = catalog.expanded(catalog.read_by(sql))
        if not objects:
            return
        if calls_chance(sql):  # the answer would differ anyway: the rows must be the same
            for found in objects:
                if found.kind != "view":
                    self._note(catalog, f"select * from {quoted(found.name)}", None)
            return
        self._note(catalog, sql, answer_digest(names, rows))

    def _note(self, catalog: Catalog, sql: str, digest: str | None) -> None:
        args = self._asking(READ, sql)
        args["versions"] = versions(catalog, self.snapshot, sql)
        if digest is not None:
            args["digest"] = digest
        self._items.append(SessionChange(args, reads_views=_reads_views(catalog, sql)))

    def _asking(self, verb: str, sql: str) -> dict[str, Any]:
        zone = self._session.time_zone
        shown = {} if zone == UTC else {"time_zone": zone}
        return {"verb": verb, "sql": sql, "now_us": self.now_us, **shown}

    def require(self, sql: str, message: str | None = None) -> None:
        """Abort unless the only value of a query is true: now, and again when the transaction is executed."""
        args = self._asking(REQUIRE, sql)
        if message is not None:
            args["message"] = message
        tables = self._changeable()
        with tables.all_or_nothing([sql]):
            require_condition(tables, args)
        self._items.append(SessionChange(args, reads_views=_reads_views(self.catalog, sql)))

    # -- changes ------------------------------------------------------------------------

    def change(self, change: SessionChange) -> Applied:
        """Execute a change over the transaction's own state, and remember it for the commit."""
        if self.read_only:
            raise InvalidError("cannot change rows in a read-only transaction")
        tables = self._changeable()
        with tables.all_or_nothing(_texts(change)):
            applied = tables.apply(change.args, change.rows)
        args = dict(change.args)
        if change.rows is None and not args.get("untold"):
            args["count"] = applied.count
        if applied.rows is not None:
            digest = answer_digest(applied.names, applied.rows)
            if digest is not None:
                args["digest"] = digest
        self._items.append(SessionChange(args, change.rows, change.reads_views))
        return applied

    def _changeable(self) -> ChangeableTables:
        """The tables as this transaction has changed them; after ROLLBACK TO they are made again."""
        if self._tables is None:
            session = self._session
            scratch = Scratch(1, session.host.clock, session.read_limits)
            self._pins.callback(scratch.close)
            self._tables = ChangeableTables(self.catalog, self.snapshot, scratch)
            for item in self._items:
                if item.args["verb"] not in (READ, REQUIRE):
                    with self._tables.all_or_nothing(_texts(item)):
                        self._tables.apply(item.args, item.rows)
        return self._tables

    # -- savepoints -----------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        self._savepoints.pop(name, None)
        self._savepoints[name] = len(self._items)

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it."""
        self._require_savepoint(name)
        while self._savepoints.popitem()[0] != name:
            pass

    def rollback_to(self, name: str) -> None:
        """Undo all changes since a savepoint; what was read since then still counts."""
        self._require_savepoint(name)
        while next(reversed(self._savepoints)) != name:
            self._savepoints.popitem()
        before, since = self._items[: self._savepoints[name]], self._items[self._savepoints[name] :]
        if any(item.args["verb"] not in (READ, REQUIRE) for item in since):
            # An answer may contain changes that are undone now: only the stored rows can be compared.
            read = [_without_digest(item) for item in since if item.args["verb"] == READ]
            self._tables, self._items = None, [*read, *before]
            self._savepoints = {n: at + len(read) for n, at in self._savepoints.items()}
        self.failed = False

    def _require_savepoint(self, name: str) -> None:
        if name not in self._savepoints:
            raise InvalidError(f"savepoint {name!r} does not exist in this transaction")

    # -- the end ------------------------------------------------------------------------

    def commit(self) -> int | None:
        """Send the changes and wait until they are executed; returns the epoch, None if there were none.

        Raises ConflictError if the transaction was aborted.
        """
        try:
            if not self.changes_rows:
                return None
            host = self._session.host
            items, payloads, _ = entry_items(host, self._items)
            args, payload = encoded(items, payloads)
            if any(item.reads_views for item in self._items):
                args["views"] = True
        finally:
            self.close()
        number = host.append(TRANSACTION, args, payload)
        return wait_for_outcome(host, number)[0]

    def close(self) -> None:
        """Release the pinned epoch; nothing is sent."""
        self._tables, self._snapshot = None, None
        self._pins.close()

    def unpin(self) -> None:
        """Read a newer epoch with the next statement: definitions of this block were committed."""
        if not self._items:
            self.close()

    def forget_reads(self) -> None:
        """Forget what a definition has read: it is committed, and the rest does not depend on it."""
        self._items.clear()
        self.close()


def _texts(change: SessionChange) -> list[str]:
    zoned = [ZONED] if "time_zone" in change.args else []
    return [*zoned, *([change.args["sql"]] if "sql" in change.args else [])]


def _without_digest(read: SessionChange) -> SessionChange:
    args = {name: value for name, value in read.args.items() if name != "digest"}
    return SessionChange(args, reads_views=read.reads_views)


def _reads_views(catalog: Catalog, sql: str) -> bool:
    return any(o.kind not in ("table", "view") for o in catalog.expanded(catalog.read_by(sql)))

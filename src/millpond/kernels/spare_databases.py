"""Databases in memory that are used again: opening DuckDB costs 30 ms of CPU, emptying a database 1 ms.

Law: whoever takes a database finds no table, view or macro of its last user, and the settings it asked for.
Everything is created in an attached database, which is replaced by an empty one when the next user takes it.
A database that cannot be emptied is closed, and so is one that has spilled: its files and memory are freed.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Hashable

import duckdb

from millpond.kernels.duck import Equipment

SPARES_MAX = 4  # of each kind; more are closed
_CATALOG = "main_memory"
_CATALOG_OF_DUCKDB = "memory"


class ReusableDatabase:
    """A connection to a database of its own, until `give_back`."""

    def __init__(self, kind: Hashable, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.equipment = Equipment(con)
        self._kind = kind
        found = con.execute("select current_setting('temp_directory')").fetchone()
        assert found is not None
        self._spill_folder: str = found[0]
        con.execute(f"attach ':memory:' as {_CATALOG}")
        con.execute(f"use {_CATALOG}")

    def give_back(self) -> None:
        """Keep it for the next user; what was registered by `con.register` must have been unregistered.

        It runs no statement, so it may be called while garbage is collected, in any thread.
        """
        spares = _spares[os.getpid(), self._kind]
        if len(spares) < SPARES_MAX and not os.path.exists(self._spill_folder):
            spares.append(self)
        else:
            self.close()

    def close(self) -> None:
        self.equipment.release()
        self.con.close()

    def _empty(self) -> None:
        with contextlib.suppress(duckdb.TransactionException):  # there is none
            self.con.execute("rollback")
        self.con.execute(f"use {_CATALOG_OF_DUCKDB}")
        self.con.execute(f"detach {_CATALOG}")
        self.con.execute(f"attach ':memory:' as {_CATALOG}")
        self.con.execute(f"use {_CATALOG}")


_spares: defaultdict[tuple[int, Hashable], deque[ReusableDatabase]] = defaultdict(deque)


def take(kind: Hashable, make: Callable[[], duckdb.DuckDBPyConnection]) -> ReusableDatabase:
    """Return an empty database of this kind, made by `make` if there is no spare one.

    >>> from millpond.kernels.duck import connect
    >>> first = take("example", lambda: connect({"threads": 1}))
    >>> _ = first.con.execute("create table t as select 1 as x")
    >>> con = first.con
    >>> first.give_back()
    >>> second = take("example", lambda: connect({"threads": 1}))
    >>> second.con is con, second.con.execute("select count(*) from duckdb_tables()").fetchone()
    (True, (0,))
    >>> second.close()
    """
    spares = _spares[os.getpid(), kind]
    while spares:
        try:
            found = spares.pop()
        except IndexError:  # another thread took the last one
            break
        try:
            found._empty()
        except duckdb.Error:
            found.close()
        else:
            return found
    return ReusableDatabase(kind, make())

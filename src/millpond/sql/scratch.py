"""A DuckDB that sees rows of ours for the time of one statement.

It has no files, no network and no variables of Python: a text can name only what
it was shown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.operators.duck import Equipment, connect, handed, stop_if_asked
from millpond.operators.expressions import storable_text
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.bind import told
from millpond.sql.clock import macros, may_read_clock
from millpond.sql.definitions import PROCTIME
from millpond.sql.expressions import Column
from millpond.sql.lazy import LazyRows
from millpond.sql.limits import ReadLimits, limited, out_of_memory, taken
from millpond.sql.types import quoted, restored

PLACE = "__place"  # of a row of the table that a statement changes


SMALL = 10_000  # rows that are handed over whole: to look what of them is needed would cost more
KEPT_MAX = 256  # relations that stay between statements; no statement for them names as many


# What a query names, and the rows of each that it can need; none for a plain view.
Relations = Sequence[tuple[SqlObject, pa.Table | LazyRows | None]]


class Feed:
    """An Arrow table that DuckDB reads through, without asking for parts of it; the rows may change."""

    def __init__(self, rows: pa.Table) -> None:
        self.put(rows)

    def put(self, rows: pa.Table) -> None:
        self._rows = handed(rows)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        return self._rows.schema.__arrow_c_schema__()


class Scratch:
    def __init__(
        self, threads: int = 1, clock: Clock | None = None, limits: ReadLimits | None = None
    ) -> None:
        self._con = connect(
            {
                "threads": threads,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "enable_external_access": False,
                "python_enable_replacements": False,
            }
        )
        self._con.execute("set errors_as_json = true")
        self._con.execute("set timezone = 'UTC'")
        if limits is not None:
            limits.set_for(self._con)
        self._con.execute("set lock_configuration = true")
        self._con.execute("create macro proctime() as now()")
        self._clock = clock or SystemClock()
        self._now_us: int | None = None  # the time that a statement sees, where it is known
        self._told = False  # do the functions of the clock give it?
        self._lock = threading.RLock()
        self._made: list[tuple[str, str]] = []
        self._named = 0
        self._equipment = Equipment(self._con)
        self._lazy: list[LazyRows] = []

    @contextmanager
    def turn(self, now_us: int | None = None) -> Iterator[Scratch]:
        """For one statement, made at some time; what it was shown is gone afterwards."""
        with self._lock:
            self._now_us, self._told = now_us, False
            self._equipment.refresh()
            try:
                yield self
            finally:
                self._end()

    def close(self) -> None:
        with self._lock:
            self._equipment.release()
            self._con.close()

    def _end(self) -> None:
        self._drop(self._made)
        self._made, self._lazy = [], []

    def _drop(self, made: Sequence[tuple[str, str]]) -> None:
        for kind, name in reversed(made):
            if kind == "rows":
                self._con.unregister(name)
            else:
                self._con.execute(f"drop {kind} if exists {quoted(name)} cascade")

    def run(self, sql: str, params: Any = None, shown: str | None = None, before: int = 0) -> Any:
        """DuckDB's connection with the answer; its refusal points into the text that was shown to it."""
        try:
            return self._con.execute(sql, params) if params else self._con.execute(sql)
        except duckdb.Error as error:
            stop_if_asked(error)
            raise told(error, shown if shown is not None else sql, before) from error

    def arrow(self, sql: str, shown: str | None = None) -> pa.Table:
        return self.query(sql, shown=shown)[1]

    def query(
        self, sql: str, params: Any = None, shown: str | None = None, limits: ReadLimits | None = None
    ) -> tuple[list[tuple[str, str]], pa.Table]:
        """The names and logical types of the columns, and the rows; within limits, where some are given."""
        self._tell_time(sql)

        def answered() -> tuple[list[tuple[str, str]], pa.Table]:
            found = self._con.sql(sql, params=params or None)
            names = [(n, str(t)) for n, t in zip(found.columns, found.types, strict=True)]
            return names, found.to_arrow_table() if limits is None else taken(found, limits)

        try:
            if limits is None:
                return answered()
            return limited(self._con, limits, answered)
        except Exception as error:
            for shown_rows in self._lazy:  # not the query failed, but the reading of what it asked for
                if shown_rows.failure is not None:
                    raise shown_rows.failure from None
            if not isinstance(error, duckdb.Error):
                raise
            stop_if_asked(error)
            if limits is not None and (lacking := out_of_memory(error, limits)) is not None:
                raise lacking from error
            raise told(error, shown if shown is not None else sql) from error

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What is changed inside stays only if all of it succeeds."""
        self._con.execute("begin")
        try:
            yield
        except BaseException:
            self._con.execute("rollback")
            raise
        self._con.execute("commit")

    # -- what it is shown -----------------------------------------------------------

    def rows(self, rows: pa.Table | LazyRows | Feed, name: str | None = None) -> str:
        self._named += 1
        name = name or f"rows_{self._named}"
        if isinstance(rows, LazyRows):
            self._lazy.append(rows)
            self._con.register(name, rows)
        elif isinstance(rows, Feed):
            self._con.register(name, rows)
        else:
            self._con.register(name, handed(rows) if rows.num_rows > SMALL else Feed(rows))
        self._made.append(("rows", name))
        return name

    def relation(self, found: SqlObject, rows: pa.Table | LazyRows) -> None:
        """Rows as we keep them, under their name and with their logical types."""
        self._relation(found, rows if isinstance(rows, LazyRows) else rows.select(_held(found)))

    def _relation(self, found: SqlObject, rows: pa.Table | LazyRows | Feed) -> None:
        """The same for rows that have the columns of the relation and no others."""
        if not any(restored(c.type) or c.held != c.name for c in found.columns):
            self.rows(rows, found.name)
            return
        listed = ", ".join(f"{_as_shown(c)} AS {quoted(c.name)}" for c in found.columns)
        self.view(found.name, f"select {listed} from {self.rows(rows)}")

    def _tell_time(self, sql: str) -> None:
        """Functions of the clock give the time of the statement."""
        if self._told or not may_read_clock(sql):
            return
        now_us = self._clock.now_us() if self._now_us is None else self._now_us
        for statement in macros(f"make_timestamptz({now_us})"):
            self._con.execute(statement)
        self._told = True

    def view(self, name: str, sql: str) -> None:
        self._tell_time(sql)
        self.run(f"create view {quoted(name)} as {sql}")
        self._made.append(("view", name))

    def table(
        self,
        found: SqlObject,
        rows: pa.Table | None = None,
        *,
        key: bool = False,
        places: bool = False,
        defaults: bool = True,
    ) -> None:
        """A table that can be changed; with `places` each row knows its number among `rows`."""
        listed = [_defined(c, defaults) for c in found.columns if c.generated != PROCTIME]
        if places:
            listed.append(f"{quoted(PLACE)} BIGINT DEFAULT -1")
        if key and found.key:
            listed.append(f"PRIMARY KEY ({', '.join(quoted(k) for k in found.key)})")
        self._tell_time(" ".join(listed))
        self.run(f"create table {quoted(found.name)} ({', '.join(listed)})")
        self._made.append(("table", found.name))
        if rows is not None and rows.num_rows:
            held = [c for c in found.columns if c.generated is None]
            wanted = ", ".join(Column(c.held, c.type).sql for c in held)
            place = ""
            if places:
                rows = rows.append_column(PLACE, pa.array(range(rows.num_rows), pa.int64()))
                place = f", {quoted(PLACE)}"
            into = f"{quoted(found.name)} ({', '.join(quoted(c.name) for c in held)}{place})"
            self.run(f"insert into {into} select {wanted}{place} from {self.rows(rows)}")


@dataclass(frozen=True)
class _Kept:
    columns: tuple[SqlColumn, ...]
    feed: Feed
    made: tuple[tuple[str, str], ...]


class KeptScratch(Scratch):
    """One whose relations stay from statement to statement; their rows are there for the time of one.

    To show a relation costs more than to look up the row of a key in it.  What a text names must be
    among what it is shown: anything else might be an old relation without rows.
    """

    def __init__(
        self, threads: int = 1, clock: Clock | None = None, limits: ReadLimits | None = None
    ) -> None:
        super().__init__(threads, clock, limits)
        self._kept: dict[str, _Kept] = {}  # by name in lower case
        self._shown: set[str] = set()  # to the statement at hand

    def relation(self, found: SqlObject, rows: pa.Table | LazyRows) -> None:
        assert isinstance(rows, pa.Table)
        name, rows = found.name.lower(), rows.select(_held(found))
        kept = self._kept.get(name)
        if kept is not None and (kept.columns != found.columns or kept.feed.schema != rows.schema):
            self._let_go(name)
            kept = None
        if kept is None:
            kept = self._keep(name, found, Feed(rows))
        self._shown.add(name)
        kept.feed.put(rows)

    def _keep(self, name: str, found: SqlObject, feed: Feed) -> _Kept:
        if len(self._kept) >= KEPT_MAX:
            self._let_go(next(n for n in self._kept if n not in self._shown))
        try:
            self._relation(found, feed)
            kept = self._kept[name] = _Kept(found.columns, feed, tuple(self._made))
        except BaseException:
            self._drop(self._made)
            raise
        finally:
            self._made = []
        return kept

    def _let_go(self, name: str) -> None:
        self._drop(self._kept.pop(name).made)

    def _end(self) -> None:
        for name in self._shown:
            feed = self._kept[name].feed
            feed.put(feed.schema.empty_table())
        self._shown.clear()


def may_keep(named: frozenset[str], shown: Relations) -> bool:
    """Is a query with these names for a `KeptScratch`: few rows, and nothing that it is not shown?"""
    known = {found.name.lower() for found, _ in shown}
    return (
        0 < len(shown) < KEPT_MAX
        and all(isinstance(rows, pa.Table) and rows.num_rows <= SMALL for _, rows in shown)
        and all(name.lower() in known for name in named)
    )


def _held(found: SqlObject) -> list[str]:
    return [c.held for c in found.columns]


def _as_shown(column: SqlColumn) -> str:
    """A column in its logical type.

    DuckDB divides 128 bits to make a wide integer of a decimal, eight times slower than this way round.
    """
    if column.type != "HUGEINT":
        return Column(column.held, column.type).sql
    name = quoted(column.held)
    return f"coalesce(TRY_CAST({name} AS DECIMAL(18,0))::BIGINT::HUGEINT, CAST({name} AS HUGEINT))"


def _defined(column: SqlColumn, defaults: bool) -> str:
    text = f"{quoted(column.name)} {column.type}"
    if column.generated is not None:
        return f"{text} GENERATED ALWAYS AS ({column.generated})"  # to be read, never to be written
    if column.required:
        text += " NOT NULL"
    if defaults and column.default is not None:
        text += f" DEFAULT ({column.default})"
    return text


def returned(columns: Sequence[SqlColumn]) -> str:
    """What RETURNING lists to give rows as we keep them."""
    parts = []
    for c in columns:
        value = quoted(c.name) if c.generated is None else f"CAST(({c.generated}) AS {c.type})"
        if restored(c.type):
            value = f"CAST({value} AS {storable_text(c.type.replace('INTERVAL', 'VARCHAR'))})"
        parts.append(f"{value} AS {quoted(c.held)}")
    return ", ".join(parts)


_OWN = threading.local()


def own_scratch() -> Scratch:
    """One for each thread."""
    found: Scratch | None = getattr(_OWN, "scratch", None)
    if found is None:
        found = _OWN.scratch = Scratch()
    return found

"""A DuckDB database with the rows of a pond, for one statement.

Law: it reads no files, no network and no Python variables.
A statement can name only what was registered for it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.errors import InvalidError
from millpond.kernels import spare_databases
from millpond.kernels.duck import connect, handed, stop_if_cancelled
from millpond.kernels.storable_types import storable_text
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.declared_types import as_declared
from millpond.sql.binding.now import macros, may_read_clock
from millpond.sql.binding.types import CLOSED, UTC, quoted, restored, text_literal
from millpond.sql.dialects.library import equip
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.reads.lazy_columns import LazyRows
from millpond.sql.reads.limits import BATCH_ROWS, ReadLimits, limited, out_of_memory, taken
from millpond.sql.text.column_definitions import PROCTIME

INSTANT = "TIMESTAMP WITH TIME ZONE"
CLOCK_TIME = "TIME WITH TIME ZONE"
# + and - are macros where a statement may move instants in a time zone other than UTC, or by months together
# with days or hours: DuckDB's own do not always begin with the months.  They bind slowly.
ZONED = "__pg.plus_in_zone() __pg.minus_in_zone()"
IN_UTC = "__pg.plus_in_utc() __pg.minus_in_utc()"
ZONED_SIGN = re.compile(r"[+-]")
ABOUT_TIME = re.compile(r"time|date|day|now|interval|age\b|trunc|bin\b", re.IGNORECASE)
ABOUT_INSTANTS = re.compile(
    r"timestamptz|time\s+zone|now|current_timestamp|proctime|to_timestamp", re.IGNORECASE
)
_INTERVAL = re.compile(r"interval|'\s*@?\s*[-+]?\d", re.IGNORECASE)
_OF_MONTHS = re.compile(r"mon|quarter|qtr|y(ea)?rs?\b|\dy|\by\b|dec|cent|\dc|\bc\b|mil|\bp\d", re.IGNORECASE)
_OF_LESS = re.compile(r"day|week|hour|min|sec|\d\s*[dhwms]\b|usec|\d:\d|p.*[dt]", re.IGNORECASE)
_MIXED = re.compile(r"\bage\b|justify_|make_interval|[$?]", re.IGNORECASE)
PLACE = "__place"  # the number of a row in the table that a statement changes


SMALL = 10_000  # up to this many rows are passed in full: finding out which are needed would cost more
CACHED_MAX = 256  # relations that stay registered between statements; no such statement names as many


# The relations that a query names, with the rows of each that it can need; None for a plain view.
Relations = Sequence[tuple[SqlObject, pa.Table | LazyRows | None]]


class ReplaceableRows:
    """An Arrow table under one name in DuckDB, always read in full; its rows can be replaced."""

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


def _connect(threads: int, limits: ReadLimits | None) -> duckdb.DuckDBPyConnection:
    con = connect({**CLOSED, "threads": threads})
    con.execute("set errors_as_json = true")
    con.execute(f"set timezone = '{UTC}'")
    con.execute("set allowed_configs = ['TimeZone']")  # the only setting that can change once they are locked
    if limits is not None:
        limits.set_for(con)
    con.execute("set lock_configuration = true")
    return con


class Scratch:
    def __init__(
        self, threads: int = 1, clock: Clock | None = None, limits: ReadLimits | None = None
    ) -> None:
        space = None if limits is None else (limits.memory_bytes, limits.spill_bytes)
        self._database = spare_databases.take(("scratch", threads, space), lambda: _connect(threads, limits))
        self._con, self._equipment = self._database.con, self._database.equipment
        self._con.execute("create macro proctime() as now()")
        self._clock = clock or SystemClock()
        self._now_us: int | None = None  # the statement's time, if it is fixed
        self._clock_set = False  # are the clock functions defined for this statement?
        self._lock = threading.RLock()
        self._made: list[tuple[str, str]] = []
        self._lasting: list[tuple[str, str]] = []  # what `registered_for_now` does not drop
        self._named = 0
        self._lazy: list[LazyRows] = []
        self._zone = UTC
        self._signs: str = ""  # the macros that + and - are, if they are some
        self._signs_of_views: str = ""  # those that views of this statement call
        self._has_instants = False  # does a relation of this statement have times with a zone?
        self._has_intervals = False  # and intervals?

    def in_zone(self, zone: str) -> Scratch:
        """Let times without a zone be in this one, until another is set."""
        with self._lock:
            if zone != self._zone:
                self._con.execute(f"set timezone = {text_literal(zone)}")
                self._zone = zone
        return self

    def _prepare(self, sql: str) -> None:
        """Create what a statement calls."""
        self._set_clock(sql)
        wanted = self._wanted_signs(sql)
        equip(self._con, self._equipment, f"{sql} {wanted}" if wanted else sql)
        if wanted != self._signs:
            where = "utc" if wanted == IN_UTC else "zone"
            for sign, name in (("+", f"plus_in_{where}"), ("-", f"minus_in_{where}")):
                own = f'(a) as system.main."{sign}"(a)'
                made = f'create or replace macro "{sign}"(a, b) as __pg.{name}(a, b), {own}'
                self._con.execute(made if wanted else f'drop macro if exists "{sign}"')
        self._signs = wanted

    def _wanted_signs(self, sql: str) -> str:
        if self._signs_of_views or ZONED_SIGN.search(sql) is None:
            return self._signs_of_views
        if self._zone != UTC:
            return ZONED if self._has_instants or ABOUT_TIME.search(sql) is not None else ""
        if not self._has_instants and ABOUT_INSTANTS.search(sql) is None:
            return ""
        return IN_UTC if self._has_intervals or may_mix_units(sql) else ""

    @contextmanager
    def for_statement(self, now_us: int | None = None) -> Iterator[Scratch]:
        """Use the database for one statement with the time `now_us`; then drop what was registered."""
        with self._lock:
            self._now_us, self._clock_set = now_us, False
            self._has_instants = self._has_intervals = False
            self._signs_of_views = ""
            self._equipment.refresh()
            try:
                yield self
            finally:
                self._end()

    def at(self, now_us: int) -> None:
        """Let the clock functions of the next statement return this time."""
        self._now_us, self._clock_set = now_us, False

    @contextmanager
    def registered_for_now(self) -> Iterator[None]:
        """Drop what is registered inside when the block ends, if no exception leaves it."""
        mark = len(self._made)
        yield
        self._drop(self._made[mark:])
        del self._made[mark:]

    def close(self) -> None:
        """Let another session use the database, if nothing of this one can be left in it."""
        with self._lock:
            try:
                self._drop_all()
                self.in_zone(UTC)
            except duckdb.Error:  # it was interrupted, or has failed
                self._database.close()
            else:
                self._database.give_back()

    def _drop_all(self) -> None:
        self._end()

    def _end(self) -> None:
        self._drop([*self._lasting, *self._made])
        self._made, self._lasting, self._lazy = [], [], []

    def _drop(self, made: Sequence[tuple[str, str]]) -> None:
        for kind, name in reversed(made):
            if kind == "rows":
                self._con.unregister(name)
            else:
                self._con.execute(f"drop {kind} if exists {quoted(name)} cascade")

    def run(self, sql: str, params: Any = None, shown: str | None = None, before: int = 0) -> Any:
        """Run a statement on the connection; an error points into `shown`, the text that the user wrote."""
        try:
            self._prepare(sql)
            return self._con.execute(sql, params) if params else self._con.execute(sql)
        except duckdb.Error as error:
            stop_if_cancelled(error)
            raise as_user_error(error, shown if shown is not None else sql, before) from error

    def arrow(self, sql: str, shown: str | None = None) -> pa.Table:
        return self.query(sql, shown=shown)[1]

    def query(
        self, sql: str, params: Any = None, shown: str | None = None, limits: ReadLimits | None = None
    ) -> tuple[list[tuple[str, str]], pa.Table]:
        """Return the names and logical types of the columns, and the rows; enforce `limits` if passed."""
        self._prepare(sql)

        def answered() -> tuple[list[tuple[str, str]], pa.Table]:
            if limits is None:
                found = self._con.sql(sql, params=params or None)
                names = [(n, str(t)) for n, t in zip(found.columns, found.types, strict=True)]
                if (kept := with_offsets(sql, names)) is not None:
                    found = self._con.sql(kept, params=params or None)
                return names, found.to_arrow_table()
            # The same as a relation's to_arrow_reader.  A relation would also parse and bind the text to know
            # its columns, which takes a fifth of the time of a point lookup.
            result = self._con._submit(sql, params or None, "stream", BATCH_ROWS)
            names = [(column[0], str(column[1])) for column in result.description]
            if (kept := with_offsets(sql, names)) is not None:
                result.close()
                result = self._con._submit(kept, params or None, "stream", BATCH_ROWS)
            return names, taken(result.arrow_reader(), limits)

        try:
            if limits is None:
                return answered()
            return limited(self._con, limits, answered)
        except Exception as error:
            for shown_rows in self._lazy:  # the query did not fail, but reading rows for it did
                if shown_rows.failure is not None:
                    raise shown_rows.failure from None
            if not isinstance(error, duckdb.Error):
                raise
            stop_if_cancelled(error)
            if limits is not None and (lacking := out_of_memory(error, limits)) is not None:
                raise lacking from error
            raise as_user_error(error, shown if shown is not None else sql) from error

    @contextmanager
    def all_or_nothing(self, texts: Iterable[str] = ()) -> Iterator[None]:
        """A transaction: an exception undoes all changes inside.

        The functions that `texts` call are created before: a transaction writes to one database only.
        """
        for text in (*texts, ZONED if self._zone != UTC else IN_UTC):
            equip(self._con, self._equipment, text)
        self._con.execute("begin")
        before = self._signs
        try:
            yield
        except BaseException:
            self._con.execute("rollback")
            self._signs = before
            raise
        self._con.execute("commit")

    # -- relations ------------------------------------------------------------------

    def rows(self, rows: pa.Table | LazyRows | ReplaceableRows, name: str | None = None) -> str:
        self._named += 1
        name = name or f"rows_{self._named}"
        if isinstance(rows, LazyRows):
            self._lazy.append(rows)
            self._con.register(name, rows)
        elif isinstance(rows, ReplaceableRows):
            self._con.register(name, rows)
        else:
            self._con.register(name, handed(rows) if rows.num_rows > SMALL else ReplaceableRows(rows))
        self._made.append(("rows", name))
        return name

    def relation(self, named: SqlObject, rows: pa.Table | LazyRows) -> None:
        """Register stored rows under the name of their relation, with their logical types."""
        self._relation(named, rows if isinstance(rows, LazyRows) else rows.select(_stored_names(named)))

    def _relation(self, named: SqlObject, rows: pa.Table | LazyRows | ReplaceableRows) -> None:
        """Do the same for rows that have exactly the columns of the relation."""
        self._note_instants(named)
        if not any(restored(c.type) or c.stored_name != c.name for c in named.columns):
            self.rows(rows, named.name)
            return
        listed = ", ".join(f"{_as_shown(c)} AS {quoted(c.name)}" for c in named.columns)
        self.view(named.name, f"select {listed} from {self.rows(rows)}")

    def _set_clock(self, sql: str) -> None:
        """Define the clock functions that a statement calls, so that they return its time."""
        if self._clock_set or not may_read_clock(sql):
            return
        now_us = self._clock.now_us() if self._now_us is None else self._now_us
        for statement in macros(f"make_timestamptz({now_us})"):
            self._con.execute(statement)
        self._clock_set = True

    def _note_instants(self, named: SqlObject) -> None:
        self._has_instants = self._has_instants or any(INSTANT in c.type for c in named.columns)
        self._has_intervals = self._has_intervals or any("INTERVAL" in c.type for c in named.columns)

    def view(self, name: str, sql: str) -> None:
        self._set_clock(sql)
        if self._zone != UTC:
            if "__spark" in sql or '"spark.' in sql:
                raise InvalidError(
                    f"view {name!r} of the dialect 'spark' cannot be read in the time zone {self._zone!r}",
                    hint="SET TimeZone = 'UTC'",
                )
            self._has_instants = self._has_instants or ABOUT_TIME.search(sql) is not None
        else:
            self._has_instants = self._has_instants or ABOUT_INSTANTS.search(sql) is not None
            self._has_intervals = self._has_intervals or may_mix_units(sql)
        self._signs_of_views = self._wanted_signs(sql)
        self.run(f"create view {quoted(name)} as {sql}")
        self._made.append(("view", name))

    def table(
        self,
        named: SqlObject,
        rows: pa.Table | None = None,
        *,
        key: bool = False,
        places: bool = False,
        defaults: bool = True,
        lasting: bool = False,
    ) -> None:
        """Create a table that can be changed; with `places` each row has its position in `rows`."""
        self._note_instants(named)
        listed = [_defined(c, defaults) for c in named.columns if c.generated != PROCTIME]
        if places:
            listed.append(f"{quoted(PLACE)} BIGINT DEFAULT -1")
        if key and named.key:
            never_null = all(c.required and not c.identity for c in named.columns if c.name in named.key)
            rule = "PRIMARY KEY" if never_null else "UNIQUE"
            listed.append(f"{rule} ({', '.join(quoted(k) for k in named.key)})")
        self._set_clock(" ".join(listed))
        self.run(f"create table {quoted(named.name)} ({', '.join(listed)})")
        (self._lasting if lasting else self._made).append(("table", named.name))
        if rows is not None and rows.num_rows:
            positions = pa.array(range(rows.num_rows), pa.int64()) if places else None
            self.insert_rows(named, rows, positions)

    def insert_rows(self, named: SqlObject, rows: pa.Table, places: pa.Array | None = None) -> None:
        """Insert stored rows into a table that can be changed, in their logical types."""
        columns = [c for c in named.columns if c.generated is None]
        wanted = ", ".join(StepColumn(c.stored_name, c.type).sql for c in columns)
        position = ""
        if places is not None:
            rows = rows.append_column(PLACE, places)
            position = f", {quoted(PLACE)}"
        into = f"{quoted(named.name)} ({', '.join(quoted(c.name) for c in columns)}{position})"
        self.run(f"insert into {into} select {wanted}{position} from {self.rows(rows)}")


@dataclass(frozen=True)
class _CachedRelation:
    columns: tuple[SqlColumn, ...]
    feed: ReplaceableRows
    made: tuple[tuple[str, str], ...]


class CachedScratch(Scratch):
    """Keeps relations registered between statements, but their rows only during one statement.

    Registering a relation costs more than a point lookup in it.  A statement must name only relations that
    were registered for it: any other might be an old one without rows.
    """

    def __init__(
        self, threads: int = 1, clock: Clock | None = None, limits: ReadLimits | None = None
    ) -> None:
        super().__init__(threads, clock, limits)
        self._kept: dict[str, _CachedRelation] = {}  # by name in lower case
        self._shown: set[str] = set()  # for the current statement

    def relation(self, named: SqlObject, rows: pa.Table | LazyRows) -> None:
        assert isinstance(rows, pa.Table)
        self._note_instants(named)
        name, rows = named.name.lower(), rows.select(_stored_names(named))
        cached = self._kept.get(name)
        if cached is not None and (cached.columns != named.columns or cached.feed.schema != rows.schema):
            self._let_go(name)
            cached = None
        if cached is None:
            cached = self._keep(name, named, ReplaceableRows(rows))
        self._shown.add(name)
        cached.feed.put(rows)

    def _keep(self, name: str, named: SqlObject, feed: ReplaceableRows) -> _CachedRelation:
        if len(self._kept) >= CACHED_MAX:
            self._let_go(next(n for n in self._kept if n not in self._shown))
        try:
            self._relation(named, feed)
            cached = self._kept[name] = _CachedRelation(named.columns, feed, tuple(self._made))
        except BaseException:
            self._drop(self._made)
            raise
        finally:
            self._made = []
        return cached

    def _drop_all(self) -> None:
        super()._drop_all()
        for name in list(self._kept):
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        self._drop(self._kept.pop(name).made)

    def _end(self) -> None:
        for name in self._shown:
            feed = self._kept[name].feed
            feed.put(feed.schema.empty_table())
        self._shown.clear()


def may_cache(named: frozenset[str], shown: Relations) -> bool:
    """Can a query run in a `CachedScratch`?  It must read few rows, and name only relations in `shown`."""
    known = {found.name.lower() for found, _ in shown}
    return (
        0 < len(shown) < CACHED_MAX
        and all(isinstance(rows, pa.Table) and rows.num_rows <= SMALL for _, rows in shown)
        and all(name.lower() in known for name in named)
    )


def _stored_names(named: SqlObject) -> list[str]:
    return [c.stored_name for c in named.columns]


def _as_shown(column: SqlColumn) -> str:
    """Render a column in its logical type.

    DuckDB converts a decimal to a wide integer with a 128-bit division, eight times slower than this way.
    """
    if column.type != "HUGEINT":
        return StepColumn(column.stored_name, column.type).sql
    name = quoted(column.stored_name)
    return f"coalesce(TRY_CAST({name} AS DECIMAL(18,0))::BIGINT::HUGEINT, CAST({name} AS HUGEINT))"


def _defined(column: SqlColumn, defaults: bool) -> str:
    text = f"{quoted(column.name)} {column.type}"
    if column.generated is not None:
        return f"{text} GENERATED ALWAYS AS ({column.generated})"  # can be read, never written
    if column.required and column.identity is None:
        text += " NOT NULL"
    if defaults and column.default is not None:
        text += f" DEFAULT ({column.default})"
    return text


def with_offsets(sql: str, columns: Sequence[tuple[str, str]]) -> str | None:
    """The query with times of day with a zone as texts, since Arrow's have no offset; None without any."""
    if not any(CLOCK_TIME in kind for _, kind in columns):
        return None
    listed = (
        f"CAST(#{n} AS {kind.replace(CLOCK_TIME, 'VARCHAR')}) AS {quoted(name)}"
        if CLOCK_TIME in kind
        else f"#{n} AS {quoted(name)}"
        for n, (name, kind) in enumerate(columns, 1)
    )
    return f"SELECT {', '.join(listed)} FROM (\n{sql}\n)"


def may_mix_units(sql: str) -> bool:
    """May an interval of a text have months, and days or hours as well?"""
    if _MIXED.search(sql) is not None:
        return True
    return all(words.search(sql) is not None for words in (_INTERVAL, _OF_MONTHS, _OF_LESS))


def returned(columns: Sequence[SqlColumn]) -> str:
    """Render the RETURNING list that gives rows in their stored types and names."""
    parts = []
    for c in columns:
        value = quoted(c.name) if c.generated is None else f"CAST(({c.generated}) AS {c.type})"
        value = as_declared(c, value)
        if restored(c.type):
            value = f"CAST({value} AS {storable_text(c.type.replace('INTERVAL', 'VARCHAR'))})"
        parts.append(f"{value} AS {quoted(c.stored_name)}")
    return ", ".join(parts)


_OWN = threading.local()


def thread_scratch(zone: str = UTC) -> Scratch:
    """The database of the current thread, in a time zone."""
    scratch: Scratch | None = getattr(_OWN, "scratch", None)
    if scratch is None:
        scratch = _OWN.scratch = Scratch()
    return scratch.in_zone(zone)

"""DuckDB as a calculator over Arrow: statements are prepared once and run many times.

A statement is bound once per thread over *feeds*: views that read whatever
Arrow table is put into them before each run.  A run then needs
no parsing, no binding and no copy of its input.

The settings make results a function of the rows alone (law 3): one thread, so
rows keep their order; UTC, so the host's time zone has no effect; no files, no
network and no external extensions.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from millpond.buffers import unsliced
from millpond.kernels.native_functions import named_in
from millpond.kernels.spill import spill_folder

STATEMENTS_MAX = 512  # cached per thread; the least recently used is evicted
BATCH_ROWS = 131_072

Config = dict[str, str | bool | int | float | list[str]]

_CONFIG: Config = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
}


class RowFailure(Exception):
    """An exception of a user's function on a row, as text: an error of that row."""


class Stop(Exception):
    """An exception of a user's function that is not an error of a row: the statement has to stop."""

    def __init__(self, error: BaseException) -> None:
        number = len(_stopped)
        _stopped.append(error)
        super().__init__(f"{_STOPPED}{number}")


class ColumnFunction(Protocol):
    """A Python function over Arrow columns that SQL may call."""

    @property
    def sleeps(self) -> bool:
        """Whether its code is stored and not loaded yet."""

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array: ...


_ROW_FAILURE = "executing the UDF: RowFailure: "
_STOPPED = "millpond was stopped by error "
_stopped: list[BaseException] = []  # DuckDB passes on only text
_provided: dict[str, tuple[list[Any], str, ColumnFunction]] = {}


def provide(name: str, takes: list[str], gives: str, function: ColumnFunction) -> None:
    """Register a Python function over Arrow columns for SQL; names are unique."""
    known = _provided.get(name)
    if known is None or known[2].sleeps:  # a loaded function replaces stored code
        _provided[name] = takes, gives, function


def provide_named(sql: str) -> None:
    """Register the native functions of dialects that a text names."""
    for one in named_in(sql):
        provide(one.name, list(one.takes), one.gives, one)


def provided() -> dict[str, ColumnFunction]:
    return {name: function for name, (_, _, function) in _provided.items()}


class Equipment:
    """The functions that one connection has registered."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._names: set[str] = set()
        self.macros: set[tuple[str, str]] = set()  # of dialects: (catalog, name); see `sql.dialects.library`
        self._pid = os.getpid()
        _equipped.add(self)

    def refresh(self) -> None:
        """Register all functions that were provided."""
        if len(self._names) == len(_provided):
            return
        for name in [n for n in _provided if n not in self._names]:
            takes, gives, _ = _provided[name]
            self._con.create_function(
                name,
                _of(len(takes), name),
                takes,
                gives,
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )
            self._names.add(name)

    def release(self) -> None:
        """Unregister them: they may reference objects that reference the connection."""
        for name in self._names if self._pid == os.getpid() else ():
            self._con.remove_function(name)
        self._names.clear()


_equipped: weakref.WeakSet[Equipment] = weakref.WeakSet()


def _of(number: int, name: str) -> Callable[..., Any]:
    """The function with a fixed number of parameters, as DuckDB requires."""

    def call(*columns: Any) -> Any:
        return _provided[name][2](*columns)

    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(f"a{n}", kind) for n in range(number)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def stop_if_cancelled(error: duckdb.Error) -> None:
    """Raise the exception by which a user's function stopped the statement, if that is why it failed."""
    _, mark, rest = str(error).partition(_STOPPED)
    if mark:
        raise _stopped[int(re.match(r"\d+", rest)[0])] from error  # type: ignore[index]


class _Feed:
    """An Arrow stream that DuckDB opens again at every run."""

    def __init__(self, schema: pa.Schema) -> None:
        self._empty = schema.empty_table()
        self.table = self._empty

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        return self._empty.schema.__arrow_c_schema__()

    def clear(self) -> None:
        self.table = self._empty


class PreparedQuery:
    """One prepared query over one feed per schema."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, number: int, make: Callable[..., str], *schemas: pa.Schema
    ):
        self._name = f"statement_{number}"
        self._make = make
        self._views = [f"feed_{number}_{index}" for index in range(len(schemas))]
        self._feeds = [_Feed(schema) for schema in schemas]
        self._prepare(con)

    def _prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        for view, feed in zip(self._views, self._feeds, strict=True):
            con.register(view, feed)
        text = self._make(*self._views)
        provide_named(text)
        _equip(_here(), con)
        try:
            con.execute(f"prepare {self._name} as {text}")
        except duckdb.Error:
            self._forget_views()
            raise

    def run(self, *tables: pa.Table) -> pa.Table:
        """Run the query over these tables; they must have the schemas it was prepared for.

        An internal error of DuckDB invalidates its database for all statements; the query is then run
        again in a new one.
        """
        try:
            return self._run(*tables)
        except (duckdb.InternalException, duckdb.FatalException):
            self._prepare(_anew())
            try:
                return self._run(*tables)
            except (duckdb.InternalException, duckdb.FatalException):
                _anew()
                raise

    def _run(self, *tables: pa.Table) -> pa.Table:
        try:
            for feed, table in zip(self._feeds, tables, strict=True):
                feed.table = handed(_one_chunk(table))
            # Does what a relation's to_arrow_table does, for a prepared statement.  The public method of a
            # connection copies the rows once more: twice the time, for tiny and for large tables.
            result = self._con._submit(f"execute {self._name}", None, "arrow", BATCH_ROWS)
            return result.arrow_table()
        except duckdb.Error as error:
            stop_if_cancelled(error)
            raise
        finally:
            for feed in self._feeds:
                feed.clear()

    def close(self) -> None:
        self._con.execute(f"deallocate {self._name}")
        self._forget_views()

    def _forget_views(self) -> None:
        for view in self._views:
            self._con.unregister(view)


def _one_chunk(table: pa.Table) -> pa.Table:
    """One chunk: for several, DuckDB 2.0 returns the rows of some queries (IN in a CASE) in another order."""
    return table.combine_chunks() if any(c.num_chunks > 1 for c in table.columns) else table


def handed(rows: pa.Table) -> pa.Table:
    """Rows in a form that DuckDB can read."""
    for index, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        if (fit := unsliced(column)) is not column:
            rows = rows.set_column(index, field, fit)
    return rows


class _Session(threading.local):
    """The connections and statements of one thread of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.kernel: duckdb.DuckDBPyConnection | None = None
        self.binder: duckdb.DuckDBPyConnection | None = None
        self.statements: OrderedDict[Hashable, PreparedQuery] = OrderedDict()
        self.made = 0
        self.equipment: dict[int, Equipment] = {}  # by connection


_session = _Session()
_inherited: list[Any] = []  # the parent's, from before a fork: referenced, so that they are not closed here


def _here() -> _Session:
    if _session.pid != os.getpid():
        _inherited.append((_session.kernel, _session.binder, _session.statements))
        _session.pid = os.getpid()
        _session.kernel = _session.binder = None
        _session.statements = OrderedDict()
        _session.equipment = {}
    return _session


def connect(config: Config) -> duckdb.DuckDBPyConnection:
    """Open a separate database in memory; all of Millpond's databases are opened here.

    It spills to the spill folder of this process.  The progress bar is off: in a notebook or a prompt
    DuckDB would draw it into the user's output.
    """
    external = config.get("enable_external_access", True)
    con = duckdb.connect(":memory:", config={**config, "enable_external_access": True})
    con.execute(f"set temp_directory = '{spill_folder()}'")  # not allowed once external access is disabled
    if not external:
        con.execute("set enable_external_access = false")
    con.execute("set enable_progress_bar = false")
    return con


def _connect(*settings: str) -> duckdb.DuckDBPyConnection:
    con = connect(_CONFIG)
    for setting in ("TimeZone = 'UTC'", *settings, "lock_configuration = true"):
        con.execute(f"set {setting}")
    return con


def _equip(here: _Session, con: duckdb.DuckDBPyConnection) -> None:
    if id(con) not in here.equipment:
        here.equipment[id(con)] = Equipment(con)
    here.equipment[id(con)].refresh()


def _anew() -> duckdb.DuckDBPyConnection:
    """Open a new database to replace one that has failed; statements are prepared again when needed."""
    here = _here()
    here.statements.clear()
    if here.kernel is not None:
        here.equipment.pop(id(here.kernel), None)
        here.kernel.close()
    here.kernel = _connect()
    return here.kernel


def binder() -> duckdb.DuckDBPyConnection:
    """The connection that binds and types expressions; it reports the position of an error."""
    here = _here()
    if here.binder is None:
        here.binder = _connect("errors_as_json = true")
    _equip(here, here.binder)
    return here.binder


def statement(key: Hashable, make: Callable[..., str], *schemas: pa.Schema) -> PreparedQuery:
    """The statement of this key, prepared on first use from `make(view, ...)`.

    >>> schema = pa.schema([("x", pa.int64())])
    >>> doubled = statement("doubled", lambda view: f"select x * 2 as y from {view}", schema)
    >>> doubled.run(pa.table({"x": [1, 2]})).to_pylist()
    [{'y': 2}, {'y': 4}]
    """
    here = _here()
    found = here.statements.get(key)
    if found is None:
        if here.kernel is None:
            here.kernel = _connect()
        here.made += 1
        found = here.statements[key] = PreparedQuery(here.kernel, here.made, make, *schemas)
        if len(here.statements) > STATEMENTS_MAX:
            here.statements.popitem(last=False)[1].close()
    here.statements.move_to_end(key)
    return found


@atexit.register
def close() -> None:
    """Close this thread's connections; the next use opens new ones."""
    here = _here()
    for equipment in list(here.equipment.values()):
        equipment.release()
    here.statements.clear()
    for con in (here.kernel, here.binder):
        if con is not None:
            con.close()
    here.kernel = here.binder = None
    here.equipment = {}


@atexit.register
def _release_all() -> None:
    for equipment in list(_equipped):
        with contextlib.suppress(duckdb.Error):  # its connection is closed already
            equipment.release()


def reason(error: duckdb.Error) -> str:
    """DuckDB's message on one line, without the excerpt of the generated query.

    >>> reason(duckdb.ConversionException("Conversion Error: bad 'x'\\n\\nLINE 1: select ...\\n  ^"))
    "Conversion Error: bad 'x'"
    """
    text = str(error).split("\n\nLINE ")[0]
    return " ".join(without_wrapping(text).split())


def without_wrapping(text: str) -> str:
    """The exception text of a user's function, without the text that DuckDB adds."""
    return text.partition(_ROW_FAILURE)[2] or text


def quoted(name: str) -> str:
    """Quote an identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'

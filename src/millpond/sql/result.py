"""The result of a statement: rows with their logical types, or only a status.

Rows are Arrow inside; Python values come in the type that SQL gave them: a
HUGEINT is an int, a UUID a uuid.UUID.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sinks import dataframes
from millpond.table_preview import ROWS_MAX, html_facts, html_table, text_table

Row = tuple[Any, ...]
Convert = Callable[[Any], Any]
Later = Callable[[], tuple[int, int, pa.Table | None]]  # waits: the epoch, the count, the rows

_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY")


class Result:
    """The result of one statement.

    The examples of its methods begin with these lines:

    >>> import millpond
    >>> pond = millpond.open("memory://", engine="inline")
    >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    >>> _ = pond.sql("INSERT INTO t VALUES (1, 10), (2, 20); FLUSH")
    >>> result = pond.sql("SELECT * FROM t ORDER BY id")
    >>> result
     id | n
    ----+----
     1  | 10
     2  | 20
    (2 rows)
    """

    def __init__(
        self,
        columns: Sequence[str],
        types: Sequence[str],
        table: pa.Table | None,
        status: str,
        *,
        epoch: int | None = None,
        more: Callable[[bool], Iterator[pa.Table]] | None = None,
        count: int | None = None,
        later: Later | None = None,
    ) -> None:
        self.columns = list(columns)
        self.types = list(types)
        self.warnings: list[str] = []  # about statements that succeeded
        self.epoch = epoch  # that the query read, or that has the change
        self._status = status
        self._count = table.num_rows if count is None and table is not None else count
        self._later = later  # of a change: waits until it is executed
        self._table = table
        self._more = more  # of a subscription: (follow) -> tables, one after the other
        self._rows: Iterator[Row] | None = None

    @staticmethod
    def said(status: str, epoch: int | None = None) -> Result:
        """A result without rows: the status of a statement.

        >>> Result.said("CREATE_TABLE").status
        'CREATE_TABLE'
        """
        return Result([], [], None, status, epoch=epoch)

    @staticmethod
    def changed(
        verb: str,
        count: int | None,
        names: Sequence[tuple[str, str]] = (),
        table: pa.Table | None = None,
        later: Later | None = None,
    ) -> Result:
        """The result of INSERT, UPDATE, DELETE or MERGE; without a count, `later` waits for it.

        >>> Result.changed("DELETE", 3).status
        'DELETE 3'
        """
        columns, types = [n for n, _ in names], [t for _, t in names]
        return Result(columns, types, table, verb, count=count, later=later)

    @property
    def rowcount(self) -> int:
        """How many rows a change affected or a query returned; -1 where there are none.

        This waits until a deferred change has run, and raises its error if it failed.

        >>> result.rowcount
        2
        >>> pond.sql("UPDATE t SET n = 0 WHERE id = 1").rowcount
        1
        """
        self._settle()
        return -1 if self._count is None else self._count

    def under(self, verb: str) -> Result:
        """This result with another verb in its status.

        >>> Result.changed("INSERT", 3).under("COPY").status
        'COPY 3'
        """
        self._status = verb
        return self

    @property
    def status(self) -> str:
        """What the statement did, in the words of PostgreSQL, with the number of rows once it is known.

        >>> result.status
        'SELECT 2'
        """
        if self._status not in _CHANGES or self._count is None:
            return self._status
        return f"{self._status}{' 0' if self._status == 'INSERT' else ''} {self._count}"

    def _settle(self) -> None:
        later, self._later = self._later, None
        if later is None:
            return
        try:
            self.epoch, self._count, rows = later()
        except BaseException:
            self._later = later
            raise
        if rows is not None:
            self._table = rows

    @staticmethod
    def of_rows(
        columns: Sequence[str], types: Sequence[str], table: pa.Table, epoch: int | None = None
    ) -> Result:
        """A result with rows.

        >>> table = pa.table({"n": pa.array([1], pa.decimal128(38, 0))})
        >>> Result.of_rows(["n"], ["HUGEINT"], table).fetchall()
        [(1,)]
        """
        return Result(columns, types, table, f"SELECT {table.num_rows}", epoch=epoch)

    def __repr__(self) -> str:
        """The first rows as a table, where they are known without waiting; else the status."""
        if self._table is None or not self.columns:
            return f"Result({self.status!r}, columns={self.columns})"
        return text_table(self.columns, self._first_rows(), self._table.num_rows)

    def _repr_html_(self) -> str:
        if self._table is None or not self.columns:
            return html_facts("Result", [("status", self.status), ("columns", ", ".join(self.columns))])
        return html_table(self.columns, self.types, self._first_rows(), self._table.num_rows)

    def _first_rows(self) -> list[Row]:
        assert self._table is not None
        return list(rows_of(self._table.slice(0, ROWS_MAX), [converter(t) for t in self.types]))

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table; wide integers are decimals there, and uuids text.

        >>> result.arrow().to_pylist()
        [{'id': 1, 'n': 10}, {'id': 2, 'n': 20}]
        """
        self._settle()
        if self._more is not None:
            parts = list(self._more(False))
            return pa.concat_tables(parts) if parts else self._empty()
        return self._table if self._table is not None else self._empty()

    def tables(self, follow: bool = True) -> Iterator[pa.Table]:
        """The rows as Arrow tables; a subscription gives one for each epoch, with `follow` for ever.

        >>> [table.num_rows for table in result.tables()]
        [2]
        """
        self._settle()
        if self._more is not None:
            yield from self._more(follow)
        elif self._table is not None:
            yield self._table

    @property
    def streams(self) -> bool:
        """Is this a subscription, whose rows come as epochs are committed?

        >>> result.streams
        False
        """
        return self._more is not None

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`.

        Columns keep their Arrow types; `types_mapper=None` gives NumPy types instead.

        >>> int(result.to_pandas().n.sum())
        30
        """
        return dataframes.to_pandas(self.arrow(), **options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame.

        >>> result.to_polars().rows()
        [(1, 10), (2, 20)]
        """
        return dataframes.to_polars(self.arrow())

    def to_spark(self, spark: Any = None) -> Any:
        """All rows as a Spark DataFrame, of the active session or of `spark`; they are sent as Arrow.

        >>> result.to_spark(spark).count()
        2
        """
        return dataframes.to_spark(self.arrow(), spark)

    def _empty(self) -> pa.Table:
        return self._table.slice(0, 0) if self._table is not None else pa.table({})

    def __iter__(self) -> Iterator[Row]:
        """The rows one by one; a subscription continues as epochs are committed."""
        if self._rows is None:
            follow = self._more is not None
            self._rows = self._all(self._more(True) if follow and self._more else [self.arrow()])
        return self._rows

    def __next__(self) -> Row:
        return next(iter(self))

    def _all(self, tables: Any) -> Iterator[Row]:
        converts = [converter(t) for t in self.types]
        for table in tables:
            yield from rows_of(table, converts)

    def fetchone(self) -> Row | None:
        """The next row; None after the last one.

        >>> result.fetchone(), result.fetchone(), result.fetchone()
        ((1, 10), (2, 20), None)
        """
        return next(iter(self), None)

    def fetchall(self) -> list[Row]:
        """The rows that are left; of a subscription those that exist by now.

        >>> result.fetchall()
        [(1, 10), (2, 20)]
        """
        if self._more is not None and self._rows is None:
            return list(self._all(self._more(False)))
        return list(iter(self))

    def fetchmany(self, n: int) -> list[Row]:
        """The next n rows, or fewer at the end.

        >>> result.fetchmany(1)
        [(1, 10)]
        """
        rows = iter(self)
        return [row for _, row in zip(range(n), rows, strict=False)]

    def close(self) -> None:
        """End a subscription.

        >>> result.close()
        """
        rows = self._rows
        if rows is not None and hasattr(rows, "close"):
            rows.close()


def rows_of(table: pa.Table, converts: Sequence[Convert | None]) -> Iterator[Row]:
    if not table.num_columns:
        return
    lists = []
    for column, convert in zip(table.columns, converts, strict=True):
        try:
            values = python_values(column)
            lists.append(values if convert is None else [None if v is None else convert(v) for v in values])
        except OverflowError as error:
            raise InvalidError(
                f"a value of a column of type {column.type} is outside of what Python's types can hold",
                hint="read the result with .arrow(), or CAST the column to text",
            ) from error
    yield from zip(*lists, strict=True)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; a map is a dict, with tuples for keys that are lists or structs."""
    if not _has_nested_keys(column.type):
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    return [_with_dicts(value, column.type) for value in column.to_pylist()]


def _has_nested_keys(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return pa.types.is_nested(kind.key_type) or _has_nested_keys(kind.item_type)
    return pa.types.is_nested(kind) and any(
        _has_nested_keys(kind.field(n).type) for n in range(kind.num_fields)
    )


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_hashable(k): _with_dicts(v, kind.item_type) for k, v in value}
    if pa.types.is_struct(kind):
        return {f.name: _with_dicts(value[f.name], f.type) for f in kind}
    if isinstance(value, list) and pa.types.is_nested(kind):
        return [_with_dicts(v, kind.value_type) for v in value]
    return value


def _hashable(key: Any) -> Any:
    if isinstance(key, list | tuple):
        return tuple(map(_hashable, key))
    return tuple(map(_hashable, key.values())) if isinstance(key, dict) else key


def bignum(data: bytes) -> int:
    """A BIGNUM as DuckDB stores it: three bytes of sign and length, then the digits in base 256."""
    negative = not data[0] & 0x80
    digits = bytes(255 - b for b in data[3:]) if negative else data[3:]
    return -int.from_bytes(digits, "big") if negative else int.from_bytes(digits, "big")


def converter(kind: str) -> Convert | None:
    """The function that turns Arrow's Python value into that of a logical type; None if they are the same."""
    base = kind.upper()
    if base.endswith("]"):
        inner = converter(kind[: kind.rindex("[")])
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    if base.startswith("STRUCT("):
        parts = {name: converter(text) for name, text in _fields(kind)}
        if not any(parts.values()):
            return None
        return lambda row: {
            n: v if v is None or parts.get(n) is None else parts[n](v)  # type: ignore[misc]
            for n, v in row.items()
        }
    if base.startswith("MAP("):
        key, held = (converter(text) for text in _parts(kind))
        if key is None and held is None:
            return None
        return lambda pairs: {
            k if key is None else key(k): v if v is None or held is None else held(v)
            for k, v in pairs.items()
        }
    if base in ("HUGEINT", "UHUGEINT"):
        return int
    if base == "BIGNUM":
        return bignum
    if base == "UUID":
        return uuid.UUID
    if base == "INTERVAL":
        return _interval
    if base == "BIT":
        return _bits
    if base == "TIME WITH TIME ZONE":
        return _clock_time
    if base.startswith("TIMESTAMP WITH TIME ZONE") or base == "TIMESTAMPTZ":
        return _instant
    return None


def _clock_time(text: str) -> datetime.time:
    """A time of day with its offset; Python has none at 24:00.

    >>> _clock_time("10:00:00.5+03:30").isoformat()
    '10:00:00.500000+03:30'
    """
    if text.startswith("24"):
        raise OverflowError(text)
    return datetime.time.fromisoformat(text)


def _instant(at: datetime.datetime) -> datetime.datetime:
    """In the zone of the session; UTC is always the same object."""
    return at.astimezone(datetime.UTC) if str(at.tzinfo) == "UTC" else at


def _bits(value: bytes) -> str:
    """As DuckDB's own client has it; the first byte counts the bits of the second that do not matter.

    >>> _bits(bytes([5, 0b11111101, 1]))
    '10100000001'
    """
    return "".join(f"{byte:08b}" for byte in value[1:])[value[0] :]


_UNITS_DAYS = {"year": 360, "month": 30, "day": 1}
_COUNTED = re.compile(r"(-?\d+) (year|month|day)s?")
_CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?$")


def _interval(value: Any) -> datetime.timedelta:
    """Months count as 30 days, as DuckDB's own client has it; in state an interval is a text.

    >>> str(_interval("1 month -2 days -01:00:00.5"))
    '27 days, 22:59:59.500000'
    """
    if isinstance(value, datetime.timedelta):
        return value
    if isinstance(value, str):
        found = datetime.timedelta(
            days=sum(int(n) * _UNITS_DAYS[unit] for n, unit in _COUNTED.findall(value))
        )
        if (clock := _CLOCK.search(value)) is not None:
            sign, hours, minutes, seconds, part = clock.groups("")
            more = datetime.timedelta(
                hours=int(hours), minutes=int(minutes), seconds=float(f"{seconds}.{part}")
            )
            found += -more if sign else more
        return found
    months, days, nanoseconds = value
    return datetime.timedelta(days=months * 30 + days, microseconds=nanoseconds // 1000)


def _fields(kind: str) -> list[tuple[str, str]]:
    """The names and types of a struct's text."""
    found = []
    for part in _parts(kind):
        match = re.match(r'("(?:[^"]|"")*"|\S+)\s+(.*)', part, re.S)
        if match:
            name = match[1]
            found.append((name[1:-1].replace('""', '"') if name[0] == '"' else name, match[2].strip()))
    return found


def _parts(kind: str) -> list[str]:
    """What stands between the commas of a type's text.

    >>> _parts("MAP(VARCHAR, DECIMAL(10,2))")
    ['VARCHAR', 'DECIMAL(10,2)']
    """
    found, depth, part = [], 0, ""
    for sign in kind[kind.index("(") + 1 : kind.rindex(")")] + ",":
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            found.append(part.strip())
            part = ""
        else:
            part += sign
    return found

"""What a statement answers: rows with their logical types, or only a status.

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

Row = tuple[Any, ...]
Convert = Callable[[Any], Any]
Later = Callable[[], tuple[int, int, pa.Table | None]]  # waits: the epoch, the count, the rows

_CHANGES = ("INSERT", "UPDATE", "DELETE")


class Result:
    """The answer of one statement.

    >>> found = Result.of_rows(["n"], ["HUGEINT"], pa.table({"n": pa.array([1], pa.decimal128(38, 0))}))
    >>> found.columns, found.fetchall(), found.fetchone()
    (['n'], [(1,)], None)
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
        self.warnings: list[str] = []  # of what is done, and may still surprise
        self.epoch = epoch  # that was read, or that holds the change
        self._status = status
        self._count = table.num_rows if count is None and table is not None else count
        self._later = later  # of a change: what it did, known after its turn
        self._table = table
        self._more = more  # of a subscription: (follow) -> tables, one after the other
        self._rows: Iterator[Row] | None = None

    @staticmethod
    def said(status: str, epoch: int | None = None) -> Result:
        return Result([], [], None, status, epoch=epoch)

    @staticmethod
    def changed(
        verb: str,
        count: int | None,
        names: Sequence[tuple[str, str]] = (),
        table: pa.Table | None = None,
        later: Later | None = None,
    ) -> Result:
        """Of INSERT, UPDATE and DELETE; without a count `later` waits for it."""
        columns, types = [n for n, _ in names], [t for _, t in names]
        return Result(columns, types, table, verb, count=count, later=later)

    @property
    def rowcount(self) -> int:
        """How many rows a change touched or a query gave; -1 where there are none.

        A change that waits for its turn is waited for, and what kept it from being done is raised.
        """
        self._settle()
        return -1 if self._count is None else self._count

    @property
    def status(self) -> str:
        """What was done, as PostgreSQL tells it; the number of rows once it is known."""
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
        return Result(columns, types, table, f"SELECT {table.num_rows}", epoch=epoch)

    def __repr__(self) -> str:
        return f"Result({self.status!r}, columns={self.columns})"

    def arrow(self) -> pa.Table:
        """All rows, as Arrow; wide integers are decimals there, and uuids text."""
        self._settle()
        if self._more is not None:
            parts = list(self._more(False))
            return pa.concat_tables(parts) if parts else self._empty()
        return self._table if self._table is not None else self._empty()

    def _empty(self) -> pa.Table:
        return self._table.slice(0, 0) if self._table is not None else pa.table({})

    def __iter__(self) -> Iterator[Row]:
        """The rows one by one; those of a subscription go on as epochs are committed."""
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
        """The next row; None after the last one."""
        return next(iter(self), None)

    def fetchall(self) -> list[Row]:
        """The rows that are left; of a subscription those that are there by now."""
        if self._more is not None and self._rows is None:
            return list(self._all(self._more(False)))
        return list(iter(self))

    def fetchmany(self, n: int) -> list[Row]:
        rows = iter(self)
        return [row for _, row in zip(range(n), rows, strict=False)]

    def close(self) -> None:
        """Let a subscription go."""
        rows = self._rows
        if rows is not None and hasattr(rows, "close"):
            rows.close()


def rows_of(table: pa.Table, converts: Sequence[Convert | None]) -> Iterator[Row]:
    if not table.num_columns:
        return
    lists = []
    for column, convert in zip(table.columns, converts, strict=True):
        values = column.to_pylist(maps_as_pydicts="lossy")
        lists.append(values if convert is None else [None if v is None else convert(v) for v in values])
    yield from zip(*lists, strict=True)


def converter(kind: str) -> Convert | None:
    """How Arrow's Python value becomes that of a logical type; None where they are the same."""
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
    if base in ("HUGEINT", "UHUGEINT", "BIGNUM"):
        return int
    if base == "UUID":
        return uuid.UUID
    if base == "INTERVAL":
        return _interval
    if base == "BIT":
        return _bits
    if base.startswith("TIMESTAMP WITH TIME ZONE") or base == "TIMESTAMPTZ":
        return lambda at: at.astimezone(datetime.UTC)
    return None


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
    found, depth, part = [], 0, ""
    for sign in kind[kind.index("(") + 1 : kind.rindex(")")] + ",":
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            match = re.match(r'\s*("(?:[^"]|"")*"|\S+)\s+(.*)', part, re.S)
            if match:
                name = match[1]
                found.append((name[1:-1].replace('""', '"') if name[0] == '"' else name, match[2].strip()))
            part = ""
        else:
            part += sign
    return found

"""Reads and writes rows as text, for transcripts and for differences.

A row is `column=value` for each column, or a JSON object.  A value is read according to the type of its
column and has one text form only, so two values are equal if and only if their texts are equal: the output of
a difference can be pasted into a test unchanged.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.arguments.durations import microseconds
from millpond.errors import InvalidError
from millpond.kernels.python_values import python_values

Kind: TypeAlias = pa.DataType | None  # None: any Python value, stored as a pickle

DAY = datetime.datetime(2024, 1, 1)  # the date of times without one
US = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1)

_CLOCK = re.compile(r"(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")
_BARE = re.compile(r"[^\s\"\[{#=~][^\s\"]*")
_NAME = re.compile(r"[^\s=~\"{\[]+")
_NULL = "null"
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class ExpectedValue:
    """An expected value: its text, or (with `~`) a substring of it."""

    text: str
    part: bool = False

    def fits(self, shown: str) -> bool:
        return self.text in shown if self.part else self.text == shown


# ---------------------------------------------------------------- times


def moment(text: datetime.datetime | str) -> datetime.datetime:
    """A time, in UTC without a zone: `00:00:01` is on the first of January 2024, else ISO.

    >>> moment("00:01:30.5").isoformat(), moment("2023-05-01T10:00:00").isoformat()
    ('2024-01-01T00:01:30.500000', '2023-05-01T10:00:00')
    """
    if isinstance(text, str):
        match = _CLOCK.fullmatch(text.strip())
        if match is not None:
            hours, minutes, seconds, part = match.groups()
            micros = int((part or "").ljust(6, "0"))
            return DAY + datetime.timedelta(
                hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0), microseconds=micros
            )
        try:
            text = datetime.datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise InvalidError(
                f"not a time: {text!r}", hint='write "00:00:01" or "2024-01-01T00:00:01"'
            ) from error
    if not isinstance(text, datetime.datetime):
        raise InvalidError(f"not a time: {text!r}", hint='write "00:00:01" or "2024-01-01T00:00:01"')
    if text.tzinfo is not None:
        text = text.astimezone(datetime.UTC).replace(tzinfo=None)
    return text


def micros_of(text: datetime.datetime | str) -> int:
    return (moment(text) - EPOCH) // US


def show_moment(at: datetime.datetime) -> str:
    at = moment(at)
    return at.time().isoformat() if at.date() == DAY.date() else at.isoformat()


# ---------------------------------------------------------------- values


def fit(value: Any, kind: Kind) -> Any:
    """A Python value in the type of the column; times and similar types may be text."""
    if value is None or kind is None:
        return value
    t = pa.types
    if isinstance(value, str):
        if t.is_timestamp(kind):
            value = moment(value)
        elif t.is_date(kind):
            value = datetime.date.fromisoformat(value)
        elif t.is_time(kind):
            value = datetime.time.fromisoformat(value)
        elif t.is_duration(kind):
            value = microseconds(value) * US
        elif t.is_decimal(kind):
            value = decimal.Decimal(value)
    if t.is_timestamp(kind) and isinstance(value, datetime.datetime):
        value = moment(value)
        if kind.tz is not None:
            value = value.replace(tzinfo=datetime.UTC)
    if t.is_string(kind) and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return python_values(pa.chunked_array([pa.array([value], kind)]))[0]


def show(value: Any, kind: Kind) -> str:
    """
    >>> show("ann", pa.string()), show("two words", pa.string()), show(None, pa.int64())
    ('ann', '"two words"', 'null')
    """
    if value is None:
        return _NULL
    if kind is None or pa.types.is_nested(kind):
        return json.dumps(_plain(value), ensure_ascii=False, default=repr, allow_nan=True)
    t = pa.types
    if t.is_boolean(kind):
        return "true" if value else "false"
    if t.is_floating(kind):
        return repr(float(value))
    if t.is_timestamp(kind):
        return show_moment(value)
    if t.is_date(kind) or t.is_time(kind):
        return str(value.isoformat())
    if t.is_duration(kind):
        return _show_duration(value // US)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    text = str(value)
    return text if text != _NULL and _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Nested values as JSON values."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, datetime.datetime):
        return show_moment(value)
    if isinstance(value, set | frozenset):
        return sorted((_plain(v) for v in value), key=repr)
    return value


def _show_duration(us: int) -> str:
    for unit, size in (("s", 1_000_000), ("ms", 1000)):
        if us % size == 0:
            return f"{us // size}{unit}"
    return f"{us}us"


def read(text: str, kind: Kind) -> Any:
    """Parse a bare word as a value of its column."""
    if text == _NULL:
        return None
    if kind is None or pa.types.is_nested(kind):
        try:
            return json.loads(text)
        except ValueError:
            return text
    t = pa.types
    if t.is_boolean(kind):
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if t.is_integer(kind):
        return int(text)
    if t.is_floating(kind):
        return float(text)
    if _is_bytes(kind):
        return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
    return text


# ---------------------------------------------------------------- rows


def row_values(text: str, kinds: Mapping[str, Kind], whose: str) -> dict[str, Any]:
    """The values of a row to be fed."""
    cells = _cells(text, kinds, whose, patterns=False)
    return {name: value for name, (value, _) in cells.items()}


def expected_values(text: str, kinds: Mapping[str, Kind], whose: str) -> dict[str, ExpectedValue]:
    """The values of an expected row; `column~text` expects a substring of the value."""
    values = _cells(text, kinds, whose, patterns=True)
    return {
        name: ExpectedValue(value, True) if part else ExpectedValue(show(value, kinds[name]))
        for name, (value, part) in values.items()
    }


def show_row(row: Mapping[str, ExpectedValue | str]) -> str:
    """The row in its text form; `_w` is its sign."""
    words = (
        [str(row["_w"].text if isinstance(row["_w"], ExpectedValue) else row["_w"])] if "_w" in row else []
    )
    for name, cell in row.items():
        if name != "_w":
            part = isinstance(cell, ExpectedValue) and cell.part
            text = cell.text if isinstance(cell, ExpectedValue) else cell
            words.append(f"{name}~{json.dumps(text, ensure_ascii=False)}" if part else f"{name}={text}")
    return " ".join(words) or "(a row without columns)"


def _cells(
    text: str, kinds: Mapping[str, Kind], whose: str, *, patterns: bool
) -> dict[str, tuple[Any, bool]]:
    cells: dict[str, tuple[Any, bool]] = {}
    rest = text.strip()
    if rest.startswith("{"):
        try:
            parsed = json.loads(rest)
        except ValueError as error:
            raise InvalidError("this row is not JSON", detail=f"{rest}: {error}") from error
        return {name: (fitted(value, name, kinds, whose), False) for name, value in parsed.items()}
    while rest and not rest.startswith("#"):
        name = _NAME.match(rest)
        sign = rest[name.end() : name.end() + 1] if name else ""
        if name is None or sign not in ("=", "~") or (sign == "~" and not patterns):
            raise InvalidError(
                f"this row cannot be read from {rest!r} on",
                detail=f"the row is {text.strip()!r}",
                hint='write column=value for each column (text with spaces in "quotes"), or a JSON object',
            )
        column = name.group()
        value, rest = _word(rest[name.end() + 1 :], column, kinds, whose, part=sign == "~")
        if column in cells:
            raise InvalidError(f"column {column!r} comes twice in a row", detail=text.strip())
        cells[column] = (value, sign == "~")
    return cells


def _word(rest: str, column: str, kinds: Mapping[str, Kind], whose: str, *, part: bool) -> tuple[Any, str]:
    known(column, kinds, whose)
    kind = pa.string() if part else kinds[column]
    if rest[:1] in ('"', "[", "{"):
        try:
            value, end = _JSON.raw_decode(rest)
        except ValueError as error:
            raise InvalidError(f"the value of column {column!r} is not JSON", detail=rest) from error
        if isinstance(value, str) and kind is not None and _is_bytes(kind):
            value = value.encode()
    else:
        end = len(rest.split(maxsplit=1)[0]) if rest and not rest[0].isspace() else 0
        try:
            value = read(rest[:end], kind)
        except ValueError as error:
            raise misfit(rest[:end], column, kinds, whose) from error
    if rest[end : end + 1].strip():
        raise InvalidError(f"a space is missing after the value of column {column!r}", detail=rest)
    return (value if part else fitted(value, column, kinds, whose)), rest[end:].lstrip()


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind))


def fitted(value: Any, column: str, kinds: Mapping[str, Kind], whose: str) -> Any:
    """The value in the type of the column, or an error that names both."""
    known(column, kinds, whose)
    try:
        return fit(value, kinds[column])
    except (pa.ArrowException, TypeError, ValueError, OverflowError, decimal.InvalidOperation) as error:
        raise misfit(value, column, kinds, whose) from error


def misfit(value: Any, column: str, kinds: Mapping[str, Kind], whose: str) -> InvalidError:
    return InvalidError(
        f"{value!r} does not fit column {column!r} of {whose}", detail=f"the column is {kinds[column]}"
    )


def known(column: str, kinds: Mapping[str, Kind], whose: str) -> None:
    if column in kinds:
        return
    matches = difflib.get_close_matches(column, list(kinds), 1)
    raise InvalidError(
        f"{whose} has no column {column!r}",
        detail=f"columns are {', '.join(kinds) or 'none'}",
        hint=f"did you mean {matches[0]!r}?" if matches else None,
    )

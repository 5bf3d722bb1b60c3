"""Formats values: as text for people, as JSON for scripts."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

from millpond.strict_json import finite


def text_of(value: Any) -> str:
    """A value as text.

    >>> text_of(None), text_of(1234567), text_of(0.5), text_of([1, 2]), text_of(b"ab")
    ('-', '1234567', '0.5', '1, 2', '6162')
    """
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {text_of(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(text_of(v) for v in value) or "-"
    return str(value)


def count(value: Any) -> str:
    """
    >>> count(1234567), count(None)
    ('1,234,567', '-')
    """
    return "-" if value is None else f"{value:,}"


def milliseconds(value: Any) -> str:
    """
    >>> milliseconds(21.014), milliseconds(15299.7)
    ('21 ms', '15.3 s')
    """
    if value is None:
        return "-"
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"


def fine(value: Any) -> str:
    """
    >>> fine(0.0314), fine(21.014)
    ('0.03 ms', '21.01 ms')
    """
    return "-" if value is None else f"{value:.2f} ms"


def size(value: Any) -> str:
    """
    >>> size(900), size(2_500_000)
    ('900 B', '2.4 MiB')
    """
    if value is None:
        return "-"
    left, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if left < 1024 or unit == "TiB":
            break
        left /= 1024
    return f"{left:.0f} B" if unit == "B" else f"{left:.1f} {unit}"


def moment(us: Any) -> str:
    """Microseconds since 1970 as local time, to the second."""
    if us is None:
        return "-"
    return datetime.datetime.fromtimestamp(us / 1e6).strftime("%Y-%m-%d %H:%M:%S")


def local(when: Any) -> str:
    """A time with its zone as local time, to the second."""
    return "-" if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def json_of(value: Any) -> Any:
    """A value as JSON, without loss: decimals, times and non-finite floats as text, bytes in hex.

    >>> json_of({"a": decimal.Decimal("1.10"), "b": float("nan"), "c": datetime.date(2026, 3, 1)})
    {'a': '1.10', 'b': 'NaN', 'c': '2026-03-01'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date too
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): json_of(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(v) for v in value]
    return str(value)

"""The text of values as PostgreSQL writes it: what its output functions return (ISO dates, intervals in
`postgres` style, arrays in braces, floats in their shortest form)."""

from __future__ import annotations

import decimal
import math

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FOREVER_DAYS,
    FOREVER_US,
    clock_of,
    date_of,
)
from millpond.kernels.postgres.rows import Interval, row_function


def date_text(days: int) -> str:
    if abs(days) == FOREVER_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = date_of(days)
    return f"{year:04}-{month:02}-{day:02}" if year > 0 else f"{1 - year:04}-{month:02}-{day:02} BC"


def time_text(us: int) -> str:
    hour, minute, second, rest = clock_of(us)
    return f"{hour:02}:{minute:02}:{second:02}" + fraction_text(rest)


def fraction_text(us: int) -> str:
    return f".{us:06}".rstrip("0") if us else ""


def timestamp_text(us: int, zone: str = "", between: str = " ") -> str:
    if abs(us) == FOREVER_US:
        return "infinity" if us > 0 else "-infinity"
    days, rest = divmod(us, DAY_US)
    date, era = date_text(days), ""
    if date.endswith(" BC"):
        date, era = date[:-3], " BC"
    return f"{date}{between}{time_text(rest)}{zone}{era}"


def interval_text(value: Interval) -> str:
    """
    >>> interval_text((14, -3, 4_500_000))
    '1 year 2 mons -3 days +00:00:04.5'
    """
    months, days, us = value
    years, months = (
        int(math.copysign(abs(months) // 12, months)),
        int(math.copysign(abs(months) % 12, months)),
    )
    parts: list[str] = []
    negative = False
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            plus = "+" if negative and number > 0 else ""
            parts.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            negative = number < 0
    if us or not parts:
        seconds, rest = divmod(abs(us), 1_000_000)
        sign = "-" if us < 0 else "+" if negative else ""
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction_text(rest)}"
        parts.append(sign + clock)
    return " ".join(parts)


def float_text(value: float, plain_digits: int = 15, digits: str | None = None) -> str:
    """
    >>> float_text(1.0), float_text(1e15), float_text(0.00001), float_text(float("nan"))
    ('1', '1e+15', '1e-05', 'NaN')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, shown, exponent = decimal.Decimal(digits or repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, shown))
    magnitude = len(text) + exponent - 1
    minus = "-" if sign else ""
    if magnitude < -4 or magnitude >= plain_digits:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{rest}e{'-' if magnitude < 0 else '+'}{abs(magnitude):02}"
    if exponent >= 0:
        return minus + text + "0" * exponent
    if magnitude >= 0:
        return f"{minus}{text[: magnitude + 1]}.{text[magnitude + 1 :]}"
    return f"{minus}0.{'0' * (-magnitude - 1)}{text}"


def float4_text(value: float) -> str:
    import numpy as np

    single = np.float32(value)
    return float_text(float(single), 6, str(single)) if math.isfinite(value) else float_text(value)


@row_function("pg.date_out.1", ("DATE",), "VARCHAR")
def date_out(days: int) -> str:
    return date_text(days)


@row_function("pg.timestamp_out.1", ("TIMESTAMP",), "VARCHAR")
def timestamp_out(us: int) -> str:
    return timestamp_text(us)


@row_function("pg.interval_out.1", ("INTERVAL",), "VARCHAR")
def interval_out(value: Interval) -> str:
    return interval_text(value)


@row_function("pg.float8_out.1", ("DOUBLE",), "VARCHAR")
def float8_out(value: float) -> str:
    return float_text(value)


@row_function("pg.float4_out.1", ("DOUBLE",), "VARCHAR")
def float4_out(value: float) -> str:
    return float4_text(value)

"""Interval literals of Spark, such as `INTERVAL '1' DAY` and `INTERVAL '1-2' YEAR TO MONTH`."""

from __future__ import annotations

import re
from typing import Protocol

from sqlglot import exp

_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_SPANS = {
    ("YEAR", "MONTH"): (r"(\d+)-(\d+)", ("YEAR", "MONTH")),
    ("DAY", "HOUR"): (r"(\d+) (\d+)", ("DAY", "HOUR")),
    ("DAY", "MINUTE"): (r"(\d+) (\d+):(\d+)", ("DAY", "HOUR", "MINUTE")),
    ("DAY", "SECOND"): (r"(\d+) (\d+):(\d+):([\d.]+)", ("DAY", "HOUR", "MINUTE", "SECOND")),
    ("HOUR", "MINUTE"): (r"(\d+):(\d+)", ("HOUR", "MINUTE")),
    ("HOUR", "SECOND"): (r"(\d+):(\d+):([\d.]+)", ("HOUR", "MINUTE", "SECOND")),
    ("MINUTE", "SECOND"): (r"(\d+):([\d.]+)", ("MINUTE", "SECOND")),
}
_LAST = {"MONTH": 11, "HOUR": 23, "MINUTE": 59, "SECOND": 59}  # the largest behind a larger unit


class ExpressionWriter(Protocol):
    def text(self, node: exp.Expr) -> str: ...


def interval(node: exp.Interval, writer: ExpressionWriter) -> str | None:
    """DuckDB's text of an interval; None if its form is not known."""
    value, unit = node.this, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        is_minus = isinstance(value, exp.Neg)
        made = _span(
            value.this if is_minus else value, str(unit.this.name).upper(), str(unit.expression.name).upper()
        )
        return f"(-{made})" if is_minus and made is not None else made
    if unit is None:
        return _of_words(value.name) if isinstance(value, exp.Literal) and value.is_string else None
    word = unit.name.upper().removesuffix("S")
    if word not in _UNITS:
        return None
    if isinstance(value, exp.Literal):
        return _counted(value.name.strip(), word)
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
        made = _counted(value.this.name.strip(), word)
        return f"(-{made})" if made is not None else None
    return f"({writer.text(value)} * INTERVAL '1 {word}')"


def _counted(number: str, word: str) -> str | None:
    """A number of one unit: only seconds have a fraction, of which microseconds are kept."""
    found = re.fullmatch(r"([+-]?\d*)(?:\.(\d*))?", number)
    if found is None or number in ("", ".", "+", "-") or (found[2] is not None and word != "SECOND"):
        return None
    return f"INTERVAL '{_microseconds(number)} {word}'"


def _microseconds(seconds: str) -> str:
    """Digits behind the sixth are cut off, where DuckDB would round.

    >>> _microseconds("40.9999999"), _microseconds("7")
    ('40.999999', '7')
    """
    whole, point, part = seconds.partition(".")
    return f"{whole or '0'}{point}{part[:6]}"


def _span(value: exp.Expr, first: str, last: str) -> str | None:
    known = _SPANS.get((first, last))
    if known is None or not isinstance(value, exp.Literal):
        return None
    pattern, units = known
    text = value.name.strip()
    found = re.fullmatch(rf"([+-]?){pattern}", text)
    if found is None:
        return None
    sign, *numbers = found.groups()
    minus = "-" if sign == "-" else ""
    if any(int(n.partition(".")[0]) > _LAST[u] for n, u in zip(numbers[1:], units[1:], strict=True)):
        return None
    if units[-1] == "SECOND":
        numbers[-1] = _microseconds(numbers[-1])
    if units[0] in ("HOUR", "MINUTE") and len(numbers[0]) > 9:  # more than DuckDB counts without days
        days, rest = divmod(int(numbers[0]), 24 if units[0] == "HOUR" else 24 * 60)
        numbers, units = [str(days), str(rest), *numbers[1:]], ("DAY", *units)
    return "INTERVAL '" + " ".join(f"{minus}{n} {u}" for n, u in zip(numbers, units, strict=True)) + "'"


def _of_words(text: str) -> str | None:
    """`INTERVAL '1 day 2 hours'`."""
    found = re.findall(r"\s*([+-]?\d+(?:\.\d+)?)\s+([A-Za-z]+)\s*", text)
    if not found or "".join(f"{n}{u}" for n, u in found) != re.sub(r"\s", "", text):
        return None
    if any(u.upper().removesuffix("S") not in _UNITS for _, u in found):
        return None
    if any("." in n and u.upper().removesuffix("S") != "SECOND" for n, u in found):
        return None
    return "INTERVAL '" + " ".join(f"{_microseconds(n)} {u}" for n, u in found) + "'"

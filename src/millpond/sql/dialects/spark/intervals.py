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


class ExpressionWriter(Protocol):
    def text(self, node: exp.Expr) -> str: ...


def interval(node: exp.Interval, writer: ExpressionWriter) -> str | None:
    """DuckDB's text of an interval; None if its form is not known."""
    value, unit = node.this, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _span(value, str(unit.this.name).upper(), str(unit.expression.name).upper())
    if unit is None:
        return _of_words(value.name) if isinstance(value, exp.Literal) and value.is_string else None
    word = unit.name.upper().removesuffix("S")
    if word not in _UNITS:
        return None
    if isinstance(value, exp.Literal):
        number = value.name.strip()
        return f"INTERVAL '{number} {word}'" if re.fullmatch(r"[+-]?\d+(\.\d+)?", number) else None
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
        return f"INTERVAL '-{value.this.name} {word}'"
    return f"({writer.text(value)} * INTERVAL '1 {word}')"


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
    return "INTERVAL '" + " ".join(f"{minus}{n} {u}" for n, u in zip(numbers, units, strict=True)) + "'"


def _of_words(text: str) -> str | None:
    """`INTERVAL '1 day 2 hours'`."""
    found = re.findall(r"\s*([+-]?\d+(?:\.\d+)?)\s+([A-Za-z]+)\s*", text)
    if not found or "".join(f"{n}{u}" for n, u in found) != re.sub(r"\s", "", text):
        return None
    if any(u.upper().removesuffix("S") not in _UNITS for _, u in found):
        return None
    return "INTERVAL '" + " ".join(f"{n} {u}" for n, u in found) + "'"

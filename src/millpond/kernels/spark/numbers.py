"""Numbers as Java writes them, and exact quotients of decimals."""

from __future__ import annotations

import decimal
import re

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_TEXT = pa.string()
_WIDE = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)


@by_row("spark.java_number.1", ("VARCHAR",), "VARCHAR", _TEXT)
def java_number(text: str) -> str:
    """A DOUBLE or FLOAT in the notation of Java, from its shortest digits.

    >>> [java_number.code(pa.array([t]))[0].as_py() for t in ("1e+10", "0.001", "1.5e-05", "100.0", "inf")]
    ['1.0E10', '0.001', '1.5E-5', '100.0', 'Infinity']
    """
    return java_notation(text)


def java_notation(text: str) -> str:
    lower = text.lower()
    if "nan" in lower:
        return "NaN"
    if "inf" in lower:
        return "-Infinity" if lower.startswith("-") else "Infinity"
    value = decimal.Decimal(text)
    sign, digits, exponent = value.as_tuple()
    minus = "-" if sign else ""
    shown = "".join(map(str, digits)).lstrip("0")
    if not shown:
        return f"{minus}0.0"
    assert isinstance(exponent, int)
    point = len(shown) + exponent  # the value is 0.shown times ten to the point
    shown = shown.rstrip("0") or "0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{shown}"
        whole = shown[:point].ljust(point, "0")
        return f"{minus}{whole}.{shown[point:] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"


@by_row("spark.decimal_quotient.1", ("VARCHAR", "VARCHAR", "INTEGER", "BOOLEAN"), "VARCHAR", _TEXT)
def decimal_quotient(a: str, b: str, scale: int, lenient: bool) -> str | None:
    """A quotient with `scale` digits after the point, rounded half up; -1 cuts the fraction off."""
    divisor = decimal.Decimal(b)
    if not divisor:
        if lenient:
            return None
        raise RefusedValue("division by zero")
    quotient = _WIDE.divide(decimal.Decimal(a), divisor)
    if scale < 0:
        return f"{quotient.to_integral_value(decimal.ROUND_DOWN):f}"
    return f"{quotient.quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE):f}"


@by_row("spark.decimal_arithmetic.1", ("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def decimal_arithmetic(sign: str, a: str, b: str, scale: int) -> str:
    """A sum, difference or product with `scale` digits after the point, rounded half up."""
    compute = {"+": _WIDE.add, "-": _WIDE.subtract, "*": _WIDE.multiply}[sign]
    made = compute(decimal.Decimal(a), decimal.Decimal(b))
    return f"{made.quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE):f}"


@by_row("spark.format_number.1", ("VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def format_number(number: str, digits: int) -> str | None:
    return _with_commas(number, digits)


def _with_commas(number: str, digits: int) -> str | None:
    """A number with commas and a fixed number of digits after the point, rounded half to even."""
    if digits < 0:
        return None
    value = decimal.Decimal(number)
    if not value.is_finite():
        return {"NaN": "\ufffd", "Infinity": "∞", "-Infinity": "-∞"}[str(value)]
    unit = decimal.Decimal(1).scaleb(-digits)
    return f"{value.quantize(unit, decimal.ROUND_HALF_EVEN, context=_WIDE):,f}"


@by_row("spark.format_number.2", ("VARCHAR", "INTEGER", "BOOLEAN"), "VARCHAR", _TEXT)
def format_number_exactly(number: str, digits: int, is_float: bool) -> str | None:
    """The same for floats as for decimals, from the exact binary value: -0.05 is more than half of 0.1."""
    value = decimal.Decimal(number)
    exact = str(decimal.Decimal(float(number))) if is_float and value.is_finite() else number
    return _with_commas(exact, digits)


@by_row("spark.conv.1", ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR", _TEXT)
def conv(number: str, base: int, to: int) -> str | None:
    """A number of one base in another; 64 bits, and a negative base gives a sign."""
    return _converted(number, base, to, strict=True)


@by_row("spark.conv_or_largest.1", ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR", _TEXT)
def conv_or_largest(number: str, base: int, to: int) -> str | None:
    """The same without ANSI mode: what does not fit is the largest number."""
    return _converted(number, base, to, strict=False)


def _converted(number: str, base: int, to: int, *, strict: bool) -> str | None:
    if not (2 <= base <= 36 and 2 <= abs(to) <= 36):
        return None
    text = number.strip()
    negative = text.startswith("-")
    digits = re.match(r"[0-9a-zA-Z]*", text.removeprefix("-"))
    value = 0
    for sign in digits[0] if digits else "":
        place = int(sign, 36)
        if place >= base:
            break
        value = value * base + place
        if value >= 2**64:
            if strict:
                raise RefusedValue(f"conv({number!r}) does not fit into 64 bits")
            value, negative = 2**64 - 1, False
            break
    if not text or (digits is not None and not digits[0]):
        return None if not text else "0"
    if negative:
        value = -value % 2**64
    if to < 0 and value >= 2**63:
        return "-" + _in_base(2**64 - value, -to)
    return _in_base(value, abs(to))


def _in_base(value: int, base: int) -> str:
    found = ""
    while value:
        value, place = divmod(value, base)
        found = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place] + found
    return found or "0"


@by_row("spark.bround.1", ("VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def bround(number: str, digits: int) -> str:
    """A number rounded half to even."""
    value = decimal.Decimal(number)
    if not value.is_finite():
        return str(value)
    return f"{value.quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_EVEN, context=_WIDE):f}"


@by_row("spark.round_towards.1", ("VARCHAR", "INTEGER", "VARCHAR"), "VARCHAR", _TEXT)
def round_towards(number: str, digits: int, side: str) -> str:
    """A decimal rounded up or down."""
    how = decimal.ROUND_CEILING if side == "ceil" else decimal.ROUND_FLOOR
    unit = decimal.Decimal(1).scaleb(-digits)
    return f"{decimal.Decimal(number).quantize(unit, how, context=_WIDE):f}"


@by_row("spark.round.1", ("VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def round_half_up(number: str, digits: int) -> str:
    """A number rounded half up, by its decimal digits."""
    value = decimal.Decimal(number)
    if not value.is_finite():
        return str(value)
    return f"{value.quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP, context=_WIDE):f}"

"""`format_string` and `printf`: the conversions of Java's Formatter over arguments that carry their kind."""

from __future__ import annotations

import decimal
import re

from millpond.kernels.spark.rows import RefusedValue

_PARTS = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def formatted(pattern: str, given: list[str | None]) -> str:
    """A text with its conversions replaced; an argument is `i:`, `d:`, `b:` or `s:` and its text.

    >>> formatted("%5d|%-4s|%,.2f", ["i:42", "s:ab", "d:1234.5"])
    '   42|ab  |1,234.50'
    """
    shown, at, place = "", 0, 0
    for found in _PARTS.finditer(pattern):
        if "%" in pattern[at : found.start()]:
            raise RefusedValue(f"{pattern!r} has a conversion that is not known")
        shown += pattern[at : found.start()]
        at = found.end()
        position, flags, width, precision, kind = found.groups()
        if kind in "n%":
            shown += "\n" if kind == "n" else "%"
            continue
        number = int(position) - 1 if position else place
        place += 0 if position else 1
        if number >= len(given):
            raise RefusedValue(f"{found[0]!r} in {pattern!r} has no argument")
        made = _converted(
            kind, flags, None if precision is None else int(precision), given[number], int(width or 0)
        )
        shown += made.ljust(int(width or 0)) if "-" in flags else made.rjust(int(width or 0))
    if "%" in pattern[at:]:
        raise RefusedValue(f"{pattern!r} has a conversion that is not known")
    return shown + pattern[at:]


def _converted(kind: str, flags: str, precision: int | None, given: str | None, width: int) -> str:
    if given is None:
        made = "false" if kind in "bB" else "null"
        return made[:precision]
    sort, text = given[0], given[2:]
    match kind.lower():
        case "s":
            made = text[:precision]
        case "b":
            made = text if sort == "b" else "true"
        case "d" if sort == "i":
            made = _signed(int(text), flags, f"{abs(int(text)):{',' if ',' in flags else ''}d}", width)
        case "x" | "o" if sort == "i":
            bits = 32 if -(2**31) <= int(text) < 2**31 else 64
            made = f"{int(text) % 2**bits:{'#' if '#' in flags else ''}{kind.lower()}}"
            made = made.rjust(width, "0") if "0" in flags else made
        case "f" if sort == "d":
            value = decimal.Decimal(text)
            if not value.is_finite():
                return _not_finite(value, flags)
            unit = decimal.Decimal(1).scaleb(-(6 if precision is None else precision))
            rounded = abs(value).quantize(unit, decimal.ROUND_HALF_UP, context=decimal.Context(prec=400))
            made = _signed(value, flags, f"{rounded:{',' if ',' in flags else ''}f}", width)
        case "e" if sort == "d":
            value = decimal.Decimal(text)
            if not value.is_finite():
                return _not_finite(value, flags)
            made = _signed(
                value, flags, f"{abs(float(value)):.{6 if precision is None else precision}e}", width
            )
        case "c" if sort == "i":
            made = chr(int(text))
        case _:
            raise RefusedValue(f"%{kind} does not take this argument")
    return made.upper() if kind.isupper() else made


def _signed(value: int | decimal.Decimal, flags: str, shown: str, width: int) -> str:
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    if "(" in flags and value < 0:
        return f"({shown})"
    return sign + (shown.rjust(width - len(sign), "0") if "0" in flags else shown)


def _not_finite(value: decimal.Decimal, flags: str) -> str:
    """NaN and the infinities, which are never padded with zeros."""
    if value.is_nan():
        return "NaN"
    if value > 0:
        return "+Infinity" if "+" in flags else " Infinity" if " " in flags else "Infinity"
    return "(Infinity)" if "(" in flags else "-Infinity"

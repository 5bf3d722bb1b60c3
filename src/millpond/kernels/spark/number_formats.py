"""`to_number` and `to_char` of numbers: formats such as `$99,999.99S`."""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_FORMAT = re.compile(r"(MI|S)?(\$)?([09](?:[09,G]*[09])?)?(?:([.D])([09]*))?(\$)?(PR|MI|S)?")


@dataclass(frozen=True)
class DecimalFormat:
    """What a format says, from left to right."""

    sign: str  # in front: "S", "MI" or ""
    is_money: bool
    groups: tuple[str, ...]  # of digits before the point
    fraction: str
    has_point: bool
    money_behind: bool
    sign_behind: str  # "S", "MI", "PR" or ""

    @property
    def digits(self) -> tuple[int, int]:
        """The digits of the DECIMAL that fits."""
        return sum(map(len, self.groups)) + len(self.fraction), len(self.fraction)


@cache
def number_format(text: str) -> DecimalFormat | None:
    """Read a format; None if it is none.

    >>> number_format("$99,999.0s").digits
    (6, 1)
    """
    found = _FORMAT.fullmatch(text.upper())
    if found is None:
        return None
    sign, money, whole, point, fraction, behind, last = (part or "" for part in found.groups())
    groups = tuple(re.split("[,G]", whole)) if whole else ()
    if "" in groups or not (groups or fraction) or (sign and last == sign) or (money and behind):
        return None
    return DecimalFormat(sign, bool(money), groups, fraction, bool(point), bool(behind), last)


def _known(text: str) -> DecimalFormat:
    found = number_format(text)
    if found is None:
        raise RefusedValue(f"{text!r} is no format of a number")
    return found


# -- texts to numbers ---------------------------------------------------------------------------


@by_row("spark.to_number.1", ("VARCHAR", "VARCHAR", "BOOLEAN"), "VARCHAR", pa.string())
def to_number(text: str, pattern: str, strict: bool) -> str | None:
    made = _read(text, _known(pattern))
    if made is None and strict:
        raise RefusedValue(f"{text!r} does not fit the format {pattern!r}")
    return made


def _read(text: str, form: DecimalFormat) -> str | None:
    """The number in a text, as digits with a sign; None if it does not fit."""
    signs = {"S": "([+-]?)", "MI": "(-?)", "PR": "(>?)", "": "()"}
    pattern = (
        ("(<?)" if form.sign_behind == "PR" else "()")
        + signs[form.sign]
        + (r"\$" if form.is_money else "")
        + (r"([\d,\s]*)" if form.groups else "()")
        + (r"\.?" if form.has_point else "")
        + (r"([\d\s]*)" if form.fraction else "()")
        + (r"\$" if form.money_behind else "")
        + signs[form.sign_behind]
    )
    found = re.fullmatch(pattern, text)
    if found is None:
        return None
    opened, sign, whole, fraction, last = found.groups()
    whole, fraction = re.sub(r"\s", "", whole), re.sub(r"\s", "", fraction)
    given = whole.split(",")[::-1] if form.groups else []
    if not (whole + fraction).strip(",") or len(given) > len(form.groups) or bool(opened) != (last == ">"):
        return None
    for place, group in enumerate(reversed(form.groups)):
        size = len(given[place]) if place < len(given) else 0
        if size > len(group) or (group[0] == "0" and size < len(group)):
            return None
    if len(fraction) > len(form.fraction):
        return None
    negative = (sign + last).count("-") + last.count(">")
    return f"{'-' if negative % 2 else ''}{whole.replace(',', '') or '0'}.{fraction or '0'}"


# -- numbers to texts ---------------------------------------------------------------------------


@by_row("spark.number_to_char.1", ("VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def number_to_char(number: str, pattern: str) -> str:
    """A number in a format; one with too many digits is shown as `#`.

    >>> number_to_char.code(pa.array(["-12454.8"]), pa.array(["99G999D9S"]))[0].as_py()
    '12,454.8-'
    """
    form, value = _known(pattern), decimal.Decimal(number)
    negative = value < 0
    whole, fraction = _digits(value, form)
    shown: list[str] = []
    if form.sign_behind == "PR" and negative:
        shown.append("<")
    _add_sign(shown, form.sign, negative)
    shown += ["$"] if form.is_money else []
    place = 0
    for n, group in enumerate(form.groups):
        if n:
            _add_space(shown) if not (shown and shown[-1].isdigit()) else shown.append(",")
        for _ in group:
            if whole[place] != " ":
                shown.append(whole[place])
            elif group[0] == "0":
                shown.append("0")
            else:
                _add_space(shown)
            place += 1
    if form.has_point:
        if shown and shown[-1] == " ":
            shown[-1] = "0"
        shown.append(".")
    shown += list(fraction)
    shown += ["$"] if form.money_behind else []
    if form.sign_behind == "PR":
        _strip_lone_point(shown)
        _move_left(shown, ">") if negative else shown.extend("  ")
    else:
        _add_sign(shown, form.sign_behind, negative)
    _strip_lone_point(shown)
    text = "".join(shown)
    return "0" if text in ("", "+", "-") else text


def _digits(value: decimal.Decimal, form: DecimalFormat) -> tuple[str, str]:
    """The digits before and after the point, as many as the format has: blanks in front, zeros behind."""
    before, _, after = f"{abs(value):f}".partition(".")
    before, after = before.lstrip("0"), after.rstrip("0")
    width, scale = form.digits
    if len(before) > width - scale or len(after) > scale:
        before, after = "#" * (width - scale), "#" * scale
    return before.rjust(width - scale), after.ljust(scale, "0")


def _add_sign(shown: list[str], sign: str, negative: bool) -> None:
    if sign == "S":
        _strip_lone_point(shown)
        _move_left(shown, "-" if negative else "+")
    elif sign == "MI":
        if negative:
            _strip_lone_point(shown)
            _move_left(shown, "-")
        else:
            shown.append(" ")


def _move_left(shown: list[str], sign: str) -> None:
    """Add a sign before the blanks at the end."""
    at = len(shown)
    while at > 1 and shown[at - 1] == " ":
        at -= 1
    shown.insert(at if at > 1 or not shown or shown[0] != " " else 0, sign)


def _add_space(shown: list[str]) -> None:
    """Add a blank before the signs at the end."""
    at = len(shown)
    while at and shown[at - 1] in "+-<":
        at -= 1
    shown.insert(at, " ")


def _strip_lone_point(shown: list[str]) -> None:
    if "." in shown:
        at = shown.index(".")
        if at == len(shown) - 1 or shown[at + 1] == " ":
            shown[at] = " "

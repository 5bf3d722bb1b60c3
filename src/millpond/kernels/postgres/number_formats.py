"""to_char and to_number for numbers.

A format has one digit place for every 9 and 0; signs, groups and the decimal point stand between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache

from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.time_to_text import ordinal_suffix

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)
_NAMES = (
    "EEEE",
    "FM",
    "MI",
    "PL",
    "PR",
    "RN",
    "SG",
    "SP",
    "TH",
    "rn",
    "th",
    "B",
    "C",
    "D",
    "G",
    "L",
    "S",
    "V",
    ",",
    ".",
    "0",
    "9",
)
_NAMED = "|".join(re.escape(name) for name in _NAMES)
_PART = re.compile(rf'"((?:[^"\\]|\\.)*)"?|((?i:{_NAMED}))|\\(.)|(.)', re.DOTALL)
_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)


@dataclass
class NumberFormat:
    """A format taken apart, and what it says as a whole."""

    parts: list[tuple[str, str]] = field(default_factory=list)  # (name, text)
    before: int = 0  # digit places before the point
    after: int = 0
    scaled: int = 0  # places behind V
    fill: bool = True
    sign: str = ""  # "", S<, S>, MI, PL, SG, PR
    roman: str = ""
    blank: bool = False
    exponent: bool = False
    zero_at: int | None = None  # the first 0 before the point
    last_zero_after: int = -1


@lru_cache(256)
def number_format(pattern: str) -> NumberFormat:
    made = NumberFormat()
    point = False
    v = False
    for match in _PART.finditer(pattern):
        quoted, name, escaped, plain = match.groups()
        if quoted is not None:
            made.parts.append(("text", re.sub(r"\\(.)", r"\1", quoted)))
            continue
        if name is None:
            made.parts.append(("text", escaped or plain))
            continue
        key = name.upper()
        if key == "FM":
            made.fill = False
            continue
        if key in ("9", "0"):
            if v:
                made.scaled += 1
            elif point:
                made.after += 1
                if key == "0":
                    made.last_zero_after = made.after - 1
            else:
                if key == "0" and made.zero_at is None:
                    made.zero_at = made.before
                made.before += 1
        elif key in ("D", "."):
            if point:
                raise ValueError("multiple decimal points")
            point = True
        elif key == "V":
            if point:
                raise ValueError('cannot use "V" and decimal point together')
            v = True
        elif key == "S":
            if made.sign:
                raise ValueError('cannot use "S" twice')
            made.sign = "S<" if not made.before and not point else "S>"
        elif key in ("MI", "PL", "SG", "PR"):
            if made.sign.startswith("S") and made.sign != "SG":
                raise ValueError(f'cannot use "S" and "{key}" together')
            made.sign = made.sign + key if key == "PL" and made.sign else key
        elif key == "RN":
            made.roman = name
        elif key == "B":
            made.blank = True
        elif key == "EEEE":
            made.exponent = True
        made.parts.append((name if key in ("TH", "RN") else key, name))
    return made


@row_function("pg.to_char_number.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def to_char_number(number: str, pattern: str, kind: str) -> str:
    """`number` is the text of an integer, a numeric or a float (kind `i`, `n`, `f` or `r`)."""
    if not pattern:
        return ""
    form = number_format(pattern)
    if number.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return _not_finite(number.lower(), form)
    value = Decimal(number)
    if form.exponent:
        return _scientific(value, form)
    if form.roman:
        return _roman(value, form, ROUND_HALF_EVEN if kind in ("f", "r") else ROUND_HALF_UP)
    value = value * 10**form.scaled if form.scaled else value
    places = form.after
    if kind in ("f", "r"):  # a float has as many digits as it is sure of
        digits = 15 if kind == "f" else 6
        magnitude = max(value.copy_abs().adjusted() + 1, 1) if value else 1
        places = min(form.after, max(digits - magnitude, 0))
        rounded = value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN, context=_WIDE)
    else:
        rounded = value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=_WIDE)
    if form.blank and value == 0:
        return "" if not form.fill else " " * len(_lay(form, "", "", False, False))
    return _laid_out(rounded, places, form, kind)


def _not_finite(number: str, form: NumberFormat) -> str:
    size = form.before + form.scaled
    if "nan" in number:
        shown = "NaN" if size >= 3 else "#" * size
        return _lay(form, shown, "#" * form.after if shown != "NaN" else " " * form.after, False, True)
    return _lay(form, "#" * size, "#" * form.after, number.startswith("-"), True)


def _roman(value: Decimal, form: NumberFormat, rounding: str) -> str:
    whole = int(value.to_integral_value(rounding=rounding))
    if not 0 < whole < 4000:
        return "#" * 15
    text = ""
    for worth, letters in _ROMAN:
        text += letters * (whole // worth)
        whole %= worth
    text = text.lower() if form.roman == "rn" else text
    return text.rjust(15) if form.fill else text


def _scientific(value: Decimal, form: NumberFormat) -> str:
    text = f"{value:.{form.after}e}" if value else f"{Decimal(0):.{form.after}f}e+00"
    mantissa, _, exponent = text.partition("e")
    rounded = value.normalize(Context(prec=form.after + 1, rounding=ROUND_HALF_UP)) if value else Decimal(0)
    if value:
        digits = "".join(map(str, rounded.as_tuple().digits)).ljust(form.after + 1, "0")
        mantissa = ("-" if value < 0 else "") + digits[0] + ("." + digits[1:] if form.after else "")
        exponent = f"{rounded.adjusted():+03d}"
    return ("" if value < 0 else " ") + f"{mantissa}e{exponent}"


def _laid_out(value: Decimal, places: int, form: NumberFormat, kind: str) -> str:
    text = f"{abs(value):.{places}f}"
    whole, _, rest = text.partition(".")
    rest = rest.ljust(form.after, " " if places < form.after else "0") if form.after else ""
    whole_size = form.before + form.scaled
    negative = value < 0
    if whole == "0" and form.after and form.before and form.zero_at is None:
        whole = ""
    if whole == "0" and not whole_size and kind not in ("f", "r"):
        whole = ""
    too_wide = len(whole) > whole_size
    digits = "#" * whole_size if too_wide else whole.rjust(whole_size)
    shown_rest = "#" * form.after if too_wide else rest
    return _lay(form, digits, shown_rest, negative, too_wide)


def _lay(form: NumberFormat, digits: str, rest: str, negative: bool, wide: bool) -> str:
    """Put digits, signs and other text in their places."""
    size = form.before + form.scaled
    digits = digits.rjust(size)
    zero_from = form.zero_at if form.zero_at is not None else size
    first = next((n for n, c in enumerate(digits) if c != " "), size)
    first = min(first, zero_from)
    out: list[str] = []
    place = after = 0
    signed = False
    seen_digit = False
    stripped = rest
    if not form.fill and rest and not wide:
        keep = form.last_zero_after + 1
        stripped = rest[: max(keep, len(rest.rstrip("0 ")))]
    lead = _lead_sign(form, negative)
    for name, text in form.parts:
        if name in ("9", "0"):
            if place < size:
                char = digits[place]
                if place >= first and char == " ":
                    char = "0"
                if place == first and not signed:
                    out.append(lead)
                    signed = True
                if place >= first:
                    out.append(char)
                    seen_digit = True
                elif form.fill:
                    out.append(" ")
                place += 1
            else:
                if not signed:
                    out.append(lead)
                    signed = True
                out.append(stripped[after : after + 1] if after < len(stripped) else "")
                after += 1
        elif name in (",", "G"):
            if seen_digit or place > first:
                out.append(",")
            elif form.fill:
                out.append(" ")
        elif name in ("D", "."):
            if not signed:
                out.append(lead)
                signed = True
            out.append(".")
        elif name in ("TH", "th"):
            shown = "".join(out)
            if not negative and "." not in shown:
                out.append(ordinal_suffix(shown, name))
        elif name == "L":
            out.append(" " if form.fill else "")
        elif name in ("MI", "SG", "PL", "S", "PR"):
            out.append(_own_sign(name, form, negative))
        elif name in ("V", "B", "RN", "rn", "EEEE", "C", "SP"):
            continue
        else:
            out.append(text)
    if not signed and lead.strip():
        out.append(lead)
    if form.sign == "PR":
        out.append(">" if negative else (" " if form.fill else ""))
    if form.sign == "S>":
        out.append("-" if negative else "+")
    return "".join(out)


def _lead_sign(form: NumberFormat, negative: bool) -> str:
    if form.sign == "S<":
        return "-" if negative else "+"
    if form.sign == "PR":
        return "<" if negative else (" " if form.fill else "")
    if form.sign in ("S>", "MI", "SG"):
        return ""
    return "-" if negative else (" " if form.fill else "")


def _own_sign(name: str, form: NumberFormat, negative: bool) -> str:
    if name == "MI":
        return "-" if negative else (" " if form.fill else "")
    if name == "SG":
        return "-" if negative else "+"
    if name == "PL":
        return (" " if form.fill else "") if negative else "+"
    return ""


@row_function("pg.to_number.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def to_number(text: str, pattern: str) -> str | None:
    """The number of a text as a text of digits."""
    if not pattern:
        return None
    form = number_format(pattern)
    if form.exponent or form.roman:
        raise ValueError(f'"{"EEEE" if form.exponent else "RN"}" not supported for input')
    reader = _Reader(text, form)
    for name, literal in form.parts:
        if reader.at >= len(text):
            break
        reader.take(name, literal)
    return reader.result()


class _Reader:
    """Reads a text along a format: every digit place takes one character, whatever it is."""

    def __init__(self, text: str, form: NumberFormat) -> None:
        self.text, self.form, self.at = text, form, 0
        self.negative = self.point = False
        self.whole = self.rest = ""

    def take(self, name: str, literal: str) -> None:
        char = self.text[self.at]
        if name in ("9", "0", "D", "."):
            self._digit()
        elif name in (",", "G"):
            self.at += char == ","
        elif name in ("S", "MI", "SG", "PR", "PL"):
            self._sign()
        elif name == "L":
            self.at += not char.isdigit() and char not in "+-.,"
        elif name in ("TH", "th"):
            self.at += 2
        elif name not in ("V", "B", "SP"):
            self.at += len(literal)

    def _spaces(self) -> None:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1

    def _sign(self) -> None:
        self._spaces()
        if self.text[self.at : self.at + 1] in ("+", "-"):
            self.negative = self.text[self.at] == "-"
            self.at += 1

    def _digit(self) -> None:
        self._spaces()
        signs = "+-<" if self.form.sign == "PR" else "+-"
        if not self.whole and not self.rest and self.text[self.at : self.at + 1] in tuple(signs):
            self.negative = self.text[self.at] in "-<"
            self.at += 1
            self._spaces()
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char == "." and self.form.after and not self.point:
            self.point = True
        elif char.isdigit() and self.point:
            self.rest += char
        elif char.isdigit():
            self.whole += char

    def result(self) -> str:
        form = self.form
        unread = self.text[self.at :].strip()
        fits = len(self.rest) <= form.after and unread in ("", "-")  # else the sign is behind unread digits
        if form.sign and fits and self.text.rstrip().endswith("-"):
            self.negative = True  # also where the text has fewer digits than the format
        if not self.whole and not self.rest:
            raise ValueError(f'invalid input syntax for type numeric: "{self.text}"')
        if len(self.whole.lstrip("0")) > form.before + form.scaled:
            raise ValueError("numeric field overflow")
        value = Decimal(f"{self.whole or 0}.{self.rest or 0}") / 10**form.scaled
        return f"{-value if self.negative else value:f}"

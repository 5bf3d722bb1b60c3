"""The text of a value as PostgreSQL writes it, made from the text that DuckDB writes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from millpond.kernels.native_functions import native

_SPECIAL = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_FIELD = re.compile(r"([+-]?\d+) (year|month|day)s?")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?$")
_BYTE = re.compile(r"\\x([0-9A-Fa-f]{2})")


@native("pg.text.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def text_of(values: pa.Array, kinds: pa.Array) -> pa.Array:
    """The text of floats, intervals and bytes; all values are of one type."""
    kind = next((k.as_py() for k in kinds if k.is_valid), "")
    write = _WRITERS.get(kind, str)
    coded = values.dictionary_encode()
    shown = [None if v is None else write(v) for v in coded.dictionary.to_pylist()]
    return pa.array(shown, pa.string()).take(coded.indices)


def float_text(text: str, digits: int) -> str:
    """A float with an exponent from so many digits before the point.

    >>> float_text("1.0", 15), float_text("1000000000000000.0", 15), float_text("1234567.0", 6)
    ('1', '1e+15', '1.234567e+06')
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    if "e" in text:
        return text
    sign, body = ("-", text[1:]) if text[0] == "-" else ("", text)
    whole, _, part = body.partition(".")
    part = "" if part == "0" else part
    if len(whole) <= digits:
        return sign + whole + (f".{part}" if part else "")
    rest = (whole[1:] + part).rstrip("0")
    return f"{sign}{whole[0]}{'.' if rest else ''}{rest}e+{len(whole) - 1:02}"


def interval_text(text: str) -> str:
    """An interval in PostgreSQL's style.

    >>> interval_text("-1 years 2 months"), interval_text("1 day -02:00:00"), interval_text("00:00:00")
    ('-10 mons', '1 day -02:00:00', '00:00:00')
    """
    fields = {name: int(n) for n, name in _FIELD.findall(text)}
    months = fields.get("year", 0) * 12 + fields.get("month", 0)
    years, months = (
        (abs(months) // 12, abs(months) % 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    )
    found: list[str] = []
    before = False  # was the field before negative?
    for n, one in ((years, "year"), (months, "mon"), (fields.get("day", 0), "day")):
        if n:
            found.append(f"{'+' if before and n > 0 else ''}{n} {one}{'' if n == 1 else 's'}")
            before = n < 0
    time = _TIME.search(text)
    if time is not None and (any(int(t or 0) for t in time.groups()[1:]) or not found):
        sign, hours, minutes, seconds, part = time.groups()
        part = (part or "").rstrip("0")
        sign = sign or ("+" if before else "")
        found.append(f"{sign}{hours:0>2}:{minutes}:{seconds}{'.' if part else ''}{part}")
    return " ".join(found) or "00:00:00"


def _bytes_text(text: str) -> str:
    return "\\x" + _BYTE.sub(lambda m: chr(int(m[1], 16)), text).encode("latin-1").hex()


_WRITERS: dict[str, Callable[[str], str]] = {
    "DOUBLE": lambda text: float_text(text, 15),
    "FLOAT": lambda text: float_text(text, 6),
    "INTERVAL": interval_text,
    "BLOB": _bytes_text,
}

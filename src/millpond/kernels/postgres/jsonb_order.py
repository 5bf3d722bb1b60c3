"""Values and the order of documents of type jsonb, as texts that DuckDB compares byte by byte.

Law: texts of `jsonb_value` are equal if and only if PostgreSQL says that the documents are; texts of
`jsonb_order` are ordered as PostgreSQL orders them: by kind (null, text, number, boolean, array, object),
arrays and objects by their number of elements first, and an empty array before everything else.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.kernels.native_functions import native
from millpond.kernels.postgres.json_text import jsonb_text, read_json, sorted_keys
from millpond.kernels.postgres.rows import row_function

_WITH_ZEROS = r"\.[0-9]*0(?:[^0-9]|$)|-0(?:[^0-9]|$)"  # RE2: a number may have zeros at its end
_EXPONENT = 500_000  # more than the digits of any number
_WIDE = Context(prec=200_000)
_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_TEXT_END = "\x01"
_LOW = re.compile("[\x01\x02]")


@native("pg.jsonb_value.1", ("VARCHAR",), "VARCHAR")
def jsonb_value(texts: pa.Array) -> pa.Array:
    """The documents with their numbers without zeros at the end; most have none."""
    affected = pc.fill_null(pc.match_substring_regex(texts, _WITH_ZEROS), False)
    if not pc.any(affected).as_py():
        return texts
    found = [jsonb_text(_without_zeros(read_json(text))) for text in texts.filter(affected).to_pylist()]
    return pc.replace_with_mask(texts, affected, pa.array(found, texts.type))


def _without_zeros(value: Any) -> Any:
    if isinstance(value, Decimal):
        return Decimal(0) if not value else value.normalize(_WIDE)
    if isinstance(value, list):
        return [_without_zeros(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_zeros(one) for key, one in value.items()}
    return value


@row_function("pg.jsonb_order.1", ("VARCHAR",), "VARCHAR")
def jsonb_order(text: str) -> str:
    value = read_json(text)
    if value == []:
        return "0"
    rank = "3" if isinstance(value, dict) else "2" if isinstance(value, list) else "1"
    return rank + _ordered(value)


def _ordered(value: Any) -> str:
    if value is None:
        return "0"
    if isinstance(value, str):
        return "1" + _text(value)
    if isinstance(value, bool):
        return f"3{value:d}"
    if isinstance(value, (int, Decimal)):
        return "2" + _number(Decimal(value))
    if isinstance(value, list):
        return f"4{len(value):09}" + "".join(map(_ordered, value))
    return f"5{len(value):09}" + "".join(_text(key) + _ordered(value[key]) for key in sorted_keys(value))


def _text(value: str) -> str:
    return _LOW.sub(lambda found: "\x02" + chr(ord(found[0]) + 1), value) + _TEXT_END


def _number(value: Decimal) -> str:
    """A sign, the exponent and the digits; those of negative numbers in the opposite order.

    >>> _number(Decimal("-2")) < _number(Decimal("0.00")) < _number(Decimal("1.5")) < _number(Decimal("15"))
    True
    >>> _number(Decimal("1.50")) == _number(Decimal("1.5"))
    True
    """
    if not value:
        return "1"
    sign, digits, exponent = value.as_tuple()
    shown = "".join(map(str, digits))
    assert isinstance(exponent, int)
    found = f"{_EXPONENT + len(shown) + exponent:06}{shown.rstrip('0')}"
    return "0" + found.translate(_COMPLEMENT) + "~" if sign else "2" + found + "!"

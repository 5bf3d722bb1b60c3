"""JSON as PostgreSQL writes it.

Law: `jsonb` is normalised (keys by length, then bytes; the last of equal keys; one space after `:` and `,`),
`json` keeps its text.  Numbers keep their digits: they are read as integers and decimals, never as floats.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from millpond.kernels.postgres.text_output import float4_text, float_text, interval_text
from millpond.kernels.postgres.type_names import TypeName

# What PostgreSQL escapes in a JSON string; everything else stands for itself.
_ESCAPES = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def read_json(text: str) -> Any:
    """The value of a JSON text; the last of equal keys counts."""
    try:
        return json.loads(text, parse_float=_number, parse_int=int, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid input syntax for type json: {error}") from None


def read_pairs(text: str) -> Any:
    """The same with objects as lists of pairs, `JsonObject`, that keep order and equal keys."""
    try:
        return json.loads(
            text, parse_float=_number, parse_int=int, parse_constant=_refuse, object_pairs_hook=JsonObject
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid input syntax for type json: {error}") from None


class JsonObject(list[tuple[str, Any]]):
    """An object of type `json`: all its pairs, in order."""


def _number(text: str) -> Decimal:
    return Decimal(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"invalid token {text}")


def string_text(value: str) -> str:
    """
    >>> string_text('a"b')
    '"a\\\\"b"'
    """
    return '"' + _ESCAPED.sub(lambda m: _ESCAPES.get(m[0]) or f"\\u{ord(m[0]):04x}", value) + '"'


def number_text(value: Decimal | int) -> str:
    """A number without an exponent, as `numeric` writes it."""
    return str(value) if isinstance(value, int) else f"{value:f}"


def sorted_keys(value: dict[str, Any]) -> list[str]:
    return sorted(value, key=lambda key: (len(key.encode()), key.encode()))


def jsonb_text(value: Any) -> str:
    """The text of a `jsonb`.

    >>> jsonb_text({"bb": 1, "a": [None, True, Decimal("1.50")]})
    '{"a": [null, true, 1.50], "bb": 1}'
    """
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, (int, Decimal)):
        return number_text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{string_text(k)}: {jsonb_text(value[k])}" for k in sorted_keys(value)) + "}"
    return "[" + ", ".join(map(jsonb_text, value)) + "]"


def pretty_text(value: Any, indent: str = "") -> str:
    """What jsonb_pretty returns."""
    deeper = indent + "    "
    if isinstance(value, dict):
        if not value:
            return "{\n" + indent + "}"
        rows = [f"{deeper}{string_text(k)}: {pretty_text(value[k], deeper)}" for k in sorted_keys(value)]
        return "{\n" + ",\n".join(rows) + "\n" + indent + "}"
    if isinstance(value, list):
        if not value:
            return "[\n" + indent + "]"
        return "[\n" + ",\n".join(deeper + pretty_text(v, deeper) for v in value) + "\n" + indent + "]"
    return jsonb_text(value)


def compact_text(value: Any) -> str:
    """The text of a `json` that was taken apart: no spaces, pairs in their order."""
    if isinstance(value, JsonObject):
        return "{" + ",".join(f"{string_text(k)}:{compact_text(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact_text, value)) + "]"
    return jsonb_text(value)


# -- values of SQL ----------------------------------------------------------------------------------------


def shown(value: Any, kind: TypeName) -> str | None:
    """The text of a scalar that DuckDB wrote as JSON, as PostgreSQL's output function writes it."""
    if value is None:
        return None
    if kind.name == "BOOLEAN":
        return "t" if value else "f"
    if kind.name == "DOUBLE":
        return float_text(float(value))
    if kind.name == "FLOAT":
        return float4_text(float(value))
    if kind.name == "DECIMAL":
        return f"{Decimal(value):.{kind.scale}f}"
    if kind.name == "INTERVAL":
        return interval_text(interval_of(value))
    if kind.name == "JSON":
        return compact_text(value)
    return str(value)


_UNITS = {"year": 12, "month": 1, "day": 1}


def interval_of(text: str) -> tuple[int, int, int]:
    """Read an interval as DuckDB writes it: `1 year 2 months -3 days 04:05:06.7`."""
    months = days = us = 0
    for number, unit in re.findall(r"(-?\d+) (year|month|day)s?", text):
        if unit == "day":
            days = int(number)
        else:
            months += int(number) * _UNITS[unit]
    clock = re.search(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?$", text)
    if clock is not None:
        sign, hour, minute, second, rest = clock.groups()
        us = ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1_000_000 + int((rest or "").ljust(6, "0"))
        us = -us if sign else us
    return months, days, us


def json_of(value: Any, kind: TypeName, between: str = ",") -> str:
    """The JSON of a value of SQL, as to_json writes it; `value` is what DuckDB wrote.

    A line break between the parts of the outermost array or record is what `pretty` asks for.
    """
    if value is None:
        return "null"
    if kind.is_list:
        return "[" + between.join(json_of(v, kind.parts[0][1]) for v in value) + "]"
    if kind.is_record:
        fields = [v for _, v in value] if isinstance(value, JsonObject) else value
        pairs = (f"{string_text(n)}:{json_of(v, k)}" for (n, k), v in zip(kind.parts, fields, strict=True))
        return "{" + between.join(pairs) + "}"
    if kind.name == "JSON":
        return compact_text(value)
    if kind.name == "BOOLEAN":
        return "true" if value else "false"
    text = shown(value, kind)
    assert text is not None
    if kind.name.startswith(("TIMESTAMP", "DATE")):
        text = text.replace(" ", "T", 1) if kind.name != "DATE" else text
        text = re.sub(r"([+-]\d\d)$", r"\1:00", text) if kind.name == "TIMESTAMP WITH TIME ZONE" else text
        return string_text(text)
    numeric = kind.name in _NUMBERS and text not in ("NaN", "Infinity", "-Infinity")
    return text if numeric else string_text(text)


_NUMBERS = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("UHUGEINT", "DECIMAL", "DOUBLE", "FLOAT"),
)

"""Renders constants of a bound plan as SQL text."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

from millpond.errors import InvalidError
from millpond.sql.binding.types import Json, quoted, text_literal, type_text

_DAY = datetime.date(1970, 1, 1)
_INFINITE = 2**63 - 1
_INTEGERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
)  # fmt: skip
_PER_SECOND = {
    "TIMESTAMP": 10**6,
    "TIMESTAMP WITH TIME ZONE": 10**6,
    "TIMESTAMP_S": 1,
    "TIMESTAMP_MS": 10**3,
    "TIMESTAMP_NS": 10**9,
}


def literal(constant: Json) -> str:
    """Render a constant as SQL.

    >>> literal({"type": {"id": "INTEGER"}, "is_null": False, "value": -25})
    'CAST(-25 AS INTEGER)'
    """
    kind = constant["type"]
    name, text = str(kind["id"]), type_text(kind)
    if constant["is_null"]:
        return "NULL" if name == "NULL" else f"CAST(NULL AS {text})"
    value = constant["value"]
    if text == "JSON":
        return f"CAST({text_literal(value)} AS JSON)"
    if name in _INTEGERS:
        return f"CAST({value} AS {text})"
    if name in ("HUGEINT", "UHUGEINT"):
        return f"CAST({text_literal(str(_wide(value)))} AS {text})"
    if name == "BOOLEAN":
        return "true" if value else "false"
    if name == "DECIMAL":
        whole = _wide(value) if isinstance(value, dict) else int(value)
        return f"CAST({Decimal(whole).scaleb(-kind['type_info']['scale']):f} AS {text})"
    if name in ("DOUBLE", "FLOAT"):
        shown = _float_text(value)
        return f"CAST({text_literal(shown)} AS {text})"
    if name == "VARCHAR":
        return text_literal(value)
    if name == "BLOB":
        return f"CAST({text_literal(value)} AS BLOB)"
    if name == "DATE":
        return f"DATE {text_literal(str(_DAY + datetime.timedelta(days=value)))}"
    if name in _PER_SECOND:
        return _instant(value, name, text)
    if name == "TIME":
        return f"TIME {text_literal(_clock(value))}"
    if name == "INTERVAL":
        return (
            f"(to_months({value['months']}) + to_days({value['days']}) + to_microseconds({value['micros']}))"
        )
    if name in ("LIST", "ARRAY"):
        element = kind["type_info"]["child_type"]
        return f"CAST([{', '.join(_inner(c, element) for c in value['children'])}] AS {text})"
    if name == "STRUCT":
        parts = zip(kind["type_info"]["child_types"], value["children"], strict=True)
        inner = ", ".join(f"{text_literal(k['first'])}: {_inner(c, k['second'])}" for k, c in parts)
        return f"CAST({{{inner}}} AS {text})"
    if name == "TUPLE":
        parts = zip(kind["type_info"]["child_types"], value["children"], strict=True)
        return f"CAST(row({', '.join(_inner(c, k['second']) for k, c in parts)}) AS {text})"
    if name == "MAP":
        pair = kind["type_info"]["child_type"]
        entries = ", ".join(_inner(c, pair) for c in value["children"])
        return f"CAST(map_from_entries([{entries}]) AS {text})"
    if name == "UUID":
        return f"CAST({text_literal(str(value))} AS UUID)"
    raise InvalidError(f"a constant of type {text} is not supported here", detail=str(value)[:80])


def _inner(constant: Json, kind: Json) -> str:
    """Render an element of a nested constant, whose type is stored in the outer constant."""
    return literal({"type": kind, "value": None, **constant})


def _wide(value: Any) -> int:
    if isinstance(value, dict):
        return (int(value["upper"]) << 64) + int(value["lower"])
    return int(value)


def _float_text(value: Any) -> str:
    number = float(value)
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return repr(number)


def _instant(value: int, name: str, text: str) -> str:
    if abs(value) >= _INFINITE - 1:
        return f"CAST({text_literal('infinity' if value > 0 else '-infinity')} AS {text})"
    per = _PER_SECOND[name]
    if name == "TIMESTAMP_NS":
        return f"make_timestamp_ns({value})"
    micros = value * (10**6 // per)
    made = f"make_timestamp({micros})"
    if name == "TIMESTAMP WITH TIME ZONE":
        return f"({made} AT TIME ZONE 'UTC')"
    return made if name == "TIMESTAMP" else f"CAST({made} AS {text})"


def _clock(micros: int) -> str:
    seconds, part = divmod(micros, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:06}"


def column_names(names: list[str]) -> str:
    return ", ".join(quoted(n) for n in names)

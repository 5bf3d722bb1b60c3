"""Renders constants of a bound plan as SQL text."""

from __future__ import annotations

import datetime
import math

from millpond.errors import InvalidError
from millpond.sql.binding.types import text_literal
from millpond.sql.bound.expressions import Constant, MonthsDaysMicros

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


def literal(constant: Constant) -> str:
    """Render a constant as SQL.

    >>> literal(Constant("INTEGER", -25, type="INTEGER"))
    'CAST(-25 AS INTEGER)'
    """
    name, text, value = constant.kind, constant.type, constant.value
    if value is None:
        return "NULL" if name == "NULL" else f"CAST(NULL AS {text})"
    if isinstance(value, tuple):
        return _nested(constant, value)
    if isinstance(value, MonthsDaysMicros):
        return f"(to_months({value.months}) + to_days({value.days}) + to_microseconds({value.micros}))"
    if text == "JSON":
        return f"CAST({text_literal(str(value))} AS JSON)"
    if name in _INTEGERS:
        return f"CAST({value} AS {text})"
    if name in ("HUGEINT", "UHUGEINT"):
        return f"CAST({text_literal(str(value))} AS {text})"
    if name == "BOOLEAN":
        return "true" if value else "false"
    if name == "DECIMAL":
        return f"CAST({value:f} AS {text})"
    if name in ("DOUBLE", "FLOAT"):
        return f"CAST({text_literal(_float_text(float(value)))} AS {text})"
    if name == "VARCHAR":
        return text_literal(str(value))
    if name in ("BLOB", "UUID"):
        return f"CAST({text_literal(str(value))} AS {name})"
    if name == "DATE":
        return f"DATE {text_literal(str(_DAY + datetime.timedelta(days=int(value))))}"
    if name in _PER_SECOND:
        return _instant(int(value), name, text)
    if name == "TIME":
        return f"TIME {text_literal(_clock(int(value)))}"
    raise InvalidError(f"a constant of type {text} is not supported here", detail=str(value)[:80])


def _nested(constant: Constant, parts: tuple[Constant, ...]) -> str:
    listed = ", ".join(map(literal, parts))
    match constant.kind:
        case "LIST" | "ARRAY":
            made = f"[{listed}]"
        case "STRUCT":
            named = zip(constant.fields, parts, strict=True)
            made = f"{{{', '.join(f'{text_literal(n)}: {literal(c)}' for n, c in named)}}}"
        case "TUPLE":
            made = f"row({listed})"
        case _:
            made = f"map_from_entries([{listed}])"
    return f"CAST({made} AS {constant.type})"


def _float_text(number: float) -> str:
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

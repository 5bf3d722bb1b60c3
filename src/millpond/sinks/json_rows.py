"""Rows as JSON: one object per line, with every Arrow type, without loss.

Decimals with a fraction, dates, times and durations become text, binary values become base64, and NaN and
infinities become text, since JSON has no such numbers.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def json_lines(rows: pa.Table) -> bytes:
    """
    >>> json_lines(pa.table({"k": ["a", None], "n": [1, 2]}))
    b'{"k":"a","n":1}\\n{"k":null,"n":2}\\n'
    """
    lines = [json_text(row) for row in rows.to_pylist()]
    return "".join(f"{line}\n" for line in lines).encode()


def json_text(value: Any) -> str:
    return json.dumps(json_value(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """A Python value of an Arrow column as a value that JSON has.

    >>> json_value({"at": datetime.date(2026, 1, 2), "x": float("inf"), "raw": b"a"})
    {'at': '2026-01-02', 'x': 'Infinity', 'raw': 'YQ=='}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, decimal.Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(v) for v in value]
    return str(value)

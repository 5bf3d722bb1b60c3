"""Writes values as JSON that every parser reads.

JSON has no numbers for NaN and the infinities, so they are written as the strings "NaN", "Infinity" and
"-Infinity".  The type of a column distinguishes such a string from a number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# A string, which is not changed, or a word that DuckDB and Python write for a number that JSON lacks.
_TEXT_OR_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)')


def dumps(value: Any) -> str:
    """One line of JSON; values without a JSON type are written as strings.

    >>> dumps({"x": float("-inf"), "l": [1.5, float("nan")], "s": "NaN"})
    '{"x": "-Infinity", "l": [1.5, "NaN"], "s": "NaN"}'
    """
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str)


def finite(value: Any) -> Any:
    """The value with strings in place of numbers that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def mended(text: str) -> str:
    """JSON as DuckDB writes it, with strings in place of numbers that JSON lacks.

    >>> mended('{"x":NaN,"l":[-Infinity,1.5],"s":"a\\\\"NaN"}')
    '{"x":"NaN","l":["-Infinity",1.5],"s":"a\\\\"NaN"}'
    """
    return _TEXT_OR_WORD.sub(lambda found: found[0] if found[0][0] == '"' else f'"{found[0]}"', text)

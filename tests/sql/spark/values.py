"""Values of Spark and of Millpond in one notation of JSON, so that answers can be recorded and compared."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any


def encoded(value: Any) -> Any:
    """One value: numbers and texts as they are, everything else as a text that says its kind.

    >>> encoded([1, None, decimal.Decimal("1.50"), float("nan")])
    [1, None, 'dec:1.5', 'NaN']
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"inf": "Inf", "-inf": "-Inf"}.get(str(value), "NaN")
        case decimal.Decimal():
            return f"dec:{value.normalize():f}" if value else "dec:0"
        case datetime.datetime():
            naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"ts:{naive.isoformat(' ')}"
        case datetime.date() | datetime.time():
            return f"{type(value).__name__}:{value.isoformat()}"
        case datetime.timedelta():
            return f"interval:{value // datetime.timedelta(microseconds=1)}"
        case bytes() | bytearray() | memoryview():
            return f"hex:{bytes(value).hex()}"
        case tuple() if hasattr(value, "__fields__"):
            return {"struct": [encoded(v) for v in value]}
        case Mapping():
            return {"map": sorted(([encoded(k), encoded(v)] for k, v in value.items()), key=repr)}
        case list() | tuple():
            return [encoded(v) for v in value]
    return f"{type(value).__name__}:{value}"


def same(theirs: Any, ours: Any) -> bool:
    """Are two encoded values equal?  Doubles may differ in the last bits, as Java's functions do."""
    if isinstance(theirs, float | int) and isinstance(ours, float | int):
        if isinstance(theirs, bool) or isinstance(ours, bool):
            return theirs is ours
        if isinstance(theirs, int) and isinstance(ours, int):
            return theirs == ours
        return math.isclose(theirs, ours, rel_tol=1e-13, abs_tol=1e-300)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        # a struct of ours is a mapping, in the order of its fields or of its sorted names
        if "struct" in theirs and "map" in ours:
            rest = [v for _, v in ours["map"]]
            for one in theirs["struct"]:
                found = next((n for n, v in enumerate(rest) if same(one, v)), None)
                if found is None:
                    return False
                del rest[found]
            return not rest
        return theirs.keys() == ours.keys() and all(same(theirs[k], ours[k]) for k in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    return type(theirs) is type(ours) and bool(theirs == ours)

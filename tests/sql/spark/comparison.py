"""What Millpond answers to a query of Spark, beside what Spark answered."""

from __future__ import annotations

import re
from typing import Any

from millpond.errors import MillpondError
from millpond.pond import Pond
from tests.sql.spark.oracle import Answer
from tests.sql.spark.values import encoded, same

# Whose answer changes with time, chance or place.
CHANGING = re.compile(
    r"\b(current_|curdate|now|localtime|rand|randn|random|randstr|uniform|uuid|shuffle|unix_timestamp\(\)|version|user\b"
    r"|session_user|monotonically|input_file|spark_partition)",
    re.IGNORECASE,
)


def answered(pond: Pond, sql: str, *, ansi: bool | None = None) -> Answer:
    """The answer of Millpond; `error` is its message."""
    try:
        result = pond.sql(sql, dialect="spark", ansi=ansi)
        return {
            "columns": list(result.columns),
            "rows": [[encoded(v) for v in row] for row in result.fetchall()],
        }
    except MillpondError as error:
        return {"error": str(error)}


def verdict(theirs: Answer, ours: Answer) -> str:
    """`same`, `refused` (an error here, an answer there), `lenient` (the reverse) or `different`."""
    if "error" in theirs or "error" in ours:
        return (
            "same" if "error" in theirs and "error" in ours else "refused" if "error" in ours else "lenient"
        )
    if equal_rows(theirs["rows"], ours["rows"]):
        return "same"
    return "different"


def equal_rows(theirs: list[Any], ours: list[Any]) -> bool:
    """Are these the same rows, in any order?"""
    if len(theirs) != len(ours):
        return False
    if all(map(same, theirs, ours)):
        return True
    return all(map(same, sorted(theirs, key=repr), sorted(ours, key=repr)))

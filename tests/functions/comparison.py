"""When an answer of Millpond is PostgreSQL's: numbers by value, floats to 14 digits, everything else as text."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

from tests.functions.ours import Failed, Millpond, Rows
from tests.functions.recorded import Answer


def difference(millpond: Millpond, answer: Answer) -> str | None:
    """How Millpond's answer to a query differs; None if it does not."""
    try:
        rows: Rows | None = millpond.ask(answer.query)
        failure = ""
    except Failed as error:
        rows, failure = None, str(error)
    if answer.error is not None:
        return None if rows is None else f"{_short(rows)}; PostgreSQL: {answer.error}"
    if rows is None:
        return f"{failure}; PostgreSQL: {_short(answer.rows)}"
    if len(rows) == len(answer.rows) and all(
        len(a) == len(b) and all(map(same, a, b, answer.types)) for a, b in zip(rows, answer.rows, strict=True)
    ):
        return None
    return f"{_short(rows)}; PostgreSQL: {_short(answer.rows)}"


def _short(rows: object) -> str:
    text = str(rows)
    return text if len(text) < 200 else text[:200] + "…"


def same(a: str | None, b: str | None, kind: str) -> bool:
    if a is None or b is None or a == b:
        return a == b
    if kind in ("int2", "int4", "int8", "numeric"):
        try:
            return Decimal(a) == Decimal(b)
        except InvalidOperation:
            return False
    if kind in ("float4", "float8"):
        x, y = float(a), float(b)
        return (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=1e-14 if kind == "float8" else 1e-6, abs_tol=1e-15)
    if kind in ("float8[]", "numeric[]") and a[0] == b[0] == "{":
        return all(same(x, y, kind[:-2]) for x, y in zip(a[1:-1].split(","), b[1:-1].split(","), strict=True))
    return False

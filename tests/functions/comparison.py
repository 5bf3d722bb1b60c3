"""When an answer of Millpond is PostgreSQL's: numbers by value, floats to 14 digits, everything else as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from tests.functions.ours import Failed, Millpond, Rows
from tests.functions.recorded import Answer

BATCH = 25  # calls that are asked in one query, which costs little more than one of them


def differences(millpond: Millpond, answers: Sequence[Answer]) -> list[tuple[Answer, str]]:
    """The answers that differ from Millpond's, and how."""
    found = []
    plain = [a for a in answers if _is_plain(a)]
    for start in range(0, len(plain), BATCH):
        found += _of_batch(millpond, plain[start : start + BATCH])
    single = ((a, difference(millpond, a)) for a in answers if not _is_plain(a))
    return [*found, *((a, told) for a, told in single if told is not None)]


def _is_plain(answer: Answer) -> bool:
    """Is this one value that can be asked together with others?"""
    return (
        answer.error is None
        and len(answer.rows) == len(answer.types) == 1
        and " FROM " not in answer.query.upper()
    )


def _of_batch(millpond: Millpond, answers: Sequence[Answer]) -> list[tuple[Answer, str]]:
    if len(answers) > 1:
        try:
            (row,) = millpond.ask("SELECT " + ", ".join(a.query.removeprefix("SELECT ") for a in answers))
        except (Failed, ValueError):
            half = len(answers) // 2
            return [*_of_batch(millpond, answers[:half]), *_of_batch(millpond, answers[half:])]
        together = zip(answers, row, strict=True)
        return [
            (a, f"{_short(value)}; PostgreSQL: {_short(a.rows[0][0])}")
            for a, value in together
            if not same(value, a.rows[0][0], a.types[0])
        ]
    return [(a, told) for a in answers if (told := difference(millpond, a)) is not None]


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
        return f"refused: {failure}; PostgreSQL: {_short(answer.rows)}"
    if len(rows) == len(answer.rows) and all(
        len(a) == len(b) and all(map(same, a, b, answer.types))
        for a, b in zip(rows, answer.rows, strict=True)
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
        return (math.isnan(x) and math.isnan(y)) or math.isclose(
            x, y, rel_tol=1e-14 if kind == "float8" else 1e-6, abs_tol=1e-15
        )
    if kind in ("float8[]", "numeric[]") and a[0] == b[0] == "{":
        return all(same(x, y, kind[:-2]) for x, y in zip(a[1:-1].split(","), b[1:-1].split(","), strict=True))
    return False

"""Types, and literals of them.

A kind is *shared* when PostgreSQL has it under the same name with the same values, order and arithmetic.
Literals are few and close together, so that joins meet, groups have members and conditions are sometimes true.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Rng = random.Random


@dataclass(frozen=True)
class Kind:
    name: str
    literal: Callable[[Rng], str]  # what stands in CAST('…' AS kind)
    shared: bool = False
    compares: bool = True  # may be a key, ordered by, the least or the greatest
    often: int = 2


def _one_of(*texts: str) -> Callable[[Rng], str]:
    return lambda rng: rng.choice(texts)


def _list(*items: str) -> Callable[[Rng], str]:
    return lambda rng: "[" + ", ".join(rng.choice(items) for _ in range(rng.randrange(3))) + "]"


STRUCT = "STRUCT(p INTEGER, q VARCHAR)"
KINDS = {
    kind.name: kind
    for kind in (
        Kind("INTEGER", lambda rng: str(rng.randrange(-2, 5)), shared=True, often=5),
        Kind("BIGINT", lambda rng: str(rng.randrange(-2, 5)), shared=True, often=3),
        Kind("SMALLINT", lambda rng: str(rng.randrange(-2, 5)), shared=True, often=1),
        Kind("HUGEINT", lambda rng: str(rng.randrange(-2, 5) * 10 ** rng.choice([0, 25])), often=1),
        Kind("VARCHAR", _one_of("", "a", "b", "ab", "A", "é%_", "b"), shared=True, often=5),
        Kind("DOUBLE", _one_of("0.0", "-0.0", "0.5", "-1.25", "3.0", "0.5", "3.0", "nan", "inf"), often=3),
        Kind("DECIMAL(10,2)", lambda rng: f"{rng.randrange(-300, 300) / 100:.2f}", shared=True, often=3),
        Kind("DECIMAL(30,4)", lambda rng: f"{rng.randrange(-300, 300) / 100:.4f}", shared=True, often=1),
        Kind("BOOLEAN", _one_of("true", "false"), shared=True, often=3),
        Kind("DATE", lambda rng: f"2024-02-{27 + rng.randrange(3)}", shared=True),
        Kind("TIMESTAMP", lambda rng: f"2024-02-28 {rng.randrange(24):02}:30:00", shared=True, often=3),
        Kind("TIMESTAMPTZ", lambda rng: f"2024-02-28 {rng.randrange(24):02}:30:00+00", shared=True),
        Kind("TIME", lambda rng: f"{rng.randrange(5):02}:15:00", shared=True),
        Kind("UUID", lambda rng: f"00000000-0000-0000-0000-00000000000{rng.randrange(5)}", shared=True, often=1),
        Kind("INTERVAL", _one_of("1 day", "2 hours", "0 days", "3 days 1 hour"), compares=False, often=1),
        Kind("JSON", _one_of('{"a": 1}', '{"a": 2, "b": [1]}', "[1, 2]", "3", '"x"', "null"), often=1),
        Kind("BLOB", _one_of("a", "b", "\\x00"), often=1),
        Kind("INTEGER[]", _list("0", "1", "2", "NULL"), shared=True),
        Kind("VARCHAR[]", _list("'a'", "'b'", "NULL"), often=1),
        Kind(STRUCT, lambda rng: f"{{'p': {rng.randrange(3)}, 'q': '{rng.choice('ab')}'}}", often=1),
    )
}  # fmt: skip
WHOLE = ("INTEGER", "BIGINT", "SMALLINT")
NUMBERS = (*WHOLE, "HUGEINT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(30,4)")
TIMES = ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIME")


def names(shared: bool, compares: bool = False) -> list[str]:
    """Kinds to choose from, as often as they should come."""
    return [
        kind.name
        for kind in KINDS.values()
        for _ in range(kind.often)
        if (kind.shared or not shared) and (kind.compares or not compares)
    ]


def literal(kind: str, rng: Rng) -> str:
    """A value of a kind as text of SQL, NULL now and then."""
    if rng.random() < 0.15:
        return f"CAST(NULL AS {kind})"
    text = KINDS[kind].literal(rng)
    if kind.endswith("[]"):
        return f"CAST(ARRAY{text} AS {kind})"
    if kind == STRUCT:
        return f"CAST({text} AS {kind})"
    return f"CAST('{text}' AS {kind})"

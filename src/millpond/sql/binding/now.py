"""now() in a query: the recorded time of the epoch.

The binder must not replace now() with its own clock, so its clock functions are macros that cast a marked
text to a time; the cast can be bound but not computed.  `bound/expression_reader.py` recognizes the mark, and
`lowering/clock_conditions.py` says what it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millpond.sql.binding.types import text_literal
from millpond.sql.bound.clock import CLOCK, STAMP

_MACROS = {
    "TIMESTAMP WITH TIME ZONE": ("now", "get_current_timestamp", "transaction_timestamp"),
    "DATE": ("current_date", "today"),
    "TIMESTAMP": ("current_localtimestamp",),
    "TIME": ("current_localtime",),
    "TIME WITH TIME ZONE": ("get_current_time",),
}
_WORDS = re.compile(
    r"\b(now|proctime|today|(get_)?current_(timestamp|date|time|localtime|localtimestamp)|localtime(stamp)?"
    r"|transaction_timestamp)\b",
    re.IGNORECASE,
)


def macros(now: str | None = None) -> Iterator[str]:
    """Yield statements that make the clock functions return `now`, an instant; without `now`, their marks."""
    instant = f"CAST({now or text_literal(CLOCK)} AS TIMESTAMP WITH TIME ZONE)"
    came = instant if now else f"CAST({text_literal(STAMP)} AS TIMESTAMP WITH TIME ZONE)"
    yield f"create or replace macro proctime() as {came}"
    for kind, names in _MACROS.items():
        given = instant if kind == "TIMESTAMP WITH TIME ZONE" else f"CAST({instant} AS {kind})"
        for name in names:
            yield f"create or replace macro {name}() as {given}"


def may_read_clock(sql: str) -> bool:
    """Does a text contain the name of a clock function?

    >>> may_read_clock("select now()"), may_read_clock("select 'a' as known")
    (True, False)
    """
    return _WORDS.search(sql) is not None

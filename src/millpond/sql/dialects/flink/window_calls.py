"""Window functions in FROM as Flink writes them, which sqlglot cannot read: they become ours.

    TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
    TABLE(HOP(DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts), SLIDE => …, SIZE => …))

Arguments have the same order here, so only the words around them go.
"""

from __future__ import annotations

import re

from millpond.sql.text.parse import SqlFragment, tokens_of

KINDS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_NAMED = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


def with_plain_calls(sql: str) -> str:
    """
    >>> with_plain_calls("SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS w")
    "SELECT * FROM TUMBLE(bid, ts, INTERVAL '1' HOUR) AS w"
    >>> with_plain_calls("TABLE(SESSION(TABLE b PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '1' HOUR))")
    "SESSION(b, ts, INTERVAL '1' HOUR, k)"
    """
    if not re.search(r"\bTABLE\s*\(", sql, re.IGNORECASE):
        return sql
    fragment = SqlFragment(sql, tokens_of(sql, "flink"), "flink")
    for place in range(len(fragment)):
        if fragment.has(place, "LATERAL", "TABLE"):
            fragment.fail(
                "LATERAL TABLE of the dialect 'flink' is not supported", place, "use CROSS JOIN UNNEST"
            )
        if not fragment.has(place, "TABLE", "("):
            continue
        inner, end = fragment.bracket(place + 1)
        kind = inner.word(0)
        if kind not in KINDS:
            fragment.fail(
                f"TABLE({kind} …) of the dialect 'flink' is not supported",
                place,
                f"one of {', '.join(KINDS)}",
            )
        call, _ = inner.bracket(1)
        start, stop = fragment.tokens[place].start, fragment.tokens[end - 1].end + 1
        return with_plain_calls(sql[:start] + _plain(kind, call) + sql[stop:])
    return sql


def _plain(kind: str, call: SqlFragment) -> str:
    parts = _ordered(kind, call.split())
    keys = ""
    if len(parts) > 1:
        by = parts[0].find("PARTITION", "BY")
        if by is not None:
            if kind != "SESSION":
                parts[0].fail(
                    f"PARTITION BY of {kind} is not supported", by, "leave it out, and GROUP BY the key"
                )
            listed = parts[0].part(by + 2)
            keys = ", " + (listed.bracket(0)[0].sql if listed.word(0) == "(" else listed.sql)
            parts[0] = parts[0].part(0, by)
        if parts[0].word(0) == "TABLE":
            parts[0] = parts[0].part(1)
        if parts[1].word(0) == "DESCRIPTOR":
            parts[1] = parts[1].bracket(1)[0]
    return f"{kind}({', '.join(part.sql for part in parts)}{keys})"


def _ordered(kind: str, parts: list[SqlFragment]) -> list[SqlFragment]:
    """Arguments with names, `SIZE => …`, in their order."""
    named: dict[str, SqlFragment] = {}
    for part in parts:
        if part.word(1) == "=>":
            if part.word(0) not in _NAMED[kind]:
                part.fail(f"{kind} has no argument {part.word(0)}", 0, f"one of {', '.join(_NAMED[kind])}")
            named[part.word(0)] = part.part(2)
    if not named:
        return parts
    if len(named) < len(parts):
        parts[0].fail("either all arguments have names or none", 0)
    return [named[name] for name in _NAMED[kind] if name in named]

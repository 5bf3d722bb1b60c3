"""Casts to an interval of some fields: `::interval year to month`, `::interval day to second`."""

from __future__ import annotations

import re

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import become, called, expression

_FIELDS = re.compile(
    rb"interval\s+(year|month|day|hour|minute|second)\b(?:\s+to\s+(month|hour|minute|second)\b)?",
    re.IGNORECASE,
)
_BARE = re.compile(r"((?:.*\s)?)([-+]?\d+(?:\.\d+)?)\s*", re.DOTALL)  # a number without a unit at the end
_DAYS_AND_TIME = re.compile(r"\s*([-+]?\d+)\s+([-+]?\d+:[\d:.]+)\s*")
_YEARS_AND_MONTHS = re.compile(r"\s*([-+]?)(\d+)-(\d+)\s*")
_MINUTES = re.compile(r"\s*([-+]?)(\d+:\d\d(?:\.\d*)?)\s*")


def in_fields(node: Tree, sql: bytes) -> bool:
    """Cut the smaller fields off a cast in place; a number without a unit counts the last field."""
    found = _FIELDS.match(sql[int(node["type_expr"]["query_location"]) :])
    if found is None:
        return False
    first, last = found.groups()
    least = (last or first).decode().lower()
    literal = node["child"].get("literal") or {}
    if literal.get("kind") == "STRING":
        literal["text"] = _with_units(str(literal["text"]), first.decode().lower(), least)
    if least == "second":
        return literal.get("kind") == "STRING"
    become(node, called("date_trunc", expression(f"'{least}'"), {**node, "alias": ""}))
    return True


def _with_units(text: str, first: str, least: str) -> str:
    """
    >>> _with_units("5", "day", "hour"), _with_units("-1-2", "year", "month")
    ('5 hour', '-1 years -2 months')
    >>> _with_units("1 2:03", "day", "second"), _with_units("1:30", "minute", "second")
    ('1 days 2:03', '00:1:30')
    """
    if (found := _DAYS_AND_TIME.fullmatch(text)) is not None:
        return f"{found[1]} days {found[2]}"
    if (found := _YEARS_AND_MONTHS.fullmatch(text)) is not None:
        return f"{found[1]}{found[2]} years {found[1]}{found[3]} months"
    if (first, least) == ("minute", "second") and (found := _MINUTES.fullmatch(text)) is not None:
        return f"{found[1]}00:{found[2]}"
    if (found := _BARE.fullmatch(text)) is not None:
        return f"{found[1]}{found[2]} {least}"
    return text

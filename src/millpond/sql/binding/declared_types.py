"""Types that say more about a column than how its values are stored: `varchar(n)`, `jsonb` and others.

Law: what a statement writes into such a column is what PostgreSQL would write: a text that is too long is
refused unless only spaces are cut, a `name` is cut after 63 characters, `char(n)` has no spaces at its end,
and equal `jsonb` are equal texts.
"""

from __future__ import annotations

import re

from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn

_TEXT = re.compile(
    r"(?P<varchar>varchar|character\s+varying|char\s+varying)\s*\(\s*(?P<most>\d+)\s*\)"
    r"|(?P<char>char|character|nchar|bpchar)\s*(?:\(\s*(?P<size>\d+)\s*\))?",
    re.IGNORECASE,
)

_FIELDS = re.compile(
    r"\binterval\s+(?:(?:day|hour)\s+to\s+)?(?:year(?:\s+to\s+month)?|month|day(?!\s+to\s)|hour(?!\s+to\s)|minute(?!\s+to\s))\b",
    re.IGNORECASE,
)


def declared_type(text: str) -> str | None:
    """What a type of PostgreSQL asks of the values of a column; None if nothing.

    >>> [declared_type(t) for t in ("varchar(4)", "character varying(4)", "char", "bpchar", "jsonb", "text")]
    ['varchar(4)', 'varchar(4)', 'char(1)', None, 'jsonb', None]
    """
    if text.strip().lower() in ("jsonb", "name"):
        return text.strip().lower()
    fields = _FIELDS.search(text)
    if fields is not None:
        raise InvalidError(
            f"a column cannot be of type {fields[0].lower()}",
            hint=f"make it an interval, and cut its values: x::{fields[0].lower()}",
        )
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        return None
    if found["varchar"]:
        return f"varchar({int(found['most'])})"
    if found["size"] is None and found["char"].lower() == "bpchar":
        return None
    return f"char({int(found['size'] or 1)})"


def declared_size(declared: str | None) -> int | None:
    """How many characters a declared type takes at most.

    >>> declared_size("varchar(4)"), declared_size("jsonb"), declared_size(None)
    (4, None, None)
    """
    size = (declared or "").rstrip(")").partition("(")[2]
    return int(size) if size else None


def as_declared(column: SqlColumn, value: str) -> str:
    """The expression that gives what a column stores of a value."""
    if column.declared is None:
        return value
    if column.declared == "name":
        return f"__pg.main.name({value})"
    if column.declared == "jsonb":
        return f"__pg.main.jsonb_in({value})"
    kind, _, size = column.declared.rstrip(")").partition("(")
    return f"__pg.main.{'fitted' if kind == 'varchar' else 'padded'}({value}, {size})"

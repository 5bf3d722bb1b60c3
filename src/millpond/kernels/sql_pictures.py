"""Shows where an error is in a text of SQL: the line, with a caret under the position."""

from __future__ import annotations

from millpond.masking import masked_at

SHOWN_MAX = 20_000  # characters: a longer text is shown up to here


def picture(sql: str, at: tuple[int, int] | None) -> str:
    """The line of a text with a caret under a position, passed as (byte, bytes); secrets are masked.

    >>> print(picture("price * pric", (8, 4)))
        price * pric
                ^^^^
    """
    whole = len(sql)
    if (
        whole > SHOWN_MAX
    ):  # masking some megabytes takes a second; only the end is cut off, so no secret is exposed
        at = at if at is not None and at[0] < SHOWN_MAX // 2 else None
        sql = sql[: SHOWN_MAX if at is not None else SHOWN_MAX // 10]
    sql, at = masked_at(sql, at)
    if whole > SHOWN_MAX and at is None:
        sql += f" … ({whole} characters)"
    raw = sql.encode()
    if at is None or not 0 <= at[0] <= len(raw):
        return "\n".join(f"    {line}" for line in sql.split("\n"))
    start, length = at
    before = raw[:start].decode(errors="replace")
    marked = raw[start : start + max(length, 1)].decode(errors="replace").split("\n")[0]
    first = before.rfind("\n") + 1
    line = sql[first:].split("\n")[0]
    return f"    {line}\n    {' ' * (len(before) - first)}{'^' * max(len(marked), 1)}"

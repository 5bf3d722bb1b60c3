"""Shows the first rows of a table as text and as HTML, for `repr` and notebooks.

Law: a preview is bounded in rows and in the width of a value, and HTML has every name and value escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

ROWS_MAX = 20
CHARACTERS_MAX = 60  # the maximum width of one value


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> str:
    """Rows in the layout of psql; `rows` are the first of `count` rows.

    >>> print(text_table(["who", "n"], [("ann", 5), ("bob", None)], 7))
     who | n
    -----+------
     ann | 5
     bob | NULL
    (2 of 7 rows)
    """
    shown = [[shown_value(value) for value in row] for row in rows]
    names = [_shortened(name) for name in columns]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    lines = [_line(names, widths), "+".join("-" * (width + 2) for width in widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in shown), f"({row_count(len(rows), count)})"])


def html_table(
    columns: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]], count: int
) -> str:
    """The same as an HTML table, with the type of each column below its name."""
    head = "".join(
        f"<th>{html.escape(name)}<br><small>{html.escape(kind)}</small></th>"
        for name, kind in zip(columns, types, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown_value(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{row_count(len(rows), count)}</p>"
    )


def html_facts(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """A title and named facts as an HTML table of two columns.

    >>> html_facts("Pond", [("views", "a<b")])
    '<table><caption>Pond</caption><tbody><tr><th>views</th><td>a&lt;b</td></tr></tbody></table>'
    """
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{rows}</tbody></table>"


def row_count(shown: int, count: int) -> str:
    """
    >>> row_count(1, 1), row_count(20, 1000)
    ('1 row', '20 of 1000 rows')
    """
    words = f"{count} row{'' if count == 1 else 's'}"
    return words if shown == count else f"{shown} of {words}"


def shown_value(value: Any) -> str:
    """
    >>> shown_value(None), shown_value("two\\nlines"), shown_value("x" * 100)[-3:]
    ('NULL', 'two\\\\nlines', 'xx…')
    """
    return "NULL" if value is None else _shortened(str(value))


def _shortened(text: str) -> str:
    """A text in one line, without control characters, truncated if it is long."""
    cut = text if len(text) <= CHARACTERS_MAX else f"{text[: CHARACTERS_MAX - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    return " " + " | ".join(value.ljust(width) for value, width in zip(values, widths, strict=True)).rstrip()

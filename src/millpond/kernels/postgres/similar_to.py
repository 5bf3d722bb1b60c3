"""The patterns of SIMILAR TO and of `substring(… SIMILAR …)`, as PostgreSQL's regular expressions."""

from __future__ import annotations


def as_regular_expression(pattern: str, escape: str) -> str:
    r"""
    >>> as_regular_expression("a%(b|c)_", "\\")
    '^(?:a.*(?:b|c).)$'
    """
    if len(escape) > 1:
        raise ValueError("invalid escape string")
    found: list[str] = []
    parts = 0
    at = 0
    inside = False  # brackets
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if escape and char == escape:
            if at >= len(pattern):
                break
            if pattern[at] == '"' and not inside:
                parts += 1
                if parts > 2:
                    raise ValueError(
                        "SQL regular expression may not contain more than two escape-double-quote separators"
                    )
                found.append("){1,1}?(" if parts == 1 else "){1,1}(?:")
            else:
                found.append("\\" + pattern[at])
            at += 1
        elif inside:
            inside = char != "]"
            found.append("\\\\" if char == "\\" else char)
        elif char == "[":
            inside = True
            found.append(char)
        elif char == "%":
            found.append(".*")
        elif char == "_":
            found.append(".")
        elif char == "(":
            found.append("(?:")
        elif char in "\\.^$":
            found.append("\\" + char)
        else:
            found.append(char)
    body = "".join(found)
    if parts:
        return f"^(?:{body})$"
    return f"^(?:{body})$"

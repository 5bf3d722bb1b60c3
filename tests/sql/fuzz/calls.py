"""Calls in a text of SQL: where they stand, and what stands between their parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_PIECE = re.compile(r"'(?:[^']|'')*'|[()\[\]{},]|[^'()\[\]{},]+")


@dataclass(frozen=True)
class Call:
    name: str
    parts: tuple[str, ...]  # between commas
    begin: int
    end: int


def closing(text: str, at: int) -> tuple[int, tuple[str, ...]]:
    """Behind the parenthesis that closes the one at a place, and what stands between commas.

    >>> closing("f(a, (b, ')'), c) d", 1)
    (17, ('a', "(b, ')')", 'c'))
    """
    depth, parts, begin = 0, [], at + 1
    for piece in _PIECE.finditer(text, at):
        if piece[0] in ("(", "[", "{"):
            depth += 1
        elif piece[0] in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                parts.append(text[begin : piece.start()].strip())
                return piece.end(), tuple(parts)
        elif piece[0] == "," and depth == 1:
            parts.append(text[begin : piece.start()].strip())
            begin = piece.end()
    raise ValueError(f"no end of the parenthesis at {at}: {text}")


def calls(text: str, names: Iterable[str]) -> list[Call]:
    """The calls of some functions, those that begin first come first."""
    known = {name.lower(): name for name in names}
    found = re.compile(rf"(?<![\w.'])({'|'.join(known)})\(", re.IGNORECASE)
    made = []
    for match in found.finditer(text):
        end, parts = closing(text, match.end() - 1)
        made.append(Call(known[match[1].lower()], parts, match.start(), end))
    return made


def rewritten(text: str, names: Iterable[str], write: Callable[[Call], str]) -> str:
    """The text with other words for calls, inner ones first.

    >>> rewritten("f(f(1), 2)", ["f"], lambda call: f"<{'|'.join(call.parts)}>")
    '<<1>|2>'
    """
    names = list(names)
    while found := calls(text, names):
        last = found[-1]
        text = text[: last.begin] + write(last) + text[last.end :]
    return text


def with_tail(text: str, name: str, write: Callable[[Call, str], str]) -> str:
    """Calls of an aggregate written otherwise, each with its FILTER and OVER.

    >>> with_tail("g(x) FILTER (WHERE (a)) + 1", "g", lambda call, tail: f"max({call.parts[0]}){tail}")
    'max(x) FILTER (WHERE (a)) + 1'
    """
    while found := calls(text, [name]):
        last = found[-1]
        end = last.end
        while (more := re.compile(r" (FILTER|OVER) \(").match(text, end)) is not None:
            end, _ = closing(text, more.end() - 1)
        text = text[: last.begin] + write(last, text[last.end : end]) + text[end:]
    return text

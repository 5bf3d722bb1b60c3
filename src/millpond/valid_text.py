"""Refuses text that UTF-8 cannot encode: a lone surrogate is half a character."""

from __future__ import annotations

from typing import Any

from millpond.errors import InvalidError


def require_text(text: str, what: str) -> str:
    """Return the text, or raise InvalidError if it is not valid Unicode.

    >>> require_text("naïve", "the name of a view")
    'naïve'
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(
            f"{what} is not valid Unicode text",
            detail=f"lone surrogate {text[error.start]!a} at character {error.start}",
            hint="decode the bytes that it came from with their encoding, or with errors='replace'",
        ) from None
    return text


def require_texts(value: Any, what: str) -> None:
    """The same for all texts inside lists, tuples and dicts."""
    if isinstance(value, str):
        require_text(value, what)
    elif isinstance(value, list | tuple):
        for part in value:
            require_texts(part, what)
    elif isinstance(value, dict):
        for key, part in value.items():
            require_texts(key, what)
            require_texts(part, what)

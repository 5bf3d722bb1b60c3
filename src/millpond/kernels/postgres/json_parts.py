"""Parts of a JSON text, as they are written there: `json` keeps its text, a part of `jsonb` is normalised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _value_end(text: str, at: int) -> int:
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid input syntax for type json: {error}") from None


def kind_of(text: str) -> str:
    """
    >>> kind_of(' [1]'), kind_of('null'), kind_of('-1')
    ('array', 'null', 'number')
    """
    first = text[_skip(text, 0) : _skip(text, 0) + 1]
    return {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}.get(
        first, "number"
    )


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """The keys of an object and the texts of their values."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        end = _value_end(text, at)
        yield key, text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def elements(text: str) -> Iterator[str]:
    """The texts of the elements of an array."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        end = _value_end(text, at)
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


@lru_cache(64)
def object_of(text: str) -> dict[str, str]:
    return dict(pairs(text))


@lru_cache(64)
def array_of(text: str) -> tuple[str, ...]:
    return tuple(elements(text))


def field(text: str, key: str) -> str | None:
    return object_of(text).get(key) if kind_of(text) == "object" else None


def element(text: str, place: int) -> str | None:
    if kind_of(text) != "array":
        return None
    found = array_of(text)
    return found[place] if -len(found) <= place < len(found) else None


def at_path(text: str, path: tuple[str | None, ...]) -> str | None:
    """Follow a path of keys and positions."""
    found: str | None = text
    for step in path:
        if found is None or step is None:
            return None
        kind = kind_of(found)
        if kind == "object":
            found = field(found, step)
        elif kind == "array" and re.fullmatch(r"\s*[+-]?\d+", step):
            found = element(found, int(step))
        else:
            return None
    return found


def as_text(part: str | None) -> str | None:
    """What `->>` returns: a string without its quotes; null is NULL."""
    if part is None:
        return None
    kind = kind_of(part)
    if kind == "null":
        return None
    if kind != "string":
        return part
    value = json.loads(part)
    assert isinstance(value, str)
    return value

"""JSON: `get_json_object` and others, over texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.kernels.spark.rows import by_row

_TEXT = pa.string()
_STEP = re.compile(r"\.\.?([^.\[\]*]+)|\['([^']+)'\]|\[(\d+)\]|\.\*|\[\*\]")
_NONE = object()


class _WrittenNumber(str):
    """A number of a document, in the digits that it was written with."""


@by_row("spark.get_json_object.1", ("VARCHAR", "VARCHAR"), "VARCHAR", _TEXT)
def get_json_object(text: str, path: str) -> str | None:
    return _found(text, path, _parsed)


@by_row("spark.get_json_object.2", ("VARCHAR", "VARCHAR"), "VARCHAR", _TEXT)
def get_json_object_of_first(text: str, path: str) -> str | None:
    """The same; what follows the first value of the text is not read."""
    return _found(text, path, _first_parsed)


def _found(text: str, path: str, parse: Callable[[str], Any]) -> str | None:
    steps = _steps(path)
    if steps is None:
        return None
    document = parse(text)
    if document is _NONE:
        return None
    found = [document]
    spread = False
    for step in steps:
        following = []
        for one in found:
            if step == "*":
                spread = True
                following += one if isinstance(one, list) else []
            elif isinstance(step, int):
                following += [one[step]] if isinstance(one, list) and step < len(one) else []
            elif isinstance(one, dict) and step in one:
                following.append(one[step])
            elif isinstance(one, list):  # a field of an array is the field of each element
                inner = [e[step] for e in one if isinstance(e, dict) and step in e]
                following += inner
                spread = spread or bool(inner)
        found = following
    if not found or (len(found) == 1 and found[0] is None):
        return None
    if len(found) == 1:
        return found[0] if type(found[0]) is str else written(found[0])
    return written(found)


def _steps(path: str) -> list[str | int] | None:
    if not path.startswith("$"):
        return None
    found: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        at = match.end()
        found.append(match[1] or match[2] or (int(match[3]) if match[3] else "*"))
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_WrittenNumber, parse_int=_WrittenNumber)
    except (ValueError, RecursionError):
        return _NONE


_DECODER = json.JSONDecoder(parse_float=_WrittenNumber, parse_int=_WrittenNumber)


def _first_parsed(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return _NONE


def written(value: Any) -> str:
    """A value as JSON without blanks."""
    match value:
        case _WrittenNumber():
            return str(value)
        case dict():
            return "{" + ",".join(f"{written(k)}:{written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@by_row("spark.json_field.1", ("VARCHAR", "VARCHAR"), "VARCHAR", _TEXT)
def json_field(text: str, name: str) -> str | None:
    document = _parsed(text)
    if not isinstance(document, dict) or document.get(name) is None:
        return None
    value = document[name]
    return value if type(value) is str else written(value)


@by_row("spark.json_array_length.1", ("VARCHAR",), "INTEGER", pa.int32())
def json_array_length(text: str) -> int | None:
    document = _parsed(text)
    return len(document) if isinstance(document, list) else None


@by_row("spark.json_object_keys.1", ("VARCHAR",), "VARCHAR[]", pa.list_(_TEXT))
def json_object_keys(text: str) -> list[str] | None:
    document = _parsed(text)
    return list(document) if isinstance(document, dict) else None

"""PostgreSQL's functions that change a `jsonb` or compare two."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from millpond.kernels.postgres.json_text import jsonb_text, read_json
from millpond.kernels.postgres.rows import row_function

Path = tuple[str | None, ...]


@row_function("pg.jsonb_set.1", ("VARCHAR", "VARCHAR[]", "VARCHAR", "BOOLEAN"), "VARCHAR")
def jsonb_set(text: str, path: Path, new: str, create: bool) -> str:
    document = _container(text, "cannot set path in scalar")
    if not path or (not document and not create):
        return jsonb_text(document)
    _no_nulls(path)
    return jsonb_text(_set(document, path, read_json(new), create, 0))


@row_function("pg.jsonb_insert.1", ("VARCHAR", "VARCHAR[]", "VARCHAR", "BOOLEAN"), "VARCHAR")
def jsonb_insert(text: str, path: Path, new: str, after: bool) -> str:
    document = _container(text, "cannot set path in scalar")
    _no_nulls(path)
    return jsonb_text(_insert(document, path, read_json(new), after, 0)) if path else jsonb_text(document)


@row_function("pg.jsonb_delete_path.1", ("VARCHAR", "VARCHAR[]"), "VARCHAR")
def jsonb_delete_path(text: str, path: Path) -> str:
    document = _container(text, "cannot delete path in scalar")
    _no_nulls(path)
    return jsonb_text(_deleted(document, path, 0)) if path else jsonb_text(document)


@row_function("pg.jsonb_delete_path.2", ("VARCHAR", "VARCHAR[]"), "VARCHAR")
def jsonb_delete_path_2(text: str, path: Path) -> str:
    """The same as version 1, and nothing can be deleted from an empty array or object."""
    document = _container(text, "cannot delete path in scalar")
    _no_nulls(path)
    return jsonb_text(_deleted(document, path, 0)) if path and document else jsonb_text(document)


@row_function("pg.jsonb_delete_key.1", ("VARCHAR", "VARCHAR[]"), "VARCHAR")
def jsonb_delete_key(text: str, keys: Path) -> str:
    document = _container(text, "cannot delete from scalar")
    if isinstance(document, dict):
        return jsonb_text({k: v for k, v in document.items() if k not in keys})
    return jsonb_text([v for v in document if not (isinstance(v, str) and v in keys)])


@row_function("pg.jsonb_delete_at.1", ("VARCHAR", "BIGINT"), "VARCHAR")
def jsonb_delete_at(text: str, place: int) -> str:
    document = _container(text, "cannot delete from scalar")
    if isinstance(document, dict):
        raise ValueError("cannot delete from object using integer index")
    if -len(document) <= place < len(document):
        del document[place]
    return jsonb_text(document)


@row_function("pg.jsonb_concat.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def jsonb_concat(left: str, right: str) -> str:
    a, b = read_json(left), read_json(right)
    if isinstance(a, dict) and isinstance(b, dict):
        return jsonb_text({**a, **b})
    return jsonb_text([*(a if isinstance(a, list) else [a]), *(b if isinstance(b, list) else [b])])


@row_function("pg.jsonb_contains.1", ("VARCHAR", "VARCHAR"), "BOOLEAN")
def jsonb_contains(left: str, right: str) -> bool:
    a, b = read_json(left), read_json(right)
    if isinstance(a, list) and not isinstance(b, (list, dict)):
        return any(_same(v, b) for v in a)  # an array contains a primitive value
    return contains(a, b)


def contains(a: Any, b: Any) -> bool:
    """Does one document contain another, at the same level?"""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(k in a and contains(a[k], v) for k, v in b.items())
    if isinstance(a, list) and isinstance(b, list):
        return all(any(contains(x, y) for x in a) for y in b)
    return _same(a, b)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    numbers = (int, Decimal)
    if isinstance(a, numbers) and isinstance(b, numbers):
        return a == b
    return type(a) is type(b) and a == b


@row_function("pg.jsonb_exists.1", ("VARCHAR", "VARCHAR[]", "BOOLEAN"), "BOOLEAN")
def jsonb_exists(text: str, keys: Path, every: bool) -> bool:
    document = read_json(text)
    if isinstance(document, dict):
        found = set(document)
    elif isinstance(document, list):
        found = {v for v in document if isinstance(v, str)}
    else:
        found = {document} if isinstance(document, str) else set()
    asked = [key in found for key in keys if key is not None]
    return all(asked) if every else any(asked)


def _container(text: str, message: str) -> Any:
    document = read_json(text)
    if not isinstance(document, (dict, list)):
        raise ValueError(message)
    return document


def _no_nulls(path: Path) -> None:
    for place, step in enumerate(path):
        if step is None:
            raise ValueError(f"path element at position {place + 1} is null")


def _place(step: str | None, size: int, at: int) -> int:
    """The position that a step of a path names; it may lie outside."""
    if step is None or not re.fullmatch(r"\s*[+-]?\d+", step):
        raise ValueError(f'path element at position {at + 1} is not an integer: "{step}"')
    place = int(step)
    return place + size if place < 0 else place


def _set(value: Any, path: Path, new: Any, create: bool, at: int) -> Any:
    step, last = path[at], at == len(path) - 1
    if isinstance(value, dict):
        assert step is not None
        if step in value:
            value[step] = new if last else _deeper(value[step], path, new, create, at)
        elif last and create:
            value[step] = new
        return value
    place = _place(step, len(value), at)
    if 0 <= place < len(value):
        value[place] = new if last else _deeper(value[place], path, new, create, at)
    elif last and create:
        value.insert(0 if place < 0 else len(value), new)
    return value


def _deeper(value: Any, path: Path, new: Any, create: bool, at: int) -> Any:
    return _set(value, path, new, create, at + 1) if isinstance(value, (dict, list)) else value


def _insert(value: Any, path: Path, new: Any, after: bool, at: int) -> Any:
    step, last = path[at], at == len(path) - 1
    if isinstance(value, dict):
        assert step is not None
        if last:
            if step in value:
                raise ValueError("cannot replace existing key")
            value[step] = new
        elif step in value and isinstance(value[step], (dict, list)):
            value[step] = _insert(value[step], path, new, after, at + 1)
        return value
    size = len(value)
    place = _place(step, size, at)
    if last:
        if place < 0:
            value.insert(0, new)
        else:
            value.insert(min(place + after, size), new)
    elif 0 <= place < size and isinstance(value[place], (dict, list)):
        value[place] = _insert(value[place], path, new, after, at + 1)
    return value


def _deleted(value: Any, path: Path, at: int) -> Any:
    step, last = path[at], at == len(path) - 1
    if isinstance(value, dict):
        assert step is not None
        if step in value:
            if last:
                del value[step]
            elif isinstance(value[step], (dict, list)):
                value[step] = _deleted(value[step], path, at + 1)
        return value
    place = _place(step, len(value), at)
    if 0 <= place < len(value):
        if last:
            del value[place]
        elif isinstance(value[place], (dict, list)):
            value[place] = _deleted(value[place], path, at + 1)
    return value

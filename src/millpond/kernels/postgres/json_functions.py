"""PostgreSQL's functions over JSON that read documents and make them from values of SQL."""

from __future__ import annotations

from typing import Any

from millpond.kernels.postgres.json_parts import array_of, as_text, at_path, element, field, kind_of, pairs
from millpond.kernels.postgres.json_text import (
    JsonObject,
    compact_text,
    json_of,
    jsonb_text,
    pretty_text,
    read_json,
    read_pairs,
    string_text,
)
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.type_names import type_named

Texts = tuple[str | None, ...]


@row_function("pg.to_json.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def to_json(text: str, kind: str) -> str:
    """The JSON of a value that DuckDB wrote as JSON, and whose type has this name."""
    return json_of(read_pairs(text), type_named(kind))


@row_function("pg.to_json_lines.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def to_json_lines(text: str, kind: str) -> str:
    return json_of(read_pairs(text), type_named(kind), ",\n ")


@row_function("pg.jsonb.1", ("VARCHAR",), "VARCHAR")
def jsonb(text: str) -> str:
    return jsonb_text(read_json(text))


@row_function("pg.json_valid.1", ("VARCHAR",), "VARCHAR")
def json_valid(text: str) -> str:
    read_json(text)
    return text


@row_function("pg.json_array.1", ("VARCHAR[]",), "VARCHAR")
def json_array(values: Texts) -> str:
    return "[" + ", ".join(v or "null" for v in values) + "]"


@row_function("pg.json_object.1", ("VARCHAR[]",), "VARCHAR")
def json_object(values: Texts) -> str:
    """Keys and values by turns; values are JSON."""
    if len(values) % 2:
        raise ValueError("argument list must have even number of elements")
    if any(key is None for key in values[::2]):
        raise ValueError("null value not allowed for object key")
    found = zip(values[::2], values[1::2], strict=True)
    return "{" + ", ".join(f"{string_text(k or '')} : {v or 'null'}" for k, v in found) + "}"


@row_function("pg.json_from_texts.1", ("VARCHAR[]",), "VARCHAR")
def json_from_texts(values: Texts) -> str:
    if len(values) % 2:
        raise ValueError("array must have even number of elements")
    return _of_texts(values[::2], values[1::2])


@row_function("pg.json_from_two.1", ("VARCHAR[]", "VARCHAR[]"), "VARCHAR")
def json_from_two(keys: Texts, values: Texts) -> str:
    if len(keys) != len(values):
        raise ValueError("mismatched array dimensions")
    return _of_texts(keys, values)


def _of_texts(keys: Texts, values: Texts) -> str:
    parts = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise ValueError("null value not allowed for object key")
        parts.append(f"{string_text(key)} : {'null' if value is None else string_text(value)}")
    return "{" + ", ".join(parts) + "}"


@row_function("pg.json_agg.1", ("VARCHAR[]",), "VARCHAR")
def json_agg(values: Texts) -> str:
    return "[" + ", ".join(v or "null" for v in values).removeprefix("\n ") + "]"


@row_function("pg.json_object_agg.1", ("VARCHAR[]", "VARCHAR[]"), "VARCHAR")
def json_object_agg(keys: Texts, values: Texts) -> str:
    if any(key is None for key in keys):
        raise ValueError("field name must not be null")
    found = zip(keys, values, strict=True)
    return "{ " + ", ".join(f"{string_text(k or '')} : {v or 'null'}" for k, v in found) + " }"


# -- parts ------------------------------------------------------------------------------------------


@row_function("pg.json_field.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def json_field(text: str, key: str) -> str | None:
    return field(text, key)


@row_function("pg.json_element.1", ("VARCHAR", "BIGINT"), "VARCHAR")
def json_element(text: str, place: int) -> str | None:
    return element(text, place)


@row_function("pg.json_path.1", ("VARCHAR", "VARCHAR[]"), "VARCHAR")
def json_path(text: str, path: Texts) -> str | None:
    return at_path(text, path)


@row_function("pg.json_as_text.1", ("VARCHAR",), "VARCHAR")
def json_as_text(part: str) -> str | None:
    return as_text(part)


@row_function("pg.json_typeof.1", ("VARCHAR",), "VARCHAR")
def json_typeof(text: str) -> str:
    return kind_of(text)


@row_function("pg.json_array_length.1", ("VARCHAR",), "INTEGER")
def json_array_length(text: str) -> int:
    kind = kind_of(text)
    if kind != "array":
        raise ValueError(f"cannot get array length of {'a non-array' if kind == 'object' else 'a scalar'}")
    return len(array_of(text))


@row_function("pg.json_elements.1", ("VARCHAR",), "VARCHAR[]")
def json_elements(text: str) -> list[str]:
    kind = kind_of(text)
    if kind != "array":
        what = "an object" if kind == "object" else "a scalar"
        raise ValueError(f"cannot extract elements from {what}")
    return list(array_of(text))


@row_function("pg.json_elements_text.1", ("VARCHAR",), "VARCHAR[]")
def json_elements_text(text: str) -> list[str | None]:
    kind = kind_of(text)
    if kind != "array":
        raise ValueError(f"cannot extract elements from {'an object' if kind == 'object' else 'a scalar'}")
    return [as_text(part) for part in array_of(text)]


@row_function("pg.json_pairs.1", ("VARCHAR", "BOOLEAN", "BOOLEAN"), "VARCHAR[][]")
def json_pairs(text: str, texts: bool, keys: bool) -> list[list[str | None]]:
    """The pairs of an object; its values as texts if wanted."""
    kind = kind_of(text)
    if kind != "object":
        what = "an array" if kind == "array" else "a scalar"
        raise ValueError(f"cannot call json_object_keys on {what}" if keys else f"cannot deconstruct {what}")
    return [[key, as_text(value) if texts else value] for key, value in pairs(text)]


@row_function("pg.json_strip_nulls.1", ("VARCHAR",), "VARCHAR")
def json_strip_nulls(text: str) -> str:
    return compact_text(_without_nulls(read_pairs(text)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, JsonObject):
        return JsonObject((k, _without_nulls(v)) for k, v in value if v is not None)
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


@row_function("pg.jsonb_strip_nulls.1", ("VARCHAR",), "VARCHAR")
def jsonb_strip_nulls(text: str) -> str:
    return jsonb_text(_dict_without_nulls(read_json(text)))


def _dict_without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _dict_without_nulls(v) for k, v in value.items() if v is not None}
    return [_dict_without_nulls(v) for v in value] if isinstance(value, list) else value


@row_function("pg.jsonb_pretty.1", ("VARCHAR",), "VARCHAR")
def jsonb_pretty(text: str) -> str:
    return pretty_text(read_json(text))

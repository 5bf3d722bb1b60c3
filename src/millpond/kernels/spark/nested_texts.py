"""CAST of an array, a map or a struct to STRING: `[1, null]`, `{a -> 1}`, `{1, x}`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.kernels.spark.numbers import java_notation
from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.type_text import Kind, kind_of
from millpond.kernels.spark.values_to_json import decimal_text, moment_of

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


@by_row("spark.nested_text.1", ("VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def nested_text(text: str, type_text: str) -> str:
    """The text of a value, from its JSON.

    >>> given = pa.array(['{"a":[1.0,null],"b":"x"}']), pa.array(["STRUCT(a DOUBLE[], b VARCHAR)"])
    >>> nested_text.code(*given)[0].as_py()
    '{[1.0, null], x}'
    """
    return _text(_DECODER.decode(text), kind_of(type_text))


def _text(value: Any, kind: Kind) -> str:
    if value is None:
        return "null"
    match kind.name:
        case "STRUCT":
            pairs = zip(value.values(), kind.parts, strict=True)
            return "{" + ", ".join(_text(v, k) for v, k in pairs) + "}"
        case "LIST":
            return "[" + ", ".join(_text(v, kind.parts[0]) for v in value) + "]"
        case "MAP":
            key, held = kind.parts
            return "{" + ", ".join(f"{_key(k, key)} -> {_text(v, held)}" for k, v in value.items()) + "}"
    return _scalar(value, kind)


def _key(text: str, kind: Kind) -> str:
    if kind.name in ("STRUCT", "LIST", "MAP"):
        raise RefusedValue("CAST of a map with nested keys to STRING is not supported: use map_entries")
    return _scalar(text, kind)


def _scalar(value: Any, kind: Kind) -> str:
    match kind.name:
        case "VARCHAR" | "DATE" | "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT":
            return str(value)
        case "BOOLEAN":
            return str(value).lower()
        case "DOUBLE" | "FLOAT":
            return java_notation(str(np.float32(value)) if kind.name == "FLOAT" else str(value))
        case "DECIMAL":
            return decimal_text(value, kind)
        case "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
            shown = moment_of(value).isoformat(" ")
            return shown.rstrip("0") if "." in shown else shown
        case '"NULL"' | "NULL":
            return "null"
    raise RefusedValue(f"CAST of a value with {kind.name} to STRING is not supported: use to_json")

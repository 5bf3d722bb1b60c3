"""Structs are compared field by field, whatever the names: NULL equals NULL and comes before all else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.type_text import Kind, kind_of
from millpond.kernels.spark.values_to_json import blob_of, moment_of

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@by_row("spark.compared.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "INTEGER", pa.int32())
def compared(a: str, type_a: str, b: str, type_b: str) -> int:
    """-1, 0 or 1: is the first value, in JSON, before the second, equal or behind it?

    >>> one = pa.array(['{"x":1,"y":null}']), pa.array(["STRUCT(x INTEGER, y DATE)"])
    >>> other = pa.array(['{"p":1.0,"q":"2024-01-02"}']), pa.array(["STRUCT(p DOUBLE, q DATE)"])
    >>> compared.code(*one, *other)[0].as_py()
    -1
    """
    return _compared(_DECODER.decode(a), kind_of(type_a), _DECODER.decode(b), kind_of(type_b))


def _compared(a: Any, kind_a: Kind, b: Any, kind_b: Kind) -> int:
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if kind_a.name == kind_b.name == "LIST":
        for x, y in zip(a, b, strict=False):
            found = _compared(x, kind_a.parts[0], y, kind_b.parts[0])
            if found:
                return found
        return _sign(len(a), len(b))
    if kind_a.name == kind_b.name == "STRUCT" and len(kind_a.parts) == len(kind_b.parts):
        for x, part_x, y, part_y in zip(a.values(), kind_a.parts, b.values(), kind_b.parts, strict=True):
            found = _compared(x, part_x, y, part_y)
            if found:
                return found
        return 0
    return _sign(*_comparable(a, kind_a, b, kind_b))


def _sign(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _comparable(a: Any, kind_a: Kind, b: Any, kind_b: Kind) -> tuple[Any, Any]:
    names = {kind_a.name, kind_b.name}
    if names <= {*_NUMBERS}:
        return _number(a), _number(b)
    if names <= {*_TIMES}:
        return moment_of(a), moment_of(b)
    if names == {"BLOB"}:
        return blob_of(a), blob_of(b)
    if names in ({"VARCHAR"}, {"BOOLEAN"}):
        return a, b
    raise RefusedValue(f"a field with {kind_a.name} is not compared with one with {kind_b.name}: cast one")


def _number(value: Any) -> tuple[int, Decimal]:
    """NaN is above all numbers."""
    number = Decimal(str(value))
    return (1, Decimal(0)) if number.is_nan() else (0, number)

"""The parts of an array or a struct that `hash` and `xxhash64` take, one after the other."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.type_text import Kind, kind_of
from millpond.kernels.spark.values_to_json import blob_of, moment_of

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


@by_row("spark.hash_parts.1", ("VARCHAR", "VARCHAR"), "VARCHAR[]", pa.list_(pa.string()))
def hash_parts(text: str, type_text: str) -> list[str]:
    """The parts of `[value]` in JSON; an element or a field that is NULL is none.

    >>> given = pa.array(['[{"a":1,"b":["x",null]}]']), pa.array(["STRUCT(a INTEGER, b VARCHAR[])"])
    >>> hash_parts.code(*given)[0].as_py()
    ['i:1', 's:x']
    """
    (value,) = _DECODER.decode(text)
    return list(_parts(value, kind_of(type_text)))


def _parts(value: Any, kind: Kind) -> Iterator[str]:
    if value is None:
        return
    match kind.name:
        case "STRUCT":
            for one, part in zip(value.values(), kind.parts, strict=True):
                yield from _parts(one, part)
        case "LIST":
            for one in value:
                yield from _parts(one, kind.parts[0])
        case _:
            yield _part(value, kind)


def _part(value: Any, kind: Kind) -> str:
    match kind.name:
        case "TINYINT" | "SMALLINT" | "INTEGER":
            return f"i:{value}"
        case "BOOLEAN":
            return f"i:{int(value)}"
        case "BIGINT":
            return f"l:{value}"
        case "FLOAT" | "DOUBLE":
            return f"{kind.name[0].lower()}:{value}"
        case "VARCHAR":
            return f"s:{value}"
        case "BLOB":
            return f"b:{blob_of(value).hex()}"
        case "DATE":
            return f"i:{(datetime.date.fromisoformat(value) - _EPOCH.date()).days}"
        case "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
            return f"l:{(moment_of(value) - _EPOCH) // _MICROSECOND}"
        case "DECIMAL":
            unscaled = int(decimal.Decimal(str(value)).scaleb(kind.digits[1], decimal.Context(prec=60)))
            return f"{'l' if kind.digits[0] <= 18 else 'n'}:{unscaled}"
    raise RefusedValue(f"hash of {kind.name} is not supported")

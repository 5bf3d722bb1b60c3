"""`to_json`: structs, arrays and maps as Spark writes them, from DuckDB's JSON and their type.

A field that is NULL is left out; elements of arrays and values of maps are not.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.kernels.spark.java_times import shown
from millpond.kernels.spark.numbers import java_notation
from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.type_text import Kind, kind_of

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
_EPOCH = datetime.datetime(1970, 1, 1)


@by_row("spark.to_json.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def to_json(text: str, type_text: str, date_pattern: str, time_pattern: str) -> str:
    kind = kind_of(type_text)
    if kind.name not in ("STRUCT", "LIST", "MAP"):
        raise RefusedValue("to_json needs a struct, an array or a map")
    return _JsonWriter(date_pattern, time_pattern).value(_DECODER.decode(text), kind)


class _JsonWriter:
    def __init__(self, date_pattern: str, time_pattern: str) -> None:
        self.date_pattern = date_pattern
        self.time_pattern = time_pattern

    def value(self, value: Any, kind: Kind) -> str:
        if value is None:
            return "null"
        match kind.name:
            case "STRUCT":
                pairs = zip(kind.fields, value.values(), kind.parts, strict=True)
                inside = (f"{in_quotes(n)}:{self.value(v, k)}" for n, v, k in pairs if v is not None)
                return "{" + ",".join(inside) + "}"
            case "LIST":
                return "[" + ",".join(self.value(one, kind.parts[0]) for one in value) + "]"
            case "MAP":
                key, held = kind.parts
                return (
                    "{"
                    + ",".join(f"{in_quotes(_key(k, key))}:{self.value(v, held)}" for k, v in value.items())
                    + "}"
                )
            case "BOOLEAN" | "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT" | '"NULL"' | "NULL":
                return json.dumps(value)
            case "DOUBLE" | "FLOAT":
                number = java_notation(str(np.float32(value)) if kind.name == "FLOAT" else str(value))
                return number if number[-1].isdigit() else f'"{number}"'
            case "DECIMAL":
                return decimal_text(value, kind)
            case "VARCHAR":
                return in_quotes(value)
            case "BLOB":
                return in_quotes(base64.b64encode(blob_of(value)).decode())
            case "DATE":
                return in_quotes(self._date(value))
            case "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
                return in_quotes(self._moment(value, kind.name.endswith("ZONE")))
        raise RefusedValue(f"to_json of {kind.name} is not supported: cast it to STRING")

    def _date(self, value: str) -> str:
        if not self.date_pattern:
            return value
        return shown(datetime.datetime.fromisoformat(value), self.date_pattern)

    def _moment(self, value: str, zoned: bool) -> str:
        moment = moment_of(value)
        if self.time_pattern:
            return shown(moment, self.time_pattern)
        return moment.isoformat("T", "milliseconds") + ("Z" if zoned else "")


def moment_of(value: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(value).replace(tzinfo=None)
    except ValueError:
        raise RefusedValue("a time outside of the years 1 to 9999 is not supported here") from None


def _key(text: str, kind: Kind) -> str:
    """The key of a map as a name: times are the numbers that Spark stores."""
    match kind.name:
        case "DATE":
            return str((datetime.date.fromisoformat(text) - _EPOCH.date()).days)
        case "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
            return str((moment_of(text) - _EPOCH) // datetime.timedelta(microseconds=1))
        case "DOUBLE" | "FLOAT":
            return java_notation(text)
        case "DECIMAL":
            return decimal_text(text, kind)
        case "STRUCT" | "LIST" | "MAP" | "BLOB" | "INTERVAL":
            raise RefusedValue(f"to_json of a map with keys of {kind.name} is not supported")
    return text


def decimal_text(value: Any, kind: Kind) -> str:
    unit = decimal.Decimal(1).scaleb(-kind.digits[1])
    return str(decimal.Decimal(str(value)).quantize(unit, context=decimal.Context(prec=40)))


def blob_of(text: str) -> bytes:
    """A BLOB as DuckDB writes it: bytes outside of ASCII as \\xAB."""
    return re.sub(r"\\x([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text, flags=re.DOTALL).encode(
        "latin-1"
    )


def in_quotes(text: str) -> str:
    """A text as JSON; control characters are escaped with capital letters."""
    return re.sub(r"\\u([0-9a-f]{4})", lambda u: f"\\u{u[1].upper()}", json.dumps(text, ensure_ascii=False))

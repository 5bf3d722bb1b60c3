"""`schema_of_json` and `schema_of_csv`: the type that a text has, in Spark's notation."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from millpond.kernels.spark.csv_values import cells_of
from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.times import text_as_date, text_as_moment


class _PointedNumber(float):
    """A number with a point or an exponent."""


_DECODER = json.JSONDecoder(parse_float=_PointedNumber)
Type = str | dict[str, Any] | list[Any]  # a name, the fields of a struct, or [the type of the elements]


@by_row("spark.schema_of_json.1", ("VARCHAR",), "VARCHAR", pa.string())
def schema_of_json(text: str) -> str:
    """The type of a document; fields are in the order of their names.

    >>> schema_of_json.code(pa.array(['[{"b":1},{"a":1.5,"b":null}]']))[0].as_py()
    'ARRAY<STRUCT<a: DOUBLE, b: BIGINT>>'
    """
    try:
        return _written(_type(_DECODER.decode(text)))
    except ValueError:
        raise RefusedValue("schema_of_json needs a JSON document") from None


def _type(value: Any) -> Type:
    match value:
        case None:
            return "VOID"
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -(2**63) <= value < 2**63 else f"DECIMAL({len(str(abs(value)))},0)"
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
        case list():
            found: Type = "VOID"
            for one in value:
                found = _common(found, _type(one))
            return [found]
    return {name: _type(value[name]) for name in sorted(value)}


def _common(a: Type, b: Type) -> Type:
    if a == b or b == "VOID":
        return a
    if a == "VOID":
        return b
    if isinstance(a, dict) and isinstance(b, dict):
        return {n: _common(a.get(n, "VOID"), b.get(n, "VOID")) for n in sorted({*a, *b})}
    if isinstance(a, list) and isinstance(b, list):
        return [_common(a[0], b[0])]
    if {str(a), str(b)} == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if "DECIMAL" in f"{a}{b}" and "STRING" not in (a, b):
        raise RefusedValue("schema_of_json of numbers beyond BIGINT beside others is not supported")
    return "STRING"


def _written(kind: Type) -> str:
    if isinstance(kind, dict):
        listed = ", ".join(f"{_name(n)}: {_written(k)}" for n, k in kind.items())
        return f"STRUCT<{listed}>"
    if isinstance(kind, list):
        return f"ARRAY<{_written(kind[0])}>"
    return "STRING" if kind == "VOID" else kind


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


@by_row("spark.schema_of_csv.1", ("VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def schema_of_csv(text: str, between: str) -> str:
    listed = ", ".join(f"_c{n}: {_of_cell(cell)}" for n, cell in enumerate(cells_of(text, between)))
    return f"STRUCT<{listed}>"


def _of_cell(text: str) -> str:
    if not text:
        return "STRING"
    if re.fullmatch(r"[+-]?\d+", text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return "INT"
        return "BIGINT" if -(2**63) <= number < 2**63 else f"DECIMAL({len(text.lstrip('+-'))},0)"
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|[+-]?(Inf|Infinity)", text):
        return "DOUBLE"
    if text.lower() in ("true", "false"):
        return "BOOLEAN"
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) and text_as_date(text) is not None:
        return "DATE"
    if re.match(r"\d{4}-\d{2}-\d{2}[ T]\d", text) and text_as_moment(text, True) is not None:
        return "TIMESTAMP"
    return "STRING"

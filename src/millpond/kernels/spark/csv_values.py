"""`to_csv` and `from_csv`: a struct of single values as one line of text."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.kernels.spark.java_times import shown
from millpond.kernels.spark.json_to_values import Misfit, read_scalar
from millpond.kernels.spark.numbers import java_notation
from millpond.kernels.spark.rows import RefusedValue, by_row
from millpond.kernels.spark.type_text import Kind, kind_of
from millpond.kernels.spark.values_to_json import decimal_text, moment_of

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


@by_row("spark.to_csv.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def to_csv(text: str, type_text: str, between: str, date_pattern: str, time_pattern: str) -> str:
    """The fields of a struct, from its JSON; NULL is nothing, an empty text is quoted."""
    kind = kind_of(type_text)
    if kind.name != "STRUCT":
        raise RefusedValue("to_csv needs a struct")
    values = _DECODER.decode(text).values()
    shown_values = (
        "" if v is None else _quoted(_text(v, k, date_pattern, time_pattern), between)
        for v, k in zip(values, kind.parts, strict=True)
    )
    return between.join(shown_values)


def _quoted(text: str, between: str) -> str:
    if not text:
        return '""'
    text = text.strip(" \t") if text.strip(" \t") != text else text
    if between in text or "\n" in text or "\r" in text or '"' in text:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def _text(value: Any, kind: Kind, date_pattern: str, time_pattern: str) -> str:
    match kind.name:
        case "VARCHAR":
            return str(value)
        case "BOOLEAN":
            return str(value).lower()
        case "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT":
            return str(value)
        case "DOUBLE" | "FLOAT":
            return java_notation(str(np.float32(value)) if kind.name == "FLOAT" else str(value))
        case "DECIMAL":
            return decimal_text(value, kind)
        case "DATE":
            return shown(datetime.datetime.fromisoformat(value), date_pattern) if date_pattern else str(value)
        case "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
            moment = moment_of(value)
            if time_pattern:
                return shown(moment, time_pattern)
            return moment.isoformat("T", "milliseconds") + ("Z" if kind.name.endswith("ZONE") else "")
    raise RefusedValue(f"to_csv of {kind.name} is not supported: cast it to STRING")


@by_row("spark.from_csv.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def from_csv(text: str, type_text: str, between: str, date_pattern: str, time_pattern: str) -> str:
    """A line as JSON that has the fields of the type; a field that does not fit is NULL."""
    kind = kind_of(type_text)
    cells: list[str | None] = [*cells_of(text, between)]
    cells += [None] * (len(kind.fields) - len(cells))
    made = {}
    for name, part, cell in zip(kind.fields, kind.parts, cells, strict=False):
        try:
            made[name] = None if not cell else read_scalar(cell, part, date_pattern, time_pattern)
        except Misfit:
            made[name] = None
    return json.dumps(made, ensure_ascii=False)


def cells_of(line: str, between: str) -> list[str]:
    r"""The cells of a line; one in quotes may have separators, and quotes behind a backslash.

    >>> cells_of('1,"a,\\"b",', ",")
    ['1', 'a,"b', '']
    """
    found, at = [], 0
    cell = re.compile(r'"((?:[^"\\]|\\.)*)"(?=' + re.escape(between) + r"|\Z)", re.DOTALL)
    while True:
        quoted = cell.match(line, at)
        if quoted is not None:
            found.append(re.sub(r'\\(["\\])', r"\1", quoted[1]))
            at = quoted.end()
        else:
            end = line.find(between, at)
            end = len(line) if end < 0 else end
            found.append(line[at:end])
            at = end
        if at >= len(line):
            return found
        at += len(between)

"""`from_json`: a document as values of a type, in the form that DuckDB's from_json reads without loss.

Spark's mode is PERMISSIVE: a field that does not fit is NULL, and a text that is no document makes all
fields NULL.  An array or a map with an element that does not fit is NULL itself.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
import re
from typing import Any

import pyarrow as pa

from millpond.kernels.spark.java_times import read as moment_of_pattern
from millpond.kernels.spark.numbers import java_notation
from millpond.kernels.spark.rows import by_row
from millpond.kernels.spark.times import text_as_date, text_as_moment
from millpond.kernels.spark.type_text import Kind, kind_of

_EPOCH = datetime.datetime(1970, 1, 1)
_RANGES = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
_FLOATS = {"NaN": "nan", **dict.fromkeys(("Infinity", "INF", "+INF", "+Infinity"), "inf")}
_FLOATS |= dict.fromkeys(("-Infinity", "-INF"), "-inf")


class Misfit(ValueError):
    """A value that its type cannot hold."""


class _WholeNumber(str):
    """An integer of a document, as it is written."""


class _Fraction(str):
    """A number of a document with a point or an exponent."""


_DECODER = json.JSONDecoder(parse_float=_Fraction, parse_int=_WholeNumber, parse_constant=_Fraction)


@by_row("spark.from_json.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", pa.string())
def from_json(text: str, type_text: str, date_pattern: str, time_pattern: str) -> str | None:
    """A document as JSON that has exactly the fields of the type; NULL if nothing can be read."""
    kind = kind_of(type_text)
    if not text.strip():
        return None
    empty = "{}" if kind.name == "STRUCT" else None
    try:
        document = _parsed(text)
        if kind.name == "LIST" and isinstance(document, dict) and kind.parts[0].name == "STRUCT":
            document = [document]
        if document is None:
            return empty
        made = _DocumentReader(date_pattern, time_pattern).value(document, kind)
    except (Misfit, RecursionError):
        return empty
    return json.dumps(made, ensure_ascii=False)


def _parsed(text: str) -> Any:
    """The first value of a text; texts may be in single quotes."""
    for one in (text, _double_quoted(text)):
        try:
            return _DECODER.raw_decode(one.lstrip())[0]
        except ValueError:
            continue
    raise Misfit


def _double_quoted(text: str) -> str:
    def changed(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0]
        return '"' + found[0][1:-1].replace("\\'", "'").replace('"', '\\"') + '"'

    return re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", changed, text, flags=re.DOTALL)


class _DocumentReader:
    def __init__(self, date_pattern: str, time_pattern: str) -> None:
        self.date_pattern = date_pattern
        self.time_pattern = time_pattern

    def value(self, value: Any, kind: Kind) -> Any:
        """A value of a document as DuckDB reads it."""
        if value is None:
            return None
        match kind.name:
            case "STRUCT":
                return self._struct(value, kind)
            case "LIST":
                if not isinstance(value, list):
                    raise Misfit
                return [self.value(one, kind.parts[0]) for one in value]
            case "MAP":
                if not isinstance(value, dict):
                    raise Misfit
                return {key: self.value(one, kind.parts[1]) for key, one in value.items()}
            case "VARCHAR":
                return value if type(value) is str else _written(value)
            case "BOOLEAN":
                if not isinstance(value, bool):
                    raise Misfit
                return value
            case "DATE" | "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
                return self._time(value, kind)
            case "BLOB":
                return _bytes(value)
        return _number(value, kind)

    def _struct(self, value: Any, kind: Kind) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit
        made: dict[str, Any] = {}
        for name, part in zip(kind.fields, kind.parts, strict=True):
            try:
                made[name] = self.value(value.get(name), part)
            except Misfit:
                made[name] = None
        return made

    def _time(self, value: Any, kind: Kind) -> str:
        if type(value) is _WholeNumber and kind.name.endswith("ZONE"):
            return _moment_of_seconds(int(value))
        if type(value) is not str:
            raise Misfit
        if kind.name == "DATE":
            if self.date_pattern:
                parsed = moment_of_pattern(value, self.date_pattern)
                day = None if parsed is None else parsed.date()
            else:
                day = text_as_date(value)
            if day is None:
                raise Misfit
            return day.isoformat()
        if self.time_pattern:
            moment = moment_of_pattern(value, self.time_pattern)
        else:
            moment = text_as_moment(value, kind.name.endswith("ZONE"))
        if moment is None:
            raise Misfit
        return moment.isoformat(" ") + ("+00" if kind.name.endswith("ZONE") else "")


def read_scalar(text: str, kind: Kind, date_pattern: str, time_pattern: str) -> Any:
    """A single value of a text, as DuckDB's from_json reads it; `Misfit` if it is none of the type."""
    match kind.name:
        case "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise Misfit
            return text.lower() == "true"
        case "VARCHAR" | "DATE" | "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE":
            return _DocumentReader(date_pattern, time_pattern).value(text, kind)
        case "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT":
            if re.fullmatch(r"[+-]?\d+", text) is None:
                raise Misfit
            return _number(_WholeNumber(text), kind)
        case "DOUBLE" | "FLOAT" | "DECIMAL":
            bare = text.strip()
            if bare in _FLOATS and kind.name != "DECIMAL":
                return _FLOATS[bare]
            if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", bare) is None:
                raise Misfit
            return _number(_Fraction(bare), kind)
    raise Misfit


def _moment_of_seconds(seconds: int) -> str:
    try:
        return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat(" ") + "+00"
    except OverflowError:
        raise Misfit from None


def _bytes(value: Any) -> str:
    if type(value) is not str:
        raise Misfit
    try:
        return "".join(f"\\x{byte:02X}" for byte in base64.b64decode(value, validate=True))
    except binascii.Error:
        raise Misfit from None


def _number(value: Any, kind: Kind) -> Any:
    is_number = isinstance(value, _WholeNumber | _Fraction)
    if kind.name in _RANGES:
        limit = 2 ** _RANGES[kind.name]
        if type(value) is not _WholeNumber or not -limit <= int(value) < limit:
            raise Misfit
        return int(value)
    if kind.name == "DECIMAL":
        return _decimal(value, kind)
    if kind.name not in ("DOUBLE", "FLOAT") or not (is_number or value in _FLOATS):
        raise Misfit
    made = float(_FLOATS.get(value, value))
    return made if math.isfinite(made) else str(made)


def _decimal(value: Any, kind: Kind) -> str:
    if not isinstance(value, str):
        raise Misfit
    width, scale = kind.digits
    try:
        exact = decimal.Decimal(value.replace(",", ""))
        if not exact.is_finite():
            raise Misfit
        unit = decimal.Decimal(1).scaleb(-scale)
        made = exact.quantize(unit, decimal.ROUND_HALF_UP, decimal.Context(prec=width))
    except decimal.InvalidOperation:
        raise Misfit from None
    return f"{made:f}"


def _written(value: Any) -> str:
    """A value as JSON, with fractions as Java writes them."""
    match value:
        case _WholeNumber():
            return str(int(value))
        case _Fraction():
            return java_notation(repr(float(value)))
        case dict():
            return "{" + ",".join(f"{_written(k)}:{_written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)

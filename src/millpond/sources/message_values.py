"""Values of JSON and Avro messages as values of declared columns.

Debezium and Kafka Connect write times as numbers and decimals as bytes.
The schema in a message names the form of each value (`Form`); without a schema, settings of the table say it.

Law: a value is never changed silently.
What does not fit a column exactly, and what could mean two things, is an error with the reason.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

Decimals = Literal["", "precise", "string", "double"]
Times = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring"
]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_NS = 86_400 * 10**9
_FIRST_NS, _LAST_NS = -62_135_596_800 * 10**9, 253_402_300_800 * 10**9 - 1  # years from 1 to 9999
_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
# By the last part of a form's name: the nanoseconds of its unit.
_UNITS = {
    **{"Timestamp": 10**6, "MicroTimestamp": 1000, "NanoTimestamp": 1},
    **{"Time": 10**6, "MicroTime": 1000, "NanoTime": 1},
}
_TIMES = frozenset([*_UNITS, "Date"])
_FRACTION = re.compile(r"\.(\d{6})(\d+)")
_PLACEHOLDER = "__debezium_unavailable_value"  # of a large value that the update did not touch
_PLACEHOLDER_BYTES = _PLACEHOLDER.encode()
_PLACEHOLDER_TEXTS = frozenset((_PLACEHOLDER, base64.b64encode(_PLACEHOLDER_BYTES).decode()))
_PLACEHOLDERS: tuple[Any, ...] = (  # in bytes, in arrays and in hstore
    *(_PLACEHOLDER_BYTES, [_PLACEHOLDER], [*_PLACEHOLDER_BYTES], {_PLACEHOLDER: _PLACEHOLDER}),
)


@dataclass(frozen=True)
class Form:
    """How a schema says that a value is written."""

    name: str = ""  # such as io.debezium.time.MicroTimestamp
    scale: int | None = None  # of a decimal that is written as bytes
    items: Form | None = None  # of the values of an array

    @property
    def kind(self) -> str:
        """The last part of the name.

        >>> Form("io.debezium.time.Date").kind
        'Date'
        """
        return self.name.rpartition(".")[2]


NO_FORM = Form()


@dataclass(frozen=True)
class Unnamed:
    """The forms of values whose schema is not in the messages."""

    decimals: Decimals = ""  # "": texts are numbers or base64, unless one could be both
    times: Times = "adaptive"


class Number(float):
    """A number with a point or an exponent, with its text: a decimal keeps all digits."""

    text: str

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


def read_json(data: bytes | str) -> Any:
    """
    >>> read_json("[1, 0.1]"), read_json("0.10").text
    ([1, 0.1], '0.10')
    """
    return json.loads(data, parse_float=Number)


def is_unavailable(value: Any) -> bool:
    """Does a value stand for one that the event does not have?"""
    if isinstance(value, str):
        return value in _PLACEHOLDER_TEXTS
    return isinstance(value, bytes | list | dict) and value in _PLACEHOLDERS


Reader = Callable[[Any, Form, Unnamed], Any]  # of values that are not NULL


def typed(value: Any, kind: pa.DataType, form: Form, unnamed: Unnamed) -> Any:
    """A value of a message as a value of a type; ValueError or TypeError if it is none.

    >>> typed(1, pa.date32(), Form(), Unnamed()), typed("AN4=", pa.decimal128(10, 2), Form(), Unnamed())
    (datetime.date(1970, 1, 2), Decimal('2.22'))
    """
    return None if value is None else reader_of(kind)(value, form, unnamed)


@lru_cache(maxsize=256)
def reader_of(kind: pa.DataType) -> Reader:
    """What turns a value into one of this type."""
    t = pa.types
    if t.is_date(kind):
        return lambda value, form, unnamed: _date(value, form)
    if t.is_timestamp(kind):
        unit = kind.unit
        return lambda value, form, unnamed: _in_unit(_instant(value, unit, form, unnamed.times), unit)
    if t.is_time(kind):
        return lambda value, form, unnamed: _in_unit(_time_of_day(value, form, unnamed.times), kind.unit)
    if t.is_decimal(kind):
        return lambda value, form, unnamed: _decimal(value, kind, form, unnamed.decimals)
    if t.is_floating(kind):
        return lambda value, form, unnamed: _floating(value)
    if t.is_binary(kind):
        return lambda value, form, unnamed: _bytes(value)
    if t.is_string(kind):
        return lambda value, form, unnamed: value if isinstance(value, str) else _text(value)
    if t.is_list(kind):
        return lambda value, form, unnamed: _list(value, kind.value_type, form.items or NO_FORM, unnamed)
    if t.is_struct(kind):
        return lambda value, form, unnamed: _struct(value, kind, unnamed)
    if t.is_map(kind):
        return lambda value, form, unnamed: _map(value, kind.item_type, unnamed)
    return lambda value, form, unnamed: value


def _floating(value: Any) -> float:
    if not isinstance(value, int | float | str | decimal.Decimal) or isinstance(value, bool):
        raise TypeError("a number is wanted")
    return float(value)


def _bytes(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value) if isinstance(value, uuid.UUID) else value


def _list(value: Any, kind: pa.DataType, form: Form, unnamed: Unnamed) -> Any:
    if not isinstance(value, list):
        return value
    return [typed(one, kind, form, unnamed) for one in value]


def _struct(value: Any, kind: pa.DataType, unnamed: Unnamed) -> Any:
    if not isinstance(value, dict):
        return value
    return {f.name: typed(value.get(f.name), f.type, NO_FORM, unnamed) for f in kind}


def _map(value: Any, kind: pa.DataType, unnamed: Unnamed) -> Any:
    if not isinstance(value, dict):
        return value
    return [(name, typed(one, kind, NO_FORM, unnamed)) for name, one in value.items()]


def exact_time(value: Any, kind: pa.DataType, form: Form) -> Any:
    """A time, as a number in the unit of its column if need be; other values, and texts, as they are.

    >>> exact_time(1000, pa.timestamp("us"), Form("io.debezium.time.Timestamp"))
    1000000
    """
    t = pa.types
    if (
        value is None
        or isinstance(value, str)
        or not (t.is_date(kind) or t.is_timestamp(kind) or t.is_time(kind))
    ):
        return value
    if isinstance(value, int) and form.kind not in _TIMES:
        raise TypeError("it is a whole number whose unit is not known")
    return typed(value, kind, form, Unnamed())


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a whole number is wanted")
    return value


def _in_unit(nanoseconds: int, unit: str) -> int:
    found, rest = divmod(nanoseconds, _NS[unit])
    if rest:
        raise ValueError("it has more digits of a second than the column")
    return found


def _date(value: Any, form: Form) -> datetime.date:
    if isinstance(value, datetime.datetime) or form.kind.endswith("Timestamp"):
        days, rest = divmod(_instant(value, "us", form, "adaptive"), _DAY_NS)
        if rest:
            raise ValueError("it has a time of day")
        return (_EPOCH + datetime.timedelta(days=days)).date()
    if isinstance(value, datetime.date):
        return value
    if isinstance(value, str):
        text = value.removesuffix("Z")
        if len(text) <= 10:
            return datetime.date.fromisoformat(text)
        found = datetime.datetime.fromisoformat(value)
        if found.time() != datetime.time():
            raise ValueError("it has a time of day")
        return found.date()
    return (_EPOCH + datetime.timedelta(days=_whole(value))).date()


def _instant(value: Any, unit: str, form: Form, times: Times) -> int:
    """Nanoseconds since 1970, in UTC."""
    nanoseconds = 0
    if isinstance(value, str):
        more = _FRACTION.search(value)
        if more is not None:
            nanoseconds = int(more[2].ljust(3, "0")[:3])
            if more[2][3:].strip("0"):
                raise ValueError("it has more than nine digits of a second")
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        aware = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
        return (aware - _EPOCH) // datetime.timedelta(microseconds=1) * 1000 + nanoseconds
    factor = _UNITS.get(form.kind)
    if factor is None:
        adaptive = {"s": 10**6, "ms": 10**6, "us": 1000, "ns": 1}[unit]  # Debezium has no seconds
        factor = {"connect": 10**6, "microseconds": 1000, "nanoseconds": 1}.get(times, adaptive)
    found = _whole(value) * factor
    if not _FIRST_NS <= found <= _LAST_NS:
        raise ValueError("its year is not between 1 and 9999")
    return found


def _time_of_day(value: Any, form: Form, times: Times) -> int:
    """Nanoseconds since midnight; a time with a zone is one in UTC."""
    if isinstance(value, str):
        value = datetime.time.fromisoformat(value)
    if isinstance(value, datetime.time):
        since = datetime.datetime.combine(datetime.date(1970, 1, 1), value.replace(tzinfo=None))
        offset = value.utcoffset() or datetime.timedelta()
        micros = (since - offset - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
        return micros * 1000 % _DAY_NS
    factor = _UNITS.get(form.kind)
    if factor is None:
        factor = {"connect": 10**6, "nanoseconds": 1}.get(times, 1000)
    found = _whole(value) * factor
    if not 0 <= found < _DAY_NS:
        raise ValueError("it is no time of a day")
    return found


def _decimal(value: Any, kind: pa.DataType, form: Form, decimals: Decimals) -> decimal.Decimal:
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, Number):
        return decimal.Decimal(value.text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return decimal.Decimal(str(value))
    if isinstance(value, dict):  # io.debezium.data.VariableScaleDecimal
        return _from_bytes(value["value"], _whole(value["scale"]))
    if isinstance(value, bytes) or form.kind == "Decimal":
        return _from_bytes(value, kind.scale if form.scale is None else form.scale)
    if not isinstance(value, str):
        raise TypeError("a number is wanted")
    number = None if decimals == "precise" else _number(value)
    if decimals in ("string", "double"):
        if number is None:
            raise ValueError("it is no number; bytes in base64 need decimal.handling.mode = 'precise'")
        return number
    try:
        found = _from_bytes(value, kind.scale)
    except ValueError:
        if number is None:
            raise
        return number
    if number is not None:
        raise ValueError("it is a number, and bytes in base64 as well: set decimal.handling.mode")
    return found


def _number(text: str) -> decimal.Decimal | None:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None


def _from_bytes(value: Any, scale: int) -> decimal.Decimal:
    data = base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)
    with decimal.localcontext(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)


# -- schemas --------------------------------------------------------------------


def json_forms(schema: Any, inside: str) -> dict[str, Form]:
    """By column: the form that the schema beside a JSON value names; `inside` is the field with the row."""
    if not isinstance(schema, dict):
        return {}
    fields = schema.get("fields") or []
    if inside:
        rows = [f for f in fields if f.get("field") in ("before", inside)]  # both are described alike
        fields = next((row["fields"] for row in rows if row.get("fields")), [])
    return {f["field"]: _json_form(f) for f in fields if "field" in f}


def _json_form(schema: Mapping[str, Any]) -> Form:
    scale = (schema.get("parameters") or {}).get("scale")
    items = schema.get("items")
    return Form(
        schema.get("name") or "",
        None if scale is None else int(scale),
        _json_form(items) if isinstance(items, dict) else None,
    )


@lru_cache(maxsize=256)
def avro_forms(text: str, inside: str) -> Mapping[str, Form]:
    """By column: the form that an Avro schema names; `inside` is the field with the row."""
    fields: Sequence[Any] = json.loads(text).get("fields", [])
    if inside:
        # The row is described where it first stands: `before`.
        rows = [_of_kind(f["type"], "record") for f in fields if f["name"] in ("before", inside)]
        fields = next((row["fields"] for row in rows if row), [])
    return {field["name"]: _avro_form(field["type"]) for field in fields}


def _avro_form(kind: Any) -> Form:
    named = [k for k in _kinds(kind) if isinstance(k, dict) and "connect.name" in k]
    name = str(named[0]["connect.name"]) if named else ""
    scale = (named[0].get("connect.parameters") or {}).get("scale") if named else None
    if any(k.get("logicalType", "").endswith("timestamp-nanos") for k in _kinds(kind) if isinstance(k, dict)):
        name = name or "NanoTimestamp"
    array = _of_kind(kind, "array")
    items = None if array is None else _avro_form(array["items"])
    return Form(name, None if scale is None else int(scale), items)


def _of_kind(kind: Any, wanted: str) -> Any:
    return next((k for k in _kinds(kind) if isinstance(k, dict) and k.get("type") == wanted), None)


def _kinds(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]

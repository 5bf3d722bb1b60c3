"""Values of Debezium and Kafka Connect in all their forms: exact, or an error with the reason."""

from __future__ import annotations

import base64
import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.sources.message_values import (
    Form,
    Unnamed,
    avro_forms,
    is_unavailable,
    json_forms,
    read_json,
    typed,
)

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
US, MS, NS, TIME = pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns"), pa.time64("us")
AT_S = 1_700_000_000
PRICE = pa.decimal128(20, 4)
MONEY = Form(CONNECT + "Decimal", 2)


def stored(value: Any, kind: pa.DataType, form: Form = Form(), unnamed: Unnamed = Unnamed()) -> Any:  # noqa: B008
    found = pa.array([typed(value, kind, form, unnamed)], kind)[0]
    return found.value if kind == NS else found.as_py()


@pytest.mark.parametrize("name", [DEBEZIUM + "Timestamp", CONNECT + "Timestamp"])
def test_timestamps_have_the_unit_that_the_schema_names(name: str) -> None:
    at = datetime.datetime(2023, 11, 14, 22, 13, 20)
    for kind in (US, MS, pa.timestamp("s")):
        assert stored(AT_S * 1000, kind, Form(name)) == at
        assert stored(AT_S * 10**6, kind, Form(DEBEZIUM + "MicroTimestamp")) == at
        assert stored(AT_S * 10**9, kind, Form(DEBEZIUM + "NanoTimestamp")) == at
        assert stored("2023-11-14T23:13:20+01:00", kind, Form(DEBEZIUM + "ZonedTimestamp")) == at
    assert stored(AT_S * 10**9 + 7, NS, Form(DEBEZIUM + "NanoTimestamp")) == AT_S * 10**9 + 7
    assert stored("2023-11-14T22:13:20.123456789Z", NS) == AT_S * 10**9 + 123_456_789
    assert stored("1969-12-31T23:59:59.999999Z", US) == datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)


def test_without_a_schema_the_setting_or_the_column_says_the_unit() -> None:
    at = datetime.datetime(2023, 11, 14, 22, 13, 20)
    assert stored(AT_S * 10**6, US) == stored(AT_S * 1000, MS) == at  # as Debezium's own default
    assert stored(AT_S * 10**9, NS) == AT_S * 10**9
    for times, factor in (("connect", 1000), ("microseconds", 10**6), ("nanoseconds", 10**9)):
        for kind in (US, MS):
            assert stored(AT_S * factor, kind, unnamed=Unnamed(times=times)) == at  # type: ignore[arg-type]
    ten = datetime.time(10)
    for times, factor in (("connect", 10**3), ("adaptive", 10**6), ("nanoseconds", 10**9)):
        assert stored(36_000 * factor, TIME, unnamed=Unnamed(times=times)) == ten  # type: ignore[arg-type]


def test_times_and_dates() -> None:
    ten = datetime.time(10)
    for name, factor in ((DEBEZIUM + "Time", 10**3), (CONNECT + "Time", 10**3)):
        assert stored(36_000 * factor, TIME, Form(name)) == ten
    assert stored(36_000 * 10**6, TIME, Form(DEBEZIUM + "MicroTime")) == ten
    assert stored(36_000 * 10**9, TIME, Form(DEBEZIUM + "NanoTime")) == ten
    assert stored("10:00:00Z", TIME) == stored("12:00:00+02:00", TIME) == stored("10:00:00", TIME) == ten
    day = datetime.date(2022, 1, 8)
    assert stored(19_000, pa.date32(), Form(DEBEZIUM + "Date")) == stored("2022-01-08", pa.date32()) == day
    assert stored("2022-01-08Z", pa.date32()) == stored("2022-01-08T00:00:00Z", pa.date32()) == day
    assert stored(19_000 * 86_400_000, pa.date32(), Form(DEBEZIUM + "Timestamp")) == day  # a DATE of Oracle
    assert stored([19_000, None], pa.list_(pa.date32())) == [day, None]


def test_decimals_as_bytes_numbers_and_texts() -> None:
    for number in (0, 222, -1, 10**15, -(10**17)):
        data = number.to_bytes(9, "big", signed=True)
        text = base64.b64encode(data).decode()
        wanted = Decimal(number).scaleb(-2)
        assert stored(text, PRICE, MONEY) == stored(data, PRICE, MONEY) == wanted
        variable = {"scale": 2, "value": text}
        assert stored(variable, PRICE, Form("io.debezium.data.VariableScaleDecimal")) == wanted
    # Base64 that could be a number: the schema decides, not its looks.
    for text in ("1234", "12E4", "0000"):
        data = int.from_bytes(base64.b64decode(text), "big", signed=True)
        assert stored(text, PRICE, MONEY) == Decimal(data).scaleb(-2)
    assert stored(["AN4="], pa.list_(PRICE), Form(items=MONEY)) == [Decimal("2.22")]
    assert stored(read_json("1234567890123456.78"), PRICE) == Decimal("1234567890123456.78")
    assert stored(7, PRICE) == 7


def test_decimals_without_a_schema() -> None:
    assert stored("AN4=", pa.decimal128(10, 2)) == Decimal("2.22")
    assert stored("12.5", PRICE) == Decimal("12.5")
    for text in ("1234", "12E4", "Infinity"):
        with pytest.raises(ValueError, match=r"set decimal\.handling\.mode"):
            stored(text, PRICE)
    assert stored("1234", PRICE, unnamed=Unnamed("string")) == 1234
    assert stored("1234", PRICE, unnamed=Unnamed("precise")) == Decimal(-2658824).scaleb(-4)
    with pytest.raises(ValueError, match="'precise'"):
        stored("AN4=", PRICE, unnamed=Unnamed("string"))


@pytest.mark.parametrize(
    ("value", "kind", "form"),
    [
        (36_000 * 10**9 + 1, TIME, DEBEZIUM + "NanoTime"),
        (86_400 * 10**6, TIME, DEBEZIUM + "MicroTime"),
        (-1, TIME, DEBEZIUM + "MicroTime"),
        (AT_S * 10**9 + 1, US, DEBEZIUM + "NanoTimestamp"),
        (AT_S * 10**3 + 1, pa.timestamp("s"), DEBEZIUM + "Timestamp"),
        ("2023-11-14T22:13:20.123456789Z", US, ""),
        (9223372036825200000, US, DEBEZIUM + "MicroTimestamp"),  # infinity
        (1.5, US, ""),
        (True, US, ""),
        (True, TIME, ""),
        (True, pa.date32(), ""),
        (True, PRICE, ""),
        (True, pa.float64(), ""),
        ("2024-01-01junk", pa.date32(), ""),
        ("2024-01-01T10:00:00", pa.date32(), ""),
        ("1.00001", PRICE, ""),
        ("NaN", PRICE, ""),
        ("x!", pa.binary(), ""),
    ],
)
def test_what_does_not_fit_is_an_error(value: Any, kind: pa.DataType, form: str) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        stored(value, kind, Form(form))


def test_values_that_an_event_does_not_have() -> None:
    text = "__debezium_unavailable_value"
    data = text.encode()
    for value in (text, data, base64.b64encode(data).decode(), [text], list(data), {text: text}):
        assert is_unavailable(value)
    for value in (None, "", [], {}, 0, "x", [1]):
        assert not is_unavailable(value)


def test_forms_of_schemas() -> None:
    price = {"type": "bytes", "field": "price", "name": CONNECT + "Decimal", "parameters": {"scale": "3"}}
    many = {"type": "array", "field": "many", "items": {"type": "int32", "name": DEBEZIUM + "Date"}}
    row = {"type": "struct", "field": "before", "fields": [price, many]}
    wanted = {"price": Form(CONNECT + "Decimal", 3), "many": Form(items=Form(DEBEZIUM + "Date"))}
    assert json_forms({"fields": [row]}, "after") == json_forms({"fields": row["fields"]}, "") == wanted
    assert json_forms(None, "") == json_forms({}, "after") == {}
    day = {"type": "int", "connect.name": DEBEZIUM + "Date"}
    scaled = {"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.parameters": {"scale": "3"}}
    columns = [
        {"name": "price", "type": ["null", scaled]},
        {"name": "many", "type": {"type": "array", "items": day}},
    ]
    value = {"type": "record", "name": "Value", "fields": columns}
    envelope = {
        "fields": [{"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]}]
    }
    import json

    assert avro_forms(json.dumps(envelope), "after") == avro_forms(json.dumps(value), "") == wanted

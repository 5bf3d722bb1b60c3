"""The messages of deliveries, without a broker."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.sinks import kafka_messages
from millpond.sinks.delivery import Delivery, EpochDelta, RefusedRow, SinkBinding
from millpond.sinks.json_encoding import JsonEncoding
from millpond.sinks.kafka import KafkaSink
from millpond.sinks.kafka_messages import RESERVE, MessageMaker, key_columns
from millpond.testing.sinks import Feed

LIMIT = 1000


def maker(
    schema: pa.Schema, key: tuple[str, ...], shape: Any, limit: int = LIMIT, partitions: int = 4
) -> MessageMaker:
    encoding = JsonEncoding(pa.schema([schema.field(name) for name in key]))

    def encoded(rows: pa.Table) -> list[bytes | None]:
        return [encoding.row(k) for k in encoding.encoded(key_columns(rows, key)) if isinstance(k, bytes)]

    return MessageMaker(shape, JsonEncoding(schema), encoded if key else None, limit, partitions, False)


def delivery(mode: Any, *parts: EpochDelta, key: tuple[str, ...] = ("k",)) -> Delivery:
    schema = pa.schema([f for f in parts[0].delta.schema if f.name != "_w"])
    binding = SinkBinding("pond", "out", 1, mode, "exactly_once", key, schema)
    return Delivery(binding, parts[-1].epoch, parts[0].epoch - 1, parts)


def made(
    mode: Any, shape: Any, *parts: EpochDelta, key: tuple[str, ...] = ("k",), limit: int = LIMIT
) -> tuple[list[Any], list[RefusedRow]]:
    one = delivery(mode, *parts, key=key)
    refused: list[RefusedRow] = []
    found = maker(one.binding.schema, key, shape, limit).messages(one, refused)
    return [message for some in found for message in some], refused


def epoch(number: int, *rows: tuple[Any, ...]) -> EpochDelta:
    columns = list(zip(*rows, strict=True))
    return EpochDelta(number, pa.table({"k": columns[0], "s": columns[1], "_w": columns[2]}))


BIG = "x" * LIMIT


@pytest.mark.parametrize("chunk", [1, 2, 3, 10_000])
def test_events_do_not_depend_on_the_size_of_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed("changelog", 3)
    parts = [feed.following(7) for _ in range(5)]
    expected = made("changelog", "event", *parts)
    monkeypatch.setattr(kafka_messages, "CHUNK", chunk)
    assert made("changelog", "event", *parts) == expected
    rows: Counter[str] = Counter()
    for _, value, _, _ in expected[0]:
        event = {} if value is None else json.loads(value)
        rows.subtract([json.dumps(event["before"])] if event.get("before") else [])
        rows.update([json.dumps(event["after"])] if event.get("after") else [])
    assert +rows == Counter(json.dumps(row) for row in feed.rows.values())
    assert not -rows


def test_a_row_that_is_too_large_is_a_tombstone() -> None:
    found, refused = made("upsert", "row", epoch(1, (1, "a", 1), (2, BIG, 1)))
    assert [(key, value) for key, value, _, _ in found] == [
        (b'{"k":1}', b'{"k":1,"s":"a"}'),
        (b'{"k":2}', None),
    ]
    assert len(refused) == 1 and "too large" in refused[0].reason


def test_an_update_to_a_row_that_is_too_large_is_a_deletion() -> None:
    found, refused = made("changelog", "event", epoch(1, (1, "a", -1), (1, BIG, 1)))
    events = [None if value is None else json.loads(value) for _, value, _, _ in found]
    assert [e and (e["op"], e["before"], e["after"]) for e in events] == [
        ("d", {"k": 1, "s": "a"}, None),
        None,
    ]
    assert len(refused) == 1
    # And back: the target does not have the old row; its key is deleted all the same.
    found, refused = made("changelog", "event", epoch(2, (1, BIG, -1), (1, "b", 1)))
    events = [None if value is None else json.loads(value) for _, value, _, _ in found]
    assert [e and (e["op"], e["before"], e["after"]) for e in events] == [
        ("d", None, None),
        None,
        ("c", None, {"k": 1, "s": "b"}),
    ]
    assert refused == []


def test_two_rows_that_do_not_fit_together_are_two_events() -> None:
    half = "y" * ((LIMIT - RESERVE) // 2)
    found, refused = made("changelog", "event", epoch(1, (1, half, -1), (1, half + "z", 1)))
    assert [value and json.loads(value)["op"] for _, value, _, _ in found] == ["d", None, "c"]
    assert refused == []
    assert len({identity for _, _, identity, _ in found}) == 3


@pytest.mark.parametrize("shape", ["logged", "event"])
def test_no_message_is_larger_than_the_limit(shape: Any) -> None:
    sizes = []
    for size in range(LIMIT - RESERVE - 60, LIMIT - RESERVE + 5):
        for rows in ([(1, "y" * size, 1)], [(1, "a", -1), (1, "y" * size, 1)], [(1, "y" * size, -1)]):
            found, _ = made("changelog", shape, epoch(2**60, *rows))
            sizes += [len(key) + len(value or b"") + len(identity) + 100 for key, value, identity, _ in found]
    assert LIMIT // 2 < max(sizes) <= LIMIT


def test_equal_rows_without_a_key_are_in_one_partition() -> None:
    zero = EpochDelta(1, pa.table({"x": [0.0, 1.0], "_w": [1, 1]}))
    minus = EpochDelta(2, pa.table({"x": [-0.0, 1.0], "_w": [-1, -1]}))
    places = [
        {
            partition
            for _, value, _, partition in made("changelog", "logged", one, key=())[0]
            if b"0.0," in value
        }
        for one in (zero, minus)
    ]
    assert places[0] == places[1]


def test_zeros_of_both_signs_are_one_key() -> None:
    keys = {
        made("upsert", "row", EpochDelta(n, pa.table({"k": [zero], "s": ["a"], "_w": [1]})))[0][0][0]
        for n, zero in enumerate((0.0, -0.0), 1)
    }
    assert len(keys) == 1


def test_values_that_python_does_not_have_are_refused() -> None:
    """One poison row must not stop the others."""
    days = pa.array([0, 2**31 - 1, 1], pa.int32()).cast(pa.date32())
    delta = pa.table({"k": pa.array([1, 2, 3]), "day": days, "_w": [1, 1, 1]})
    found, refused = made("upsert", "row", EpochDelta(1, delta))
    assert [value for _, value, _, _ in found] == [
        b'{"k":1,"day":"1970-01-01"}',
        None,
        b'{"k":3,"day":"1970-01-02"}',
    ]
    assert [json.loads(one.row)["k"] for one in refused] == [2]
    by_day = pa.table({"k": days, "s": ["a", "b", "c"], "_w": [1, 1, 1]})
    found, refused = made("upsert", "row", EpochDelta(1, by_day))
    assert len(found) == 2 and len(refused) == 1


def test_columns_that_the_sink_adds_are_refused() -> None:
    from millpond.plan.sink_settings import SinkSettings

    for mode in ("upsert", "changelog"):
        with pytest.raises(InvalidError, match="'_op' has the name of a column that the sink adds"):
            schema = pa.schema([("k", pa.int64()), ("_op", pa.string())])
            KafkaSink("localhost:1", "t").check_view(schema, SinkSettings(mode=mode, key=("k",)))  # type: ignore[arg-type]

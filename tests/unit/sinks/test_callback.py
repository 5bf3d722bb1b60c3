"""A function as a sink: every epoch at least once, in order, with an id that tells a second time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.plan import codec
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.string())])
HEARD: list[tuple[str, list[Any]]] = []


def hear(id: str, delta: pa.Table) -> None:
    HEARD.append((id, delta.to_pylist()))


def test_it_is_called_with_an_id_and_the_changes(tmp_path: Path) -> None:
    heard: list[tuple[str, list[Any]]] = []
    source = MemorySource(SCHEMA)
    source.push([{"k": "a"}], [{"k": "a"}])
    with millpond.open(tmp_path, engine="inline", durable=False, epoch_rows_max=1) as pond:
        view = pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("n")
        view.sink("out", CallbackSink(lambda id, delta: heard.append((id, delta.to_pylist()))))
        pond.drain()
        assert [id for id, _ in heard] == [f"{pond.head().pond}:1", f"{pond.head().pond}:2"]
    assert heard[0][1] == [{"k": "a", "n": 1, "_w": 1}]
    assert sorted(heard[1][1], key=lambda r: r["n"]) == [
        {"k": "a", "n": 1, "_w": -1},
        {"k": "a", "n": 2, "_w": 1},
    ]
    assert not CallbackSink.exactly_once


def test_a_function_that_fails_is_called_again_with_the_same_epoch(tmp_path: Path) -> None:
    heard: list[str] = []
    broken = [True]

    def function(id: str, delta: pa.Table) -> None:
        heard.append(id)
        if broken[0]:
            raise KeyError("no such table")

    source = MemorySource(SCHEMA)
    source.push([{"k": "a"}])
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.stream("s", source).view("rows").sink("out", CallbackSink(function))
        with pytest.raises(UnavailableError, match="sink 'out' failed") as caught:
            pond.drain()
        assert "KeyError: 'no such table'" in str(caught.value.detail)
        source.push([{"k": "b"}])
        broken[0] = False
        pond.drain()
        assert pond.read("rows").num_rows == 2
    assert heard[0] == heard[1]
    assert [id.rsplit(":", 1)[1] for id in heard[1:]] == ["1", "2"]


def test_a_restart_goes_on_behind_what_was_delivered(tmp_path: Path) -> None:
    heard: list[str] = []
    source = MemorySource(SCHEMA)
    for n in range(3):
        source.push([{"k": f"{n}"}])
        with millpond.open(tmp_path, engine="inline", durable=False) as pond:
            sink = CallbackSink(lambda id, delta: heard.extend(delta["k"].to_pylist()))
            pond.stream("s", source).view("rows").sink("out", sink)
            pond.drain()
    assert heard == ["0", "1", "2"]


def test_equality_is_that_of_the_function() -> None:
    assert CallbackSink(hear) == CallbackSink(hear)
    assert hash(CallbackSink(hear)) == hash(CallbackSink(hear))
    assert CallbackSink(hear) != CallbackSink(print)
    with pytest.raises(InvalidError):
        CallbackSink(7)  # type: ignore[arg-type]


def test_a_function_survives_the_catalog() -> None:
    sink: CallbackSink = codec.loads(codec.dumps(CallbackSink(print)))
    assert sink == CallbackSink(print)
    seen: list[str] = []
    add = 5
    closure = codec.loads(codec.dumps(CallbackSink(lambda id, delta: seen.extend([id] * add))))
    closure.deliver("p", 1, SCHEMA.empty_table())
    assert seen == []  # a copy: what it closes over was copied with it
    named = codec.loads(codec.dumps(CallbackSink(hear)))
    named.deliver("p", 1, pa.table({"k": ["x"]}))


def test_a_function_that_cannot_be_stored_works_where_it_was_defined(tmp_path: Path) -> None:
    lock, heard = threading.Lock(), []

    def function(id: str, delta: pa.Table) -> None:
        with lock:
            heard.append(id)

    source = MemorySource(SCHEMA)
    source.push([{"k": "a"}])
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.stream("s", source).view("rows").sink("out", CallbackSink(function))
        pond.drain()
    assert len(heard) == 1
    stored: CallbackSink = codec.loads(codec.dumps(CallbackSink(function)))
    with pytest.raises(InvalidError, match="not known here") as caught:
        stored.deliver("p", 1, SCHEMA.empty_table())
    assert "define the pipeline again" in str(caught.value.hint)

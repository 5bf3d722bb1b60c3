"""The catalog: a plan comes back as it was, and says clearly when it cannot."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import DataError, InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan, SinkNode
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([pa.field("k", pa.int64(), metadata={"a": "b"}), ("v", pa.decimal128(10, 2))], {"m": "n"})


@dataclass(frozen=True)
class Kept:
    name: str
    size: float
    parts: tuple[int, ...] = ()
    lost: list[int] = field(default_factory=list, metadata={"durable": False})

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        """It can be a sink."""


simple = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5)
values = st.recursive(
    simple | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(values)
def test_values_come_back(value: Any) -> None:
    raw = codec.dumps(value)
    again = codec.loads(raw)
    assert again == value
    assert codec.dumps(again) == raw


@pytest.mark.parametrize("number", [math.inf, -math.inf, -0.0, 5e-324, 0.1])
def test_floats_keep_every_bit(number: float) -> None:
    assert codec.loads(codec.dumps(number)).hex() == number.hex()


def test_nan_comes_back() -> None:
    assert math.isnan(codec.loads(codec.dumps(math.nan)))


def test_schemas_keep_their_metadata() -> None:
    again = codec.loads(codec.dumps(SCHEMA))
    assert again.equals(SCHEMA, check_metadata=True)
    assert codec.loads(codec.dumps(pa.timestamp("us", "UTC"))) == pa.timestamp("us", "UTC")


def test_sets_are_written_in_one_order() -> None:
    assert codec.dumps(frozenset("bca")) == codec.dumps(frozenset("abc"))
    assert codec.loads(codec.dumps(frozenset("bca"))) == frozenset("abc")


def test_what_is_not_durable_comes_back_as_its_default() -> None:
    again = codec.loads(codec.dumps(Kept("a", 0.5, (1, 2), [9])))
    assert again == Kept("a", 0.5, (1, 2))
    assert again.lost == []


def test_classes_are_named_not_pickled() -> None:
    assert b"$pickle" not in codec.dumps(Kept("a", 1.0))


def test_a_class_that_is_not_here_is_a_clear_error_once_it_is_used() -> None:
    raw = codec.dumps((Kept("a", 1.0), 7)).replace(b"Kept", b"Gone")
    gone, seven = codec.loads(raw)
    assert seven == 7
    assert codec.dumps((gone, seven)) == raw
    for use in (lambda: gone.name, lambda: gone(1)):
        with pytest.raises(DataError, match="names a class that is not here") as caught:
            use()
        assert "Gone" in caught.value.message
        assert caught.value.hint


def test_a_class_of_millpond_that_is_not_here_means_another_version() -> None:
    with pytest.raises(DataError, match="names a class that Millpond never stored"):
        codec.loads(b'{"$class":"millpond.plan.nodes:Gone","fields":{}}')


def test_a_class_whose_fields_changed_is_a_clear_error_once_it_is_used() -> None:
    raw = codec.dumps(Kept("a", 1.0)).replace(b'"size"', b'"width"')
    with pytest.raises(DataError, match="a class that has other fields now"):
        codec.loads(raw).name.upper()


def test_code_that_moved_is_a_clear_error_once_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moved_code.py").write_text("def double(row):\n    return row * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    module = importlib.import_module("moved_code")
    raw = codec.dumps({"f": module.double, "n": 7})
    assert codec.loads(raw)["f"](4) == 8
    del module.double
    again = codec.loads(raw)
    assert again["n"] == 7
    assert codec.dumps(again) == raw
    with pytest.raises(DataError, match="names code that is not here") as caught:
        again["f"](4)
    assert "double" in (caught.value.detail or "")


def test_what_cannot_be_stored_is_a_clear_error() -> None:
    lock = threading.Lock()

    def holding(row: Any) -> Any:
        return lock

    with pytest.raises(InvalidError, match="holding cannot be stored with the plan") as caught:
        codec.dumps({"f": holding})
    assert "lock" in (caught.value.detail or "")
    assert caught.value.hint


def test_an_unknown_kind_of_value_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="needs another version"):
        codec.loads(json.dumps({"$later": 1}).encode())


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\x00", b'{"$class":"millpond.plan.nodes:Plan","fields":{"x":1}}']
)
def test_a_damaged_catalog_is_a_data_error(raw: bytes) -> None:
    with pytest.raises(DataError, match="catalog"):
        codec.loads(raw)


def whole_plan() -> Plan:
    builder = Builder()
    source = MemorySource(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.timestamp("us"))]))
    stream = Stream(builder, builder.add("in", Scan(source, source.schema, True), (), "in"))
    marked = stream.watermark("t", "4s")
    windows = (
        marked.tumble("10s").key_by("window_end", "k").aggregate(on_close=True, n="count(*)", s="sum(v)")
    )
    windows.view("w").sink("out", Kept("sink", 1.0))
    stream.flat_map(lambda row: [row.as_dict()] * 2, source.schema).distinct().view("d")
    stream.join(stream.filter("v > 2"), "k", "left").key_by("k").top_n(3, "v desc").view("j")
    stream.key_by("k").first("t desc").view("f")
    return builder.plan


def test_a_plan_means_the_same_after_the_catalog() -> None:
    plan = whole_plan()
    again: Plan = codec.loads(codec.dumps(plan))
    assert list(again.nodes) == list(plan.nodes)
    assert again.views == plan.views
    assert again.sinks == {"out": SinkNode("out", "w", Kept("sink", 1.0))}
    assert cut(again) == cut(plan)
    for step, node in plan.nodes.items():
        assert again.nodes[step].binding == node.binding, step
    assert codec.dumps(codec.loads(codec.dumps(again))) == codec.dumps(again)
    assert codec.dumps(codec.read(codec.dumps(plan))) == codec.dumps(plan), "reading changes nothing"


def test_another_process_reads_the_plan(tmp_path: Path) -> None:
    (tmp_path / "catalog").write_bytes(codec.dumps(whole_plan()))
    program = (
        "import sys; from millpond.plan import codec;"
        "plan = codec.loads(open(sys.argv[1], 'rb').read());"
        "print(','.join(plan.views)); assert 'pyspark' not in sys.modules"
    )
    path = [str(Path(codec.__file__).parents[2]), str(Path(__file__).parents[3])]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}", str(tmp_path / "catalog")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "w,d,j,f"


def test_a_node_is_encoded_once_and_the_same() -> None:
    source = MemorySource(pa.schema([("k", pa.int64())]))
    plan, _ = Plan().with_node("in", Scan(source, source.schema, True), ())
    first = codec.dumps(plan)
    assert codec.dumps(plan) == first == codec.dumps(codec.loads(first))
    again = codec.loads(first)
    assert again.nodes["in"] == plan.nodes["in"]


def test_the_code_of_a_node_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = codec.read(codec.dumps(whole_plan()))
    loaded = codec.with_code(stored)
    has_code = next(s for s, n in stored.nodes.items() if "flat_map" in s or loaded.nodes[s] is not n)
    assert loaded.nodes[has_code] is not stored.nodes[has_code], "the code of the stored plan is still loaded"
    assert codec.with_code(stored).nodes[has_code] == loaded.nodes[has_code], "a stored node stays stored"
    looked: list[type] = []
    fields = codec.dataclasses.fields
    monkeypatch.setattr(
        codec.dataclasses, "fields", lambda value: looked.append(type(value)) or fields(value)
    )
    again = codec.with_code(loaded)
    assert again is loaded
    assert type(loaded.nodes[has_code]) not in looked

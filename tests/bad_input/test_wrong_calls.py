"""Wrong calls: refused at once, with what was given, what is there and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("bidder", pa.string())])


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as made:
        yield made


@pytest.mark.parametrize("n", [0, -1, -(10**9), 32769, 10**12, True, False, 2.0, "2"])
def test_parallelism(tmp_path: Path, n: Any) -> None:
    with pytest.raises(InvalidError, match="parallelism must be a whole number from 1 to 32768") as caught:
        millpond.open(tmp_path / "p", engine="inline", parallelism=n)
    assert repr(n) in (caught.value.detail or "")
    pond = millpond.open(tmp_path / "p", engine="inline")
    with pytest.raises(InvalidError, match="parallelism must be"):
        pond.rescale(n)
    assert not (tmp_path / "p" / "inbox").exists()


def test_more_tasks_than_rows(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "p", engine="inline", durable=False, parallelism=64) as pond:
        source = MemorySource(SCHEMA)
        source.push([{"auction": 1, "price": 2, "bidder": "x"}])
        pond.stream("in", source).key_by("auction").aggregate(s="sum(price)").view("v")
        pond.drain()
        assert pond.read("v").to_pylist() == [{"auction": 1, "s": 2}]


@pytest.mark.parametrize("engine", ["flink", "", "Spark", None])
def test_an_engine_that_is_not(tmp_path: Path, engine: Any) -> None:
    with pytest.raises(InvalidError, match="no engine named") as caught:
        millpond.open(tmp_path / "p", engine=engine)
    assert caught.value.hint == '"spark" or "inline"'


def bids(pond: Pond) -> Stream:
    return pond.stream("bids", MemorySource(SCHEMA))


@pytest.mark.parametrize(
    ("use", "column"),
    [
        (lambda s: s.select("prise"), "price"),
        (lambda s: s.key_by("aucton"), "auction"),
        (lambda s: s.distinct("bider"), "bidder"),
        (lambda s: s.top_n(3, "prize desc"), "price"),
        (lambda s: s.watermark("pricee", "1s"), "price"),
        (lambda s: s.join(s.select("auction", id="other"), "auctoin"), "auction"),
        (lambda s: s.view("v", key="auctions"), "auction"),
    ],
)
def test_a_column_that_is_not_comes_with_the_nearest(
    pond: Pond, use: Callable[[Stream], object], column: str
) -> None:
    with pytest.raises(InvalidError, match="no column named") as caught:
        use(bids(pond))
    assert caught.value.hint == f"did you mean {column!r}?"
    assert "auction, price, bidder" in (caught.value.detail or "")
    assert caught.value.step == "bids"


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.filter("prise > 1"),
        lambda s: s.select(x="prise + 1"),
        lambda s: s.with_columns(x="nothing(price)"),
        lambda s: s.filter("price >"),
        lambda s: s.key_by("auction").aggregate(s="sum(prise)"),
        lambda s: s.key_by("auction").aggregate(s="summ(price)"),
        lambda s: s.key_by("auction").aggregate(s="sum("),
        lambda s: s.key_by("auction").aggregate(s="sum(bidder)"),
        lambda s: s.key_by("auction").aggregate(),
        lambda s: s.key_by("auction").top_n(0, "price"),
        lambda s: s.key_by("auction").top_n(-3, "price"),
        lambda s: s.top_n(3, "price upwards"),
        lambda s: s.watermark("bidder", "1s"),
        lambda s: s.watermark("price", "soon"),
        lambda s: s.tumble("10s"),
        lambda s: s.join(s, "auction", "sideways"),
        lambda s: s.key_by("auction").apply(),
    ],
)
def test_a_step_that_cannot_be_is_refused_when_it_is_written(
    pond: Pond, use: Callable[[Stream], object]
) -> None:
    with pytest.raises(InvalidError) as caught:
        use(bids(pond))
    assert caught.value.message == caught.value.message.strip()
    assert "\n" not in caught.value.message


def test_a_step_id_that_is_used_twice(pond: Pond) -> None:
    stream = bids(pond)
    stream.filter("price > 1", id="f")
    with pytest.raises(InvalidError, match="step id 'f' is used twice") as caught:
        stream.filter("price > 2", id="f")
    assert caught.value.detail == "the first is Filter, the second Filter"
    with pytest.raises(InvalidError, match="step id 'bids' is used twice"):
        pond.table("bids", SCHEMA)
    stream.view("v")
    with pytest.raises(InvalidError, match="view 'v' is defined twice"):
        stream.filter("price > 3").view("v")


@pytest.mark.parametrize("name", ["", "_x", "a/b", "a!b", "inbox"])
def test_a_step_id_that_cannot_be(pond: Pond, name: str) -> None:
    with pytest.raises(InvalidError, match="cannot be the name of a step"):
        bids(pond).filter("price > 1", id=name)
    with pytest.raises(InvalidError, match="cannot be the name of a stream"):
        pond.stream(name, MemorySource(SCHEMA))


@pytest.mark.parametrize("key", ["nothing", [], ["auction", "nothing"]])
def test_a_table_key_that_is_no_column(pond: Pond, key: Any) -> None:
    with pytest.raises(InvalidError, match="the key of a table must be some of its columns"):
        pond.table("t", SCHEMA, key=key)


def test_epochs_that_are_not(pond: Pond) -> None:
    pond.table("t", SCHEMA, key="auction")
    pond.drain()
    for epoch in (-1, 99):
        with pytest.raises(InvalidError, match=f"there is no epoch {epoch} yet"):
            pond.read("t", epoch=epoch)
    with pytest.raises(InvalidError, match="no savepoint named 'x'"):
        pond.read("t", epoch="x")
    with pytest.raises(InvalidError, match="there is no epoch 99 yet"):
        next(pond.changes("t", 99))


def test_inline_needs_no_spark(tmp_path: Path) -> None:
    """A machine without Spark, or without Java: nothing of it is imported."""
    program = """
import sys
class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, NoSpark())
sys.path[:0] = [sys.argv[2]]
import pyarrow as pa, millpond
from millpond.sources.memory import MemorySource
source = MemorySource(pa.schema([("k", pa.int64())]))
source.push([{"k": 1}, {"k": 1}])
with millpond.open(sys.argv[1], engine="inline") as pond:
    pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("n")
    pond.drain()
    print(pond.read("n").to_pylist())
assert not [name for name in sys.modules if name.startswith(("pyspark", "py4j"))]
"""
    root = Path(millpond.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "p", root],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nowhere", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[{'k': 1, 'n': 2}]"


def test_rows_without_a_value_that_sql_requires(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL, w int)")
    with pytest.raises(InvalidError, match="column 'k' of table 't' cannot be NULL"):
        pond.insert("t", {"v": 1})
    with pytest.raises(InvalidError, match="column 'v' of table 't' cannot be NULL"):
        pond.insert("t", pa.table({"k": [1, 2], "v": [None, 2], "w": [1, 2]}))
    pond.insert("t", {"k": 1, "v": 1})
    pond.flush()
    assert pond.read("t").to_pylist() == [{"k": 1, "v": 1, "w": None}]

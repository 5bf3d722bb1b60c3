"""Wrong calls: refused at once, with what was given, what is there and what to do."""

from __future__ import annotations

import datetime
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
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from millpond.windows import sessions

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
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from millpond.windows import sessions
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


@pytest.mark.parametrize("gap", ["nothing + 1", "user", "at", "sum(n)"])
def test_gaps_of_sessions_that_are_none(pond: Pond, gap: str) -> None:
    """The error has the expression as it was written, and not the one that is computed from it."""
    source = MemorySource({"user": str, "at": datetime.datetime, "n": int})
    keyed = pond.stream("in", source, event_time="at").key_by("user")
    with pytest.raises(InvalidError) as caught:
        keyed.window(sessions(gap))
    assert gap in (caught.value.detail or "") and "CAST" not in str(caught.value)


@pytest.mark.parametrize("call", ["insert", "delete"])
def test_a_row_without_its_key(pond: Pond, call: str) -> None:
    """A row that lacks the key is not the row whose key is NULL."""
    pond.table("t", {"k": int, "v": str}, key="k").view("v")
    with pytest.raises(InvalidError, match="a row lacks column 'k', which is in the key of table 't'"):
        getattr(pond, call)("t", [{"k": 1, "v": "x"}, {"v": "y"}])
    pond.insert("t", [{"k": None, "v": "x"}])
    pond.drain()
    assert pond.read("v").to_pylist() == [{"k": None, "v": "x"}]


def test_the_hint_for_a_view_that_is_there_names_how_to_change_it(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (k int); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
    with pytest.raises(InvalidError, match="there is a materialized view named 'v' already") as caught:
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(k) AS s FROM t")
    assert "CREATE OR REPLACE MATERIALIZED VIEW changes it" in (caught.value.hint or "")


def test_the_hint_for_a_wrong_call_names_no_private_parameters() -> None:
    with pytest.raises(InvalidError, match="cannot be called like this") as caught:
        FileSource("folder", {"a": int}, format="json")  # type: ignore[misc, arg-type]
    assert ", _" not in (caught.value.hint or "")

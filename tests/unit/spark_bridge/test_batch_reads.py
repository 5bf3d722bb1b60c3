"""Batch reads of views by Spark's data source: every type, ranges of hashes, lookups, one epoch."""

from __future__ import annotations

import datetime
import decimal
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.spark_bridge.batch_reader import LookupPartition
from tests.unit.spark_bridge.data_source_calls import loaded, read

AT = datetime.datetime(2024, 2, 29, 12, 30, 1, 250)
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int64(), 1),
    "i8": (pa.int8(), -8),
    "u8": (pa.uint8(), 255),
    "u32": (pa.uint32(), 2**32 - 1),
    "u64": (pa.uint64(), 2**64 - 1),
    "f32": (pa.float32(), 0.5),
    "f64": (pa.float64(), -0.25),
    "yes": (pa.bool_(), True),
    "dec": (pa.decimal128(20, 4), decimal.Decimal("12.3456")),
    "text": (pa.string(), "grüße"),
    "large": (pa.large_string(), "x"),
    "raw": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), AT.date()),
    "naive": (pa.timestamp("us"), AT),
    "zoned": (pa.timestamp("us", "Europe/Paris"), AT.replace(tzinfo=datetime.UTC)),
    "ms": (pa.timestamp("ms", "UTC"), AT.replace(tzinfo=datetime.UTC, microsecond=250000)),
    "took": (pa.duration("us"), datetime.timedelta(seconds=5)),
    "time": (pa.time64("us"), AT.time()),
    "list": (pa.list_(pa.int64()), [1, None, 3]),
    "struct": (pa.struct({"x": pa.uint16(), "y": pa.list_(pa.string())}), {"x": 7, "y": ["a"]}),
    "map": (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
}


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    schema = pa.schema({name: kind for name, (kind, _) in TYPES.items()})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("t", schema, key="id")
        rows = [{name: value for name, (_, value) in TYPES.items()}, {"id": 2}]
        pond.insert("t", pa.Table.from_pylist(rows, schema=schema))
        pond.drain()
    return tmp_path / "pond"


def test_every_type(typed: Path) -> None:
    made, schema = loaded(typed, view="t")
    found = {row["id"]: row for row in read(made, schema).to_pylist()}
    wanted = {name: value for name, (_, value) in TYPES.items()}
    assert found[1] == {**wanted, "u64": decimal.Decimal(2**64 - 1)}
    assert found[2] == {**dict.fromkeys(TYPES), "id": 2}
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    assert (
        kinds["u64"] == "decimal(20,0)"
        and kinds["u32"] == "bigint"
        and kinds["took"] == "interval day to second"
    )
    assert kinds["naive"] == "timestamp_ntz" and kinds["zoned"] == "timestamp"


def test_a_type_that_spark_lacks(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("t", pa.schema({"id": pa.int64(), "at": pa.timestamp("ns")}))
        pond.insert("t", pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}))
        pond.drain()
    made, schema = loaded(tmp_path / "pond", view="t")
    with pytest.raises(InvalidError, match="column 'at' has no equal in Spark"):
        read(made, schema)
    made, schema = loaded(tmp_path / "pond", view="t", columns="id")
    assert read(made, schema).to_pylist() == [{"id": 1}]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Rows in several runs, with updates and deletes, and a multiset."""
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        rows = pond.table("t", {"k": int, "n": int, "s": str}, key="k")
        pond.table("bag", {"n": int})
        rows.key_by("n").aggregate(rows="count(*)", total="sum(k)").view("by n")
        for start in range(0, 500, 100):
            pond.insert("t", [{"k": k, "n": k % 7, "s": f"{k}"} for k in range(start, start + 150)])
            pond.insert("bag", [{"n": 1}, {"n": 1}, {"n": start}])
            pond.drain()
        pond.delete("t", [{"k": 3, "n": 3, "s": "3"}])
        pond.drain()
    return tmp_path / "pond"


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("partitions", [1, 2, 7])
@pytest.mark.parametrize("view", ["t", "bag", "by n"])
def test_partitions_cover_the_view(many: Path, view: str, partitions: int) -> None:
    made, schema = loaded(many, view=view, partitions=partitions)
    with millpond.open(many, engine="inline") as pond:
        assert len(made.reader(schema).partitions()) == partitions
        assert sorted_rows(read(made, schema)) == sorted_rows(pond.read(view))


def test_columns_are_pruned(many: Path) -> None:
    made, schema = loaded(many, view="t", columns="s, k")
    assert read(made, schema).column_names == ["s", "k"]
    made, schema = loaded(many, view="t")
    only = type(schema)([schema["s"]])  # as with .schema("s string")
    assert sorted_rows(read(made, only))[:2] == [("0",), ("1",)]
    with pytest.raises(InvalidError, match="no column 'x'"):
        loaded(many, view="t", columns="x")
    with pytest.raises(InvalidError, match="has another type"):
        made.reader(type(schema)().add("k", "string"))


def test_keys_become_a_lookup(many: Path) -> None:
    made, schema = loaded(many, view="t", keys="[5, 7, 3, 10000]")
    assert [type(p) for p in made.reader(schema).partitions()] == [LookupPartition]
    assert sorted_rows(read(made, schema)) == [(5, 5, "5"), (7, 0, "7")]
    made, schema = loaded(many, view="t", keys='{"k": 5}', columns="s")
    assert read(made, schema).to_pylist() == [{"s": "5"}]
    with pytest.raises(InvalidError, match="must be JSON"):
        read(*loaded(many, view="t", keys="[5"))


def test_filters_are_used_only_on_request(many: Path) -> None:
    """Spark 4.3 applies the filters of one query to the others of a DataFrame: see `batch_reader`."""
    fixed = [IsNotNull(("k",)), EqualTo(("k",), 5)]
    made, schema = loaded(many, view="t")
    assert "pushFilters" not in vars(type(made.reader(schema)))
    assert read(made, schema, fixed).num_rows > 500
    made, schema = loaded(many, view="t", pushFilters="true")
    reader = made.reader(schema)
    assert reader.pushFilters(fixed) == fixed, "Spark evaluates them, too"
    assert [type(p) for p in reader.partitions()] == [LookupPartition]
    assert sorted_rows(read(made, schema, fixed)) == [(5, 5, "5")]
    assert sorted_rows(read(made, schema, [In(("k",), (5, 7))])) == [(5, 5, "5"), (7, 0, "7")]
    few = read(made, schema, [GreaterThan(("k",), 540), EqualTo(("n",), 2)])
    assert sorted_rows(few) == [(k, 2, f"{k}") for k in range(541, 550) if k % 7 == 2]
    only = type(schema)([schema["s"]])
    assert sorted_rows(read(made, only, [GreaterThan(("k",), 547)])) == [("548",), ("549",)]


def test_a_loaded_view_stays_at_its_epoch(many: Path) -> None:
    made, schema = loaded(many, view="t")
    before = sorted_rows(read(made, schema))
    with millpond.open(many, engine="inline", retain_epochs=1, collect_every=1, compact=False) as pond:
        for k in range(900, 905):
            pond.insert("t", {"k": k, "n": 0, "s": ""})
            pond.drain()
        assert sorted_rows(read(made, schema)) == before
        assert sorted_rows(read(*loaded(many, view="t"))) == sorted_rows(pond.read("t"))
        assert sorted_rows(read(*loaded(many, view="t", epoch=pond.head().epoch))) == sorted_rows(
            pond.read("t")
        )


def test_an_epoch_that_was_collected(many: Path) -> None:
    made, schema = loaded(many, view="t", pinMs=1)
    with millpond.open(many, engine="inline", retain_epochs=1, collect_every=1) as pond:
        for k in range(900, 905):
            pond.insert("t", {"k": k, "n": 0, "s": ""})
            pond.drain()
    with pytest.raises(InvalidError, match="is no longer kept"):
        read(made, schema)


def test_savepoints_and_empty_views(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("t", {"k": int}, key="k")
        pond.drain()
        pond.savepoint("empty")
        pond.insert("t", {"k": 1})
        pond.drain()
    assert read(*loaded(tmp_path / "pond", view="t", epoch="empty")).num_rows == 0
    assert read(*loaded(tmp_path / "pond", view="t", epoch="empty", keys="1")).num_rows == 0
    assert read(*loaded(tmp_path / "pond", view="t")).to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"view": "totals"}, "no view named 'totals'.*views are bag, by n, t"),
        ({}, "needs the option 'view'"),
        ({"view": "t", "epoch": 99}, "no epoch 99 yet"),
        ({"view": "t", "epoch": "monday"}, "no savepoint named 'monday'"),
        ({"view": "t", "colums": "k"}, "no option 'colums'.*did you mean 'columns'"),
        ({"view": "t", "table": "t"}, "'table' does not apply to read"),
        ({"view": "t", "partitions": "many"}, "'partitions' must be a whole number"),
    ],
)
def test_errors(many: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(MillpondError) as error:
        read(*loaded(many, **options))
    assert re.search(words, str(error.value), re.S), str(error.value)


def test_a_missing_pond(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="there is no pond here yet"):
        loaded(tmp_path / "nowhere", view="t")
    assert not (tmp_path / "nowhere").exists()

"""The answer of a SQL query, read by Spark's data source."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from tests.unit.spark_bridge.data_source_calls import loaded, read

BY_NAME = "SELECT name, sum(n) AS total, count(*) AS rows FROM sales GROUP BY name"


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("sales", {"id": int, "name": str, "n": int}, key="id")
        pond.insert("sales", [{"id": k, "name": f"n{k % 3}", "n": k} for k in range(10)])
        pond.drain()
    return tmp_path / "pond"


def test_the_answer_of_a_query(sales: Path) -> None:
    made, schema = loaded(sales, query=BY_NAME)
    assert schema.simpleString() == "struct<name:string,total:decimal(38,0),rows:bigint>"
    found = sorted((row["name"], int(row["total"]), row["rows"]) for row in read(made, schema).to_pylist())
    assert found == [("n0", 18, 4), ("n1", 12, 3), ("n2", 15, 3)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM sales WHERE id = 7",
        "SELECT id FROM sales ORDER BY id DESC LIMIT 1;",
        "WITH few AS (SELECT id FROM sales WHERE id > 7) SELECT id FROM few -- the last",
        "SELECT 7 AS id",
    ],
)
def test_any_query(sales: Path, query: str) -> None:
    with millpond.open(sales, engine="inline") as pond:
        wanted = pond.sql(query).arrow().to_pylist()
    made, schema = loaded(sales, query=query)
    assert read(made, schema).to_pylist() == wanted != []


def test_it_reads_the_epoch_of_its_load(sales: Path) -> None:
    made, schema = loaded(sales, query="SELECT count(*) AS n FROM sales")
    with millpond.open(sales, engine="inline") as pond:
        pond.table("sales", {"id": int, "name": str, "n": int}, key="id")
        pond.insert("sales", [{"id": 100, "name": "late", "n": 1}])
        pond.drain()
    assert read(made, schema).to_pylist() == [{"n": 10}]
    assert read(*loaded(sales, query="SELECT count(*) AS n FROM sales")).to_pylist() == [{"n": 11}]
    assert read(*loaded(sales, query="SELECT count(*) AS n FROM sales", epoch=1)).to_pylist() == [{"n": 10}]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("INSERT INTO sales VALUES (11, 'x', 1)", "INSERT|syntax"),
        ("SELECT 1; DROP TABLE sales", "syntax|;"),
        ("SELECT x FROM sales", 'column "x" does not exist'),
        ("SELECT n FROM other", "other"),
    ],
)
def test_what_is_no_query_is_refused_at_load(sales: Path, query: str, said: str) -> None:
    with pytest.raises(MillpondError, match=said):
        loaded(sales, query=query)


def test_options_and_schemas_of_views_are_refused(sales: Path) -> None:
    for option in ({"view": "sales"}, {"columns": "n"}, {"partitions": 2}):
        with pytest.raises(InvalidError, match=f"option '{next(iter(option))}' does not apply to a query"):
            loaded(sales, query=BY_NAME, **option)
    made, schema = loaded(sales, query=BY_NAME)
    with pytest.raises(InvalidError, match="those of its answer"):
        made.reader(type(schema)([schema["name"]]))
    with pytest.raises(InvalidError, match="does not apply to readStream"):
        made.streamReader(schema)

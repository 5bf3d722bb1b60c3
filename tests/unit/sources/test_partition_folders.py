"""Values in the names of folders as columns, as Hive and Spark write them, and as our own sink does."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sinks.files import FilesSink
from millpond.sources.files import FileSource

SCHEMA = pa.schema([("n", pa.int64()), ("dt", pa.date32()), ("city", pa.string())])
FORMATS = ("parquet", "json", "csv", "orc")


def write(folder: Path, path: str, kind: str, *values: int) -> None:
    file = folder / f"{path}.{kind}"
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": list(values), "more": ["x"] * len(values)})
    if kind == "parquet":
        pq.write_table(table, file)
    elif kind == "orc":
        pyarrow.orc.write_table(table, file)
    elif kind == "csv":
        file.write_text("n,more\n" + "".join(f"{v},x\n" for v in values))
    else:
        file.write_text("".join(f'{{"n": {v}, "more": "x"}}\n' for v in values))


def rows(pond: millpond.Pond, view: str = "v") -> list[tuple[Any, ...]]:
    return sorted((r["n"], r["dt"], r["city"]) for r in pond.read(view).to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_from_folders(kind: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "dt=2024-05-01/city=Zürich/a", kind, 1, 2)
    write(folder, "dt=2024-05-02/x/city=a%2Fb%20%C3%B6/b", kind, 3)
    write(folder, "dt=2024-05-02/city=%F6/hive", kind, 5)
    write(folder, "dt=yesterday/city=x/bad", kind, 7)
    write(folder, "city=x/none", kind, 8)
    source = FileSource(folder, kind, SCHEMA, partition_by=("dt", "city"))
    first, second = datetime.date(2024, 5, 1), datetime.date(2024, 5, 2)
    with millpond.open(tmp_path / "p", engine="inline", durable=False, checks=True) as pond:
        stream = pond.stream("s", source)
        stream.view("v")
        stream.key_by("dt").aggregate(c="count(*)").view("per_day")
        pond.drain()
        wanted = [(1, first, "Zürich"), (2, first, "Zürich"), (3, second, "a/b ö"), (5, second, "ö")]
        assert rows(pond) == wanted
        reasons = sorted(pond.errors()["reason"].to_pylist())
        assert [r.split(": ")[-1] for r in reasons] == [
            "the value is not date32[day]",
            "no folder dt=… is in its path",
        ]
        write(folder, "dt=2024-05-02/city=__HIVE_DEFAULT_PARTITION__/c", kind, 4)
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:  # the stored source
        pond.drain()
        assert {r["dt"]: r["c"] for r in pond.read("per_day").to_pylist()} == {first: 2, second: 3}
        assert (4, second, None) in [(r["n"], r["dt"], r["city"]) for r in pond.read("v").to_pylist()]


def test_our_own_sink_is_read_back(tmp_path: Path) -> None:
    values = ["Zürich", "日本", "a/b", "%2F", "100%", " ", "x=y", None]
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        table = pond.table("t", {"n": int, "größe": str})
        sink = FilesSink(tmp_path / "out", partition_by=("größe",))
        table.view("t_rows").sink("files", sink, mode="changelog")
        pond.insert("t", [{"n": n, "größe": value} for n, value in enumerate(values)])
        pond.drain()
    assert {path.name.partition("=")[0] for path in (tmp_path / "out").glob("*=*")} == {"größe"}
    with millpond.open(tmp_path / "q", engine="inline", durable=False) as pond:
        pond.sql(
            f"""CREATE SOURCE s (n BIGINT, größe VARCHAR)
            WITH (connector = 'files', path = '{tmp_path}/out', partition.by = 'größe');
            CREATE MATERIALIZED VIEW v AS SELECT * FROM s"""
        )
        pond.drain()
        assert pond.sql("SELECT größe FROM v ORDER BY n").fetchall() == [(value,) for value in values]


def test_columns_that_are_not_declared(tmp_path: Path) -> None:
    write(tmp_path, "dt=2024-05-01/a", "parquet", 1)
    source = FileSource(tmp_path, partition_by="dt")
    assert source.schema == pa.schema([("n", pa.int64()), ("more", pa.string()), ("dt", pa.string())])
    (split,) = source.poll(None, None, 10).splits
    (table,) = source.read(split, ["dt"])
    assert table.to_pylist() == [{"dt": "2024-05-01"}]


@pytest.mark.parametrize(
    ("schema", "names", "said"),
    [
        (SCHEMA, ("x",), "there is no column 'x'"),
        (pa.schema([("n", pa.int64()), ("l", pa.list_(pa.int64()))]), ("l",), "names of folders are text"),
        (pa.schema([("n", pa.int64())]), ("n",), "a column that is not in the names"),
    ],
)
def test_columns_that_cannot_be(schema: pa.Schema, names: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as error:
        FileSource(tmp_path, "csv", schema, partition_by=names)
    assert said in str(error.value)


def test_flink_writes_partitioned_by(tmp_path: Path) -> None:
    write(tmp_path / "in", "dt=2024-05-01/a", "csv", 1, 2)
    server = f"'connector' = 'filesystem', 'format' = 'csv', 'path' = '{tmp_path}/in', 'source.monitor-interval' = '1 s'"
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.sql(
            f"CREATE TABLE s (n BIGINT, dt DATE) PARTITIONED BY (dt) WITH ({server});"
            "CREATE MATERIALIZED VIEW v AS SELECT dt, SUM(n) AS n FROM s GROUP BY dt",
            dialect="flink",
        )
        pond.drain()
        assert pond.sql("SELECT * FROM v").fetchall() == [(datetime.date(2024, 5, 1), 3)]
        with pytest.raises(InvalidError, match="PARTITIONED BY is not supported for connector 'kafka'"):
            pond.sql(
                "CREATE TABLE k (n BIGINT) PARTITIONED BY (n) WITH ('connector' = 'kafka', 'topic' = 't', "
                "'properties.bootstrap.servers' = 'b:1', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json')",
                dialect="flink",
            )

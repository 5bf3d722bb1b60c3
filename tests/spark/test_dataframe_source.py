"""DataFrames are staged: run once, and read from what was written."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError, InvalidError
from millpond.plan import codec
from millpond.sources.dataframe import DataFrameSource, stage
from millpond.sources.files import FileSource

ZONE = datetime.UTC


def frame(session: Any, rows: int = 100) -> Any:
    return session.range(rows).selectExpr("id", "concat('k', id % 3) AS k", "id * 1.5 AS x").repartition(3)


def values(source: FileSource) -> list[dict[str, Any]]:
    splits = source.poll(None, None, 10**6).splits
    found = [r for s in splits for t in source.read(s, source.schema.names) for r in t.to_pylist()]
    return sorted(found, key=lambda r: str(r))


def test_a_staged_dataframe_in_a_pipeline_across_a_restart(session: Any, tmp_path: Path) -> None:
    for _ in range(2):
        with millpond.open(tmp_path, engine="inline", durable=False, epoch_rows_max=40) as pond:
            pond.stream("ids", DataFrameSource(frame(session))).key_by("k").aggregate(
                n="count(*)", total="sum(id)"
            ).view("sums")
            pond.drain()
            found = {r["k"]: (r["n"], r["total"]) for r in pond.read("sums").to_pylist()}
        assert found == {f"k{m}": (len(range(m, 100, 3)), sum(range(m, 100, 3))) for m in range(3)}


def test_tasks_on_spark_read_files_and_report_bad_rows(session: Any, tmp_path: Path) -> None:
    staged = DataFrameSource(frame(session)).staged(tmp_path, "ids")
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / f"{n}.json").write_text(f'{{"v": {n}}}\nbad\n')
    lines = FileSource(str(tmp_path / "in"), "json", pa.schema([("v", pa.int64())]))
    with millpond.open(tmp_path / "pond", spark=session, parallelism=2) as pond:
        pond.stream("ids", staged).aggregate(n="count(*)", total="sum(id)").view("ids_sum")
        pond.stream("lines", lines).aggregate(n="count(*)", total="sum(v)").view("lines_sum")
        pond.drain()
        assert pond.read("ids_sum").to_pylist() == [{"n": 100, "total": 4950}]
        assert pond.read("lines_sum").to_pylist() == [{"n": 3, "total": 3}]
        errors = pond.errors().to_pylist()
        assert sorted(e["row"] for e in errors for _ in range(e["weight"])) == ["bad"] * 3
        assert pond.head().counts == {"rows/ids": 100, "rows/lines": 3, "errors/lines": 3}


def test_it_is_run_once_and_reused(session: Any, tmp_path: Path) -> None:
    first = DataFrameSource(frame(session)).staged(tmp_path, "s")
    again = DataFrameSource(frame(session, 7)).staged(tmp_path, "s")  # another content, and it is not run
    assert again == first
    assert len(values(again)) == 100
    assert codec.loads(codec.dumps(first)) == first
    other = DataFrameSource(frame(session, 7), "other").staged(tmp_path, "s")
    assert len(values(other)) == 7
    assert sorted(p.name for p in (tmp_path / "staged").iterdir()) == ["other.parquet", "s.parquet"]


@pytest.mark.parametrize("left", ["without a list", "under a hidden name"])
def test_a_staging_that_was_cut_short_is_done_again(session: Any, tmp_path: Path, left: str) -> None:
    folder = tmp_path / "staged" / "s.parquet"
    half = folder if left == "without a list" else folder.with_name(".s.parquet.0123")
    (half / "_temporary" / "0").mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"torn")
    source = stage(frame(session, 5), folder)
    assert [r["id"] for r in values(source)] == [0, 1, 2, 3, 4]


def test_a_staged_file_that_changed_or_is_gone_is_noticed(session: Any, tmp_path: Path) -> None:
    source = stage(frame(session), tmp_path / "s")
    path = next(Path(source.path).glob("part-*"))
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(DataError, match="was changed or removed"):
        stage(frame(session), tmp_path / "s")
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="was changed or removed"):
        stage(frame(session), tmp_path / "s")
    path.write_bytes(content)
    assert stage(frame(session), tmp_path / "s") == source


def test_types_and_instants_are_kept(session: Any, tmp_path: Path) -> None:
    df = session.sql(
        """SELECT TIMESTAMP '2024-07-01 12:00:00.123456 UTC' AS instant,
                  TIMESTAMP_NTZ '2024-07-01 12:00:00' AS local,
                  DATE '2024-02-29' AS day, CAST(1.25 AS DECIMAL(10, 2)) AS price,
                  CAST(NULL AS STRING) AS none, array(1, 2) AS list, named_struct('a', 1) AS struct"""
    )
    source = stage(df, tmp_path / "s")
    assert source.schema.field("instant").type == pa.timestamp("us", "UTC")
    assert source.schema.field("local").type == pa.timestamp("us")
    assert source.schema.field("price").type == pa.decimal128(10, 2)
    (row,) = values(source)
    assert row["instant"] == datetime.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=ZONE)
    assert row["local"] == datetime.datetime(2024, 7, 1, 12)
    assert (row["day"], str(row["price"]), row["none"]) == (datetime.date(2024, 2, 29), "1.25", None)
    assert (row["list"], row["struct"]) == ([1, 2], {"a": 1})


def test_an_empty_dataframe_has_columns(session: Any, tmp_path: Path) -> None:
    source = stage(session.createDataFrame([], "a INT, b STRING"), tmp_path / "s")
    assert source.schema == pa.schema([("a", pa.int32()), ("b", pa.string())])
    assert values(source) == []


def test_a_streaming_dataframe_is_refused(session: Any, tmp_path: Path) -> None:
    df = session.readStream.format("rate").load()
    with pytest.raises(InvalidError, match="has no end"):
        stage(df, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_the_session_is_left_as_it_was(session: Any, tmp_path: Path) -> None:
    before = session.conf.get("spark.sql.parquet.outputTimestampType")
    stage(frame(session, 1), tmp_path / "s")
    with pytest.raises(Exception, match=r"(?i)divi"):
        stage(
            session.sql("SELECT 1 / (id - id) AS x FROM range(3)").selectExpr("assert_true(x > 0) AS x"),
            tmp_path / "t",
        )
    assert session.conf.get("spark.sql.parquet.outputTimestampType") == before
    assert [p.name for p in tmp_path.iterdir()] == ["s"]

"""Text lines, Avro, ORC, compressed files and the options of CSV, through SQL."""

from __future__ import annotations

import bz2
import datetime
import gzip
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

import millpond
from millpond.errors import InvalidError
from millpond.sources.files import FileSource


def rows(tmp_path: Path, columns: str, options: str) -> list[tuple[Any, ...]]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql(
            f"CREATE SOURCE s {columns} WITH (connector = 'files', path = '{tmp_path / 'in'}', {options})"
        )
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        pond.drain()
        assert pond.errors().num_rows == 0, pond.errors().to_pylist()
        return sorted(pond.sql("SELECT * FROM v").fetchall())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_lines_plain_and_compressed(place: Path, tmp_path: Path) -> None:
    (place / "a.log").write_text('one, "two\nä\r\n\nlast')
    (place / "b.log.gz").write_bytes(gzip.compress(b"zipped\n"))
    (place / "c.log.bz2").write_bytes(bz2.compress(b"bz\n"))
    with pa.CompressedOutputStream(str(place / "d.log.zst"), "zstd") as out:
        out.write(b"zst\n")
    found = rows(tmp_path, "", "format = 'text'")
    assert found == sorted([('one, "two',), ("ä",), ("last",), ("zipped",), ("bz",), ("zst",)])
    with pytest.raises(InvalidError, match="one column of text"):
        FileSource(place, "text", {"a": int})


def test_csv_options(place: Path, tmp_path: Path) -> None:
    (place / "a.csv").write_text("1|'a|b'|-\n2||x\n")
    options = "format = 'csv', delimiter = '|', header = 'false', quote = '''', null = '-'"
    assert rows(tmp_path, "(id BIGINT, a VARCHAR, b VARCHAR)", options) == [(1, "a|b", None), (2, "", "x")]


def test_csv_with_a_header_and_tabs_infers_its_types(place: Path, tmp_path: Path) -> None:
    (place / "a.csv").write_text("id\tat\n1\t2024-01-01\n")
    assert rows(tmp_path, "", "format = 'csv', delimiter = '\t'") == [(1, datetime.date(2024, 1, 1))]


def test_csv_without_header_needs_columns(place: Path, tmp_path: Path) -> None:
    (place / "a.csv").write_text("1,2\n")
    with pytest.raises(InvalidError, match="columns of folder"):
        rows(tmp_path, "", "format = 'csv', header = 'false'")
    with pytest.raises(InvalidError, match="one character"):
        rows(tmp_path, "", "format = 'csv', delimiter = '||'")


def test_orc(place: Path, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "x": ["a", None], "at": [datetime.datetime(2024, 1, 1)] * 2})
    orc.write_table(table, place / "a.orc", compression="zstd")
    at = datetime.datetime(2024, 1, 1)
    assert rows(tmp_path, "(id BIGINT, x VARCHAR, at TIMESTAMP_NS)", "format = 'orc'") == [
        (1, "a", at),
        (2, None, at),
    ]


NESTED = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {
            "name": "in",
            "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "int"]}]},
        },
    ],
}


def test_avro_nested_and_damaged(place: Path, tmp_path: Path) -> None:
    made = [{"id": n, "m": {"a": n}, "in": {"x": n}} for n in range(5)]
    with (place / "a.avro").open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(NESTED), made, codec="deflate")
    schema = pa.schema([("id", pa.int64()), ("in", pa.struct([("x", pa.int32())]))])
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.stream("s", FileSource(place, "avro", schema)).view("v")
        pond.drain()
        assert sorted(r["in"]["x"] for r in pond.read("v").to_pylist()) == [0, 1, 2, 3, 4]
        whole = (place / "a.avro").read_bytes()
        (place / "b.avro").write_bytes(whole[:-10])
        pond.drain()
        assert "nothing behind record 5 can be read" in pond.errors()["reason"].to_pylist()[0]

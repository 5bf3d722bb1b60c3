"""Records of CSV whose quoted values contain line ends, against Python's own reader and in files."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond
from millpond.errors import InvalidError
from millpond.sources import csv_records
from millpond.sources.csv_records import CsvMarks, records, records_of
from millpond.sources.files import FileSource
from millpond.sources.text_format import CsvOptions

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
MULTILINE = CsvOptions(multiline=True)
TEXT = st.text('a",;\n\r x', max_size=8)


@given(
    st.lists(st.lists(TEXT, min_size=1, max_size=4), max_size=12), st.integers(1, 40), st.sampled_from(",;")
)
def test_records_are_those_of_a_writer(rows: list[list[str]], size: int, delimiter: str) -> None:
    texts = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(row)
        texts.append(out.getvalue())
    data = "".join(texts).encode()
    marks = CsvMarks(delimiter)
    found = records_of(data, marks)
    assert [r.problem for r in found] == [None] * len(rows)
    assert [r.data for r in found] == [text.encode().removesuffix(b"\n") for text in texts]
    assert all(data[r.at :].startswith(r.data) for r in found)
    real, csv_records._BLOCK_BYTES = csv_records._BLOCK_BYTES, size
    try:
        again = [r for block in records(io.BytesIO(data), 0, marks) for r in block]
    finally:
        csv_records._BLOCK_BYTES = real
    assert again == found


@given(st.text('a",\n', max_size=40), st.integers(1, 9))
def test_any_text_is_cut_without_losing_a_byte(text: str, size: int) -> None:
    """Whatever the quotes: every byte is in one record or is a line end, and blocks change nothing."""
    data = text.encode()
    found = records_of(data, CsvMarks())
    at = 0
    for record in found:
        assert data[at : record.at].strip(b"\n") == b""
        assert data[record.at :].startswith(record.data)
        at = record.at + len(record.data)
    assert data[at:].strip(b"\n") == b""
    one_by_one = csv_records._ends_one_by_one(data + b"\n", CsvMarks())
    assert csv_records._record_ends(data + b"\n", CsvMarks()) == one_by_one


def read(source: FileSource) -> list[dict[str, Any]]:
    splits = source.poll(None, None, 1_000_000).splits
    names = source.schema.names
    return [row for split in splits for table in source.read(split, names) for row in table.to_pylist()]


@pytest.mark.parametrize("packed", [False, True])
def test_line_ends_in_values(packed: bool, tmp_path: Path) -> None:
    data = (
        b'\xef\xbb\xbf"t","not\nread",k\r\n"one\r\ntwo",x,1\r\n\r\n"a ""b""\n\n",,2\n5" x,y,3\n'
        b'"x\ny",z,bad\n"open,1,4\nplain,,5\n"last\nline",,6'
    )
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    source = FileSource(str(tmp_path), "csv", SCHEMA, csv=MULTILINE)
    rows = read(source)
    assert [(r["k"], r["t"]) for r in rows if "k" in r] == [
        (1, "one\r\ntwo"),
        (2, 'a "b"\n\n'),
        (3, '5" x'),
        (5, "plain"),
        (6, "last\nline"),
    ]
    bad = {r["_row"]: r["_error"] for r in rows if "_row" in r}
    assert list(bad) == ['"x\ny",z,bad', '"open,1,4']
    assert "a quoted value is not closed" in bad['"open,1,4']
    place = data.index(b'"open')
    assert f"byte {place}:" in bad['"open,1,4']


def test_a_file_is_one_range_and_blocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(n, f"{n}\n{'line' * (n % 7)}") for n in range(500)]
    text = "k,t\n" + "".join(f'{k},"{t}"\n' for k, t in wanted)
    (tmp_path / "a.csv").write_text(text, newline="")
    monkeypatch.setattr(csv_records, "_BLOCK_BYTES", 97)
    monkeypatch.setattr("millpond.sources.text_format.PIECE_BYTES_MIN", 10)
    source = FileSource(str(tmp_path), "csv", SCHEMA, csv=MULTILINE)
    assert len(source.poll(None, None, 20).splits) == 1
    assert [(r["k"], r["t"]) for r in read(source)] == wanted
    assert FileSource(str(tmp_path), "csv", csv=MULTILINE).schema == SCHEMA


def test_a_quote_that_is_never_closed_is_one_bad_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_records, "LINE_BYTES_MAX", 200)
    monkeypatch.setattr(csv_records, "_BLOCK_BYTES", 64)
    lines = ["k,t", '1,"open', *(f"{n},x" for n in range(2, 90)), f"90,{'y' * 500}", "91,z"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    rows = read(FileSource(str(tmp_path), "csv", SCHEMA, csv=MULTILINE))
    assert [r["k"] for r in rows if "k" in r] == [*range(2, 90), 91]
    assert [r["_row"][:8] for r in rows if "_row" in r] == ['1,"open', "90,yyyyy"]


def test_the_option_of_sql(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('k,t\n1,"a\nb"\n')
    made = f"CREATE SOURCE {{}} (k BIGINT, t VARCHAR) WITH (connector = 'files', format = 'csv', path = '{tmp_path}/in'{{}})"
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.sql(made.format("whole", ", multiline = 'true'") + "; " + made.format("lines", ""))
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM whole; CREATE MATERIALIZED VIEW w AS SELECT * FROM lines"
        )
        pond.drain()
        assert pond.sql("SELECT * FROM v").fetchall() == [(1, "a\nb")]
        assert pond.sql("SELECT * FROM w").fetchall() == []
        assert "multiline = 'true' reads values with line ends" in str(pond.errors()["reason"].to_pylist())
        with pytest.raises(InvalidError, match="'multiline' is true or false"):
            pond.sql(made.format("odd", ", multiline = 'yes'"))

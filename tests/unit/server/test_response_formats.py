"""Rows as JSON, NDJSON, CSV and Arrow, of every type that SQL has."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.server.http import response_formats as formats
from millpond.server.http.request_rows import rows_in
from millpond.sql.result import Result

EVERY = """SELECT 1::TINYINT a, 2::BIGINT b, 170141183460469231731687303715884105727::HUGEINT c, 1.5::DOUBLE d,
'NaN'::DOUBLE e, 1.50::DECIMAL(9,2) f, 'x"y,\n' g, true h, DATE '2024-01-02' i, TIMESTAMP '2024-01-02 03:04:05.678' j,
TIMESTAMPTZ '2024-01-02 03:04:05+00' k, TIME '03:04:05' l, INTERVAL '1 day' m, 'ab'::BLOB n,
UUID '00000000-0000-0000-0000-000000000001' o, [1, NULL] p, {'q': 1} q, (-5)::BIGNUM t, NULL::INT r, '' s"""


@pytest.fixture(scope="module")
def result() -> Result:
    with millpond.open("memory://", engine="inline") as pond:
        return pond.sql(EVERY, dialect="duckdb")


def test_json_of_every_type(result: Result) -> None:
    found = json.loads(b"".join(formats.json_document(result, {"view": "v"})))
    assert found["view"] == "v" and [c["name"] for c in found["columns"]] == result.columns
    (row,) = found["rows"]
    assert row["c"] == 170141183460469231731687303715884105727
    assert (row["e"], row["f"], row["g"]) == ("NaN", "1.50", 'x"y,\n')
    assert (row["i"], row["j"]) == ("2024-01-02", "2024-01-02T03:04:05.678000")
    assert (row["o"], row["p"], row["q"]) == ("00000000-0000-0000-0000-000000000001", [1, None], {"q": 1})
    assert row["r"] is None and row["s"] == "" and row["t"] == -5
    assert json.loads(b"".join(formats.ndjson(result))) == row


def test_csv_distinguishes_null_and_empty_text(result: Result) -> None:
    text = b"".join(formats.csv_text(result)).decode()
    assert text.startswith("a,b,c,")
    assert text.endswith(',,""\r\n'), "NULL, then the empty text"
    assert '"x""y,\n"' in text


def test_arrow_keeps_the_types(result: Result) -> None:
    found = pa.ipc.open_stream(b"".join(formats.arrow_stream(result))).read_all()
    assert found.schema == result.arrow().schema
    assert found.drop_columns("e").equals(result.arrow().drop_columns("e")), "NaN equals nothing"


def test_equal_names_are_numbered() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    found = json.loads(
        b"".join(formats.json_document(Result.of_rows(["a", "a"], ["BIGINT", "BIGINT"], table), {}))
    )
    assert found["rows"] == [{"a": 1, "a_2": 2}]


def test_batches_are_made_when_they_are_taken() -> None:
    rows = formats.BATCH_ROWS * 3
    pieces = formats.ndjson(Result.of_rows(["n"], ["BIGINT"], pa.table({"n": range(rows)})))
    assert len(next(pieces).splitlines()) == formats.BATCH_ROWS
    assert sum(len(piece.splitlines()) for piece in pieces) == rows - formats.BATCH_ROWS


@pytest.mark.parametrize(
    "body", [b"[1]", b'["x"]', b"7", b'[{"k": 1}, 2]', b'[{"k": [1]}]', b'[{"k": NaN}]', b"{'k'}"]
)
def test_rows_that_are_none_are_refused(body: bytes) -> None:
    schema = pa.schema([("k", pa.int64())])
    with pytest.raises(InvalidError):
        rows_in(body, "application/json", schema, "t")
    with pytest.raises(InvalidError):
        rows_in(b"nonsense", "application/vnd.apache.arrow.stream", schema, "t")

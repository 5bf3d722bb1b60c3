"""Lines of text: each is a row or an error row, however the text is cut (law 9)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.sources.text_format import BadLinesError, CsvLines, JsonLines, Lines, parse_lines

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])
NASTY_JSON = [
    b"",
    b"   ",
    b"null",
    b"3",
    b"[]",
    b"{",
    b"}",
    b"{}",
    b"{}{}",
    b"{} null",
    b'{"a":',
    b'{"a": 1, "a": 2}',
    b'{"a": 1e3}',
    b'{"s": "\\ud800"}',
    b'{"s": "\x80"}',
    b'{"s": "a\rb"}',
    b' {"a": 5}\r',
    b'{"a": {"x": 1}}',
    b'{"s": [null]}',
    b'{"a": 99999999999999999999}',
    b'{"a":\t1}',
    b'{"other": [{"x": [null]}]}',
    b"\xef\xbb\xbf{}",
    b"\x00",
]
NASTY_CSV = [
    b"",
    b",",
    b"1,x",
    b'1,"x"',
    b'1,"x',
    b'"1","x"\r',
    b'1,x"y',
    b'"',
    b'""',
    b'"",""',
    b"1,2,3",
    b"x,y",
    b"1,\xff",
    b"1,a\rb",
    b"\r",
    b"  ",
    b'1,"a""b"',
    b'1,"a"b',
]


def parts(parser: Lines, data: bytes) -> tuple[list[dict[str, Any]], list[tuple[int, bytes]]]:
    good, bad = parse_lines(parser, data)
    return [row for table in good for row in table.to_pylist()], [(at, line) for at, line, _ in bad]


@pytest.mark.parametrize(
    ("parser", "nasty"),
    [(JsonLines(SCHEMA), NASTY_JSON), (CsvLines(SCHEMA, ["a", "s"]), NASTY_CSV)],
    ids=["json", "csv"],
)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_block_of_lines_gives_what_its_lines_give_alone(
    parser: Lines, nasty: list[bytes], data: st.DataObject
) -> None:
    good = b'{"a": 1, "s": "x"}' if isinstance(parser, JsonLines) else b"1,x"
    line = st.sampled_from(nasty) | st.just(good) | st.binary(max_size=6).map(lambda b: b.replace(b"\n", b""))
    lines = data.draw(st.lists(line, max_size=12))
    block = b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n"]))
    rows, bad = parts(parser, block)
    expected_rows, expected_bad, at = [], [], 0
    for one in lines:
        alone = parts(parser, one)
        assert len(alone[0]) + len(alone[1]) == (1 if parser.clean(one) else 0), one
        expected_rows += alone[0]
        expected_bad += [(at, text) for _, text in alone[1]]
        at += len(one) + 1
    assert rows == expected_rows
    assert bad == expected_bad


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "s", "other"]),
            st.none()
            | st.integers()
            | st.text()
            | st.floats(allow_nan=False, allow_infinity=False)  # JSON has no others
            | st.lists(st.integers(), max_size=2),
            max_size=3,
        ),
        max_size=8,
    )
)
def test_json_agrees_with_another_reader(objects: list[dict[str, Any]]) -> None:
    block = "".join(json.dumps(o) + "\n" for o in objects).encode()
    rows, bad = parts(JsonLines(SCHEMA), block)

    def fits(o: dict[str, Any]) -> bool:
        a, s = o.get("a"), o.get("s")
        whole = a is None or (type(a) is int and -(2**63) <= a < 2**63)
        return whole and (s is None or type(s) is str)

    assert [r for r in rows if r["a"] is not None or r["s"] is not None] == [
        {"a": o.get("a"), "s": o.get("s")}
        for o in objects
        if fits(o) and (o.get("a") is not None or o.get("s") is not None)
    ]
    assert len(bad) == sum(not fits(o) for o in objects)


def test_required_values() -> None:
    required = pa.schema([pa.field("a", pa.int64(), nullable=False), ("s", pa.string())])
    rows, bad = parts(JsonLines(required), b'{"a": 1}\n{"s": "x"}\n{"a": null}\n{"a": 2}\n')
    assert [r["a"] for r in rows] == [1, 2]
    assert [line for _, line in bad] == [b'{"s": "x"}', b'{"a": null}']


def test_only_null_does_not_reach_the_reader() -> None:
    """It would end the process."""
    for text in (b"null\n", b"null\nnull\n", b" null \n"):
        assert parts(JsonLines(SCHEMA), text)[0] == []
    with pytest.raises(BadLinesError):
        JsonLines(SCHEMA).parse(b"null\n", 1)


def test_rows_that_only_add_up_to_the_number_of_lines() -> None:
    """An open quote swallows a row, a lone carriage return makes one more."""
    rows, bad = parts(CsvLines(SCHEMA, ["a", "s"]), b'1,"x\n2,y"\n3,a\r4,b\n')
    assert [line for _, line in bad] == [b'1,"x', b"3,a\r4,b"]
    assert rows == [{"a": 2, "s": 'y"'}]

"""Values that come one by one: each is one row or one reason, whatever stands in it (law 9)."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.sources.json_values import parse_values
from millpond.sources.text_format import JsonLines

PARSER = JsonLines(pa.schema([("k", pa.int64())]))

good = st.builds(
    lambda k, indent: json.dumps({"k": k, "more": [k]}, indent=indent).encode(),
    st.integers(-5, 5),
    st.sampled_from([None, 1]),
)
bad = st.sampled_from(
    [b"", b"\n", b"{", b"[1]", b"null", b'{"k": 1}\n{"k": 2}', b'{"k": 1} {"k": 2}', b"\xff"]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), good, bad), max_size=12))
def test_every_value_is_a_row_or_has_a_reason(drawn: list[tuple[bool, bytes, bytes]]) -> None:
    values = [fine if is_good else broken for is_good, fine, broken in drawn]
    tables, told = parse_values(PARSER, values)
    assert [index for index, _ in told] == [n for n, (is_good, _, _) in enumerate(drawn) if not is_good]
    rows = [row["k"] for table in tables for row in table.to_pylist()]
    assert rows == [json.loads(fine)["k"] for is_good, fine, _ in drawn if is_good]


def test_two_objects_beside_an_empty_value_are_not_two_rows() -> None:
    tables, told = parse_values(PARSER, [b'{"k": 1}\n{"k": 2}', b""])
    assert (tables, [index for index, _ in told]) == ([], [0, 1])

"""Operators of jsonb and arrays as in PostgreSQL, in reads and views, beside parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sql.asked import opened, rows

EXPRESSIONS = {
    "j - 'a'": '{"b": [1, 2]}',
    "j - ARRAY['a', 'b']": "{}",
    "j - 'a' - 'b'": "{}",
    "'[1, 2]'::jsonb - 0": "[2]",
    "j ? 'a'": "true",
    "j ? 'zz'": "false",
    "j ?| ARRAY['zz', 'b']": "true",
    "j #- '{b,0}'": '{"a": 1, "b": [2]}',
    "j || '{\"c\": 3}'": '{"a": 1, "b": [1, 2], "c": 3}',
    "NULL::int[] || ARRAY[1]": "{1}",
    "n || NULL::int[]": "{1}",
    "ARRAY[n] @> ARRAY[n, NULL]": "false",
    "(7 / 2) || 'x'": "3x",
    "((n BETWEEN SYMMETRIC 3 AND 1)::text) LIKE ANY (ARRAY['t%', ''])": "true",
    "((n::text LIKE ANY (ARRAY['a%', '']))::text) LIKE ANY (ARRAY['f%', ''])": "true",
    "interval '-1 month'::text || 'x'": "-1 monsx",
}


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        made.sql("CREATE TABLE t (n int PRIMARY KEY, j jsonb)")
        made.sql('INSERT INTO t VALUES (1, \'{"a": 1, "b": [1, 2]}\'); FLUSH')
        yield made


def test_reads_and_views(pond: Pond) -> None:
    query = f"SELECT {', '.join(f'({e})::text AS c{n}' for n, e in enumerate(EXPRESSIONS))} FROM t"
    (read,) = rows(pond, query)
    assert dict(zip(EXPRESSIONS, read, strict=True)) == EXPRESSIONS
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {query}; FLUSH")
    assert rows(pond, "SELECT * FROM v") == [read]


def test_a_question_mark_is_a_parameter_where_no_operand_is_before_it(pond: Pond) -> None:
    text = "SELECT ? AS x, j ? 'a', ? FROM t WHERE n = ? AND j ? 'b'"
    assert pond.sql(text, params=[5, 6, 1]).fetchall() == [(5, True, 6)]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("ARRAY[1] || 'x'", "malformed array literal"),
        ("n - 'x'", "does not exist between integer and a text"),
    ],
)
def test_refusals(pond: Pond, expression: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        pond.sql(f"SELECT {expression} FROM t")

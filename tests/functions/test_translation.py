"""Calls are translated once, and what PostgreSQL has and Millpond lacks is refused by name."""

from __future__ import annotations

import pytest

from millpond.errors import InvalidError
from millpond.sql.text.duckdb_text import readable_text

QUERIES = (
    "SELECT concat(a, 1), format('%s', a), json_build_object('k', a), num_nulls(a, b) FROM t",
    "SELECT a ~ 'x', a !~* 'y', a SIMILAR TO 'z%', regexp_matches(a, 'x', 'g') FROM t",
    "SELECT extract(epoch FROM ts), extract(julian FROM ts), date_part('year', ts), age(ts) FROM t",
    "SELECT * FROM t, json_each(t.j) AS e(k, v), unnest(ARRAY[1, 2], ARRAY['a']) WITH ORDINALITY AS u(x, y)",
    "SELECT * FROM regexp_split_to_table('a b', ' ') WITH ORDINALITY, generate_series(1, 3), generate_series(0.5, 2.0, 0.5)",
    "SELECT json_agg(lower(a) ORDER BY b DESC) FILTER (WHERE b > 1), json_object_agg(a, b), corr(x, y), every(o) FROM t",
    "SELECT json_agg(a) OVER (PARTITION BY b ORDER BY c), corr(x, y) OVER () FROM t",
    "SELECT rank(1, 'b') WITHIN GROUP (ORDER BY x DESC, y), cume_dist(2) WITHIN GROUP (ORDER BY x) FILTER (WHERE o) FROM t",
    "SELECT (a, b) OVERLAPS (c, d), to_number(a, '99D99'), normalize(a, NFD), a::jsonb, '{1,2}'::int[] FROM t",
    "SELECT * FROM json_to_recordset('[]'::json) AS r(a int, b text, c json)",
    "SELECT substr(max(a), 1, 2), to_char(sum(b), '999') FROM t GROUP BY c",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_translated_call_is_not_translated_again(query: str) -> None:
    text = readable_text(query, "postgres")
    assert text != query
    assert readable_text(text, "postgres") == text


@pytest.mark.parametrize(
    "call", ["to_ascii('x')", "nextval('s')", "pg_advisory_lock(1)", "clock_timestamp()"]
)
def test_what_is_missing_is_refused_by_name(call: str) -> None:
    with pytest.raises(InvalidError) as raised:
        readable_text(f"SELECT {call}", "postgres")
    assert call.split("(")[0] in raised.value.message
    assert raised.value.hint

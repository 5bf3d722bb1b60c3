"""Functions of the default dialect in materialized views: after every change a view is what its query returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond

TABLE = "CREATE TABLE t (id int PRIMARY KEY, g int, s text, n numeric(10,2), f double precision, ts timestamp, j json)"
VIEWS = {
    "texts": "SELECT id, upper(s) AS a, lpad(s, 7, '*') AS b, substr(s, -1, 4) AS c, split_part(s, ' ', -1) AS d,"
    " initcap(s) AS e, concat(s, '-', n, f > 1) AS f, format('%s: %L', id, s) AS g, md5(s) AS h FROM t",
    "patterns": "SELECT id, s ~ '^a' AS a, regexp_replace(s, '(.)o', '\\1X', 'g') AS b, regexp_match(s, '(\\w+) (\\w+)') AS c,"
    " s SIMILAR TO '%(o|e)_' AS d, regexp_count(s, '[aeiou]') AS e FROM t",
    "formats": "SELECT id, to_char(ts, 'FMDay DD Mon YYYY HH12:MI AM') AS a, to_char(n, 'S9990.99') AS b,"
    " to_date(to_char(ts, 'YYYYMMDD'), 'YYYYMMDD') AS c, to_number(to_char(n, '9990.99'), '9990.99') AS d FROM t",
    "times": "SELECT id, date_trunc('week', ts) AS a, extract(dow FROM ts) AS b, extract(second FROM ts) AS c,"
    " age(ts, TIMESTAMP '2000-01-31') AS d, date_bin(INTERVAL '15 minutes', ts, TIMESTAMP '2001-01-01') AS e FROM t",
    "documents": "SELECT id, j->>'a' AS a, j #>> '{b,0}' AS b, jsonb_set(j, '{a}', '9') AS c, json_typeof(j) AS d,"
    " json_build_object('id', id, 'n', n) AS e, jsonb_path_query_array(j, '$.b[*] ? (@ > 1)') AS f FROM t",
    "numbers": "SELECT id, round(f) AS a, trunc(n, 1) AS b, sqrt(n * n) AS c, width_bucket(f, 0, 10, 5) AS d,"
    " gcd(id, 12) AS e, sind(30 * id) AS f FROM t",
    "arrays": "SELECT id, array_to_string(string_to_array(s, ' '), '|') AS a, array_position(string_to_array(s, ' '), 'b') AS b,"
    " array_remove(ARRAY[id, 1, 2], 1) AS c FROM t",
    "words": "SELECT id, w FROM t, regexp_split_to_table(s, ' ') AS w",
    "members": "SELECT id, key, value FROM t, json_each(j)",
    "letters": "SELECT id, string_to_table(s, ' ') AS w FROM t",
    "lists": "SELECT g, json_agg(s ORDER BY id) AS a, string_agg(s, ', ' ORDER BY id DESC) AS b, every(f > 0) AS c,"
    " jsonb_object_agg(id, n ORDER BY id) AS d, percentile_cont(0.5) WITHIN GROUP (ORDER BY f) AS e,"
    " rank(2.0) WITHIN GROUP (ORDER BY f) AS f FROM t GROUP BY g",
    "running": "SELECT id, json_agg(s) OVER (PARTITION BY g ORDER BY id) AS a FROM t",
}  # fmt: skip
CHANGES = (
    "INSERT INTO t VALUES (1, 1, 'alpha one', 1.50, 2.5, '2024-02-29 13:45:30.25', '{\"a\": 1, \"b\": [1, 2]}'),"
    " (2, 1, 'b', -20.25, 0.5, '1999-12-31 23:59:59', '{\"c\": null}'), (3, 2, NULL, NULL, NULL, NULL, NULL)",
    'UPDATE t SET s = \'Zoë b foo\', n = 7, j = \'{"a": "x", "b": [3, 0.50]}\' WHERE id = 1',
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (4, 2, '', 0, 7.5, '2000-01-01', '{}'), (5, 2, 'two words', 3, 3.5, '2024-12-30', '{\"a\": [1]}')",
)


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[millpond.Pond]:
    place: Path = tmp_path_factory.mktemp("functions")
    with millpond.open(place / "pond", engine="inline", parallelism=2, durable=False, checks=True) as found:
        found.sql(TABLE)
        found.sql(";".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in VIEWS.items()))
        yield found


@pytest.mark.parametrize("change", CHANGES)
def test_views_are_what_their_queries_return(pond: millpond.Pond, change: str) -> None:
    pond.sql(f"{change}; FLUSH")
    assert pond.errors().num_rows == 0, pond.errors().to_pylist()
    for name, query in VIEWS.items():
        kept, asked = (
            sorted(map(repr, pond.sql(text).fetchall())) for text in (f"SELECT * FROM {name}", query)
        )
        assert kept == asked, name

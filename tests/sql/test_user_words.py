"""No error tells of a step, a column or a text that the user never wrote, and where there is a text there is a place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sql.text.user_errors import aligned

# One statement a line, of every clause: each is refused.
STATEMENTS = (Path(__file__).parent / "refused_statements.sql").read_text().splitlines()
# What only Millpond and DuckDB write: hidden columns, names of steps, words of rewritten texts, catalogs.
INTERNAL = re.compile(
    r"millpond\.|\b(?:part|by|on|key|group|p\d)_\d|\b_[who]\b|\b__\w|_of'|'argument|where: step|a union must|prepare "
    r"|from input|\bchecked\b|as named|\"values\"|TsOrDs|\bSET \w+ = true|STRING_LITERAL|LINE \d|cast\(null as|epoch_us\(\""
    r"|LOGICAL_|BOUND_|main_memory|\bpg_\w+|\bduckdb_\w+|Binder Error|MULTI"
)
# These name no word of the statement: their text is shown without a place.
WITHOUT_A_PLACE = re.compile(
    r"parameter 1|division by zero|no epoch|names are listed|this query cannot|cannot combine types|sample is not|NOT NULL constraint"
    r"|must be an INTERVAL|this one is INTEGER|RETURNS TABLE lists|for materialized views"
    r"|sequence with name|of type UNION"
)


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    path = tmp_path_factory.mktemp("words")
    with millpond.open(path / "pond", engine="inline", durable=False) as made:
        made.sql("""
            CREATE TABLE t (id int PRIMARY KEY, a int, b text, ts timestamp, d decimal(10,2), f double, l int[], st struct(x int, y text));
            CREATE TABLE u (id int PRIMARY KEY, a int, s text);
            CREATE TABLE e (k int, at timestamp, v int, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY;
            CREATE TABLE p (k int, seen AS PROCTIME()) APPEND ONLY;
            CREATE VIEW w AS SELECT id, a FROM t;
            CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a;
            CREATE FUNCTION twice(x int) RETURNS int AS 'SELECT x * 2';
            CREATE FUNCTION pairs(x int) RETURNS TABLE (p int, q int) AS 'SELECT x, x + 1';
            CREATE FUNCTION late(x timestamp) RETURNS boolean AS 'SELECT x < now()';
        """)
        made.drain()
        yield made


@pytest.mark.parametrize("sql", STATEMENTS)
def test_errors_are_in_the_words_of_the_user(pond: Pond, sql: str) -> None:
    with pytest.raises(MillpondError) as told:
        pond.sql(sql).fetchall()
    error = told.value
    assert isinstance(error, InvalidError) or "epoch" in error.message, error
    found = INTERNAL.search(str(error).replace(sql, ""))
    assert found is None, f"{found[0]} in {error}"
    lines = str(error).splitlines()
    marks = [n for n, line in enumerate(lines) if line.strip() and not line.strip().strip("^")]
    if not marks:
        assert WITHOUT_A_PLACE.search(error.message), error
        return
    assert lines[marks[0] - 1].strip() in sql, error
    marked = lines[marks[0] - 1][lines[marks[0]].index("^") : len(lines[marks[0]])]
    assert marked.strip(), error
    if "nope" in error.message and "from expression" not in error.message:
        assert "nope" in marked, error


def test_a_step_that_refuses_is_told_in_the_words_of_the_query(pond: Pond) -> None:
    with pytest.raises(InvalidError) as told:
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id,\n  random() AS r FROM t")
    assert told.value.step is None
    assert told.value.detail == "in the statement\n      random() AS r FROM t\n      ^^^^^^"


@pytest.mark.parametrize(
    ("rewritten", "said", "mark"),
    [
        ("SELECT CAST((nope) AS INTEGER) * 2 FROM t", "SELECT twice(nope) FROM t", "nope"),
        (
            "SELECT * FROM (SELECT *, true AS x FROM nope) AS u",
            "SELECT * FROM nope FOR SYSTEM_TIME AS OF u",
            "nope",
        ),
        ("select é, nope from t", "select é,\n nope\nfrom t", "nope"),
    ],
)
def test_places_are_found_again(rewritten: str, said: str, mark: str) -> None:
    at = len(rewritten[: rewritten.index(mark)].encode())
    place = aligned(rewritten, said, (at, len(mark)))
    assert place is not None and said.encode()[place[0] : sum(place)].decode() == mark

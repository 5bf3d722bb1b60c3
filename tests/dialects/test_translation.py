"""PostgreSQL's texts in DuckDB's SQL: what changes, what does not, and that a second time nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.sql.dialects.postgres.syntax import rewritten_syntax
from millpond.sql.text.duckdb_text import readable_expression, readable_text

PAIRS = Path(__file__).parent / "translations.sql"


def pairs() -> list[tuple[str, str]]:
    """Texts and their translations, each in one line, `=>` between them."""
    lines = [line for line in PAIRS.read_text().splitlines() if line and not line.startswith("--")]
    return [(said, made.removeprefix("=> ")) for said, made in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize(("said", "made"), pairs())
def test_a_text_is_translated_once(said: str, made: str) -> None:
    assert readable_text(said, "postgres") == made
    assert readable_text(made, "postgres") == made, "a second time"
    assert readable_text(made, "duckdb") == made


def test_rows_of_literals_are_not_looked_at_one_by_one() -> None:
    rows = ", ".join(f"({n}, 'x', -1.5, NULL, TRUE)" for n in range(5_000))
    text = f"INSERT INTO t VALUES {rows}"
    assert readable_text(text, "postgres") is text


def test_an_expression_has_no_name() -> None:
    assert readable_expression("a / 2", "postgres") == '__pg.main."/"(a, 2)'
    assert readable_expression("a + 2", "postgres") == "a + 2"
    assert readable_expression("a / 2", "duckdb") == "a / 2"


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("select j->'a'->>'b' = 'c' x", """select "->>"("->"(j, 'a'), 'b') = 'c' x"""),
        ("select a#>>'{a,b}' b from t", """select "#>>"(a, '{a,b}') b from t"""),
        ("select j->'a'||k", """select "->"(j, 'a')||k"""),
        ("select 1 # 2 + 3, a - -1", """select "#"(1, 2 + 3), a - -1"""),
        ("select case when a then j->'a' end->-1", """select "->"(case when a then "->"(j, 'a') end, -1)"""),
        ("select 'a'\n  'b', 'a->' x", "select 'ab', 'a->' x"),
        (r"select U&'\0041!' , e'\u0041'", "select 'A!' , e'A'"),
        ("select 0x1F, 0b11, 0o17", "select 31, 3, 15"),
        ("select x like any (array['a']) or y", "select __pg.main.like_any(x, (array['a'])) or y"),
        ("select x = any (array(select 1)) or y", "select x = any (select 1) or y"),
        ("select 1 from t for update", "select 1 from t "),
        ("select -- j->'a'\n 1 \"->\"", "select -- j->'a'\n 1 \"->\""),
    ],
)
def test_syntax_that_duckdb_lacks(said: str, made: str) -> None:
    assert rewritten_syntax(said) == made
    assert rewritten_syntax(made) == made

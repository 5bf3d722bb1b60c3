"""What is said about wrong statements: PostgreSQL's words, the user's text and place, and nothing internal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import millpond
from millpond.errors import MillpondError
from tests.bad_input.wrong_statements import (
    SETUP,
    Answer,
    WrongStatement,
    answer_of,
    asked,
    failed,
    pond_with_tables,
    statements,
)
from tests.sql.fuzz.postgres import Missing, Server

WRONG = statements()
# Names and words that messages may have although the statement does not.
PUBLIC = frozenset(
    [
        "boolean",
        "integer",
        "smallint",
        "bigint",
        "numeric",
        "real",
        "double",
        "precision",
        "text",
        "character",
        "varying",
        "date",
        "timestamp",
        "time",
        "without",
        "with",
        "zone",
        "interval",
        "uuid",
        "json",
        "jsonb",
        "bytea",
        "unknown",
        "record",
        "where",
        "having",
        "filter",
        "and",
        "or",
        "not",
        "case",
        "when",
        "join",
        "on",
        "group",
        "by",
        "order",
        "union",
        "except",
        "intersect",
        "values",
        "any",
        "all",
        "limit",
        "offset",
        "insert",
        "update",
        "over",
        "null",
        "array",
        "coalesce",
        "greatest",
        "least",
        "select",
        "returning",
        "default",
        "check",
        "cast",
        "using",
        "timezone",
    ]
)
COLUMNS = frozenset(["a", "s", "d", "ts", "l", "n", "j", "b", "f", "i", "x", "y"])  # which * stands for
INTERNAL = re.compile(
    r"__pg|__spark|__flink|__seq|__place|__conflict|__a\d|__o\d|main_memory|millpond\.|pg\.\w+\.\d|part_0|"
    r"lambda|Binder|Candidate|Catalog Error|\b_[hw]\b|candidate|STRING_LITERAL|VARCHAR|BIGINT|INTEGER\b",
)
_NAMES = re.compile(r"\"([^\"]+)\"|'([^']+)'|(\w+)\(")


@pytest.fixture(scope="module")
def pond() -> Iterator[millpond.Pond]:
    with pond_with_tables() as found:
        yield found


def foreign_names(error: MillpondError, sql: str) -> list[str]:
    """The names in an error that are neither in the statement nor public."""
    detail = re.sub(r"(?:; )?in the (?:statement|query)\n.*", "", error.detail or "", flags=re.DOTALL)
    known = {word.lower() for word in re.findall(r"\w+", sql)} | PUBLIC | COLUMNS
    message = re.sub(
        r"^(invalid input syntax for type .*?|malformed array literal): .*", r"\1", error.message
    )
    told = " ".join((message, detail))
    named = [next(part for part in found if part) for found in _NAMES.findall(told)]
    words = [word.lower() for name in named for word in re.findall(r"\w+", name)]
    shown = "\n".join((error.message, error.hint or "", detail))
    return [word for word in words if word not in known] + INTERNAL.findall(shown)


def test_wrong_statements_are_told_as_recorded(pond: millpond.Pond) -> None:
    assert len(WRONG) > 300
    different = {}
    for one in WRONG:
        error = failed(pond, one.sql)
        found = answer_of(error)
        same = found == one.ours or (
            one.ours.at == 0 and found == Answer(one.ours.state, found.at, one.ours.message)
        )
        if not same:
            different[one.sql] = (str(one.ours), str(found))
        if error is not None and (foreign := foreign_names(error, one.sql)):
            different[one.sql] = (foreign, str(error))
    assert not different


def test_most_is_told_as_postgresql_tells_it() -> None:
    assert sum(one.ours == one.expected for one in WRONG) > len(WRONG) * 0.85


def test_views_are_refused_as_reads_are(pond: millpond.Pond) -> None:
    """The same words, at the same place in the query; reads take some of what views refuse."""
    before = "create materialized view z as "
    different = {}
    for one in WRONG:
        if not one.sql.startswith(("select", "with")) or not one.postgres.state.startswith("42"):
            continue
        found = answer_of(failed(pond, before + one.sql))
        if found.message == one.expected.message:
            if one.postgres.at and found.at != one.postgres.at + len(before) and one.ours == one.expected:
                different[one.sql] = (one.postgres.at + len(before), found.at)
        elif found.message != one.ours.message and one.sql not in TAKEN_BY_VIEWS:
            different[one.sql] = (str(one.expected), str(found))
    assert not different


TAKEN_BY_VIEWS = (  # whose rows become error rows
    "select to_char(s, 'x') from t",
    "select jsonb_array_length(s) from t",
    "select array_position(l, s) from t",
    "select s = any(l) from t",
    "select j::date from t",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        found = Server()
    except Missing as error:
        pytest.skip(str(error))
    found.con.execute(SETUP)
    yield found
    found.close()


def test_postgresql_says_what_is_recorded(server: Server) -> None:
    assert server.con.info.server_version // 10_000 == 15 or pytest.skip("another version of PostgreSQL")
    told = {one.sql: asked(server.con, one.sql) for one in WRONG}
    assert told == {one.sql: one.postgres for one in WRONG}


def test_the_check_can_fail() -> None:
    error = MillpondError('function "truth" does not exist', hint="Candidate functions: x")
    assert foreign_names(error, "select 1") == ["truth", "Candidate"]
    one = WrongStatement(
        "select 1", Answer("42883", 8, "function pg_catalog.btrim(integer) does not exist"), Answer()
    )
    assert one.expected.message == "function trim(integer) does not exist"

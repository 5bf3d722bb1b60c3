"""Settings that PostgreSQL's scripts and clients begin with are accepted, and say what they do not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as made:
        yield made


@pytest.mark.parametrize(
    "statement",
    [
        "SET client_encoding = 'UTF8'",
        "SET CLIENT_ENCODING TO utf8",
        "SET standard_conforming_strings = on",
        "SET check_function_bodies = false",
        "SET SESSION extra_float_digits = 3",
        "SET lock_timeout = 0",
        "SET row_security = off",
        "SET DateStyle = ISO, MDY",
        "SET DateStyle TO DEFAULT",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "RESET DateStyle",
    ],
)
def test_what_is_so_anyway_is_accepted_without_a_word(pond: Pond, statement: str) -> None:
    result = pond.sql(statement)
    assert (result.status, result.warnings) == (statement.split()[0], [])


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SET DateStyle = 'ISO, DMY'", "the setting DateStyle has no effect here: it is 'ISO, MDY'"),
        ("SET bytea_output = 'escape'", "the setting bytea_output has no effect here: it is 'hex'"),
        ("SET statement_timeout = '5s'", "statement_timeout has no effect here: pond.sql(…, select_ms_max=) limits a query"),
        ("SET standard_conforming_strings = off", "the setting standard_conforming_strings has no effect here: it is 'on'"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_warned_about(pond: Pond, statement: str, told: str) -> None:
    assert pond.sql(statement).warnings == [told]


def test_settings_are_shown(pond: Pond) -> None:
    assert pond.sql("SHOW datestyle").fetchall() == [("ISO, MDY",)]
    assert pond.sql("SHOW datestyle").columns == ["DateStyle"]
    assert pond.sql("SELECT current_setting('intervalstyle')").fetchall() == [("postgres",)]


def test_what_cannot_change_is_refused(pond: Pond) -> None:
    with pytest.raises(InvalidError, match='parameter "server_version" cannot be changed'):
        pond.sql("SET server_version = '9.1'")
    with pytest.raises(InvalidError, match='unrecognized configuration parameter "nonsense"'):
        pond.sql("SET nonsense = 1")

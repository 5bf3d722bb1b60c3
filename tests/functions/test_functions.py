"""Functions of the default dialect answer as a real PostgreSQL did, and the page about them is current."""

from __future__ import annotations

import zlib

import pytest

from tests.functions.comparison import differences
from tests.functions.ours import Millpond
from tests.functions.page import PAGE, TITLES, read_statuses, rendered
from tests.functions.recorded import load

SHARE = 8  # one call of so many in the default run


@pytest.fixture(scope="module")
def millpond() -> Millpond:
    return Millpond()


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == rendered(read_statuses()), (
        "run python scripts/postgres_functions.py page"
    )


def test_every_function_of_the_catalog_has_a_status() -> None:
    recorded = {
        (f, one.signature, one.kind) for f, entries in load().items() for one, _ in entries if f != "left_out"
    }
    assert recorded == {(s.family, s.signature, s.kind) for s in read_statuses()}


@pytest.mark.parametrize("family", TITLES)
def test_supported_functions_answer_as_postgresql(millpond: Millpond, family: str) -> None:
    compare(millpond, family, SHARE)


@pytest.mark.slow
@pytest.mark.parametrize("family", TITLES)
def test_all_recorded_answers(millpond: Millpond, family: str) -> None:
    compare(millpond, family, 1)


def compare(millpond: Millpond, family: str, share: int) -> None:
    supported = {
        (s.signature, s.kind) for s in read_statuses() if s.family == family and s.status == "supported"
    }
    answers = [
        answer
        for one, answers in load()[family]
        if (one.signature, one.kind) in supported
        for answer in answers
        if zlib.crc32(answer.query.encode()) % share == 0
    ]
    assert answers
    assert differences(millpond, answers) == []

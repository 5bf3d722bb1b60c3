"""The recorded answers are those of the PostgreSQL that is installed here."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.functions.recorded import Answer, ask, load
from tests.sql.fuzz.postgres import Missing, Server

pytestmark = pytest.mark.e2e

SAMPLE = 400


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        found = Server()
    except Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


def test_a_server_answers_as_recorded(server: Server) -> None:
    (version,) = server.con.execute("SHOW server_version_num").fetchone()
    if int(version) // 10000 != 15:
        pytest.skip(f"the answers are those of PostgreSQL 15, this is {version}")
    answers = [answer for entries in load().values() for _, found in entries for answer in found]
    chosen = random.Random(1).sample(answers, SAMPLE)
    assert [_plain(ask(server.con, a.query)) for a in chosen] == [_plain(a) for a in chosen]


def _plain(answer: Answer) -> tuple[object, ...]:
    return answer.query, answer.rows, answer.error is None

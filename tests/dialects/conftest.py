"""A real PostgreSQL server, for tests that compare with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.fuzz.postgres import Missing, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        made = Server()
    except Missing as why:
        pytest.skip(str(why))
    yield made
    made.close()

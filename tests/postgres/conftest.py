"""A PostgreSQL server with logical replication: one for the run, which the tests start."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.postgres.server import Database, Server
from tests.sql.fuzz.postgres import Missing

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        found = Server()
    except Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """One that no other test uses."""
    made = Database(server, f"d{os.getpid()}_{next(_numbers)}")
    yield made
    made.close()

"""SHOW lists what its FROM and LIKE say, of every kind of object."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sql.asked import opened

PROGRAM = """
    CREATE SCHEMA shop;
    CREATE TABLE one (at timestamp, WATERMARK FOR at AS at) APPEND ONLY;
    CREATE TABLE shop.two (at timestamp, WATERMARK FOR at AS at) APPEND ONLY;
    CREATE MATERIALIZED VIEW one_kept AS SELECT * FROM one;
    CREATE MATERIALIZED VIEW shop.two_kept AS SELECT * FROM shop.two;
    CREATE FUNCTION one_more(a int) RETURNS int RETURN a + 1;
    CREATE FUNCTION shop.two_more(a int) RETURNS int RETURN a + 2;
"""


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("show")
    with opened(folder) as pond:
        pond.sql(PROGRAM)
        for sink, view in (("one_out", "one_kept"), ("shop.two_out", "shop.two_kept")):
            pond.sql(
                f"CREATE SINK {sink} FROM {view} WITH (connector = 'files', path = '{folder}/{sink}', format = 'json')"
            )
        yield pond


def names(pond: Pond, sql: str) -> list[str]:
    return [row[0].removeprefix("shop.") for row in pond.sql(sql).fetchall()]


@pytest.mark.parametrize("kind", ["TABLES", "VIEWS", "SINKS", "LATE", "FUNCTIONS", "MATERIALIZED VIEWS"])
def test_from_and_like_limit_every_list(pond: Pond, kind: str) -> None:
    every = names(pond, f"SHOW {kind}")
    ones, twos = ([name for name in every if name.startswith(start)] for start in ("one", "two"))
    assert ones and twos and len(ones) + len(twos) == len(every)
    assert names(pond, f"SHOW {kind} LIKE 'two%'") == twos
    assert names(pond, f"SHOW {kind} FROM shop") == twos
    assert names(pond, f"SHOW {kind} FROM public LIKE '%o%'") == ones
    assert names(pond, f"SHOW {kind} LIKE 'three'") == []


@pytest.mark.parametrize("what", ["EPOCHS", "SAVEPOINTS", "WATERMARKS", "LAG", "SHEDDING", "SCALING"])
def test_nothing_may_follow_other_lists(pond: Pond, what: str) -> None:
    assert pond.sql(f"SHOW {what}").columns
    with pytest.raises(InvalidError, match="nothing more should stand here"):
        pond.sql(f"SHOW {what} LIKE 'x'")

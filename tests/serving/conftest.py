"""One server for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving.served import ServedPond, served

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, n decimal(10,2), at timestamptz DEFAULT now());
INSERT INTO t (id, name, n) VALUES (1, 'ann', 1.5), (2, 'bob', NULL);
CREATE MATERIALIZED VIEW m AS SELECT name, count(*) AS c FROM t GROUP BY name;
CREATE VIEW v AS SELECT * FROM t WHERE id > 1;
CREATE INDEX t_name ON t (name);
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPond]:
    psycopg = pytest.importorskip("psycopg")
    with served(tmp_path_factory.mktemp("serving") / "pond") as found:
        with psycopg.connect(found.address(), autocommit=True) as con:
            con.execute(SCHEMA)
        yield found

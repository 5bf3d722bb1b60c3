"""SQL sees what the pond holds: no files, no network, no other database, whatever a text says."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.errors import MillpondError


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{path}')",
        "SELECT * FROM '{path}'",
        "DESCRIBE SELECT * FROM read_csv('{path}')",
        "EXPLAIN SELECT * FROM read_csv('{path}')",
        "CREATE VIEW v AS SELECT * FROM read_text('{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM read_text('{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM glob('{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM sniff_csv('{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE s IN (SELECT content FROM read_text('{path}'))",
        "CREATE TABLE x (a text DEFAULT (SELECT content FROM read_text('{path}')))",
        "INSERT INTO t SELECT 1, content FROM read_text('{path}')",
        "INSERT INTO t VALUES (1, (SELECT content FROM read_text('{path}')))",
        "UPDATE t SET s = (SELECT content FROM read_text('{path}'))",
        "DELETE FROM t WHERE s IN (SELECT file FROM glob('{path}')) RETURNING *",
        "INSERT INTO t VALUES (1, 'a') RETURNING (SELECT content FROM read_text('{path}'))",
        "ALTER TABLE t ADD COLUMN x text DEFAULT (SELECT content FROM read_text('{path}'))",
        "SELECT * FROM secret",
        "ATTACH '{path}' AS other",
    ],
)
def test_no_statement_reads_a_file(sql: str, tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("secret\n1\n")
    secret = [{"secret": 1}]  # nor a variable of the caller
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int, s text); INSERT INTO t VALUES (1, 'x'); FLUSH")
        with pytest.raises(MillpondError):
            pond.sql(sql.format(path=path))
        assert [r[0] for r in pond.sql("SHOW OBJECTS")] == ["t"] and secret
        assert pond.sql("SELECT * FROM t").fetchall() == [(1, "x")]

"""Tables and views that are renamed and swapped: whoever read them goes on with their rows (law 1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sql.asked import opened, refused, rows


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        made.sql("""
            CREATE TABLE t (id int PRIMARY KEY, a int);
            CREATE MATERIALIZED VIEW small AS SELECT id, a FROM t WHERE a < 10;
            CREATE MATERIALIZED VIEW large AS SELECT id, a FROM t WHERE a >= 10;
            CREATE VIEW plain AS SELECT id, a + 1 AS b FROM small;
            CREATE MATERIALIZED VIEW kept AS SELECT s.id, p.b FROM small AS s JOIN plain AS p USING (id);
            INSERT INTO t VALUES (1, 5), (2, 50); FLUSH
        """)
        yield made


def test_what_reads_a_view_goes_on_when_it_has_another_name(pond: Pond) -> None:
    pond.sql("ALTER MATERIALIZED VIEW small RENAME TO little; INSERT INTO t VALUES (3, 6); FLUSH")
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6), (3, 7)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW little AS SELECT id, a FROM t WHERE a < 6; FLUSH")
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6)]
    assert "plain, kept" in refused(pond, "DROP MATERIALIZED VIEW little")
    pond.sql("CREATE MATERIALIZED VIEW small AS SELECT id, a FROM t")  # nobody takes it for the other
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW little AS SELECT id, a FROM t WHERE a < 7; FLUSH")
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6), (3, 7)]
    pond.sql("DROP MATERIALIZED VIEW small; ALTER MATERIALIZED VIEW little RENAME TO small")
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW small AS SELECT id, a FROM t; FLUSH")
    assert rows(pond, "SELECT * FROM kept") == [(1, 6), (2, 51), (3, 7)]


def test_what_reads_a_view_goes_on_when_it_was_swapped(pond: Pond) -> None:
    """Made anew, it is made of the same view as before, not of the one that has its name."""
    pond.sql("ALTER MATERIALIZED VIEW small SWAP WITH large")
    assert rows(pond, "SELECT * FROM small") == [(2, 50)]
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW large AS SELECT id, a FROM t WHERE a < 9; FLUSH")
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6)]
    pond.sql("CREATE OR REPLACE VIEW plain AS SELECT id, a + 2 AS b FROM small; FLUSH")
    assert rows(pond, "SELECT * FROM plain") == [(2, 52)] and rows(pond, "SELECT * FROM kept") == []
    pond.sql("DROP VIEW plain CASCADE; DROP MATERIALIZED VIEW small")


def test_rows_go_to_the_table_that_has_the_name(pond: Pond) -> None:
    pond.sql("ALTER TABLE t RENAME TO moved")
    pond.insert("moved", {"id": 70, "a": 1})
    with pytest.raises(InvalidError, match="no table named 't'") as error:
        pond.insert("t", {"id": 71, "a": 1})
    assert "'moved' is its name now" in str(error.value)
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int)")
    pond.insert("t", {"id": 72, "a": 1})
    pond.delete("Moved", {"id": 1, "a": None})
    pond.sql("FLUSH")
    assert rows(pond, "SELECT id FROM t") == [(72,)]
    assert (70,) in rows(pond, "SELECT id FROM moved") and (1,) not in rows(pond, "SELECT id FROM moved")


def test_tables_and_their_columns_together(pond: Pond) -> None:
    pond.sql("""
        ALTER TABLE t RENAME COLUMN a TO b;
        ALTER TABLE t RENAME TO u;
        ALTER TABLE u ADD COLUMN a int DEFAULT 0;
        CREATE TABLE t (id int PRIMARY KEY, a int);
        CREATE OR REPLACE MATERIALIZED VIEW small AS SELECT id, b AS a FROM u WHERE b < 10;
        ALTER MATERIALIZED VIEW small RENAME TO little;
        CREATE OR REPLACE MATERIALIZED VIEW little AS SELECT id, b AS a FROM u WHERE b < 20;
        INSERT INTO u VALUES (4, 12, 3); INSERT INTO t VALUES (9, 1); FLUSH
    """)
    assert rows(pond, "SELECT * FROM plain") == rows(pond, "SELECT * FROM kept") == [(1, 6), (4, 13)]
    assert rows(pond, "SELECT * FROM large") == [(2, 50), (4, 12)]
    assert "large" in refused(pond, "ALTER TABLE u DROP COLUMN b")
    pond.sql("ALTER TABLE u DROP COLUMN a")

"""A view whose query only names what a step keeps is that step's table, read under the view's names (laws 1, 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millpond.pond import Pond
from tests.sql.asked import opened, rows


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        made.sql(
            """
            CREATE TABLE t (id int PRIMARY KEY, k text, x bigint);
            CREATE MATERIALIZED VIEW m AS SELECT sum(x) AS total, k AS name, count(*) AS n FROM t GROUP BY k;
            INSERT INTO t VALUES (1, 'a', 5), (2, 'a', 7), (3, 'b', 1); FLUSH
            """
        )
        yield made


def tables(pond: Pond) -> list[str]:
    return sorted(t.name for n in pond.plan.nodes.values() for t in n.binding.tables if n.step != "t.rows")


def test_nothing_is_stored_twice(pond: Pond) -> None:
    assert tables(pond) == ["m.group/groups"]
    pond.sql("CREATE MATERIALIZED VIEW again AS SELECT k, count(*) AS many, sum(x) AS s FROM t GROUP BY k")
    assert {v.table for v in pond.plan.views.values() if v.name != "t"} <= {
        "m.group/groups",
        "again.group/groups",
    }
    assert rows(pond, "SELECT * FROM again") == [("a", 2, 12), ("b", 1, 1)]


def test_every_way_of_reading_shows_the_names_of_the_view(pond: Pond) -> None:
    first = pond.epoch
    assert rows(pond, "SELECT * FROM m") == [(1, "b", 1), (12, "a", 2)]
    assert rows(pond, "SELECT n, total FROM m WHERE name = 'a'") == [(2, 12)]
    assert pond.read("m").column_names == ["total", "name", "n"]
    assert pond.lookup("m", {"name": "a"}).to_pylist() == pond.lookup("m", "a").to_pylist()
    assert pond.lookup("m", "a").to_pylist()[0]["n"] == 2
    pond.sql("UPDATE t SET x = 9 WHERE id = 2; DELETE FROM t WHERE id = 3; FLUSH")
    assert rows(pond, "SELECT * FROM m") == [(14, "a", 2)]
    assert rows(pond, f"SELECT * FROM m AS OF EPOCH {first}") == [(1, "b", 1), (12, "a", 2)]
    moved = sorted(
        (int(r["total"]), r["name"], r["n"], r["_w"]) for r in pond.diff("m", first, pond.epoch).to_pylist()
    )
    assert moved == [(1, "b", 1, -1), (12, "a", 2, -1), (14, "a", 2, 1)]
    told = [r for d in pond.changes("m", since=first) for r in d.table.to_pylist()]
    assert sorted((int(r["total"]), r["name"], r["n"], r["_w"]) for r in told) == moved


def test_what_is_built_on_it_reads_it_by_name(pond: Pond, tmp_path: Path) -> None:
    pond.sql(
        """
        CREATE MATERIALIZED VIEW large AS SELECT name, total AS sum FROM m WHERE n > 1;
        CREATE VIEW plain AS SELECT total + n AS both FROM m;
        CREATE INDEX by_n ON m (n);
        CREATE SINK told FROM m WITH (connector = 'files', path = :out)
        """,
        params={"out": str(tmp_path / "out")},
    )
    with pond.changing():
        pond.stream_of("m").filter("n > 1 and total > 0").view("flowing")
    pond.sql("INSERT INTO t VALUES (4, 'b', 2); FLUSH")
    assert rows(pond, "SELECT * FROM large") == [("a", 12), ("b", 3)]
    assert pond.read("flowing").select(["name", "n"]).sort_by("name").to_pydict() == {
        "name": ["a", "b"],
        "n": [2, 2],
    }
    assert rows(pond, "SELECT both FROM plain") == [(14,), (5,)]
    assert rows(pond, "SELECT name FROM m WHERE n = 2") == [("a",), ("b",)]
    deltas = pq.read_table(tmp_path / "out").to_pylist()
    assert sum(int(d["total"]) * d["_w"] for d in deltas) == 15
    pond.sql("DROP MATERIALIZED VIEW flowing")
    pond.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT count(*) AS n, k AS name, 2 * sum(x) AS total FROM t GROUP BY k"
    )
    assert rows(pond, "SELECT * FROM large") == [("a", 24), ("b", 6)]
    pond.sql("DROP MATERIALIZED VIEW m CASCADE")
    assert tables(pond) == []


def test_a_projection_that_loses_a_key_keeps_its_own_rows(pond: Pond) -> None:
    pond.sql("CREATE MATERIALIZED VIEW counts AS SELECT count(*) AS n FROM t GROUP BY k")
    pond.sql("CREATE MATERIALIZED VIEW twice AS SELECT k, k AS again, count(*) AS n FROM t GROUP BY k")
    pond.sql("CREATE MATERIALIZED VIEW named AS SELECT k AS called, id FROM t")
    assert rows(pond, "SELECT * FROM counts") == [(1,), (2,)]
    assert rows(pond, "SELECT * FROM twice") == [("a", "a", 2), ("b", "b", 1)]
    pond.sql("ALTER TABLE t ADD COLUMN y int; INSERT INTO t VALUES (5, 'c', 1, 1); FLUSH")
    assert rows(pond, "SELECT * FROM named") == [("a", 1), ("a", 2), ("b", 3), ("c", 5)]

"""Sinks and names: what a target knows by a name keeps it, or the statement is refused (law 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.errors import InvalidError
from millpond.sinks.callback import CallbackSink
from tests.sql.asked import opened, refused


def test_a_sink_keeps_its_name(tmp_path: Path) -> None:
    """Under another name it would be new to its target, and deliver all rows again."""
    with opened(tmp_path / "pond") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int)")
        pond.sql(f"CREATE SINK out FROM t WITH (connector = 'files', path = '{tmp_path}/out')")
        pond.sql("INSERT INTO t VALUES (1, 5)")
        pond.drain()
        assert "cannot be renamed, its target knows it by its name" in refused(
            pond, "ALTER SINK out RENAME TO away"
        )
        pond.drain()
        assert [s.name for s in pond.status.sinks] == ["out"]
    assert pq.read_table(tmp_path / "out").num_rows == 1


def test_columns_of_a_target_keep_their_names(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int)")
        pond.sql(f"CREATE SINK out FROM t WITH (connector = 'files', path = '{tmp_path}/out')")
        told = refused(pond, "ALTER TABLE t RENAME COLUMN a TO b")
        assert "column 'a' of table 't' cannot be renamed, sink 'out' writes it by name" in told
        pond.sql("DROP SINK out")
        pond.sql(
            f"CREATE SINK out AS SELECT id, a FROM t WITH (connector = 'files', path = '{tmp_path}/out')"
        )
        pond.sql("INSERT INTO t VALUES (1, 5); FLUSH")
        pond.sql("ALTER TABLE t RENAME COLUMN a TO b")
        pond.sql("INSERT INTO t VALUES (2, 6); FLUSH")
        pond.drain()
    found = pq.read_table(tmp_path / "out").select(["id", "a"]).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "a": 5}, {"id": 2, "a": 6}]


def test_a_function_is_told_the_new_names_also_of_the_key(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with opened(tmp_path / "pond") as pond:
        table = pond.table("t", {"id": int, "a": int}, key="id")
        table.sink("out", CallbackSink(lambda _, rows: told.extend(rows.to_pylist())), mode="upsert")
        pond.sql("INSERT INTO t VALUES (1, 5); FLUSH")
        pond.drain()
        pond.sql("ALTER TABLE t RENAME COLUMN id TO key, RENAME COLUMN a TO b; UPDATE t SET b = 6; FLUSH")
        pond.drain()
    assert [{k: v for k, v in row.items() if k != "_op"} for row in told] == [
        {"id": 1, "a": 5},
        {"key": 1, "b": 6},
    ]


def test_gathered_changes_have_one_name_per_column(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        table = pond.table("t", {"id": int, "a": int}, key="id")
        table.sink("out", CallbackSink(lambda _, rows: None), mode="upsert", every="1h")
        pond.drain()
        assert "it has gathered changes" in refused(pond, "ALTER TABLE t RENAME COLUMN a TO b")


def test_views_with_other_columns_are_not_swapped_under_a_table(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.sql("""
            CREATE TABLE t (id int PRIMARY KEY, a int);
            CREATE MATERIALIZED VIEW one AS SELECT id, a FROM t;
            CREATE MATERIALIZED VIEW other AS SELECT id, a AS b FROM t;
            CREATE MATERIALIZED VIEW same AS SELECT id, a FROM t WHERE a > 5;
        """)
        pond.sql(f"CREATE SINK out FROM one WITH (connector = 'files', path = '{tmp_path}/out')")
        assert "sink 'out' writes columns by name" in refused(
            pond, "ALTER MATERIALIZED VIEW one SWAP WITH other"
        )
        with pytest.raises(InvalidError, match="cannot be swapped"):
            pond.swap_views("other", "one")
        pond.sql("ALTER MATERIALIZED VIEW one SWAP WITH same")

"""pg_catalog and information_schema in `pond.sql`: the names of the pond, never those of DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError


def test_the_catalog_has_the_names_of_the_pond(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        assert pond.sql(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone() == (0,)
        pond.sql("""
            CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY, n varchar(10) NOT NULL, CHECK (id > 0));
            CREATE TABLE t (a int, b numeric(10,2) DEFAULT 3); INSERT INTO t VALUES (1, 2);
            CREATE VIEW v AS SELECT * FROM t; COMMENT ON TABLE t IS 'hello'; FLUSH
        """)

        def rows(sql: str, params: object = None) -> list[tuple[object, ...]]:
            return pond.sql(sql, params=params).fetchall()

        listed = "SELECT table_schema, table_name, table_type FROM information_schema.tables ORDER BY 1, 2"
        assert rows(listed) == [
            ("public", "t", "BASE TABLE"),
            ("public", "v", "VIEW"),
            ("s", "t", "BASE TABLE"),
        ]
        shown = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1 AND table_schema = $2"
        assert rows(shown, ["t", "public"]) == [("a", "integer"), ("b", "numeric")]
        joined = "SELECT relname, t.a FROM pg_class JOIN t ON relkind = 'r' WHERE oid = 's.t'::regclass"
        assert rows(joined) == [("t", 1)]
        assert rows("SELECT current_schema(), current_database(), obj_description('t'::regclass)") == [
            ("public", "pond", "hello")
        ]
        pond.sql("SET search_path TO s")
        assert rows("SELECT current_schema(), 't'::regclass::text, 'public.t'::regclass::text") == [
            ("s", "t", "public.t")
        ]
        pond.sql("RESET search_path; DROP TABLE s.t")
        assert rows(listed) == [("public", "t", "BASE TABLE"), ("public", "v", "VIEW")]
        for text in (
            "CREATE VIEW w AS SELECT relname FROM pg_class",
            "CREATE MATERIALIZED VIEW w AS SELECT table_name FROM information_schema.tables",
            "CREATE TABLE w AS SELECT * FROM pg_catalog.pg_class",
            "INSERT INTO t SELECT 1, oid FROM pg_class",
        ):
            with pytest.raises(InvalidError, match="is a relation of the catalog"):
                pond.sql(text)
        pond.sql("CREATE TABLE pg_mine (a int); CREATE VIEW w AS SELECT * FROM pg_mine")
        assert rows("SELECT * FROM pg_mine") == []

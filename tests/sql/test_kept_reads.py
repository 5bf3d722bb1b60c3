"""Queries that are asked again: what was found out about a text, and what DuckDB was shown, is used again."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
import sqlglot

import millpond
from millpond.errors import InvalidError
from millpond.sql.reads import scratch
from millpond.sql.reads.scratch import CachedScratch, Scratch
from millpond.sql.text import duckdb_parser


@pytest.fixture
def pond() -> Any:
    with millpond.open("memory://", engine="inline") as made:
        made.sql("""
            CREATE TABLE t (id bigint PRIMARY KEY, name text, price bigint);
            CREATE MATERIALIZED VIEW v AS SELECT name, count(*) AS n, sum(price) AS total FROM t GROUP BY name;
            INSERT INTO t VALUES (1, 'a', 10), (2, 'a', 20), (3, 'b', 30);
            FLUSH
        """)
        yield made


def test_a_lookup_of_another_key_parses_and_shows_nothing(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = f"SELECT total FROM v AS OF EPOCH {pond.epoch} WHERE name = ?"
    assert pond.sql(sql, params=["a"]).fetchall() == [(30,)]
    done: list[str] = []

    def counted(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(place, name, call)

    counted(sqlglot, "tokenize")
    counted(duckdb_parser, "parser")
    counted(scratch.Scratch, "rows")
    counted(scratch.Scratch, "view")
    counted(scratch.Scratch, "_drop")
    counted(millpond.state.manifest.history, "read_head")  # a listing of all manifests
    assert pond.sql(sql, params=["b"]).fetchall() == [(30,)]
    assert not done
    assert pond.sql(sql + " AND 1 = 1", params=["b"]).fetchall() == [(30,)]
    assert {"tokenize", "parser"} <= set(done)
    assert not {"rows", "view", "_drop"} & set(done)  # another text over the same relation


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM v WHERE name = 'a'",
        "SELECT * FROM v WHERE name = 'none'",
        "SELECT typeof(total), total FROM v WHERE name = 'b'",
        "SELECT v.n, t.price FROM v JOIN t ON v.name = t.name ORDER BY 1, 2",
        "SELECT n + $1, typeof($1), $2 FROM v WHERE name = $2",
        "SELECT now() - now() AS no_time, name FROM v ORDER BY name",
        "SELECT * FROM (SELECT id FROM t WHERE id = 2) AS v",
    ],
)
def test_what_is_kept_answers_as_what_is_not(pond: Any, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every: list[Any] = [[1, "a"], [2**40, "b"]] if "$1" in sql else [None]
    kept = [pond.sql(sql, params=params) for params in every * 2]
    assert pond.session._cached_scratch is not None
    monkeypatch.setattr("millpond.sql.session.may_cache", lambda *_: False)
    fresh = [pond.sql(sql, params=params) for params in every * 2]
    for one, other in zip(kept, fresh, strict=True):
        assert (one.columns, one.types, one.arrow()) == (other.columns, other.types, other.arrow())


def test_rows_stay_no_longer_than_their_statement(pond: Any) -> None:
    assert pond.sql("SELECT n FROM v WHERE name = 'a'").fetchall() == [(2,)]
    assert pond.sql("SELECT n FROM v WHERE name = 'b'").fetchall() == [(1,)]
    assert pond.session._cached_scratch.run("SELECT count(*) FROM v").fetchall() == [(0,)]


def test_a_name_that_means_something_else_by_now(pond: Any) -> None:
    assert pond.sql("SELECT * FROM v WHERE name = 'a'").fetchall() == [("a", 2, 30)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT name, max(price) AS best FROM t GROUP BY name")
    assert pond.sql("SELECT * FROM v WHERE name = 'a'").fetchall() == [("a", 20)]
    pond.sql("ALTER TABLE t RENAME COLUMN price TO cost")
    assert pond.sql("SELECT cost FROM t WHERE id = 3").fetchall() == [(30,)]
    pond.sql("DROP MATERIALIZED VIEW v")
    with pytest.raises(InvalidError, match='"v" does not exist'):
        pond.sql("SELECT * FROM v WHERE name = 'a'")
    with pytest.raises(InvalidError, match='"v" does not exist'):
        pond.sql("SELECT (SELECT count(*) FROM v) FROM t WHERE id = 3")


def test_few_relations_stay(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "CACHED_MAX", 2)
    pond.sql("CREATE MATERIALIZED VIEW w AS SELECT name, price FROM t WHERE price > 10")
    for _ in range(2):
        assert pond.sql("SELECT n FROM v WHERE name = 'a'").fetchall() == [(2,)]
        assert pond.sql("SELECT count(*) FROM w").fetchall() == [(2,)]
        assert pond.sql("SELECT name FROM t WHERE id = 1").fetchall() == [("a",)]
        assert pond.sql("SELECT count(*) FROM v JOIN w USING (name)").fetchall() == [(2,)]  # two at once
        assert len(pond.session._cached_scratch._kept) <= 2


def test_a_relation_that_cannot_be_shown_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id hugeint, n int); INSERT INTO t VALUES (1, 2); FLUSH")

        def fails(*_: Any) -> None:
            raise duckdb.InvalidInputException("no view today")

        with monkeypatch.context() as patched:
            patched.setattr(Scratch, "view", fails)
            with pytest.raises(duckdb.Error, match="no view today"):
                pond.sql("SELECT * FROM t")
        assert pond.sql("SELECT * FROM t").fetchall() == [(1, 2)]
        kept: CachedScratch = pond.session._cached_scratch
        (shown,) = kept.run("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'rows%'").fetchall()
        assert shown == (1,)

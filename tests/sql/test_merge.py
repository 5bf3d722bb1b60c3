"""MERGE: random statements give the same rows as PostgreSQL; in transactions, over restarts and in replays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import ConflictError, InvalidError
from millpond.pond import Pond
from millpond.state.manifest.snapshot import Snapshot
from tests.sampling import seeds
from tests.sql.fuzz import postgres


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    try:
        found = postgres.Server()
    except postgres.Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


TABLES = (
    "CREATE TABLE k (a int, b text, n int, PRIMARY KEY (a, b))",
    "CREATE TABLE bag (a int, b text, n int)",
    "CREATE TABLE s (a int, b text, d int)",
)


def random_rows(rng: random.Random, count: int) -> str:
    cells = [f"({rng.randint(0, 3)}, '{rng.choice('xyz')}', {rng.randint(0, 3)})" for _ in range(count)]
    return ", ".join(cells)


def random_merge(rng: random.Random, table: str) -> str:
    source = rng.choice(
        [
            "s",
            "s AS s",
            "(SELECT a, b, sum(d) AS d FROM s GROUP BY a, b) s",
            f"(SELECT a, b, n AS d FROM {table}) s",
        ]
    )
    on = rng.choice(
        [
            "t.a = s.a AND t.b = s.b",
            "s.b = t.b AND t.a = s.a AND d > 0",
            "t.a = s.a + 1 AND t.b = s.b",
            "t.n = s.d",
            "t.a = s.a",
        ]
    )
    clauses = []
    for _ in range(rng.randint(1, 3)):
        condition = rng.choice(["", "", f" AND s.d > {rng.randint(0, 2)}"])
        if rng.random() < 0.6:
            more = rng.choice(["", f" AND t.n < {rng.randint(0, 3)}"])
            action = rng.choice(
                [
                    "DELETE",
                    "DO NOTHING",
                    "UPDATE SET n = t.n + s.d",
                    "UPDATE SET n = s.d, b = 'w'",
                    "UPDATE SET a = t.a + 10",
                ]
            )
            clauses.append(f"WHEN MATCHED{condition}{more} THEN {action}")
        else:
            action = rng.choice(
                ["DO NOTHING", "INSERT VALUES (s.a, s.b, s.d)", "INSERT (b, a) VALUES (s.b, s.a)"]
            )
            clauses.append(f"WHEN NOT MATCHED{condition} THEN {action}")
    return f"MERGE INTO {table} AS t USING {source} ON {on} {' '.join(clauses)}"


@pytest.mark.parametrize("seed", seeds(1, 0, 20, "MERGE_SEEDS"))
def test_random_merges_give_what_postgresql_gives(seed: int, pond: Pond, server: postgres.Server) -> None:
    import psycopg

    rng, con = random.Random(seed), server.con
    con.execute("DROP SCHEMA IF EXISTS merged CASCADE; CREATE SCHEMA merged; SET search_path = merged")
    pond.sql("; ".join(TABLES))
    con.execute("; ".join(TABLES))
    for _ in range(12):
        text = f"TRUNCATE s; INSERT INTO s VALUES {random_rows(rng, rng.randint(1, 4))}"
        pond.sql(text)
        con.execute(text)
        if rng.random() < 0.3:
            text = f"TRUNCATE k, bag; INSERT INTO bag VALUES {random_rows(rng, 4)}; INSERT INTO k SELECT DISTINCT ON (a, b) * FROM bag ORDER BY a, b, n"
            pond.sql(text)
            con.execute(text)
        table = rng.choice(["k", "bag"])
        sql = random_merge(rng, table)
        try:
            wanted = con.execute(sql).rowcount
        except psycopg.Error as error:
            with pytest.raises(InvalidError) as told:
                _ = pond.sql(sql).rowcount
            wanted_text = str(error).split("\n")[0]
            both = "unreachable" in wanted_text and "unreachable" in str(told.value)
            assert both or wanted_text in str(told.value), sql
        else:
            assert pond.sql(sql).rowcount == wanted, sql
        pond.sql("FLUSH")
        shown = f"SELECT * FROM {table}"
        key = lambda row: tuple((v is None, v) for v in row)  # noqa: E731
        assert sorted(pond.sql(shown).fetchall(), key=key) == sorted(
            con.execute(shown).fetchall(), key=key
        ), sql
    assert pond.replay(pond.epoch).same


def test_a_merge_reads_only_the_keys_of_its_source(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM range(100) r(i); FLUSH"
    )
    scanned: list[str] = []
    scan = Snapshot.scan
    monkeypatch.setattr(
        Snapshot, "scan", lambda self, spec, *rest: scanned.append(spec.name) or scan(self, spec, *rest)
    )
    change = "MERGE INTO t USING (VALUES (1::bigint, 5), (200, 6)) v(i, n) ON t.id = v.i"
    assert (
        pond.sql(
            f"{change} WHEN MATCHED THEN UPDATE SET n = v.n WHEN NOT MATCHED THEN INSERT VALUES (i, v.n)"
        ).rowcount
        == 2
    )
    assert scanned == []
    pond.sql(
        f"{change} AND t.n = 0 WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id > 50 THEN DELETE; FLUSH"
    )
    assert scanned == ["t.rows/rows"] or len(scanned) == 1
    assert pond.sql("SELECT count(*), sum(n) FROM t").fetchall() == [(51, 5)]


def test_a_merge_in_a_transaction(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1); FLUSH")
    merge = "MERGE INTO t USING (VALUES (1), (2)) v(i) ON t.id = v.i WHEN MATCHED THEN UPDATE SET n = n + 1"
    with pond.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (2, 10)")
        assert tx.sql(merge).status == "MERGE 2"
        assert sorted(tx.sql("SELECT * FROM t").fetchall()) == [(1, 2), (2, 11)]
    assert sorted(pond.sql("SELECT * FROM t").fetchall()) == [(1, 2), (2, 11)]
    with pytest.raises(ConflictError, match="aborted"), pond.transaction() as tx:
        tx.sql(merge)
        pond.sql("DELETE FROM t WHERE id = 2; FLUSH")
    assert pond.sql("SELECT * FROM t").fetchall() == [(1, 2)]


def test_truncate_in_a_transaction_conflicts_with_nobody(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (x int); INSERT INTO t VALUES (1); FLUSH")
    with pond.transaction() as tx:
        tx.sql("TRUNCATE t, u; INSERT INTO u VALUES (7)")
        pond.sql("INSERT INTO t VALUES (2); INSERT INTO u VALUES (3); FLUSH")
    assert pond.sql("SELECT * FROM t").fetchall() == [] and pond.sql("SELECT * FROM u").fetchall() == [(7,)]
    before = pond.epoch
    pond.sql("INSERT INTO t VALUES (1)")
    assert pond.sql("TRUNCATE t, u").status == "TRUNCATE_TABLE"
    pond.sql("FLUSH")
    assert pond.sql("SELECT * FROM t, u").fetchall() == [] and pond.epoch > before

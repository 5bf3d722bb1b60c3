"""Sinks that write through Spark: foreach_batch, and JDBC against a real PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.sinks.foreach_batch import ForeachBatchSink
from millpond.sinks.jdbc import JdbcSink
from millpond.testing.sinks import Deliverer, Feed, run_check
from tests.jdbc_driver import jdbc_jars
from tests.sampling import first

DOCS = Path(__file__).parents[2] / "docs" / "connectors"


# -- foreach_batch -------------------------------------------------------------------------------


class Batches:
    """A function that stores the epoch with the rows, in one act, and skips what it has."""

    whole = False

    def __init__(self) -> None:
        self.epochs: dict[int, list[dict[str, Any]]] = {}

    def sink(self) -> ForeachBatchSink:
        return ForeachBatchSink(self.store)

    def store(self, df: Any, epoch: int) -> None:
        self.epochs.setdefault(epoch, [row.asDict(recursive=True) for row in df.collect()])

    def reset(self) -> None:
        self.epochs.clear()

    def read(self) -> Sequence[Mapping[str, Any]]:
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]


@pytest.mark.parametrize("check", first(1, ["repeats", "adds up", "empty epochs", "big epochs"]))
def test_a_function_that_remembers_epochs_passes_the_suite(check: str, session: Any) -> None:
    target = Batches()
    target.modes = ("changelog",)  # type: ignore[attr-defined]
    run_check(check, target)


def test_foreach_batch_in_a_pond(session: Any, tmp_path: Path) -> None:
    failed: list[int] = []

    def store(df: Any, epoch: int) -> None:
        if not failed:
            failed.append(epoch)
            raise OSError("no space")
        df.write.mode("overwrite").parquet(str(tmp_path / f"out/epoch={epoch}"))

    with millpond.open(tmp_path / "pond", spark=session, durable=False) as pond:
        orders = pond.table("orders", {"id": int, "n": int}, key="id")
        orders.sink("stored", ForeachBatchSink(store), mode="changelog")
        pond.insert("orders", [{"id": 1, "n": 2}, {"id": 2, "n": 3}])
        with pytest.raises(UnavailableError, match="sink 'stored' failed") as error:
            pond.drain()
        assert "no space" in str(error.value)
        pond.drain()
        pond.insert("orders", [{"id": 1, "n": 5}])
        pond.drain()
    found = session.read.parquet(str(tmp_path / "out")).select("epoch", "id", "n", "_op").collect()
    begin, last = min(row.epoch for row in found), max(row.epoch for row in found)
    assert sorted((row.epoch, row.id, row.n, row._op) for row in found) == [
        (begin, 1, 2, "insert"),
        (begin, 2, 3, "insert"),
        (last, 1, 2, "update_before"),
        (last, 1, 5, "update_after"),
    ]
    assert failed == [begin], "the same epoch came again"


def test_the_page_of_foreach_batch_runs(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "foreach-batch.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    block = block.replace('"totals/', f'"{tmp_path}/totals/')  # the folder of the JVM is another one
    exec(compile(block, str(page), "exec", dont_inherit=True), {"__name__": "page"})
    assert session.read.parquet(str(tmp_path / "totals")).count() == 1


# -- JDBC ----------------------------------------------------------------------------------------


class JdbcTarget:
    """A table of PostgreSQL, read by psycopg."""

    whole = False
    modes = ("complete",)

    def __init__(self, url: str, con: Any) -> None:
        self.url, self.con = url, con

    def sink(self) -> JdbcSink:
        return JdbcSink(self.url, "target", {"driver": "org.postgresql.Driver", "user": "fuzz"})  # type: ignore[arg-type]

    def reset(self) -> None:
        self.con.execute("DROP TABLE IF EXISTS target, totals")

    def read(self) -> Sequence[Mapping[str, Any]]:
        from psycopg.rows import dict_row

        if self.con.execute("SELECT to_regclass('target')").fetchone()[0] is None:
            return []
        rows: list[dict[str, Any]] = (
            self.con.cursor(row_factory=dict_row).execute("SELECT * FROM target").fetchall()
        )
        return rows


@pytest.fixture(scope="module")
def jdbc(session: Any) -> Iterator[JdbcTarget]:
    from tests.sql.fuzz import postgres

    if not jdbc_jars():
        pytest.skip("Maven did not bring the JDBC driver of PostgreSQL")
    port = str(_free_port())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPORT", port)
        patched.setitem(postgres.SETTINGS, "listen_addresses", "127.0.0.1")
        patched.setitem(postgres.SETTINGS, "port", port)
        try:
            server = postgres.Server()
        except postgres.Missing as error:
            pytest.skip(str(error))
    try:
        yield JdbcTarget(f"jdbc:postgresql://127.0.0.1:{port}/postgres", server.con)
    finally:
        server.close()


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("check", first(0, ["adds up", "repeats", "empty epochs", "big epochs", "rollback"]))
def test_jdbc_replaces_a_table(check: str, jdbc: JdbcTarget) -> None:
    run_check(check, jdbc)


def test_jdbc_is_at_least_once(jdbc: JdbcTarget) -> None:
    """A repeated delivery comes again, and a changelog says which changes came twice."""
    jdbc.reset()
    feed, driver = Feed("changelog"), Deliverer(jdbc, "changelog")
    one, other = feed.following(), feed.following()
    for part in (one, other, other):
        driver.give(part)
    driver.close()
    rows = [tuple(row.values()) for row in jdbc.read()]
    assert len(rows) > len(set(rows)), "it is at least once, as it says"
    ids = {(row["_epoch"], row["_n"]) for row in jdbc.read()}
    assert len(ids) == len(set(rows)), "each change has one identity"
    assert JdbcSink.guarantee == "at_least_once"


def test_jdbc_through_sql_with_a_secret(jdbc: JdbcTarget, session: Any, tmp_path: Path) -> None:
    jdbc.reset()
    with millpond.open(tmp_path / "pond", spark=session, durable=False) as pond:
        pond.sql("CREATE SECRET db WITH (value = 'jdbc-hunter2')")
        pond.sql(f"""
            CREATE TABLE orders (who TEXT, n BIGINT);
            CREATE MATERIALIZED VIEW totals AS SELECT who, sum(n) AS n FROM orders GROUP BY who;
            CREATE SINK db FROM totals WITH (connector = 'jdbc', url = '{jdbc.url}', table = 'totals',
                user = 'fuzz', password = secret db, driver = 'org.postgresql.Driver', mode = 'complete');
            INSERT INTO orders VALUES ('ann', 2), ('bob', 3), ('ann', 4);
        """)
        pond.drain()
        assert sorted(jdbc.con.execute("SELECT who, n FROM totals").fetchall()) == [("ann", 6), ("bob", 3)]
        pond.sql("DELETE FROM orders WHERE who = 'bob'")
        pond.drain()
        assert jdbc.con.execute("SELECT who, n FROM totals").fetchall() == [("ann", 6)]
        assert "jdbc-hunter2" not in pond.explain()


@pytest.mark.slow
@pytest.mark.parametrize("mode", first(1, ["complete", "append"]))
def test_rows_that_jdbc_refuses_are_error_rows(
    mode: str, jdbc: JdbcTarget, session: Any, tmp_path: Path
) -> None:
    """They do not hold the sink back, and the others arrive."""
    jdbc.reset()
    jdbc.con.execute("CREATE TABLE totals (who text NOT NULL, n bigint CHECK (n < 100))")
    with millpond.open(tmp_path / "pond", spark=session, durable=False) as pond:
        pond.sql(f"""
            CREATE TABLE orders (who TEXT, n BIGINT) APPEND ONLY;
            CREATE SINK db AS SELECT who, n FROM orders WITH (connector = 'jdbc', url = '{jdbc.url}',
                table = 'totals', user = 'fuzz', driver = 'org.postgresql.Driver', mode = '{mode}');
            INSERT INTO orders VALUES ('ann', 6), ('bob', 300), (NULL, 1), ('cid', 7), ('dan', 8);
        """)
        pond.drain()
        found = sorted(jdbc.con.execute("SELECT who, n FROM totals").fetchall())
        assert found == [("ann", 6), ("cid", 7), ("dan", 8)]
        told = {error["row"]: error["reason"] for error in pond.errors().to_pylist()}
        assert len(told) == 2
        assert "violates check constraint" in told['{"who": "bob", "n": 300}']
        assert "violates not-null constraint" in told['{"who": null, "n": 1}']
        pond.sql("INSERT INTO orders VALUES ('eve', 9)")
        pond.drain()
        assert ("eve", 9) in jdbc.con.execute("SELECT who, n FROM totals").fetchall()


def test_errors_of_jdbc_are_short_and_show_no_password(
    session: Any, jdbc: JdbcTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDBC_PASSWORD", "jdbc-hunter2")
    url = "jdbc:postgresql://127.0.0.1:9/x?password=${env:JDBC_PASSWORD}"
    driver = Deliverer(jdbc, "append")
    driver.sink = JdbcSink(url, "t", {"driver": "org.postgresql.Driver"})  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="the JDBC target failed") as error:
        driver.give(Feed("append").following())
    assert "refused" in str(error.value) and "jdbc-hunter2" not in str(error.value)
    assert len(str(error.value)) < 800
    driver.sink = JdbcSink("jdbc:nosuch:x", "t")
    with pytest.raises(InvalidError, match="no JDBC driver"):
        driver.give(Feed("append").following())


def test_wrong_settings_of_jdbc() -> None:
    for url, table, options in (
        ("postgresql://x", "t", {}),
        ("jdbc:x", "", {}),
        ("jdbc:x", "t", {"dbtable": "u"}),
        ("jdbc:x", "t", {"password": "${vault:x}"}),
    ):
        with pytest.raises(InvalidError):
            JdbcSink(url, table, options)  # type: ignore[arg-type]


def test_the_page_of_jdbc_defines_a_sink(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "jdbc.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    block = block.replace('millpond.open("orders-pond")', 'millpond.open("orders-pond", engine="inline")')
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, str(page), "exec", dont_inherit=True), names)
    assert names["pond"].plan.sinks["db"].sink.table == "totals"
    names["pond"].close()

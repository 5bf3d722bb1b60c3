"""The sink for Apache Iceberg (law 7)."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.iceberg import IcebergSink
from millpond.sources.iceberg_catalog import open_catalog
from millpond.testing.sinks import CHECKS, Deliverer, Feed, run_check
from tests.lakes.iceberg_reader import data_files, metadata_of, read_iceberg
from tests.lakes.kills import kill_and_compare
from tests.lakes.targets import IcebergTarget

pytest.importorskip("pyiceberg")


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.testing.sinks.CRASHES_MAX", 6)
    run_check(check, IcebergTarget(tmp_path))


@pytest.mark.parametrize("check, column", [("adds up", "s"), ("rollback", "n")])
def test_a_partitioned_table_conforms(check: str, column: str, tmp_path: Path) -> None:
    run_check(check, IcebergTarget(tmp_path, (column,)))


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder / "pond", engine="inline", durable=False, **options)


def rows(folder: Path) -> list[dict[str, Any]]:
    return read_iceberg(folder / "warehouse" / "catalog.db", "shop.rows")


# -- two coordinators -------------------------------------------------------------------------


def test_two_coordinators_at_the_same_time(tmp_path: Path) -> None:
    """Both deliver every epoch; each epoch is there once."""
    target, feed = IcebergTarget(tmp_path), Feed("append", 11)
    parts = [feed.following() for _ in range(6)]
    failures: list[BaseException] = []

    def deliver(deliverer: Deliverer) -> None:
        for part in parts:
            for _ in range(20):  # SQLite may be locked for a moment
                try:
                    deliverer.give(part)
                    break
                except millpond.errors.UnavailableError as error:
                    failures.append(error)

    first = Deliverer(target, "append")
    first.give()
    threads = [threading.Thread(target=deliver, args=(d,)) for d in (first, first.successor())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted(((row["k"], row["s"], row["n"]) for row in target.read()), key=str)
    assert found == sorted(((r["k"], r["s"], r["n"]) for r in feed.rows.values()), key=str), failures


def test_a_commit_from_an_old_state_of_the_table_is_refused(tmp_path: Path) -> None:
    """Two coordinators have compared the epoch before either of them commits."""
    target, feed = IcebergTarget(tmp_path), Feed("append")
    part = feed.following()
    one = Deliverer(target, "append")
    two = one.successor()
    delivery, again = one.delivery(part), two.delivery(part)
    publishers = [one.sink.open(delivery.binding), two.sink.open(again.binding)]
    assert not any(p.has(delivery) for p in publishers)
    prepared = [[s.sink.prepare(p) for p in d.cut()] for s, d in ((one, delivery), (two, again))]
    publishers[0].publish(delivery, prepared[0])
    looked = publishers[1].has
    publishers[1].has = lambda delivery: setattr(publishers[1], "has", looked)
    publishers[1].publish(again, prepared[1])
    assert len(target.read()) == len(feed.rows)
    for publisher in publishers:
        publisher.close()


def test_an_epoch_is_remembered_when_its_snapshot_has_expired(tmp_path: Path) -> None:
    target, feed = IcebergTarget(tmp_path), Feed("append")
    deliverer, part = Deliverer(target, "append"), feed.following()
    deliverer.give(part)
    catalog = open_catalog(target.catalog.items())
    table = catalog.load_table("shop.rows")
    table.append(pa.table({"k": [-1], "s": ["other"], "n": pa.array([1], pa.int64())}))
    catalog.load_table("shop.rows").maintenance.expire_snapshots().older_than(
        __import__("datetime").datetime(2200, 1, 1)
    ).commit()
    assert len(catalog.load_table("shop.rows").metadata.snapshots) == 1
    catalog.close()
    deliverer.close()
    deliverer.successor().give(part)
    assert sorted(row["k"] for row in target.read()) == sorted([-1, *feed.rows])


# -- with a pond ------------------------------------------------------------------------------


def test_a_changelog_by_sql(tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path)
    target.reset()
    options = ", ".join(f"catalog.{name} = '{value}'" for name, value in target.catalog.items())
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE orders (who VARCHAR, n BIGINT)")
        pond.sql(
            "CREATE MATERIALIZED VIEW totals AS SELECT who, sum(n)::BIGINT AS n FROM orders GROUP BY who"
        )
        pond.sql(f"CREATE SINK lake FROM totals WITH (connector = 'iceberg', table = 'shop.rows', {options})")
        pond.sql("INSERT INTO orders VALUES ('ann', 2), ('bob', 1)")
        pond.drain()
        pond.sql("INSERT INTO orders VALUES ('ann', 3)")
        pond.drain()
        found = sorted((r["who"], r["n"], r["_op"]) for r in rows(tmp_path))
        assert found == [
            ("ann", 2, "insert"),
            ("ann", 2, "update_before"),
            ("ann", 5, "update_after"),
            ("bob", 1, "insert"),
        ]
        assert "sqlite" not in str(pond.sql("SHOW SINKS").fetchall())


def test_added_columns_are_added_to_the_table(tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path)
    target.reset()
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k INT, v VARCHAR) APPEND ONLY")
        pond.view("t")
        options = ", ".join(f"catalog.{name} = '{value}'" for name, value in target.catalog.items())
        pond.sql(
            f"CREATE SINK lake FROM t WITH (connector = 'iceberg', table = 'shop.rows', mode = 'append', {options})"
        )
        pond.sql("INSERT INTO t VALUES (1, 'a')")
        pond.drain()
        pond.sql("ALTER TABLE t ADD COLUMN at TIMESTAMP")
        pond.sql("INSERT INTO t VALUES (2, 'b', TIMESTAMP '2026-01-02 03:04:05')")
        pond.drain()
    found = sorted((r["k"], r["v"], str(r["at"])) for r in rows(tmp_path))
    assert found == [(1, "a", "None"), (2, "b", "2026-01-02 03:04:05")]
    catalog = open_catalog(target.catalog.items())
    read = catalog.load_table("shop.rows").scan(row_filter="v = 'b'").to_arrow()
    catalog.close()
    assert read["k"].to_pylist() == [2]


def test_epochs_are_gathered_into_one_snapshot(tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path)
    with opened(tmp_path, poll_ms=2) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        totals = table.key_by("who").aggregate(n="sum(n)").view("totals")
        totals.sink("lake", target.sink(), mode="changelog", every="1h")
        pond.drain()
        pond.start()
        for n in range(5):
            pond.insert("orders", {"who": "ann", "n": n})
            pond.flush()
        pond.stop()
        pond.drain()
    metadata = metadata_of(tmp_path / "warehouse" / "catalog.db", "shop.rows")
    assert metadata is not None and len(metadata["snapshots"]) <= 2
    assert len(data_files(metadata)) <= 2


# -- what is refused --------------------------------------------------------------------------


def test_what_a_table_cannot_have_is_refused_at_definition(tmp_path: Path) -> None:
    catalog = IcebergTarget(tmp_path).catalog
    with opened(tmp_path) as pond:
        plain = pond.table("d", {"k": int, "f": float}).view("plain")
        with pytest.raises(InvalidError) as caught:
            plain.sink("x", IcebergSink("shop.rows", catalog), mode="upsert")
        assert "has no mode 'upsert'" in str(caught.value) and "merge it with Spark" in str(caught.value)
        with pytest.raises(InvalidError, match="cannot be partitioned by f, a double"):
            plain.sink("x", IcebergSink("shop.rows", catalog, ("f",)))
        at = pond.table("a", pa.schema([("k", pa.int64()), ("at", pa.timestamp("ns"))])).view("ns")
        with pytest.raises(InvalidError, match=r"'at'.*no type for timestamp"):
            at.sink("x", IcebergSink("shop.rows", catalog))
    with pytest.raises(InvalidError, match="name of a table with its namespace"):
        IcebergSink("rows", catalog)
    with pytest.raises(InvalidError, match="settings of the Iceberg catalog are missing"):
        IcebergSink("shop.rows", ())
    with pytest.raises(InvalidError, match="must not contain credentials"):
        IcebergSink("shop.rows", {"uri": "postgresql://mill:hunter2@db/lake"})
    IcebergSink("shop.rows", {"uri": "postgresql://mill:${env:PASSWORD}@db/lake"})


def test_a_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path)
    target.reset()
    catalog = open_catalog(target.catalog.items())
    catalog.create_namespace("shop")
    catalog.create_table("shop.rows", pa.schema([("who", pa.int64()), ("n", pa.int64())]))
    catalog.close()
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("lake", target.sink())
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match="has another type"):
            pond.drain()
    assert rows(tmp_path) == []


def test_without_pyiceberg_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with opened(tmp_path) as pond, pytest.raises(InvalidError) as caught:
        pond.table("d", {"k": int}).view("v").sink("x", IcebergTarget(tmp_path).sink())
    assert str(caught.value) == (
        "Apache Iceberg needs pyiceberg\n  hint: install it: pip install 'millpond[iceberg]'"
    )


# -- kills ------------------------------------------------------------------------------------

SETUP = """
import os
from millpond.sinks.iceberg import IcebergSink
def attach(view, folder):
    os.makedirs(folder + "/warehouse", exist_ok=True)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/warehouse/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    view.sink("log", IcebergSink("shop.rows", catalog), mode="changelog")
"""


def _read(folder: Path) -> tuple[list[dict[str, Any]], None]:
    return rows(folder), None


def test_kills_between_steps(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, SETUP, _read, kills=2, workers=2, seed=1)


@pytest.mark.slow
def test_fifty_kills_with_two_coordinators(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, SETUP, _read, kills=50, workers=2, seed=2, away_s=6)

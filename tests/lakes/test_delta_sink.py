"""The sink for Delta Lake (law 7)."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.delivery import EpochDelta
from millpond.sinks.delta import DeltaSink
from millpond.sinks.lake_types import lake_schema
from millpond.sinks.writing import SinkWriters
from millpond.testing.sinks import CHECKS, Deliverer, Feed, run_check
from tests.lakes.delta_reader import live_files, log_actions, read_delta
from tests.lakes.kills import kill_and_compare
from tests.lakes.targets import DeltaTarget

deltalake = pytest.importorskip("deltalake")


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: str, tmp_path: Path) -> None:
    run_check(check, DeltaTarget(tmp_path))


@pytest.mark.parametrize("check", ["adds up", "crashes", "rollback", "refused rows"])
def test_a_partitioned_table_conforms(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.testing.sinks.CRASHES_MAX", 6)
    run_check(check, DeltaTarget(tmp_path, ("n",)))


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder / "pond", engine="inline", durable=False, **options)


def sink(folder: Path, *partition_by: str) -> DeltaSink:
    return DeltaSink(folder / "table", partition_by, {"durable": "false"})


def totals(pond: Pond) -> Any:
    table = pond.table("orders", {"who": str, "n": int})
    return table.key_by("who").aggregate(n="sum(n)").view("totals")


def rows(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(((row["who"], row["n"]) for row in read_delta(folder / "table")), key=str)


# -- two coordinators -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_two_coordinators_at_the_same_time(mode: Any, tmp_path: Path) -> None:
    """Both deliver every epoch; each epoch is there once."""
    target = DeltaTarget(tmp_path)
    feed = Feed(mode, 11)
    parts = [feed.following() for _ in range(6)]
    failures: list[BaseException] = []

    def deliver(deliverer: Deliverer) -> None:
        try:
            for part in parts:
                deliverer.give(part)
        except BaseException as error:
            failures.append(error)

    first = Deliverer(target, mode)
    threads = [threading.Thread(target=deliver, args=(d,)) for d in (first, first.successor())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = sorted((row["k"], row["s"], row["n"]) for row in target.read())
    assert found == sorted((r["k"], r["s"], r["n"]) for r in feed.rows.values())
    marks = [action["version"] for _, action in log_actions(target.folder, "txn")]
    assert marks == sorted(set(marks)), "an epoch was committed twice, or an older one after a newer one"


def test_a_commit_from_an_old_state_of_the_table_is_refused(tmp_path: Path) -> None:
    """Two coordinators have compared the epoch before either of them commits."""
    target, feed = DeltaTarget(tmp_path), Feed("append")
    part = feed.following()
    one = Deliverer(target, "append")
    two = one.successor()
    delivery, again = one.delivery(part), two.delivery(part)
    publishers = [one.sink.open(delivery.binding), two.sink.open(again.binding)]
    assert not any(p.has(delivery) for p in publishers)
    prepared = [[s.sink.prepare(p) for p in d.cut()] for s, d in ((one, delivery), (two, again))]
    # The second one has compared as well: only its commit can notice the first.
    publishers[0].publish(delivery, prepared[0])
    stale = publishers[1]._target
    looked = stale.has
    stale.has = lambda epoch: setattr(stale, "has", looked)  # type: ignore[assignment]
    publishers[1].publish(again, prepared[1])
    assert len(target.read()) == len(feed.rows)


def test_an_epoch_is_remembered_after_a_checkpoint(tmp_path: Path) -> None:
    target, feed = DeltaTarget(tmp_path), Feed("append")
    deliverer, part = Deliverer(target, "append"), feed.following()
    deliverer.give(part)
    deltalake.DeltaTable(str(target.folder)).create_checkpoint()
    for path in (target.folder / "_delta_log").glob("*.json"):
        path.rename(path.with_suffix(".old"))  # the checkpoint alone remains
    (target.folder / "_delta_log" / "00000000000000000001.old").rename(
        target.folder / "_delta_log" / "00000000000000000001.json"
    )
    deliverer.successor().give(part)
    table = deltalake.DeltaTable(str(target.folder))
    assert (table.version(), table.count()) == (1, len(feed.rows))


def test_rows_of_other_writers_stay(tmp_path: Path) -> None:
    target, feed = DeltaTarget(tmp_path), Feed("append")
    deliverer = Deliverer(target, "append")
    deliverer.give(feed.following())
    other = pa.table({"k": [-1], "s": ["other"], "n": pa.array([1], pa.int64())})
    for _ in range(2):
        deltalake.write_deltalake(str(target.folder), other, mode="append")
        deliverer.give(feed.following())
    deltalake.DeltaTable(str(target.folder)).optimize.compact()
    deliverer.give(feed.following())
    found = sorted(row["k"] for row in target.read())
    assert found == sorted([-1, -1, *feed.rows])


def test_a_table_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    target, feed = DeltaTarget(tmp_path), Feed("append")
    deliverer = Deliverer(target, "append")
    deliverer.give(feed.following())
    before = set(feed.rows)
    target.reset()
    part = feed.following()
    with pytest.raises(millpond.errors.UnavailableError, match="was replaced"):
        deliverer.give(part)
    deliverer.give(part)
    assert {row["k"] for row in target.read()} == {*feed.rows} - before


# -- with a pond ------------------------------------------------------------------------------


def test_upserts_keep_the_table_equal_to_the_view(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("lake", sink(tmp_path), mode="upsert")
        pond.insert("orders", [{"who": "ann", "n": 1}, {"who": None, "n": 2}, {"who": "", "n": 3}])
        pond.drain()
        before = pond.head().epoch
        pond.insert("orders", [{"who": "ann", "n": 5}, {"who": None, "n": 1}, {"who": "bob", "n": 1}])
        pond.drain()
        assert rows(tmp_path) == [("", 3), ("ann", 6), ("bob", 1), (None, 3)]
        pond.rollback(before)
        pond.drain()
        assert rows(tmp_path) == [("", 3), ("ann", 1), (None, 2)]


@pytest.mark.parametrize("kind", [float, bool])
def test_odd_keys_are_upserted(kind: type, tmp_path: Path) -> None:
    """NaN is one key, -0.0 is 0.0, and a table may have nothing but its key."""
    values = [0.0, float("nan"), None, 1.5] if kind is float else [True, False, None]
    with opened(tmp_path) as pond:
        table = pond.table("t", {"Key Of": kind, "n": int}).select("n", k='"Key Of"')
        table.key_by("k").aggregate(c="sum(n)").view("v").sink("lake", sink(tmp_path), mode="upsert")
        for number in (1, 2):
            pond.insert(
                "t",
                [
                    {"Key Of": -v if v is not False and v == 0.0 and number == 2 else v, "n": number}
                    for v in values
                ],
            )
            pond.drain()
        found = read_delta(tmp_path / "table")
        assert len(found) == len(values) and {row["c"] for row in found} == {3}
        pond.insert("t", [{"Key Of": v, "n": 0} for v in values])
        pond.drain()
        assert len(read_delta(tmp_path / "table")) == len(values)


@pytest.mark.parametrize("partition_by", [(), ("d",)], ids=["plain", "partitioned"])
def test_nested_keys_and_years_beyond_9999(partition_by: tuple[str, ...], tmp_path: Path) -> None:
    """Such years have no bounds in the log; a partition of them would make the table unreadable."""
    days = pa.array([10**7, -(10**6), 20_000], pa.int32()).cast(pa.date32())
    far = pa.table({"d": days, "k": [[1, None], [], [2]]})
    target, writers = DeltaTarget(tmp_path, partition_by), SinkWriters()
    for mode, epoch in (("append", 1), ("upsert", 2), ("upsert", 3)):
        deliverer = Deliverer(target, mode, schema=far.schema)  # type: ignore[arg-type]
        made = deliverer.delivery(EpochDelta(epoch, far.append_column("_w", pa.array([1, 1, 1], pa.int64()))))
        binding = replace(made.binding, key=("k",) if mode == "upsert" else ())
        refused = writers.write(deliverer.sink, replace(made, binding=binding))
        assert len(refused) == (2 if partition_by else 0)
        assert deltalake.DeltaTable(str(target.folder)).count() == (1 if partition_by else 3)


def test_a_table_with_nothing_but_its_key(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
        pond.sql("CREATE MATERIALIZED VIEW keys AS SELECT DISTINCT v FROM t")
        path = str(tmp_path / "table")
        pond.sql(
            "CREATE SINK lake FROM keys WITH (connector = 'delta', path = ?, mode = 'upsert')", params=[path]
        )
        pond.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        pond.drain()
        pond.sql("DELETE FROM t WHERE k = 3; INSERT INTO t VALUES (4, 5)")
        pond.drain()
        assert sorted(row["v"] for row in read_delta(tmp_path / "table")) == [1, 5]


def test_epochs_are_gathered_into_one_commit(tmp_path: Path) -> None:
    with opened(tmp_path, poll_ms=2) as pond:
        totals(pond).sink("lake", sink(tmp_path), mode="changelog", every="1h")
        pond.drain()
        pond.start()
        for n in range(5):
            pond.insert("orders", {"who": "ann", "n": n})
            pond.flush()
        pond.stop()
        pond.drain()
        commits = {version for version, _ in log_actions(tmp_path / "table", "add")}
        assert len(commits) <= 2, "every epoch has a commit of its own"
        total = sum(
            (1 if r["_op"] in ("insert", "update_after") else -1) * r["n"]
            for r in read_delta(tmp_path / "table")
        )
        assert total == 10


def test_added_columns_are_added_to_the_table(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR)")
        pond.sql(
            "CREATE SINK lake FROM t WITH (connector = 'delta', path = ?, mode = 'upsert')", params=[path]
        )
        pond.sql("INSERT INTO t VALUES (1, 'a')")
        pond.drain()
        pond.sql("ALTER TABLE t ADD COLUMN at TIMESTAMP")
        pond.sql("INSERT INTO t VALUES (2, 'b', TIMESTAMP '2026-01-02 03:04:05')")
        pond.drain()
        found = sorted((r["k"], r["v"], str(r["at"])) for r in read_delta(tmp_path / "table"))
        assert found == [(1, "a", "None"), (2, "b", "2026-01-02 03:04:05")]


def test_an_empty_text_in_a_partition_column_is_an_error_row(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("lake", sink(tmp_path, "who"), mode="upsert")
        pond.insert("orders", [{"who": "", "n": 1}, {"who": None, "n": 2}, {"who": "a/b=%c d", "n": 3}])
        pond.drain()
        assert rows(tmp_path) == [("a/b=%c d", 3), (None, 2)]
        (error,) = pond.errors().to_pylist()
        assert error["step"] == "lake" and "an empty text" in error["reason"] and '"who": ""' in error["row"]
        assert deltalake.DeltaTable(str(tmp_path / "table")).count() == 2


def test_the_rows_arrive_in_duckdb_and_statistics_hide_none(tmp_path: Path) -> None:
    """DuckDB reads the table through the dataset of deltalake, which skips files by their statistics."""
    texts = ["", "a", "z" * 99, "ä", "漢字", None]
    floats = [0.5, float("-inf"), -0.0, None, float("nan"), 2.5]
    path = str(tmp_path / "table")
    with opened(tmp_path) as pond:
        pond.sql(
            "CREATE TABLE t (k BIGINT, s VARCHAR, x DOUBLE, d DATE, ts TIMESTAMP, utc TIMESTAMPTZ) APPEND ONLY"
        )
        pond.sql(
            "CREATE SINK lake FROM t WITH (connector = 'delta', path = ?, mode = 'append')", params=[path]
        )
        for n, (text, x) in enumerate(zip(texts, floats, strict=True)):
            at = f"2026-01-0{n + 1} 00:00:00.00000{n}"
            row = [n - 3, text, x, at[:10], at, f"{at}+00"]
            pond.sql("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", params=row)
            pond.drain()
    dataset = deltalake.DeltaTable(path).to_pyarrow_dataset()
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("lake", dataset)
        for n, (text, x) in enumerate(zip(texts, floats, strict=True)):
            at = f"2026-01-0{n + 1} 00:00:00.00000{n}"
            for condition in (
                f"k = {n - 3}",
                "s IS NULL" if text is None else f"s = '{text}'",
                "x IS NULL" if x is None else f"x = '{x}'::DOUBLE",
                f"d = DATE '{at[:10]}'",
                f"ts = TIMESTAMP '{at}'",
                f"utc = TIMESTAMPTZ '{at}+00'",
            ):
                assert con.sql(f"SELECT k FROM lake WHERE {condition}").fetchall() == [(n - 3,)], condition


# -- what is refused --------------------------------------------------------------------------


def test_columns_that_a_table_cannot_have_are_refused_at_definition(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        at = pond.table("a", pa.schema([("k", pa.int64()), ("at", pa.timestamp("ns"))])).view("ns")
        with pytest.raises(InvalidError, match=r"'at'.*no type for timestamp"):
            at.sink("x", sink(tmp_path))
        spaced = pond.table("b", {"k": int, "a b": int}).view("spaced")
        with pytest.raises(InvalidError, match="no column named 'a b'"):
            spaced.sink("x", sink(tmp_path))
        with pytest.raises(InvalidError, match="upper and lower case"):
            lake_schema(pa.schema([("k", pa.int64()), ("K", pa.int64())]), "Delta Lake")
        plain = pond.table("d", {"k": int, "f": float}).view("plain")
        for names in (("z",), ("k", "f"), ("f",)):
            with pytest.raises(InvalidError, match="cannot be partitioned"):
                plain.sink("x", sink(tmp_path, *names))
        with pytest.raises(InvalidError, match="has no mode 'complete'"):
            plain.sink("x", sink(tmp_path), mode="complete")


def test_settings_that_lose_the_guarantee_are_refused() -> None:
    with pytest.raises(InvalidError, match="only one writer can win"):
        DeltaSink("s3://b/t", (), {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(InvalidError, match="must not contain credentials"):
        DeltaSink("s3://key:secret@b/t")
    for path in ("s3://b/t?region=eu", "a%20b", "a#b"):
        with pytest.raises(InvalidError, match="cannot contain"):
            DeltaSink(path)
    with pytest.raises(InvalidError, match=r"no secret is found by \$\{vault:x\}"):
        DeltaSink("s3://b/t", (), {"secret_access_key": "${vault:x}"})


@pytest.mark.parametrize(
    "why, schema, settings, partitions",
    [
        ("has another type", [("who", pa.int64()), ("n", pa.int64())], {}, None),
        ("is NOT NULL", [pa.field("who", pa.string(), False), ("n", pa.int64())], {}, None),
        ("is partitioned by who", None, {}, ["who"]),
        ("has rules", None, {"delta.constraints.positive": "n > 0"}, None),
        ("forgets which epochs", None, {"delta.setTransactionRetentionDuration": "interval 1 day"}, None),
        ("is append-only", None, {"delta.appendOnly": "true"}, None),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    why: str, schema: Any, settings: dict[str, str], partitions: Any, tmp_path: Path
) -> None:
    made = pa.schema(schema or [("who", pa.string()), ("n", pa.int64())])
    path = str(tmp_path / "table")
    deltalake.DeltaTable.create(
        path, made, configuration=settings, partition_by=partitions, raise_if_key_not_exists=False
    )
    with opened(tmp_path) as pond:
        totals(pond).sink("lake", sink(tmp_path), mode="upsert")
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match=why):
            pond.drain()
    assert live_files(tmp_path / "table") == {}


def test_without_deltalake_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with opened(tmp_path) as pond, pytest.raises(InvalidError) as caught:
        totals(pond).sink("lake", sink(tmp_path))
    assert (
        str(caught.value) == "Delta Lake needs deltalake\n  hint: install it: pip install 'millpond[delta]'"
    )


# -- kills ------------------------------------------------------------------------------------

SETUP = """
from millpond.sinks.delta import DeltaSink
def attach(view, folder):
    view.sink("up", DeltaSink(folder + "/up"), mode="upsert")
    view.sink("log", DeltaSink(folder + "/log"), mode="changelog")
"""


def _read(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return read_delta(folder / "log"), read_delta(folder / "up")


def test_kills_between_steps(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, SETUP, _read, kills=3, workers=2, seed=1)


@pytest.mark.slow
def test_fifty_kills_with_two_coordinators(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, SETUP, _read, kills=50, workers=2, seed=2)


def test_a_part_that_was_delivered_before_columns_changed(tmp_path: Path) -> None:
    """A repeated delivery finds its epoch, although the view has other columns since."""
    target, feed = DeltaTarget(tmp_path), Feed("append")
    deliverer, part = Deliverer(target, "append"), feed.following()
    deliverer.give(part)
    wide = part.delta.append_column("more", pa.nulls(part.delta.num_rows, pa.int64()))
    later = deliverer.successor()
    later.schema = later.schema.append(pa.field("more", pa.int64()))
    later.give(EpochDelta(part.epoch, wide.select([*later.schema.names, "_w"])))
    assert len(target.read()) == len(feed.rows)

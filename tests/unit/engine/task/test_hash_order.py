"""Filters of the same rows whose readers group by the same key: those rows are hashed and put in order once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import hashing, tuning
from millpond.engine.task import hash_order
from millpond.engine.task.hash_order import HashOrder
from millpond.engine.task.items import fused_scan

VIEWS = {
    "a": "SELECT k, count(*) AS n, sum(x) AS total FROM t WHERE x > 3 GROUP BY k",
    "b": "SELECT k AS key, count(x) AS n, avg(y) AS mean, min(x) AS low FROM t WHERE s <> 's1' GROUP BY k",
    "c": "SELECT s, y, count(*) AS n, max(s) AS last FROM t WHERE k % 2 = 0 GROUP BY s, y",
    "d": "SELECT y AS other, s, sum(x + 1) AS more FROM t WHERE x IS NOT NULL GROUP BY s, y",
    "e": "SELECT DISTINCT s, y FROM t WHERE x < 8",
    "f": "SELECT DISTINCT k FROM t WHERE x < 5",
    "g": "SELECT k + 1 AS next, count(*) AS n FROM t WHERE x > 1 GROUP BY 1",
    "h": "SELECT k, s, x FROM t WHERE y > 0.5",
}


def changes(rng: random.Random) -> str:
    def text(value: Any) -> str:
        return "NULL" if value is None else repr(value)

    rows = [
        (
            rng.randrange(40),
            rng.choice([None, *range(5)]),
            rng.choice([None, "s1", "s2", "long " * 20]),
            rng.choice([None, *range(10)]),
            rng.choice([None, 0.0, -0.0, 0.75]),
        )
        for _ in range(rng.randrange(1, 25))
    ]
    listed = ", ".join(f"({', '.join(map(text, row))})" for row in {r[0]: r for r in rows}.values())
    put = f"INSERT INTO t VALUES {listed} ON CONFLICT (id) DO UPDATE SET k = excluded.k, s = excluded.s, "
    return f"{put} x = excluded.x, y = excluded.y; DELETE FROM t WHERE id = {rng.randrange(40)}; FLUSH"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[HashOrder | None]:
    made: list[HashOrder | None] = []
    real = HashOrder.of

    def of(rows: pa.Table, key: Any) -> HashOrder | None:
        made.append(real(rows, key))
        return made[-1]

    monkeypatch.setattr(HashOrder, "of", staticmethod(of))
    return made


@pytest.mark.parametrize("parallelism", [1, 3])
def test_views_equal_the_batch_query(tmp_path: Path, parallelism: int, found: list[HashOrder | None]) -> None:
    compare(tmp_path, parallelism, epochs=6)
    assert found and None not in found
    assert len(found) <= 3 * 6 * parallelism, "once for each key, task and epoch at most"


def test_keys_that_share_a_hash_go_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[HashOrder | None]
) -> None:
    real = hashing.hash_columns
    monkeypatch.setattr(hash_order.hashing, "is_injective", lambda columns: False)
    monkeypatch.setattr(hashing, "hash_columns", lambda *a: real(*a) & np.uint64(3 << 62))
    compare(tmp_path, 1, epochs=4)
    assert None in found


def compare(folder: Path, parallelism: int, epochs: int) -> None:
    """Law 1, at every epoch."""
    rng = random.Random(parallelism)
    with millpond.open(
        folder / "pond", engine="inline", parallelism=parallelism, durable=False, checks=True
    ) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k bigint, s text, x int, y double)")
        pond.sql(";".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in VIEWS.items()))
        for _ in range(epochs):
            pond.sql(changes(rng))
            batch = duckdb.connect()
            batch.register("t", pond.sql("SELECT * FROM t").arrow())
            for name, query in VIEWS.items():
                wanted = batch.sql(query).fetchall()
                assert sorted(map(repr, pond.sql(f"SELECT * FROM {name}").fetchall())) == sorted(
                    map(repr, wanted)
                ), name


def test_many_rows_are_left_to_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"k": [2, 1, 2]})
    assert HashOrder.of(rows, ["k"]) is not None
    monkeypatch.setattr(tuning, "HASH_ORDER_ROWS_MAX", 2)
    assert HashOrder.of(rows, ["k"]) is None


def test_a_mask_without_a_value_is_not_true() -> None:
    rows = pa.table({"k": [2, 1, 2, 3], "x": ["a", "b", "c", "d"]})
    order = HashOrder.of(rows, ["k"])
    assert order is not None
    kept = order.selected(rows, pa.chunked_array([[True, None, True, False]]))
    assert sorted(kept.column("x").to_pylist()) == ["a", "c"]
    assert kept.column("_h").to_pylist() == [int(hashing.hash_columns([pa.array([2])], 1)[0])] * 2


def test_columns_keep_their_types() -> None:
    kinds = {
        "k": pa.chunked_array([[2, 1], [2]]),
        "encoded": pa.chunked_array([pa.array(["a", "b", "a"]).dictionary_encode()]),
        "id": pa.chunked_array(
            [pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 3, pa.binary(16)))]
        ),
        "_w": pa.chunked_array([[1, -1, 2]]),
    }
    rows = pa.table(kinds)
    order = HashOrder.of(rows, ["k"])
    assert order is not None
    kept = order.selected(rows, pa.chunked_array([[True, True], [True]]))
    assert kept.schema.types[:-1] == rows.schema.types
    assert sorted(kept.column("_w").to_pylist()) == [-1, 1, 2]


def test_rows_that_come_piece_by_piece_are_not_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[HashOrder | None]
) -> None:
    """Each piece would be, but not all of them together."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = pa.table({"k": [(i * 7 + number) % 5 for i in range(30)], "x": list(range(30))})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet")
    taken: list[int] = []
    real = fused_scan.grouped
    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", 1)
    monkeypatch.setattr(fused_scan, "grouped", lambda splits: taken.append(1) or real(splits))
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True) as pond:
        source = f"connector = 'files', path = '{tmp_path}/in', format = 'parquet'"
        pond.sql(f"CREATE SOURCE t WITH ({source})")
        texts = [f"SELECT k, count(*) AS n, sum(x) AS total FROM t WHERE x > {n} GROUP BY k" for n in (3, 9)]
        pond.sql(";".join(f"CREATE MATERIALIZED VIEW v{n} AS {text}" for n, text in enumerate(texts)))
        pond.drain()
        assert taken and not found
        batch = duckdb.connect()
        batch.sql(f"CREATE VIEW t AS FROM '{tmp_path}/in/*.parquet'")
        for n, text in enumerate(texts):
            assert sorted(pond.sql(f"FROM v{n}").fetchall()) == sorted(batch.sql(text).fetchall())

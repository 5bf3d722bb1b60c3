"""SELECT over large views: only what a query needs is read, whatever lies over the largest run (law 1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError
from millpond.pond import Pond
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.segment import Segment

ROWS = 12_000  # more than is handed to DuckDB whole


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, compact=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, a bigint, b hugeint, s text, u uuid)")
        pond.insert("t", rows(range(ROWS)))
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, a, b, s FROM t; FLUSH")
        pond.compact()
        yield pond


def rows(ids: Any, extra: int = 0) -> pa.Table:
    found = [
        {"id": i, "a": i % 97 + extra, "b": (-1) ** i * i * 10**15 + extra, "s": f"s{i % 50}", "u": None}
        for i in ids
    ]
    kinds = [
        ("id", pa.int32()),
        ("a", pa.int64()),
        ("b", pa.decimal128(38, 0)),
        ("s", pa.string()),
        ("u", pa.string()),
    ]
    return pa.Table.from_pylist(found, schema=pa.schema(kinds))


def test_only_the_columns_that_a_query_needs_are_looked_at(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    for way in ("scan", "scan_batches"):
        read = getattr(Snapshot, way)
        monkeypatch.setattr(
            Snapshot, way, lambda self, spec, c, read=read: asked.append(list(c)) or read(self, spec, c)
        )
    assert pond.sql("SELECT count(*) FROM v WHERE a = 5").fetchone() == (len(range(5, ROWS, 97)),)
    assert pond.sql("SELECT max(s) FROM v").fetchone() == ("s9",)
    assert asked == [["a"], ["s"]] or asked == [["id", "a"], ["s"]]
    assert pond.sql(
        "SELECT x.id FROM v x JOIN v y ON x.id = y.id + 1 WHERE x.id < 3 ORDER BY 1"
    ).fetchall() == [
        (1,),
        (2,),
    ]


def test_changes_lie_over_the_largest_run(pond: Pond) -> None:
    rng = random.Random(5)
    model = {i: (i, i % 97, (-1) ** i * i * 10**15, f"s{i % 50}") for i in range(ROWS)}
    for turn in range(1, 6):
        some = rng.sample(range(ROWS + 500), 1 + 40 * turn**2)
        gone, put = some[: len(some) // 3], some[len(some) // 3 :]
        pond.insert("t", rows(put, turn))
        pond.delete("t", rows(gone))
        pond.sql("FLUSH")
        model |= {i: (i, i % 97 + turn, (-1) ** i * i * 10**15 + turn, f"s{i % 50}") for i in put}
        for i in gone:
            model.pop(i, None)
        assert Counter(pond.sql("SELECT * FROM v").fetchall()) == Counter(model.values())
        wide = sum(b for _, _, b, _ in model.values() if b > 10**18)
        assert pond.sql("SELECT sum(b) FROM v WHERE b > 1000000000000000000").fetchone() == (wide,)
        assert pond.sql("SELECT typeof(b) FROM v LIMIT 1").fetchone() == ("HUGEINT",)
        if turn == 3:
            pond.compact()


def test_what_cannot_be_read_is_told_as_damage(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(self: Segment, *_: Any) -> Any:
        raise self._damaged("holds a damaged block", "for the test")

    monkeypatch.setattr(Segment, "slice", damaged)
    with pytest.raises(DataError, match="damaged block"):
        pond.sql("SELECT sum(a) FROM v")


@pytest.mark.parametrize("batch_rows", [None, 5_000])
def test_structs_in_structs_are_read_from_any_row_on(
    tmp_path: Path, batch_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB loses where a slice of them begins: it gets none."""
    count = 40 if batch_rows is None else ROWS
    if batch_rows is not None:
        monkeypatch.setattr("millpond.sql.reads.lazy_columns.BATCH_ROWS", batch_rows)
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=3) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, {'x': a, 'y': {'z': id}} AS s FROM t WHERE a > 2")
        pond.insert("t", pa.table({"id": range(count), "a": [i % 5 for i in range(count)]}).cast(_INTS))
        pond.sql("DELETE FROM t WHERE id % 7 = 3; FLUSH")
        wanted = [(i, {"x": i % 5, "y": {"z": i}}) for i in range(count) if i % 5 > 2 and i % 7 != 3]
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == wanted
        some = pond.sql("SELECT s FROM v WHERE id > 20 ORDER BY id").fetchall()
        assert some == [(s,) for i, s in wanted if i > 20]


_INTS = pa.schema([("id", pa.int32()), ("a", pa.int32())])

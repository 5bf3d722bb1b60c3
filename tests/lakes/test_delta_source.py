"""Delta tables as sources (laws 1 and 9)."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import DataError, InvalidError
from millpond.pond import Pond
from millpond.sources.delta import DeltaSource
from millpond.testing.sources import CHECKS, SourceCase

deltalake = pytest.importorskip("deltalake")
FEED = {"delta.enableChangeDataFeed": "true"}


class DeltaCase(SourceCase):
    def __init__(self, folder: Path, partition_by: list[str] | None = None) -> None:
        self.path, self.rows, self.partition_by = str(folder / "table"), [], partition_by  # type: ignore[var-annotated]
        schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
        deltalake.DeltaTable.create(self.path, schema, partition_by=partition_by)

    def open(self) -> DeltaSource:
        return DeltaSource(self.path)

    def add(self, rows: int) -> None:
        for first in range(0, rows, 7):  # several files and versions
            count = min(7, rows - first)
            fresh = [{"k": len(self.rows) + n, "s": [None, "a b", "é/%"][n % 3]} for n in range(count)]
            self.rows += fresh
            table = pa.Table.from_pylist(fresh, schema=pa.schema([("k", pa.int64()), ("s", pa.string())]))
            deltalake.write_deltalake(self.path, table, mode="append")

    def expected(self) -> Iterable[Mapping[str, Any]]:
        return self.rows


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: Callable[[SourceCase], None], tmp_path: Path) -> None:
    check(DeltaCase(tmp_path))


@pytest.mark.parametrize("check", CHECKS[:3], ids=lambda check: check.__name__)
def test_a_partitioned_table_conforms(check: Callable[[SourceCase], None], tmp_path: Path) -> None:
    check(DeltaCase(tmp_path, ["s"]))


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder / "pond", engine="inline", durable=False, **options)


def view_rows(pond: Pond, view: str = "rows") -> Counter[str]:
    return Counter(map(_text, pond.read(view).to_pylist()))


def table_rows(path: str) -> Counter[str]:
    return Counter(map(_text, deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()))


def _text(row: Mapping[str, Any]) -> str:
    return repr(sorted(row.items()))


@pytest.mark.parametrize("feed", [True, False], ids=["change data feed", "files"])
@pytest.mark.parametrize("partition_by", [None, ["g"]], ids=["plain", "partitioned"])
def test_updates_and_deletes_are_exact(feed: bool, partition_by: Any, tmp_path: Path) -> None:
    """After any commits the view equals the table as deltalake reads it."""
    path, rng = str(tmp_path / "table"), random.Random(5)
    schema = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("v", pa.float64())])

    def rows(count: int) -> pa.Table:
        made = [
            {"k": rng.randint(0, 20), "g": rng.choice([1, 2, None]), "v": rng.random()} for _ in range(count)
        ]
        return pa.Table.from_pylist(made, schema=schema)

    deltalake.write_deltalake(path, rows(20), partition_by=partition_by, configuration=FEED if feed else None)
    deltalake.DeltaTable(path).delete("k = 3")
    source = DeltaSource(path, None if feed else True)
    assert not source.append_only
    acts: list[Callable[[Any], Any]] = [
        lambda t: t.delete(f"k = {rng.randint(0, 20)}"),
        lambda t: t.update({"v": "v + 1"}, predicate=f"k < {rng.randint(0, 20)}"),
        lambda t: deltalake.write_deltalake(path, rows(5), mode="append"),
        lambda t: t.optimize.compact(),
        lambda t: (
            t.merge(rows(1), "t.k = s.k AND t.g = s.g", "s", "t")
            .when_matched_update({"v": "s.v"})
            .when_not_matched_insert_all()
            .execute()
        ),
    ]
    with opened(tmp_path, epoch_rows_max=9) as pond:
        pond.stream("lake", source).view("rows")
        pond.drain()
        assert view_rows(pond) == table_rows(path)
        for _ in range(12):
            for _ in range(rng.randint(1, 3)):
                rng.choice(acts)(deltalake.DeltaTable(path))
            pond.drain()
            assert view_rows(pond) == table_rows(path)
        deltalake.write_deltalake(path, rows(3), mode="overwrite")
        pond.drain()
        assert view_rows(pond) == table_rows(path)


def test_times_as_spark_wrote_them(tmp_path: Path) -> None:
    """Spark's files have INT96 by default: an instant without a zone."""
    at = datetime.datetime(9999, 12, 31, 1, 2, 3, 4, tzinfo=datetime.UTC)
    kind = pa.schema([("at", pa.timestamp("us", "UTC"))])
    table = deltalake.DeltaTable.create(str(tmp_path / "t"), kind)
    rows = pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "t" / "a.parquet", use_deprecated_int96_timestamps=True)
    size = (tmp_path / "t" / "a.parquet").stat().st_size
    action = deltalake.transaction.AddAction("a.parquet", size, {}, 0, True, '{"numRecords": 1}')
    table.create_write_transaction([action], "append", table.schema())
    source = DeltaSource(str(tmp_path / "t"))
    splits = [split for split in source.poll(None, None, 100).splits if "path" in split.what]
    assert [r for split in splits for t in source.read(split, ["at"]) for r in t["at"].to_pylist()] == [at]


def test_a_pond_that_is_closed_goes_on_where_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    case = DeltaCase(tmp_path)
    case.add(10)
    for _ in range(3):
        with opened(tmp_path) as pond:
            pond.stream("lake", DeltaSource(path)).view("rows")
            pond.drain()
            assert view_rows(pond) == table_rows(path)
        deltalake.DeltaTable(path).optimize.compact()
        case.add(5)


def test_by_sql_with_updates(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    data = pa.table({"who": ["ann", "bob", "ann"], "n": [1, 2, 3]})
    deltalake.write_deltalake(path, data, configuration=FEED)
    with opened(tmp_path) as pond:
        pond.sql(f"CREATE SOURCE orders WITH (connector = 'delta', path = '{path}')")
        pond.sql(
            "CREATE MATERIALIZED VIEW totals AS SELECT who, sum(n) AS n, max(n) AS m FROM orders GROUP BY who"
        )
        pond.drain()
        deltalake.DeltaTable(path).update({"n": "n + 10"}, predicate="who = 'ann'")
        deltalake.DeltaTable(path).delete("who = 'bob'")
        pond.drain()
        assert pond.sql("SELECT who, n, m FROM totals").fetchall() == [("ann", 24, 13)]
        pond.sql("CREATE MATERIALIZED VIEW later AS SELECT count(*) AS c FROM orders")
        pond.drain()
        assert pond.sql("SELECT c FROM later").fetchall() == [(2,)]


# -- what is refused --------------------------------------------------------------------------


def drained(folder: Path, source: DeltaSource, act: Callable[[], object]) -> None:
    with opened(folder) as pond:
        pond.stream("lake", source).view("rows")
        pond.drain()
        act()
        pond.drain()


def test_a_delete_is_refused_by_a_source_that_only_appends(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)
    with pytest.raises(InvalidError, match="removes rows, and its source only appends") as caught:
        drained(tmp_path, case.open(), lambda: deltalake.DeltaTable(case.path).delete("k = 1"))
    assert "changes = 'true'" in str(caught.value)


def test_another_table_at_the_same_place_is_refused(tmp_path: Path) -> None:
    import shutil

    case = DeltaCase(tmp_path)
    case.add(5)

    def replace() -> None:
        shutil.rmtree(case.path)
        DeltaCase(tmp_path).add(30)

    with pytest.raises(DataError, match="another Delta table"):
        drained(tmp_path, case.open(), replace)


def test_a_commit_that_is_gone_is_an_error(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)

    def lose() -> None:
        case.add(30)
        deltalake.DeltaTable(case.path).create_checkpoint()
        for number in range(2, 5):
            (Path(case.path) / "_delta_log" / f"{number:020d}.json").unlink()

    with pytest.raises(DataError, match="no longer in its log"):
        drained(tmp_path, case.open(), lose)


def test_a_file_that_was_vacuumed_is_an_error(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)

    def lose() -> None:
        case.add(1)
        deltalake.DeltaTable(case.path).delete()
        deltalake.DeltaTable(case.path).vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(DataError, match="is gone"):
        drained(tmp_path, DeltaSource(case.path, True), lose)


def test_a_column_that_is_dropped_is_an_error(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)
    other = pa.table({"k": [1]})

    def drop() -> None:
        deltalake.write_deltalake(case.path, other, mode="overwrite", schema_mode="overwrite")

    with pytest.raises(InvalidError, match="has no column 's'"):
        drained(tmp_path, DeltaSource(case.path, True), drop)


def test_a_column_that_is_added_later_is_left_out(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)
    more = pa.table({"k": [99], "s": ["x"], "more": [1]})
    with opened(tmp_path) as pond:
        pond.stream("lake", case.open()).view("rows")
        pond.drain()
        deltalake.write_deltalake(case.path, more, mode="append", schema_mode="merge")
        pond.drain()
        assert Counter(r["k"] for r in pond.read("rows").to_pylist()) == Counter([*range(5), 99])
        assert pond.read("rows").column_names == ["k", "s"]


@pytest.mark.parametrize("change", ["mapping", "vectors", "feature"])
def test_tables_that_cannot_be_read_exactly_are_refused(change: str, tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.add(5)

    def write() -> None:
        log = Path(case.path) / "_delta_log"
        number = max(int(p.stem) for p in log.glob("*.json"))
        lines = [json.loads(line) for line in (log / f"{number:020d}.json").read_text().splitlines()]
        (add,) = [line["add"] for line in lines if "add" in line]
        first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
        (metadata,) = [line["metaData"] for line in first if "metaData" in line]
        actions: dict[str, list[Any]] = {
            "mapping": [{"metaData": {**metadata, "configuration": {"delta.columnMapping.mode": "name"}}}],
            "vectors": [{"add": {**add, "deletionVector": {"storageType": "u"}}}],
            "feature": [
                {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"]}}
            ],
        }
        text = "\n".join(json.dumps(a) for a in actions[change])
        (log / f"{number + 1:020d}.json").write_text(text)

    with pytest.raises(InvalidError, match="cannot be read"):
        drained(tmp_path, case.open(), write)

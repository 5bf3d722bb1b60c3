"""Iceberg tables as sources (laws 1 and 9)."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError, InvalidError
from millpond.pond import Pond
from millpond.sources.iceberg import IcebergSource
from millpond.sources.iceberg_catalog import open_catalog
from millpond.testing.sources import CHECKS, SourceCase
from tests.lakes.targets import IcebergTarget

pytest.importorskip("pyiceberg")
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


class IcebergCase(SourceCase):
    def __init__(self, folder: Path) -> None:
        target = IcebergTarget(folder)
        target.reset()
        self.settings, self.rows = target.catalog, []  # type: ignore[var-annotated]
        self.catalog = open_catalog(self.settings.items())
        self.catalog.create_namespace("shop")
        # Manifests are merged, so that entries of older snapshots are in newer manifests.
        merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
        self.catalog.create_table("shop.rows", SCHEMA, properties=merging)

    def open(self) -> IcebergSource:
        return IcebergSource("shop.rows", self.settings)  # type: ignore[arg-type]

    def add(self, rows: int) -> None:
        for first in range(0, rows, 7):
            count = min(7, rows - first)
            fresh = [{"k": len(self.rows) + n, "s": [None, "a b", "é/%"][n % 3]} for n in range(count)]
            self.rows += fresh
            self.table.append(pa.Table.from_pylist(fresh, schema=SCHEMA))

    @property
    def table(self) -> Any:
        return self.catalog.load_table("shop.rows")

    def expected(self) -> Iterable[Mapping[str, Any]]:
        return self.rows

    def close(self) -> None:
        self.catalog.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: Callable[[SourceCase], None], tmp_path: Path) -> None:
    case = IcebergCase(tmp_path)
    try:
        check(case)
    finally:
        case.close()


@pytest.fixture
def case(tmp_path: Path) -> Any:
    made = IcebergCase(tmp_path)
    made.add(10)
    yield made
    made.close()


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder / "pond", engine="inline", durable=False, **options)


def test_by_sql(case: IcebergCase, tmp_path: Path) -> None:
    options = ", ".join(f"catalog.{name} = '{value}'" for name, value in case.settings.items())
    for _ in range(2):
        with opened(tmp_path) as pond:
            pond.sql(
                f"CREATE SOURCE IF NOT EXISTS lake WITH (connector = 'iceberg', table = 'shop.rows', {options})"
            )
            pond.sql(
                "CREATE MATERIALIZED VIEW IF NOT EXISTS sums AS SELECT s, sum(k) AS k FROM lake GROUP BY s"
            )
            pond.drain()
            expected: Counter[Any] = Counter()
            for row in case.rows:
                expected[row["s"]] += row["k"]
            assert dict(pond.sql("SELECT s, k FROM sums").fetchall()) == expected
        case.add(9)


def test_columns_may_be_added_and_renamed_columns_are_refused(case: IcebergCase, tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.stream("lake", case.open()).view("rows")
        pond.drain()
        with case.table.update_schema() as update:
            update.union_by_name(pa.schema([("more", pa.int64())]))
        case.table.append(pa.table({"k": [99], "s": ["x"], "more": [1]}))
        pond.drain()
        assert Counter(r["k"] for r in pond.read("rows").to_pylist()) == Counter([*range(10), 99])
        with case.table.update_schema() as update:
            update.rename_column("s", "t")
        case.table.append(pa.table({"k": [100], "t": ["x"], "more": [1]}))
        with pytest.raises(DataError, match="no column 's' any more"):
            pond.drain()


def test_a_delete_is_refused(case: IcebergCase, tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.stream("lake", case.open()).view("rows")
        pond.drain()
        case.table.delete("k = 1")
        with pytest.raises(InvalidError, match="does not only append rows"):
            pond.drain()


def test_a_snapshot_that_has_expired_is_an_error(case: IcebergCase, tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.stream("lake", case.open()).view("rows")
        pond.drain()
        case.add(9)
        late = datetime.datetime(2200, 1, 1)
        case.table.maintenance.expire_snapshots().older_than(late).commit()
        with pytest.raises(DataError, match="is not in the history"):
            pond.drain()

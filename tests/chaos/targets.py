"""The sinks of the chaos pipeline, and the check of their targets by clients that share no code with them.

| view | target | mode | what must hold in the end |
|---|---|---|---|
| `by_key` | Parquet files | `changelog` | each (epoch, number) once, numbers without gaps, and the sum of changes is the view |
| `top` | a Delta table | `changelog` | the same |
| `by_key` | a table of PostgreSQL | `upsert` | the rows of the view |

Files and the Delta table are in the store of the pond, so they meet its faults.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import millpond
from millpond.sinks.delta import DeltaSink
from millpond.sinks.files import FilesSink
from millpond.sinks.postgres import PostgresSink

VARIABLE = "MILLPOND_CHAOS_TARGETS"
SECRETS = {"access_key_id": "${env:AWS_ACCESS_KEY_ID}", "secret_access_key": "${env:AWS_SECRET_ACCESS_KEY}"}
TABLE = "by_key"
EVERY = "2s"  # the epochs of a commit of the Delta table

Row = dict[str, Any]


@dataclass(frozen=True)
class Targets:
    """Where the sinks write: below a folder or an address, and with a connection to a PostgreSQL server."""

    place: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the store, without keys
    postgres: str | None = None

    @property
    def files(self) -> str:
        return f"{self.place}/by_key"

    @property
    def delta(self) -> str:
        return f"{self.place}/top"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of_environment() -> Targets | None:
        given = os.environ.get(VARIABLE)
        return None if given is None else Targets(**json.loads(given))


def attach(views: Mapping[str, Any], targets: Targets) -> None:
    options = tuple({**targets.options, **SECRETS}.items()) if targets.options else ()
    files = FilesSink(targets.files, "parquet", (), options)
    views["by_key"].sink("files", files, mode="changelog", guarantee="exactly_once")
    delta = DeltaSink(targets.delta, (), options)
    views["top"].sink("delta", delta, mode="changelog", guarantee="exactly_once", every=EVERY)
    if targets.postgres is not None:
        table = PostgresSink(targets.postgres, TABLE)
        views["by_key"].sink("postgres", table, mode="upsert", guarantee="exactly_once")


def check_targets(pond: millpond.Pond, targets: Targets) -> dict[str, int]:
    """Every target has what its view has; returns how many rows were read from each."""
    read = {"files": _files(targets), "delta": _delta(targets)}
    for sink, view in (("files", "by_key"), ("delta", "top")):
        check_changelog(read[sink], pond.read(view).to_pylist(), sink)
    if targets.postgres is not None:
        rows = read["postgres"] = _table(targets.postgres)
        want = pond.read("by_key").to_pylist()
        assert _counted(rows) == _counted(want), f"postgres: {len(rows)} rows, the view has {len(want)}"
    return {sink: len(rows) for sink, rows in read.items()}


def check_changelog(changes: Iterable[Row], view: Iterable[Row], sink: str) -> None:
    """Nothing is lost or doubled: every number of an epoch once, and the changes add up to the view.

    >>> change = {"k": 1, "_op": "insert", "_epoch": 1, "_n": 0}
    >>> check_changelog([change], [{"k": 1}], "log")
    >>> check_changelog([change, change], [{"k": 1}], "log")
    Traceback (most recent call last):
    AssertionError: log: epoch 1 has 2 changes with 1 numbers from 0 to 0
    """
    numbers: dict[int, list[int]] = {}
    sums: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        numbers.setdefault(change["_epoch"], []).append(change["_n"])
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        sums[_as_key(row)] += 1 if change["_op"] in ("insert", "update_after") else -1
    for epoch, given in numbers.items():
        some = f"epoch {epoch} has {len(given)} changes with {len({*given})} numbers"
        assert sorted(given) == [*range(len(given))], f"{sink}: {some} from {min(given)} to {max(given)}"
    left = {row: count for row, count in sums.items() if count}
    assert left == _counted(view), f"{sink}: the changes do not add up to the view"


def _counted(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(_as_key(row) for row in rows)


def _as_key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in sorted(row))


def _files(targets: Targets) -> list[Row]:
    """By Arrow's own client of S3."""
    import pyarrow.dataset as ds
    import pyarrow.fs as fs

    if not targets.options:
        rows: list[Row] = ds.dataset(targets.files, format="parquet").to_table().to_pylist()
        return rows
    client = fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=targets.options["endpoint"],
        region=targets.options["region"],
    )
    path = targets.files.removeprefix("s3://")
    rows = ds.dataset(path, filesystem=client, format="parquet").to_table().to_pylist()
    return rows


def _delta(targets: Targets) -> list[Row]:
    """By deltalake, whose table the sink only appends to."""
    import deltalake

    options = {**targets.options, "allow_http": "true"} if targets.options else None
    table = deltalake.DeltaTable(targets.delta, storage_options=options)
    rows: list[Row] = table.to_pyarrow_table().to_pylist()
    return rows


def _table(connection: str) -> list[Row]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(connection, row_factory=dict_row) as con:
        return con.execute(f"SELECT * FROM {TABLE}").fetchall()

"""A reader of Delta tables that shares no code with deltalake: the log as JSON, the files by DuckDB."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
_CASTS = {"long": int, "integer": int, "short": int, "byte": int, "string": str}


def log_actions(table: Path, kind: str) -> list[tuple[int, Row]]:
    """(version, action) of all actions of one kind."""
    found = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        if not path.stem.isdigit():
            continue
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if kind in action:
                found.append((int(path.stem), action[kind]))
    return found


def live_files(table: Path) -> dict[str, Row]:
    """The files of the newest version, and what the log says about them."""
    events = [(v, "remove", a) for v, a in log_actions(table, "remove")]
    events += [(v, "add", a) for v, a in log_actions(table, "add")]
    live: dict[str, Row] = {}
    for _, kind, action in sorted(events, key=lambda e: (e[0], e[1] == "add")):
        if kind == "add":
            live[action["path"]] = action
        else:
            live.pop(action["path"], None)
    return live


def columns_of(table: Path) -> dict[str, Any]:
    """The columns of the newest version and their types, as the log writes them."""
    metadata = log_actions(table, "metaData")
    if not metadata:
        return {}
    fields = json.loads(metadata[-1][1]["schemaString"])["fields"]
    return {f["name"]: f["type"] for f in fields}


def read_delta(table: Path) -> list[Row]:
    types, found = columns_of(table), []
    for path, action in sorted(live_files(table).items()):
        rows = file_rows(table / unquote(path))
        assert json.loads(action["stats"])["numRecords"] == len(rows)
        values = {n: _value(types[n], v) for n, v in action["partitionValues"].items()}
        found += [dict.fromkeys(types) | row | values for row in rows]
    return found


@functools.lru_cache(maxsize=10_000)
def file_rows(file: Path) -> list[Row]:
    """The rows of a Parquet file, which never changes: by DuckDB, nested ones by Arrow."""
    if any(pa.types.is_nested(t) for t in pq.read_schema(file).types):
        nested: list[Row] = pq.ParquetFile(file).read().to_pylist()
        return nested
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET threads = 1")
        rows: list[Row] = (
            con.sql(f"SELECT * FROM read_parquet('{file}', hive_partitioning = false)")
            .to_arrow_table()
            .to_pylist()
        )
        return rows


def _value(kind: Any, text: str | None) -> Any:
    cast: Callable[[str], Any] = _CASTS.get(kind, str)
    return None if text is None else cast(text)

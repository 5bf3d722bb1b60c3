"""A reader of Iceberg tables that shares no code with pyiceberg: metadata as JSON and Avro, files by DuckDB."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro

from tests.lakes.delta_reader import file_rows

Row = dict[str, Any]
DELETED = 2


def metadata_of(catalog: Path, table: str) -> Row | None:
    """The newest metadata of a table of a SQL catalog."""
    if not catalog.exists():
        return None
    namespace, _, name = table.rpartition(".")
    with closing(sqlite3.connect(catalog)) as con:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        try:
            found = con.execute(query, (namespace, name)).fetchone()
        except sqlite3.OperationalError:
            return None
    metadata: Row | None = None if found is None else json.loads(_path(found[0]).read_text())
    return metadata


def data_files(metadata: Row) -> list[Row]:
    """The data files of the current snapshot."""
    current = metadata.get("current-snapshot-id")
    if current in (None, -1):
        return []
    (snapshot,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == current]
    found = []
    for manifest in _avro(snapshot["manifest-list"]):
        for entry in _avro(manifest["manifest_path"]):
            if entry["status"] != DELETED:
                found.append(entry["data_file"])
    return found


def read_iceberg(catalog: Path, table: str) -> list[Row]:
    metadata = metadata_of(catalog, table)
    if metadata is None:
        return []
    (schema,) = [s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]]
    names = [f["name"] for f in schema["fields"]]
    found = []
    for file in data_files(metadata):
        rows = file_rows(_path(file["file_path"]))
        assert len(rows) == file["record_count"]
        found += [dict.fromkeys(names) | row for row in rows]
    return found


def _avro(location: str) -> Iterator[Row]:
    with _path(location).open("rb") as file:
        yield from fastavro.reader(file)  # type: ignore[misc]


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))

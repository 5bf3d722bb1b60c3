"""Data files of Iceberg as JSON, so that one process writes a file and another one adds it to the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.sources.iceberg_catalog import pyiceberg

_PLAIN = ("file_path", "record_count", "file_size_in_bytes")
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def described(file: Any, spec_id: int) -> dict[str, Any]:
    """What a manifest says about a data file, and the id of the partitioning that it was written for."""
    found: dict[str, Any] = {name: getattr(file, name) for name in _PLAIN}
    found["spec_id"] = spec_id
    found["partition"] = [file.partition[place] for place in range(len(file.partition))]
    found["split_offsets"] = list(file.split_offsets or ())
    for name in _COUNTS:
        found[name] = [[column, count] for column, count in (getattr(file, name) or {}).items()]
    for name in _BOUNDS:
        found[name] = [[column, bound.hex()] for column, bound in (getattr(file, name) or {}).items()]
    return found


def data_file(found: Mapping[str, Any]) -> Any:
    """The data file that was described."""
    manifest, typedef = pyiceberg("pyiceberg.manifest"), pyiceberg("pyiceberg.typedef")
    given: dict[str, Any] = {name: found[name] for name in _PLAIN}
    given |= {name: dict(map(tuple, found[name])) for name in _COUNTS}
    given |= {name: {column: bytes.fromhex(text) for column, text in found[name]} for name in _BOUNDS}
    return manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(*found["partition"]),
        split_offsets=found["split_offsets"],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **given,
    )

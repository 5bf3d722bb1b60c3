"""Targets of the conformance suite, read by clients that share no code with the sinks."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millpond.sinks.delta import DeltaSink
from millpond.sinks.iceberg import IcebergSink
from tests.lakes.delta_reader import read_delta
from tests.lakes.iceberg_reader import read_iceberg


class DeltaTarget:
    def __init__(self, folder: Path, partition_by: tuple[str, ...] = ()) -> None:
        self.folder, self.partition_by = folder / "table", partition_by
        self.modes = DeltaSink.modes

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def sink(self) -> Any:
        return DeltaSink(self.folder, self.partition_by, (("durable", "false"),))

    def read(self) -> Sequence[Mapping[str, Any]]:
        return read_delta(self.folder)

    def same(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, datetime.time):  # Delta Lake has no such type
            return bool(expected.isoformat(timespec="microseconds") == found)
        return bool(expected == found)


class IcebergTarget:
    def __init__(self, folder: Path, partition_by: tuple[str, ...] = ()) -> None:
        self.folder, self.partition_by = folder / "warehouse", partition_by
        self.modes = IcebergSink.modes

    @property
    def catalog(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}",
        }

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def sink(self) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)
        return IcebergSink("shop.rows", tuple(self.catalog.items()), self.partition_by)

    def read(self) -> Sequence[Mapping[str, Any]]:
        return read_iceberg(self.folder / "catalog.db", "shop.rows")

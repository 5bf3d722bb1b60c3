"""A code upgrade and a migration on Spark give what the inline engine gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import millpond
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.oracle import test_evolution as code

ROWS = [[("ann", 3), ("bob", 4)], [("ann", 5), ("eve", 6)], [("bob", 7), ("dan", 8)]]


@pytest.fixture(autouse=True)
def functions_by_value() -> Iterator[None]:
    """The workers cannot import the tests."""
    cloudpickle.register_pickle_by_value(code)
    yield
    cloudpickle.unregister_pickle_by_value(code)


def played(path: Path, parallelism: int, **engine: Any) -> list[Any]:
    """Three versions of the code, and what the state is after each."""
    source = MemorySource(code.SCHEMA)
    found = []
    for number, (step, rows) in enumerate(zip((code.First, code.Second, code.Third), ROWS, strict=True)):
        with millpond.open(path, parallelism=parallelism + number, **engine) as pond:
            stream = pond.stream("in", source, event_time="ts", delay="0s")
            stream.key_by("user").process(step(), schema=code.OUT, id="step").view("out")
            pond.source = source  # type: ignore[attr-defined]
            if number == 2:
                pond.migrate("step", lambda row: {"largest": row["largest"] + 100, "label": "moved"})
            code.feed(pond, *rows, at=number)
            found.append(everything(pond))
    return found


def everything(pond: Pond) -> Any:
    tables: list[pa.Table] = [pond.state("step", "seen"), pond.read("out")]
    return [sorted(map(repr, table.to_pylist())) for table in tables]


def test_upgrades_agree(session: Any, tmp_path: Path) -> None:
    inline = played(tmp_path / "inline", 1, engine="inline")
    spark = played(tmp_path / "spark", 3, engine="spark", spark=session)
    assert inline == spark
    assert "{'user': 'eve', 'largest': 106, 'label': 'moved'}" in spark[-1][0]

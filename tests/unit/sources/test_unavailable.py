"""An error of a source names the source, wherever it is raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InternalError, InvalidError, MillpondError, UnavailableError
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64())])


@dataclass(frozen=True)
class Away(MemorySource):
    """Its server is away when it is asked, or when it is read."""

    when: dict[str, BaseException] = field(default_factory=dict, compare=False, metadata={"durable": False})

    def poll(self, position: Any, seen: Any, max_rows: int) -> Any:
        if "poll" in self.when:
            raise self.when["poll"]
        return super().poll(position, seen, max_rows)

    def read(self, split: Any, columns: Any) -> Any:
        if "read" in self.when:
            raise self.when["read"]
        return super().read(split, columns)


@pytest.mark.parametrize("when", ["poll", "read"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (TimeoutError("timed out"), "timed out"),
        (FileNotFoundError(2, "No such file or directory", "/in"), "no such file or directory (/in)"),
        (UnavailableError("the queue is closed", detail="at 10"), "the queue is closed"),
    ],
)
def test_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, error: Exception, said: str
) -> None:
    monkeypatch.setattr("millpond.engine.coordinator.runner.PAUSE_S_MAX", 0.001)
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        source = Away(SCHEMA, when={when: error})
        source.push([{"k": 1}])
        pond.stream("orders", source).view("v")
        pond.stream("others", MemorySource(SCHEMA)).view("w")
        with pytest.raises(UnavailableError) as caught:
            pond.drain()
        assert caught.value.message == f"source 'orders' is unavailable: {said}"
        assert caught.value.step == "orders"
        source.when.clear()
        pond.drain()
        assert pond.read("v").num_rows == 1


@pytest.mark.parametrize("when", ["poll", "read"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [(RuntimeError("no such page"), InternalError), (SystemExit("no such page"), InvalidError)],
)
def test_a_source_with_a_bug_is_named(
    tmp_path: Path, when: str, error: BaseException, kind: type[MillpondError]
) -> None:
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        source = Away(SCHEMA, when={when: error})
        source.push([{"k": 1}])
        pond.stream("orders", source).view("v")
        with pytest.raises(kind) as caught:
            pond.drain()
        assert caught.value.step == "orders"
        assert caught.value.detail == f"{type(error).__name__}: no such page"

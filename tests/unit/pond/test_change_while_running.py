"""A statement that changes a running program returns when this process shows the new program."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import millpond
from millpond.engine.coordinator.shell import Shell
from millpond.state.manifest.manifest import Manifest


def test_a_dropped_view_is_not_listed_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = Shell.committed

    def slow(self: Shell, manifest: Manifest) -> None:
        if manifest.kind == "change":
            time.sleep(0.2)
        committed(self, manifest)

    monkeypatch.setattr(Shell, "committed", slow)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k int); CREATE MATERIALIZED VIEW v AS SELECT k FROM t; FLUSH")
        pond.start()
        pond.sql("DROP MATERIALIZED VIEW v")
        assert pond.views() == ["t"]
        pond.sql("CREATE MATERIALIZED VIEW w AS SELECT k + 1 AS k FROM t")
        assert pond.views() == ["t", "w"]

"""A statement that changes a running program returns when this process shows the new program."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.engine.coordinator.shell import Shell
from millpond.pond.inbox_client import InboxClient
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


def test_an_epoch_that_follows_at_once_is_not_taken_for_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = InboxClient.command

    def then_another_epoch(self: InboxClient, kind: str, *args: Any, **named: Any) -> int:
        number = command(self, kind, *args, **named)
        if kind == "change":
            self.execution.known_epoch = -1  # as between the commit of another epoch and its listeners
        return number

    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k int); FLUSH")
        pond.start()
        monkeypatch.setattr(InboxClient, "command", then_another_epoch)
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
        monkeypatch.undo()
        assert pond.sql("SHOW MATERIALIZED VIEWS").fetchall()[0][0] == "v"

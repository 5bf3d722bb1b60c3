"""A warning that repeats is logged once, and then at most every 30 seconds."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import millpond
from millpond.engine.coordinator import runner
from millpond.engine.coordinator.repeated_warnings import EVERY_S, RepeatedWarnings
from millpond.errors import UnavailableError
from millpond.sources.files import FileSource


def test_the_same_text_is_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warnings = RepeatedWarnings(logging.getLogger("millpond.test"), monotonic=lambda: now[0])
    assert warnings.warn("source is unavailable", 1)
    now[0] = EVERY_S - 1
    assert not warnings.warn("source is unavailable", 2)
    now[0] = EVERY_S
    assert warnings.warn("source is unavailable", 3)
    assert [r.getMessage() for r in caplog.records] == [
        "source is unavailable; trying again (failure 1)",
        "source is unavailable; trying again (failure 3)",
    ]


def test_another_text_or_a_new_series_is_logged_at_once() -> None:
    warnings = RepeatedWarnings(logging.getLogger("millpond.test"), monotonic=lambda: 0.0)
    assert warnings.warn("one", 1)
    assert warnings.warn("other", 2)
    assert warnings.warn("other", 1), "it worked in between"


def test_drain_on_a_missing_folder_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    monkeypatch.setattr(runner, "PAUSE_S", 0.0001)
    monkeypatch.setattr(runner, "PAUSE_S_MAX", 0.0001)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.stream("s", FileSource(folder, schema={"k": int}, format="json")).view("v")
        pond.drain()
        folder.rmdir()
        with pytest.raises(UnavailableError):
            pond.drain()
    warned = [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]
    assert len(warned) == 1 and warned[0].startswith("source 's' is unavailable"), warned

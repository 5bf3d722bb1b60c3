"""Views in event time that are filled while their streams go on: late rows, windows that end, state that is dropped."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from millpond import tuning
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from tests.sampling import first
from tests.sql.event_time import Streams
from tests.sql.test_event_time import SLICED, TIMED, WINDOWED

SHOWN = {f"all_{name}": query for name, query in {**WINDOWED, **TIMED}.items()}
EVERY = {**SHOWN, **WINDOWED}


class Crash(BaseException):
    pass


class Filled:
    """Streams with a past, and views that come later: rows come with almost every epoch meanwhile."""

    def __init__(self, path: Path, seed: int, views: dict[str, str], rows_max: int = 12) -> None:
        shown = {n: q for n, q in views.items() if n in SHOWN}
        on_close = {n: q for n, q in views.items() if n in {**WINDOWED, **SLICED}}
        self.streams = Streams(
            path, seed, shown, on_close, later=1.1, epoch_rows_max=rows_max, poll_ms=1, durable=False
        )
        for _ in range(8):
            self.streams.epoch()
        self.sent: dict[str, list[dict[str, Any]]] = {}
        self.epochs = 0
        self.crashes = False
        self.exact = 0

    def committed(self, manifest: Manifest) -> None:
        streams = self.streams
        if manifest.admitted:
            streams.account(self.sent)
            self.sent = {}
        if manifest.kind == "change":
            streams.views, streams.later = {**streams.views, **streams.later}, {}
            streams.check("the epoch that brings them")
            self.exact += 1
        elif manifest.backfill is not None:
            self.epochs += 1
            rng = streams.rng
            if not any(self.sent.values()) and self.epochs < 60 and rng.random() < 0.8:
                streams.now += rng.choice([0, 1, 4, 11])
                self.sent = streams.send(rng.choice([0, 5]), rng.choice([0, 5]))
            if self.crashes and manifest.kind == "epoch" and rng.random() < 0.3:
                raise Crash

    def create(self) -> dict[str, Any]:
        """Make the views, with or without crashes; what the change tells of it."""
        streams, tries = self.streams, 0
        streams.pond.on_epoch(self.committed)
        try:
            streams.define(streams.later)
        except Crash:
            while streams.later and (tries := tries + 1) < 100:
                streams.pond.close()
                streams.pond = streams.opened()
                streams.pond.on_epoch(self.committed)
                with contextlib.suppress(Crash):
                    streams.pond.drain()
        assert self.exact == 1 and tries >= self.crashes
        found = [streams.pond.at(e).manifest for e in history.epochs(streams.pond.store)]
        (done,) = [
            m.metrics["backfill"] for m in found if m.kind == "change" and "rounds" in m.metrics["backfill"]
        ]
        return dict(done)

    def check(self) -> None:
        streams = self.streams
        streams.pond.drain()
        streams.check("filled")
        for number in range(4):
            streams.disturb()
            streams.epoch()
            streams.check(f"epoch {number} after it")
        streams.close()


def some(seed: int, of: int) -> dict[str, str]:
    return dict(list(EVERY.items())[seed::of])


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_views_in_event_time_are_filled_while_rows_come(seed: int, tmp_path: Path) -> None:
    filled = Filled(tmp_path / "pond", seed, some(seed, 24))
    late = sum(filled.streams.late.values())
    done = filled.create()
    assert done["chunks"] > 5 and done["rounds"] > 1
    assert sum(filled.streams.late.values()) > late > 0, "rows that were late before, and meanwhile"
    filled.check()


@pytest.mark.parametrize("seed", first(0, range(2)))
def test_windows_that_share_slices_are_filled_while_rows_come(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "SLICED_WINDOWS_MIN", 2)
    filled = Filled(tmp_path / "pond", 40 + seed, dict(list(SLICED.items())[seed + 1 :: 2]))
    filled.crashes = seed > 0
    filled.create()
    filled.check()


def test_whoever_takes_over_goes_on_where_time_stood(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "pond", 7, some(3, 24))
    filled.crashes = True
    filled.create()
    filled.check()


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_all_views_in_event_time(seed: int, crashes: bool, tmp_path: Path) -> None:
    filled = Filled(tmp_path / "pond", seed + 20, some(seed, 4), rows_max=12 + seed * 5)
    filled.crashes = crashes
    filled.create()
    filled.check()

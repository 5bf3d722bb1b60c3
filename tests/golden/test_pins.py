"""Pins that older code wrote protect their epochs from today's garbage collection, until they expire."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.pond import Pond
from millpond.state.manifest.pins import pins
from tests.golden.make_pins import FORKED, HERE, READ, READER_END_US, SETTINGS, START_US

FORMS = sorted(folder.name for folder in HERE.glob("pins-*"))
ROWS = [(number, 10 * number) for number in range(1, 12)]


def epochs_of_runs(pond: Pond) -> set[int]:
    """The epochs that wrote the run files that are still there."""
    return {int(name.split("/")[2].split("-")[0]) for name in pond.store.list("runs/")}


@pytest.mark.parametrize("form", FORMS)
def test_pins_of_a_fork_and_a_reader(form: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / form / "pond.tar.xz") as archive:
        archive.extractall(tmp_path / "pond", filter="data")
    clock = ManualClock(START_US)
    settings = {**SETTINGS, "durable": False, "checks": True}
    with millpond.open(tmp_path / "pond", engine="inline", clock=clock, **settings) as pond:  # type: ignore[arg-type]
        protected = {pin.why.split()[0]: (pin.epochs, pin.expires_us) for pin in pins(pond.store)}
        assert protected == {
            "fork": (range(FORKED, FORKED + 1), None),
            "reader": (range(READ, READ + 2), READER_END_US),
        }
        assert pond.sql("SELECT id, amount FROM orders ORDER BY id").fetchall() == ROWS
        pond.sql("INSERT INTO orders VALUES (12, 120); FLUSH")
        assert {*range(READ + 1)} <= epochs_of_runs(pond), "both pins still protect their epochs"

        clock.advance(READER_END_US - START_US + 1)
        last = 12
        while READ - 1 in epochs_of_runs(pond):  # collections run beside the epochs
            last += 1
            assert last < 30, "the reader's pin has expired"
            pond.sql(f"INSERT INTO orders VALUES ({last}, {10 * last}); FLUSH")
        assert {*range(FORKED + 1)} <= epochs_of_runs(pond), "a fork needs its epoch for ever"
        assert [pin.why.split()[0] for pin in pins(pond.store)] == ["fork"]

        pond.sql("DELETE FROM orders; FLUSH")
        pond.rollback(pond.epoch - 1)
        assert pond.sql("SELECT n, total FROM total").fetchall() == [
            (last, sum(range(10, 10 * last + 1, 10)))
        ]

"""Transactions that older code wrote are read, replayed and executed by today's code with the same outcome."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.state import inbox
from millpond.state.manifest import history
from tests.golden.make_transactions import START_US, TABLES, shown

HERE = Path(__file__).parent
FORMS = sorted(folder.name for folder in HERE.glob("transactions-*"))


@pytest.mark.parametrize("form", FORMS)
def test_transactions_have_the_same_outcome(form: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / form / "pond.tar.xz") as archive:
        archive.extractall(tmp_path / "pond", filter="data")
    expected = json.loads((HERE / form / "expected.json").read_text())
    clock = ManualClock(START_US)
    with millpond.open(tmp_path / "pond", engine="inline", clock=clock, checks=True, durable=False) as pond:
        waiting = inbox.beyond(pond.store, inbox.next_entry(history.read_head(pond.store)))
        assert {entry.kind for entry in waiting} == {inbox.TRANSACTION}
        assert {name: shown(pond, name) for name in TABLES} == expected["before"]
        executed = [e.epoch for e in pond.epochs(last=None) if e.kind == "epoch" and e.epoch > 1]
        assert len(executed) > 5 and all(pond.replay(epoch).same for epoch in executed)
        pond.sql("FLUSH")
        assert {name: shown(pond, name) for name in TABLES} == expected["after"]
        assert pond.replay(pond.epoch).same
        reasons = pond.errors()["reason"].to_pylist()
        assert any('check constraint "members_age_check"' in reason for reason in reasons)
        assert any('unique constraint "members_mail_key"' in reason for reason in reasons)

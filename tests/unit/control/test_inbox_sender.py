"""What became of an entry is looked up in the store only while it is not known."""

from __future__ import annotations

import pytest

import millpond
from millpond.control.inbox_sender import InboxSender
from millpond.errors import DataError
from millpond.state import inbox
from millpond.state.manifest import history


def test_a_drain_reads_no_manifest_for_entries_that_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.table("t", {"a": int})
        pond.insert("t", {"a": 1})
        pond.drain()

        def unexpected(store: object) -> None:
            raise AssertionError("the newest manifest is known")

        monkeypatch.setattr(history, "read_head", unexpected)
        pond.drain()
        monkeypatch.undo()
        assert pond.insert("t", {"a": 2}) == 1


def test_an_entry_that_is_gone_is_reported_until_it_is_executed() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.table("t", {"a": int})
        pond.drain()
        sender = InboxSender(pond.store)
        number = pond.insert("t", {"a": 1})
        sender.require_stored(number)
        pond.store.delete(inbox.entry_name(number))
        with pytest.raises(DataError):
            sender.require_stored(number)

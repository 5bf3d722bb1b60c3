"""Entries of the inbox that their client numbers: each batch is executed once, however often it is sent."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import millpond
from millpond.pond.rows import entry
from millpond.state import inbox, request_ids


def send(pond: millpond.Pond, batch: int, n: int, client: str = "a", table: str = "t") -> None:
    args, payload = entry(pond.plan, table, pa.table({"n": [n]}), 1)
    args = {**args, request_ids.CLIENT: client, request_ids.NUMBER: batch}
    inbox.append(pond.store, "rows", args, payload, start=inbox.next_entry(pond._components.head()))


def opened(path: Path) -> millpond.Pond:
    pond = millpond.open(path, engine="inline")
    pond.table("t", {"n": int})
    return pond


def rows(pond: millpond.Pond) -> list[int]:
    return sorted(pond.read("t").column("n").to_pylist())


def test_a_batch_is_executed_once(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.drain()
        send(pond, 0, 10)
        pond.drain()
        send(pond, 0, 10)  # in a later epoch
        send(pond, 1, 11)
        send(pond, 1, 11)  # in the same poll
        send(pond, 0, 10, client="b")  # of another client
        pond.insert("t", {"n": 5})
        pond.drain()
        assert rows(pond) == [5, 10, 10, 11]
        assert pond.head().clients == {"a": 1, "b": 0}
        assert pond.head().counts["duplicates/inbox"] == 2


def test_also_after_a_restart_and_a_rollback(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.drain()
        pond.savepoint("before")
        send(pond, 7, 10)
        pond.drain()
    with opened(tmp_path / "pond") as pond:
        send(pond, 7, 10)
        pond.drain()
        assert rows(pond) == [10]
        pond.rollback("before")
        send(pond, 7, 10)  # its rows were rolled back on purpose
        send(pond, 8, 20)
        pond.drain()
        assert rows(pond) == [20]


def test_a_refused_batch_can_be_sent_again(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.drain()
        args = {"table": "t", "rows": 1, request_ids.CLIENT: "a", request_ids.NUMBER: 3}
        inbox.append(pond.store, "rows", args, b"not rows", start=inbox.next_entry(pond.head()))
        pond.drain()
        assert rows(pond) == []
        send(pond, 3, 10)
        pond.drain()
        assert rows(pond) == [10]

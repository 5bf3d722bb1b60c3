"""The changes of one text: one inbox entry, sent when the text ends.

Law: the changes of one text are executed in one epoch or not at all.  A single INSERT, UPDATE or DELETE is an
entry of its own kind, and rows for one table are one entry with rows; anything else is a
transaction, and so is every change of a table with rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.sql.dml.transaction_entry import ROWS, encoded
from millpond.sql.host import Host
from millpond.state.inbox import LOGIC, TRANSACTION

_ALONE = ("insert", "update", "delete")  # changes that can be entries of their own kind


@dataclass(frozen=True)
class SessionChange:
    """A change as a text in `args`, or as rows for a table."""

    args: dict[str, Any]
    rows: pa.Table | None = None
    reads_views: bool = False  # does it read anything but tables?


class TextChanges:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._changes: list[SessionChange] = []
        self._number: int | None = None
        self._places: list[int] = []  # by change: its item in the transaction

    def add(self, change: SessionChange) -> int:
        """Add a change; returns its place."""
        self._changes.append(change)
        return len(self._changes) - 1

    def __bool__(self) -> bool:
        return bool(self._changes)

    def send(self) -> None:
        """Put the changes into the inbox; durable on return."""
        changes, self._places = self._changes, [0] * len(self._changes)
        if not changes:
            return
        first = changes[0]
        checked = any(change.args.get("checked") for change in changes)
        if len(changes) == 1 and first.rows is None and first.args["verb"] in _ALONE and not checked:
            self._number = self._host.append(LOGIC, first.args)
            return
        whole = None if checked else _one_table(changes)
        if whole is not None:
            self._number = self._host.insert(first.args["table"], whole)
            return
        items, payloads, self._places = entry_items(self._host, changes)
        args, payload = encoded(items, payloads)
        if any(change.reads_views for change in changes):
            args["views"] = True
        self._number = self._host.append(TRANSACTION, args, payload)

    def sent(self, place: int) -> tuple[int, int]:
        """The number of the entry, and the item that a change is in it."""
        assert self._number is not None, "the text has ended"
        return self._number, self._places[place]


def _one_table(changes: Sequence[SessionChange]) -> pa.Table | None:
    """The rows of all changes, if they are rows with the same columns for one table."""
    tables = [change.rows for change in changes if change.rows is not None]
    same = {change.args["table"] for change in changes}
    if len(tables) < len(changes) or len(same) > 1 or any(t.schema != tables[0].schema for t in tables):
        return None
    return pa.concat_tables(tables)


def entry_items(
    host: Host, changes: Sequence[SessionChange]
) -> tuple[list[dict[str, Any]], list[bytes], list[int]]:
    """The items of a transaction, their payloads, and the item of each change.

    Rows for the same table that follow each other are one item.
    """
    items: list[dict[str, Any]] = []
    payloads: list[bytes] = []
    places: list[int] = []
    size, at = 0, 0
    while at < len(changes):
        change = changes[at]
        end = at + 1
        if change.rows is None:
            items.append(change.args)
        else:
            while end < len(changes) and _continues(change, changes[end]):
                end += 1
            rows = pa.concat_tables([c.rows for c in changes[at:end]])
            payload = host.row_entry(change.args["table"], rows)[1]
            items.append({**change.args, "verb": ROWS, "rows": rows.num_rows, "at": [size, len(payload)]})
            payloads.append(payload)
            size += len(payload)
        places += [len(items) - 1] * (end - at)
        at = end
    return items, payloads, places


def _continues(first: SessionChange, other: SessionChange) -> bool:
    if first.rows is None or other.rows is None or first.args["table"] != other.args["table"]:
        return False
    if first.args.get("checked"):
        return False  # each statement has its own outcome
    return bool(first.rows.schema == other.rows.schema)

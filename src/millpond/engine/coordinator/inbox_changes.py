"""Turns changes of the inbox (UPDATE, DELETE, INSERT … SELECT, transactions) into rows, when they are next.

A replay does the same.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError, MillpondError
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsInbox
from millpond.plan.nodes import Plan
from millpond.sources.source import Split
from millpond.sql.dml.change_rows import ENTRIES_MAX, changed_rows, goes_with
from millpond.sql.dml.refusal_reasons import reason_of, with_statement
from millpond.sql.dml.transaction_entry import CHANGES, items_of
from millpond.sql.dml.transaction_rows import (
    ExecutedTransactions,
    checked_tables,
    execute_transactions,
    in_one_epoch,
)
from millpond.state.inbox import ABORTED, COUNTS, FIRST_ENTRY, LOGIC, ROW_ENTRY, TRANSACTION, Entry
from millpond.state.manifest.snapshot import Snapshot

Rejects = tuple[tuple[str, str], ...]


def executed_in_one_epoch(plan: Plan, entries: Sequence[Entry]) -> list[Entry]:
    """The first entry, and those after it that can be executed in the same epoch."""
    checked = checked_tables(plan)
    if _is_transaction(entries[0], checked):
        return in_one_epoch(entries, checked)
    together = [entries[0]]
    for entry in entries[1:ENTRIES_MAX]:
        if entry.kind != LOGIC or not _well_formed(together[0]) or not _well_formed(entry):
            break
        if not goes_with(together[0].args, entry.args):
            break
        together.append(entry)
    return together


def _is_transaction(entry: Entry, checked: Container[str]) -> bool:
    """Is an entry executed statement by statement, as a whole or not at all?"""
    return entry.kind in (TRANSACTION, ROW_ENTRY) or (_well_formed(entry) and entry.args["table"] in checked)


def _well_formed(entry: Entry) -> bool:
    texts = (entry.args.get(key) for key in ("table", "name", "verb", "sql"))
    return all(isinstance(text, str) for text in texts) and isinstance(entry.args.get("reads"), list)


def made_splits(plan: Plan, before: Snapshot, entries: Sequence[Entry]) -> tuple[tuple[Split, ...], Rejects]:
    """The rows that some changes delete and insert, one split per table; they are admitted together.

    A change that cannot be executed is refused with the reason, and has no effect.
    """
    if not _is_transaction(entries[0], checked_tables(plan)):
        made, rejects = made_split(plan, before, entries)
        return (() if made is None else (made,)), rejects
    done = execute_transactions(plan, before, entries)
    rows = {entry.number for entry in entries if entry.kind == ROW_ENTRY}
    rejects = tuple(
        (str(number), reason if number in rows else f"transaction: {reason}")
        for number, reason in done.refused.items()
    )
    rejects += tuple((str(n), reason) for n, reasons in done.left_out.items() for reason in reasons)
    if not done.counts and not done.aborted and not done.rows:
        return (), rejects
    shared = {"entry": entries[-1].number, FIRST_ENTRY: entries[0].number}
    splits = [_split({**shared, "table": scan, COUNTS: {}}, rows) for scan, rows in done.rows.items()]
    if not splits:
        table = _any_table(plan, entries)
        if table is None:
            more = tuple((str(n), f"transaction: {reason}") for n, reason in done.aborted.items())
            return (), (*rejects, *more)
        scan, columns = table
        empty = columns.append(pa.field("_w", pa.int64())).empty_table()
        splits = [_split({**shared, "table": scan, COUNTS: {}}, empty)]
    first = splits[0]
    splits[0] = replace(first, what={**first.what, **_outcomes(done)})
    return (*(replace(split, with_next=True) for split in splits[:-1]), splits[-1]), rejects


def _outcomes(done: ExecutedTransactions) -> dict[str, Any]:
    outcomes: dict[str, Any] = {COUNTS: {str(number): counts for number, counts in done.counts.items()}}
    if done.aborted:
        outcomes[ABORTED] = {str(number): reason for number, reason in done.aborted.items()}
    return outcomes


def _any_table(plan: Plan, entries: Sequence[Entry]) -> tuple[str, pa.Schema] | None:
    """A table of some transactions that change nothing: their outcome needs a split."""
    for entry in entries:
        own = [{**entry.args, "verb": "rows"}] if "table" in entry.args else items_of(entry.args) or ()
        for item in own:
            node = plan.nodes.get(item["table"]) if item["verb"] in CHANGES else None
            if node is not None and isinstance(node.operator, Scan):
                source = node.operator.source
                if isinstance(source, ReadsInbox):
                    return node.step, source.columns
    return None


def _split(what: dict[str, Any], rows: pa.Table) -> Split:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    payload = b'{"kind": "rows", "args": {}}\n' + sink.getvalue().to_pybytes()
    return Split({**what, "rows": rows.num_rows}, rows.num_rows, len(payload), data=payload)


def made_split(plan: Plan, before: Snapshot, entries: Sequence[Entry]) -> tuple[Split | None, Rejects]:
    """The rows of changes of one table, in the form of an entry with rows."""
    first, last = entries[0], entries[-1]
    if not _well_formed(first):
        return None, ((str(first.number), "it is no change that this version knows"),)
    try:
        changed = changed_rows(plan, before, [e.args for e in entries])
    except Exception as error:
        # A bad text must not block the inbox for ever.
        if isinstance(error, MillpondError) and not isinstance(error, InvalidError):
            raise  # the text is not the cause
        if len(entries) > 1:
            return made_split(plan, before, entries[:1])  # the others are executed later
        return None, (_rejected(first, reason_of(error)),)
    rejects = tuple(_rejected(entries[n], reason) for n, reason in changed.refused.items())
    counts = {str(entries[n].number): count for n, count in changed.counts.items()}
    what = {"entry": last.number, "table": first.args["table"], FIRST_ENTRY: first.number, COUNTS: counts}
    return _split(what, changed.rows), rejects


def _rejected(entry: Entry, reason: str) -> tuple[str, str]:
    return str(entry.number), with_statement(entry.args, reason)

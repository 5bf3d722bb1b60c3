"""Turns SQL changes of the inbox (UPDATE, DELETE, INSERT … SELECT) into rows, when they are first in it.

A replay does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.errors import InvalidError, MillpondError
from millpond.plan.nodes import Plan
from millpond.sources.source import Split
from millpond.sql.dml.change_rows import ENTRIES_MAX, changed_rows, goes_with
from millpond.state.inbox import COUNTS, FIRST_ENTRY, LOGIC, Entry
from millpond.state.manifest.snapshot import Snapshot

Rejects = tuple[tuple[str, str], ...]


def executed_in_one_epoch(entries: Sequence[Entry]) -> list[Entry]:
    """The first entry, and those after it that can be executed in the same epoch."""
    found = [entries[0]]
    for entry in entries[1:ENTRIES_MAX]:
        if entry.kind != LOGIC or not _well_formed(found[0]) or not _well_formed(entry):
            break
        if not goes_with(found[0].args, entry.args):
            break
        found.append(entry)
    return found


def _well_formed(entry: Entry) -> bool:
    texts = (entry.args.get(key) for key in ("table", "name", "verb", "sql"))
    return all(isinstance(text, str) for text in texts) and isinstance(entry.args.get("reads"), list)


def made_split(plan: Plan, before: Snapshot, entries: Sequence[Entry]) -> tuple[Split | None, Rejects]:
    """The rows that some changes delete and insert, in the form of an entry with rows.

    A change that cannot be executed is refused with the reason, and has no effect.
    """
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
        reason = str(error) if isinstance(error, InvalidError) else f"{type(error).__name__}: {error}"
        return None, (_rejected(first, reason),)
    rejects = tuple(_rejected(entries[n], reason) for n, reason in changed.refused.items())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, changed.rows.schema) as writer:
        writer.write_table(changed.rows)
    payload = b'{"kind": "rows", "args": {}}\n' + sink.getvalue().to_pybytes()
    rows = changed.rows.num_rows
    counts = {str(entries[n].number): count for n, count in changed.counts.items()}
    what = {"entry": last.number, "table": first.args["table"], "rows": rows, FIRST_ENTRY: first.number}
    what[COUNTS] = counts
    return Split(what, rows, len(payload), data=payload), rejects


def _rejected(entry: Entry, reason: str) -> tuple[str, str]:
    return str(entry.number), f"{entry.args.get('sql')}: {reason}"

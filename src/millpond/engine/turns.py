"""Changes that are logic: what they become when their turn comes, and once more in a replay."""

from __future__ import annotations

import pyarrow as pa

from millpond.plan.nodes import Plan
from millpond.sources.source import Split
from millpond.sql.change_rows import changed_rows
from millpond.state.inbox import Entry
from millpond.state.snapshot import Snapshot

MADE = "made"  # in a split: its rows were made from an entry and the epoch before, and travel with it


def made_split(plan: Plan, before: Snapshot, entry: Entry) -> Split:
    """The rows that a change puts in and takes out, as an entry with rows would bring them.

    InvalidError when the statement cannot be executed: nothing of it is.
    """
    rows = changed_rows(plan, before, entry.args)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    payload = b'{"kind": "rows", "args": {}}\n' + sink.getvalue().to_pybytes()
    what = {"entry": entry.number, "table": entry.args["table"], "rows": rows.num_rows, MADE: True}
    return Split(what, rows.num_rows, len(payload), data=payload)

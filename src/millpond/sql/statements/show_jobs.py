"""SHOW JOBS: what goes on beside the reading, and what waits for its turn.

Compactions and deliveries are told by the process that runs the pond, and so are
short backfills; long ones, and what waits in the inbox (changes of the program and
of rows, RESCALE, …), by any.
It waits for nobody, so it answers while another thread fills a view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.plan.nodes import Plan
from millpond.sql.parse import Words
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.state import history, inbox
from millpond.state.manifest import Manifest

_SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("what", pa.string()),
        ("state", pa.string()),
        ("done", pa.int64()),
        ("total", pa.int64()),
        ("unit", pa.string()),
        ("note", pa.string()),
    ]
)
_TYPES = ["VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "VARCHAR", "VARCHAR"]
_KINDS = {"change": "change of the program", inbox.LOGIC: "change of rows", "rows": "rows"}


def run(session: Session, words: Words) -> Result:
    words.end()
    rows = [dict(zip(_SCHEMA.names, job, strict=True)) for job in _jobs(session)]
    return Result.of_rows(_SCHEMA.names, _TYPES, pa.Table.from_pylist(rows, schema=_SCHEMA))


def _jobs(session: Session) -> Iterator[tuple[Any, ...]]:
    pond = session.pond
    progress, runner = pond.progress, pond._runner
    head = history.read_head(pond.store)
    filling = progress if progress is not None or head is None else head.filling
    if filling is not None:
        what = ", ".join(_views(filling.steps))
        chunks = f"{filling.chunks} chunk{'' if filling.chunks == 1 else 's'}"
        yield "backfill", what, "running", filling.rows, max(filling.rows, filling.total), "rows", chunks
    if runner is not None:
        merge, coordinator = runner.coordinator.compacting, runner.coordinator
        if merge is not None:
            yield "compaction", merge.table, "running", None, merge.bytes, "bytes", f"{len(merge.refs)} runs"
        newest = coordinator.head
        failed = coordinator.failed_sinks
        for sink, at in sorted(coordinator.behind.items()):
            state = "failed" if sink in failed else "behind"
            note = failed[sink].message if sink in failed else None
            yield "delivery", sink, state, at, None if newest is None else newest.epoch, "epochs", note
    yield from _waiting(session, head, pond.progress is not None)


def _views(steps: tuple[str, ...]) -> list[str]:
    """Steps by what they were made for: the name before the first dot."""
    return sorted({step.split(".")[0] for step in steps})


def _waiting(session: Session, head: Manifest | None, changing: bool) -> Iterator[tuple[Any, ...]]:
    """What is in the inbox and not executed; the change that is being filled is told already."""
    store = session.pond.store
    position = 0 if head is None else int(head.positions.get("inbox", 0))
    inbox.require_none_missing(store, position, inbox.numbers(store))
    entries = inbox.beyond(store, position)
    inside = head is None or head.filling is None  # it is done by the entry that is next
    if changing and inside and entries and entries[0].kind == "change":
        entries = entries[1:]
    counts = Counter((e.kind, _about(e, session.pond.plan)) for e in entries)
    for (kind, about), count in counts.items():
        yield _KINDS.get(kind, kind), about, "waiting", 0, count, "entries", None


def _about(entry: inbox.Entry, plan: Plan) -> str | None:
    if entry.kind == inbox.LOGIC:
        return str(entry.args.get("name"))
    if entry.kind == "rows":
        scan = entry.args.get("table")
        return next((o.name for o in plan.objects.values() if o.scan == scan), str(scan))
    if entry.kind == "rescale":
        return f"parallelism {entry.args.get('parallelism')}"
    return str(entry.args["name"]) if "name" in entry.args else None

"""Background work, and entries that wait in the inbox: SHOW JOBS and `millpond.jobs` list them.

Only the process that runs the pond knows of compactions, deliveries and short backfills.
Every process knows of long backfills and of waiting inbox entries (changes of the program and of rows, …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple

import pyarrow as pa

from millpond.plan.nodes import Plan
from millpond.sql.host import Host, Job
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest

JOBS = pa.schema(
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
_KINDS = {
    "change": "change of the program",
    inbox.LOGIC: "change of rows",
    inbox.TRANSACTION: "transaction",
    "rows": "rows",
}


def jobs_table(host: Host) -> pa.Table:
    """All jobs as a table."""
    rows = [dict(zip(JOBS.names, astuple(job), strict=True)) for job in running_jobs(host)]
    return pa.Table.from_pylist(rows, schema=JOBS)


def running_jobs(host: Host) -> Iterator[Job]:
    """Yield background work, then the inbox entries that wait."""
    progress, head = host.backfill_progress(), host.find_head()
    backfill = progress if progress is not None or head is None else head.backfill
    if backfill is not None:
        what = ", ".join(_views(backfill.steps))
        chunks = f"{backfill.chunks} chunk{'' if backfill.chunks == 1 else 's'}"
        total = max(backfill.rows, backfill.total)
        yield Job("backfill", what, "running", backfill.rows, total, "rows", chunks)
    yield from host.background_jobs()
    yield from _waiting(host, head, host.backfill_progress() is not None)


def _views(steps: tuple[str, ...]) -> list[str]:
    """Return the names that steps belong to: the text before the first dot."""
    return sorted({step.split(".")[0] for step in steps})


def _waiting(host: Host, head: Manifest | None, changing: bool) -> Iterator[Job]:
    """Yield the inbox entries that are not executed, without the change whose backfill is already listed."""
    store = host.store
    position = inbox.next_entry(head)
    inbox.require_none_missing(store, position, inbox.numbers(store))
    entries = inbox.beyond(store, position)
    inside = head is None or head.backfill is None  # the next entry runs the backfill
    if changing and inside and entries and entries[0].kind == "change":
        entries = entries[1:]
    plan, _ = host.program()
    counts = Counter((e.kind, _about(e, plan)) for e in entries)
    for (kind, about), count in counts.items():
        yield Job(_KINDS.get(kind, kind), about, "waiting", 0, count, "entries", None)


def _about(entry: inbox.Entry, plan: Plan) -> str | None:
    if entry.kind == inbox.LOGIC:
        return str(entry.args.get("name"))
    if entry.kind == "rows":
        scan = entry.args.get("table")
        return next((o.name for o in plan.objects.values() if o.scan == scan), str(scan))
    if entry.kind == "rescale":
        return f"parallelism {entry.args.get('parallelism')}"
    return str(entry.args["name"]) if "name" in entry.args else None

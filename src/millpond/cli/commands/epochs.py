"""`millpond epochs`: what was committed, newest last; `millpond show`: one of them, in full."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from millpond.cli.arguments import (
    TEXT,
    LimitOption,
    OutputOption,
    PondArgument,
    open_reader,
    parse_epoch,
)
from millpond.cli.output import Column, Facts, Rows
from millpond.cli.values import count, milliseconds, moment, size
from millpond.state import history
from millpond.state.listing import Listing
from millpond.state.manifest import Manifest, is_kept

COLUMNS = (
    Column("epoch", right=True),
    Column("kind"),
    Column("now_us", "at", moment),
    Column("rows", show=count, right=True),
    Column("ms", "took", milliseconds, right=True),
    Column("rows_per_s", "rows/s", count, right=True),
    Column("tasks"),
    Column("parallelism", right=True),
    Column("bytes", "new state", size, right=True),
    Column("note"),
)
TABLES = (
    Column("table"),
    Column("runs", show=count, right=True),
    Column("rows", "rows in runs", count, right=True),
    Column("bytes", "size", size, right=True),
)


def epochs(pond: PondArgument, limit: LimitOption = 20, output: OutputOption = TEXT) -> None:
    """List the committed epochs that can still be read, newest last."""
    reader = open_reader(pond)
    head = reader.head()
    kept = [e for e in history.epochs(reader.store) if is_kept(head, e)]
    shown = kept[-limit:] if limit else kept
    found = [history.find_manifest(reader.store, e) for e in shown]  # one may be collected meanwhile
    rows = [epoch_row(m, head) for m in found if m is not None]
    left = f"{len(rows)} of {len(kept)} epochs; --limit 0 shows all" if len(rows) < len(kept) else None
    output.write(Rows("epochs", COLUMNS, rows, left))


def show(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="Its number, or a savepoint.", show_default=False)
    ],
    output: OutputOption = TEXT,
) -> None:
    """Show one epoch: positions, watermarks, counts and the state tables as they were."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        manifest = snapshot.manifest
        facts = {
            **epoch_row(manifest, reader.head()),
            "pond": manifest.pond,
            "token": manifest.token,
            "floor": manifest.floor,
            "catalog": manifest.catalog,
            "positions": manifest.positions,
            "watermarks": bounds(manifest),
            "counts": manifest.counts,
            "cursors": manifest.cursors,
            "savepoints": manifest.savepoints,
        }
        tables = table_rows(snapshot.listing)
    output.write(Facts(facts, COLUMNS), Rows("tables", TABLES, tables))


def epoch_row(manifest: Manifest, head: Manifest) -> dict[str, Any]:
    """What people want to know of an epoch at a glance; `head` knows the savepoints' names."""
    rows, ms = manifest.metrics.get("rows"), manifest.metrics.get("ms")
    return {
        "epoch": manifest.epoch,
        "kind": manifest.kind,
        "now_us": manifest.now_us,
        "rows": rows,
        "ms": ms,
        "rows_per_s": round(rows / ms * 1000) if rows and ms else None,
        "tasks": manifest.metrics.get("tasks"),
        "parallelism": manifest.parallelism,
        "bytes": sum(r.bytes for r in manifest.added if r.kind == "delta"),
        "note": note(manifest, head.savepoints),
    }


def note(manifest: Manifest, savepoints: Mapping[str, int]) -> str | None:
    found = [f"savepoint {name}" for name, e in savepoints.items() if e == manifest.epoch]
    if manifest.restores is not None:
        found.append(f"back to epoch {manifest.restores}")
    if manifest.kind == "takeover":
        found.append(f"taken over, token {manifest.token}")
    if manifest.kind == "fork":
        found.append(f"forked from epoch {manifest.metrics.get('parent_epoch')}")
    if "refused" in manifest.metrics:
        found.append(str(manifest.metrics["refused"]))
    merges = sum(r.kind == "merge" for r in manifest.added)
    if merges and manifest.restores is None:
        found.append(f"{merges} merged runs")
    return ", ".join(found) or None


def table_rows(listing: Listing) -> list[dict[str, Any]]:
    """Every state table with what it takes; rows that newer runs replace count until they are merged."""
    found = []
    for table in listing.tables():
        runs = listing.runs(table)
        found.append(
            {
                "table": table,
                "runs": len(runs),
                "rows": sum(r.rows for r in runs),
                "bytes": sum(r.bytes for r in runs),
            }
        )
    return found


def bounds(manifest: Manifest) -> dict[str, Any]:
    """The watermarks as times."""
    found: dict[str, Any] = {}
    for step, mark in manifest.watermarks.items():
        bound = mark.get("bound") if isinstance(mark, Mapping) else None
        found[step] = None if bound is None else _utc(int(bound))
    return found


def _utc(us: int) -> str:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (start + datetime.timedelta(microseconds=us)).isoformat()

"""`millpond epochs`: what was committed, newest last; `millpond show`: one of them, in full."""

from __future__ import annotations

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
from millpond.cli.output import Column, Facts, Part, Rows
from millpond.cli.values import count, fine, local, milliseconds, size
from millpond.serve.summaries import EpochSummary, summaries, summary
from millpond.state import history
from millpond.state.listing import Listing
from millpond.state.manifest import Manifest

COLUMNS = (
    Column("epoch", right=True),
    Column("kind"),
    Column("when", "at", local),
    Column("rows", show=count, right=True),
    Column("ms", "took", milliseconds, right=True),
    Column("rows_per_s", "rows/s", count, right=True),
    Column("tasks"),
    Column("parallelism", right=True),
    Column("changed", "changed rows", count, right=True),
    Column("bytes", "new state", size, right=True),
    Column("note"),
)
TABLES = (
    Column("table"),
    Column("changed", "changed rows", count, right=True),
    Column("runs", show=count, right=True),
    Column("rows", "rows in runs", count, right=True),
    Column("bytes", "size", size, right=True),
)
STEPS = (Column("step"), Column("ms", "took", fine, right=True))


def epochs(pond: PondArgument, limit: LimitOption = 20, output: OutputOption = TEXT) -> None:
    """List the committed epochs that can still be read, newest last."""
    found, kept = summaries(open_reader(pond), limit or None)
    left = f"{len(found)} of {kept} epochs; --limit 0 shows all" if len(found) < kept else None
    output.write(Rows("epochs", COLUMNS, [epoch_row(s) for s in found], left))


def show(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="Its number, or a savepoint.", show_default=False)
    ],
    output: OutputOption = TEXT,
) -> None:
    """Show one epoch, whole: input, positions, watermarks, counts, timings and the tables it changed."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        manifest = snapshot.manifest
        before = history.find_manifest(reader.store, manifest.epoch - 1) if manifest.epoch else None
        found = summary(manifest, reader.head().savepoints)
        facts = {
            **epoch_row(found),
            "pond": manifest.pond,
            "token": manifest.token,
            "floor": manifest.floor,
            "catalog": manifest.catalog,
            "positions": manifest.positions,
            "admitted": manifest.admitted,
            "counted": counted(manifest, before),
            "counts": manifest.counts,
            "cursors": manifest.cursors,
            "savepoints": manifest.savepoints,
        }
        tables = table_rows(snapshot.listing, found.changed)
        steps_us = manifest.metrics.get("steps_us", {})
        steps = [{"step": step, "ms": us / 1000} for step, us in steps_us.items()]
    columns = (*COLUMNS, Column("admitted", "input", pieces), Column("counted", "counted in it"))
    parts: list[Part] = [Facts(facts, columns), Rows("tables", TABLES, tables)]
    if steps:
        parts.append(Rows("steps", STEPS, steps))
    output.write(*parts)


def counted(manifest: Manifest, before: Manifest | None) -> dict[str, int] | None:
    """What this epoch added to the counts: rows, late rows, errors; unknown where the one before is gone."""
    if before is None:
        return None if manifest.epoch else {}
    return {
        name: count - before.counts.get(name, 0)
        for name, count in manifest.counts.items()
        if count != before.counts.get(name, 0)
    }


def pieces(admitted: Mapping[str, Any]) -> str:
    """
    >>> pieces({"bids": [{"first": 0}, {"first": 9}]})
    'bids 2 splits'
    """
    return ", ".join(f"{s} {len(p)} split{'s' * (len(p) != 1)}" for s, p in admitted.items()) or "-"


def epoch_row(found: EpochSummary) -> dict[str, Any]:
    """What people want to know of an epoch at a glance."""
    rows, ms = found.rows, found.ms
    return {
        "epoch": found.epoch,
        "kind": found.kind,
        "when": found.when,
        "rows": rows,
        "ms": ms,
        "rows_per_s": round(rows / ms * 1000) if rows and ms else None,
        "tasks": list(found.tasks) or None,
        "parallelism": found.parallelism,
        "changed": sum(found.changed.values()),
        "bytes": found.bytes,
        "watermarks": found.watermarks,
        "note": found.note,
    }


def table_rows(listing: Listing, changed: Mapping[str, int]) -> list[dict[str, Any]]:
    """Every state table with what it takes; rows that newer runs replace count until they are merged."""
    found = []
    for table in listing.tables():
        runs = listing.runs(table)
        found.append(
            {
                "table": table,
                "changed": changed.get(table, 0),
                "runs": len(runs),
                "rows": sum(r.rows for r in runs),
                "bytes": sum(r.bytes for r in runs),
            }
        )
    return found

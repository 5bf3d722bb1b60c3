"""`millpond epochs` lists the committed epochs, newest last; `millpond show` shows one in full."""

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
from millpond.cli.output import FactsPart, OutputColumn, OutputPart, TablePart
from millpond.cli.values import count, fine, local, milliseconds, size
from millpond.serve.epoch_summaries import EpochSummary, summaries, summary
from millpond.state.manifest import history
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest

COLUMNS = (
    OutputColumn("epoch", right=True),
    OutputColumn("kind"),
    OutputColumn("when", "at", local),
    OutputColumn("rows", show=count, right=True),
    OutputColumn("ms", "took", milliseconds, right=True),
    OutputColumn("rows_per_s", "rows/s", count, right=True),
    OutputColumn("tasks"),
    OutputColumn("parallelism", right=True),
    OutputColumn("changed", "changed rows", count, right=True),
    OutputColumn("bytes", "new state", size, right=True),
    OutputColumn("note"),
)
TABLES = (
    OutputColumn("table"),
    OutputColumn("changed", "changed rows", count, right=True),
    OutputColumn("runs", show=count, right=True),
    OutputColumn("rows", "rows in runs", count, right=True),
    OutputColumn("bytes", "size", size, right=True),
)
STEPS = (OutputColumn("step"), OutputColumn("ms", "took", fine, right=True))


def epochs(pond: PondArgument, limit: LimitOption = 20, output: OutputOption = TEXT) -> None:
    """List the committed epochs that can still be read, newest last."""
    found, total = summaries(open_reader(pond), limit or None)
    left = f"{len(found)} of {total} epochs; --limit 0 shows all" if len(found) < total else None
    output.write(TablePart("epochs", COLUMNS, [epoch_row(s) for s in found], left))


def show(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="Its number, or a savepoint.", show_default=False)
    ],
    output: OutputOption = TEXT,
) -> None:
    """Show one epoch in full: input, positions, watermarks, counts, timings and the tables it changed."""
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
    columns = (*COLUMNS, OutputColumn("admitted", "input", pieces), OutputColumn("counted", "counted in it"))
    parts: list[OutputPart] = [FactsPart(facts, columns), TablePart("tables", TABLES, tables)]
    if steps:
        parts.append(TablePart("steps", STEPS, steps))
    output.write(*parts)


def counted(manifest: Manifest, before: Manifest | None) -> dict[str, int] | None:
    """What this epoch added to the counts: rows, late rows, errors; None without the previous epoch."""
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
    """An epoch as a row of the list."""
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
    """Every state table with its size; replaced rows count until compaction removes them."""
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

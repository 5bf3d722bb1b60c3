"""`millpond compact` and `millpond gc`: care for a pond that nobody runs."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, open_reader
from millpond.cli.output import Said
from millpond.cli.upkeep import taken_over


def compact(pond: PondArgument, output: OutputOption = TEXT) -> None:
    """Merge the runs of every table, so that reads are fast; a running pipeline does it by itself."""
    reader = open_reader(pond)
    with taken_over(reader) as upkeep:
        before = upkeep.runs
        upkeep.compact()
        after = upkeep.runs
        epoch = upkeep.head.epoch
    output.write(
        Said(
            f"{before} runs became {after} in epoch {epoch}"
            if after < before
            else f"nothing to merge: {after} runs",
            {"epoch": epoch, "runs_before": before, "runs_after": after},
        )
    )


def gc(
    pond: PondArgument,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Give up all but the newest N epochs first.", show_default=False),
    ] = None,
    output: OutputOption = TEXT,
) -> None:
    """Delete files that no readable epoch needs; a running pipeline does it by itself.

    Savepoints, forks and readers keep what they need.
    """
    reader = open_reader(pond)
    with taken_over(reader, retain_epochs=keep) as upkeep:
        collection = upkeep.collect()
        floor = upkeep.head.floor
    output.write(
        Said(
            f"deleted {collection.manifests} manifests and {collection.files} files; "
            f"epochs from {floor} on can be read",
            {"manifests": collection.manifests, "files": collection.files, "floor": floor},
        )
    )

"""`millpond compact` and `millpond gc`: executed here, or by the running pipeline if there is one."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, WaitOption, open_reader
from millpond.cli.command_answer import answer
from millpond.cli.output import MessagePart
from millpond.cli.upkeep import RunningError, found_garbage, taken_over
from millpond.cli.values import count, size
from millpond.control.inbox_sender import InboxSender


def compact(pond: PondArgument, wait: WaitOption = 10.0, output: OutputOption = TEXT) -> None:
    """Merge the runs of every table, so that reads are fast; a running pipeline does this automatically."""
    reader = open_reader(pond)
    try:
        with taken_over(reader) as upkeep:
            before = upkeep.runs
            upkeep.compact()
            after = upkeep.runs
            epoch = upkeep.head.epoch
    except RunningError:
        sent = InboxSender(reader.store).send("compact", {}, wait_s=wait)
        output.write(answer(sent, "the running pipeline began to merge", "the compaction"))
        return
    output.write(
        MessagePart(
            f"{before} runs became {after} in epoch {epoch}"
            if after < before
            else f"nothing to merge: {after} runs",
            {"status": "done", "epoch": epoch, "runs_before": before, "runs_after": after, "running": False},
        )
    )


def gc(
    pond: PondArgument,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Drop all but the newest N epochs first.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted, and its size.")
    ] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Delete files that no readable epoch needs; a running pipeline does this automatically.

    Savepoints, forks and readers keep what they need.
    """
    reader = open_reader(pond)
    if dry_run:
        found, floor = found_garbage(reader, keep)
        freed = found.size(reader.store)
        files = len(found.files) + len(found.plans)
        output.write(
            MessagePart(
                f"would delete {count(len(found.manifests))} manifests and {count(files)} files, "
                f"{size(freed)}; epochs from {floor} on could be read",
                {
                    "status": "dry run",
                    "manifests": len(found.manifests),
                    "files": files,
                    "bytes": freed,
                    "floor": floor,
                    "names": [*found.manifests, *found.files, *found.entries, *found.plans],
                },
            )
        )
        return
    try:
        with taken_over(reader, retain_epochs=keep) as upkeep:
            collection = upkeep.collect()
            floor = upkeep.head.floor
    except RunningError:
        sent = InboxSender(reader.store).send("gc", {} if keep is None else {"keep": keep}, wait_s=wait)
        output.write(answer(sent, "the running pipeline began to collect", "the collection"))
        return
    output.write(
        MessagePart(
            f"deleted {collection.manifests} manifests and {collection.files} files, "
            f"{size(collection.bytes)}; epochs from {floor} on can be read",
            {
                "status": "done",
                "manifests": collection.manifests,
                "files": collection.files,
                "bytes": collection.bytes,
                "floor": floor,
                "running": False,
            },
        )
    )

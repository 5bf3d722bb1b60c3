"""`millpond backup` and `millpond restore`: a copy of one epoch, and a pond made of it."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import (
    TEXT,
    EpochOption,
    OutputOption,
    PondArgument,
    open_reader,
    parse_epoch,
)
from millpond.cli.output import MessagePart, Screen
from millpond.cli.store_arguments import store_options_for
from millpond.cli.values import count, size
from millpond.pond.location import backup_store
from millpond.serve.backup import CopyProgress, back_up
from millpond.serve.restore import restore as make_restore
from millpond.settings import Settings


def backup(
    pond: PondArgument,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Path or URI to copy to.", show_default=False)
    ],
    epoch: EpochOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything in the target again and check it.")
    ] = False,
    output: OutputOption = TEXT,
) -> None:
    """Copy one epoch to another place, while the pond runs; only what is not there yet is copied."""
    reader = open_reader(pond)
    store = backup_store(target, Settings(), store_options_for(target))
    with output.screen() as screen:
        made = back_up(
            reader, store, parse_epoch(epoch), verify=verify, on_progress=lambda p: _show(screen, p)
        )
    waiting = f", with {count(made.inbox_entries)} waiting inbox entries" if made.inbox_entries else ""
    verified = "; all of it was read again and is intact" if made.verified else ""
    output.write(
        MessagePart(
            f"epoch {made.epoch} of {pond} is in {target}{waiting}: copied {count(made.copied_files)} of "
            f"{count(made.files)} files, {size(made.copied_bytes)} of {size(made.bytes)}{verified}",
            {
                "pond": made.pond,
                "epoch": made.epoch,
                "uri": made.uri,
                "files": made.files,
                "bytes": made.bytes,
                "copied_files": made.copied_files,
                "copied_bytes": made.copied_bytes,
                "inbox_entries": made.inbox_entries,
                "verified": made.verified,
            },
        )
    )


def restore(
    backup: Annotated[
        str, typer.Argument(metavar="BACKUP", help="Path or URI of the backup.", show_default=False)
    ],
    pond: Annotated[
        str, typer.Argument(metavar="POND", help="Path or URI of the pond to make.", show_default=False)
    ],
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch", "-e", metavar="N", help="An older backup: of this epoch.", show_default=False
        ),
    ] = None,
    new_id: Annotated[
        bool,
        typer.Option("--new-id", help="Make another pond, whose deliveries sinks tell from the first's."),
    ] = False,
    output: OutputOption = TEXT,
) -> None:
    """Make a pond of a backup; everything is checked as it is read.

    It continues from the epoch that was backed up, and has the id of the pond that it replaces.
    """
    with output.screen() as screen:
        made = make_restore(
            backup_store(backup, Settings(), store_options_for(backup)),
            backup_store(pond, Settings(), store_options_for(pond)),
            epoch,
            new_id=new_id,
            on_progress=lambda p: _show(screen, p),
        )
    names = ", ".join(made.sinks)
    advice = f"before you run it, remove from {names} what was delivered after epoch {made.epoch}"
    output.write(
        MessagePart(
            f"{pond} continues from epoch {made.epoch}: {count(made.files)} files, {size(made.bytes)}"
            + (f"; {advice}" if made.sinks and not new_id else ""),
            {
                "pond": made.pond,
                "epoch": made.epoch,
                "uri": made.uri,
                "files": made.files,
                "bytes": made.bytes,
                "new_id": new_id,
                "sinks": list(made.sinks),
            },
        )
    )


def _show(screen: Screen, progress: CopyProgress) -> None:
    screen.status(
        f"{count(progress.files)} of {count(progress.files_total)} files, {size(progress.bytes)}",
        progress.files / max(1, progress.files_total),
    )

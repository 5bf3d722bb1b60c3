"""`millpond clear errors` and `clear late`: drop error rows and late rows, from any process."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, WaitOption, open_reader
from millpond.cli.command_answer import answer
from millpond.control.inbox_sender import InboxSender
from millpond.errors import InvalidError
from millpond.plan.tables import late_steps


def errors(
    pond: PondArgument,
    view: Annotated[
        str | None,
        typer.Argument(metavar="[VIEW]", help="Only those of this view's steps.", show_default=False),
    ] = None,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Drop error rows, all or those of one view; the totals stay."""
    reader = open_reader(pond)
    head = reader.head()
    known = sorted(reader.plan_of(head).views)
    if view is not None and view not in known:
        raise InvalidError(f"no view named {view!r}", detail=f"views are {', '.join(known) or 'none'}")
    whose = "" if view is None else f" of {view}"
    sent = InboxSender(reader.store).send("clear_errors", {} if view is None else {"view": view}, wait_s=wait)
    output.write(answer(sent, f"error rows{whose} dropped", f"dropping error rows{whose}"))


def late(
    pond: PondArgument,
    step: Annotated[
        str | None,
        typer.Argument(metavar="[STEP]", help="Only those of this watermark step.", show_default=False),
    ] = None,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Drop late rows, all or those of one watermark step; the totals stay."""
    reader = open_reader(pond)
    head = reader.head()
    known = late_steps(reader.plan_of(head))
    if step is not None and step not in known:
        raise InvalidError(
            f"step {step!r} keeps no late rows", detail=f"those that do are {', '.join(known) or 'none'}"
        )
    whose = "" if step is None else f" of {step}"
    sent = InboxSender(reader.store).send("clear_late", {} if step is None else {"step": step}, wait_s=wait)
    output.write(answer(sent, f"late rows{whose} dropped", f"dropping late rows{whose}"))

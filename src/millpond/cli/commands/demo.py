"""`millpond demo`: runs a pipeline from end to end on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.demo.story import play
from millpond.cli.output import MessagePart

EVENTS, SECONDS = 600_000, 40
FAST_EVENTS, FAST_SECONDS = 6_000, 6


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="A small demo, for tests.")] = False,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=1_000,
            help=f"The number of events; {EVENTS:,} by default.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path", help="Path of the pond; a new temporary folder by default.", show_default=False
        ),
    ] = None,
    output: OutputOption = TEXT,
) -> None:
    """Run a real pipeline on Spark: kill it, recover, rescale it, read its past; one to two minutes."""
    chosen = events or (FAST_EVENTS if fast else EVENTS)
    feed = DemoFeed(chosen, max(1, chosen // (FAST_SECONDS if fast else SECONDS)))
    where = path or str(Path(tempfile.mkdtemp(prefix="millpond-demo-")) / "pond")
    facts = play(where, feed, output.screen())
    output.write(MessagePart(f"Done in {facts['seconds']:.0f} s.", facts))

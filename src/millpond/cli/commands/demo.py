"""`millpond demo`: the main job from end to end, on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption
from millpond.cli.demo.feed import Feed
from millpond.cli.demo.story import play
from millpond.cli.output import Said

EVENTS, SECONDS = 600_000, 40
FAST_EVENTS, FAST_SECONDS = 6_000, 6


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="A small one, for tests.")] = False,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=1_000,
            help=f"How many events there are; {EVENTS:,} if not said.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path", help="Where the pond goes; a new temporary folder if not said.", show_default=False
        ),
    ] = None,
    output: OutputOption = TEXT,
) -> None:
    """Run a real pipeline on Spark: kill it, recover, rescale it, read its past; one to two minutes."""
    chosen = events or (FAST_EVENTS if fast else EVENTS)
    feed = Feed(chosen, max(1, chosen // (FAST_SECONDS if fast else SECONDS)))
    where = path or str(Path(tempfile.mkdtemp(prefix="millpond-demo-")) / "pond")
    facts = play(where, feed, output.screen())
    output.write(Said(f"Done in {facts['seconds']:.0f} s.", facts))

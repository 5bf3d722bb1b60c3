"""`millpond explain`: shows the plan that a pond runs."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, EpochOption, OutputOption, PondArgument, open_reader, parse_epoch
from millpond.cli.output import TextPart
from millpond.plan.explain import explain_text, mermaid
from millpond.plan.levels import cut


def explain(
    pond: PondArgument,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="A drawing in Mermaid instead of text.")
    ] = False,
    epoch: EpochOption = None,
    output: OutputOption = TEXT,
) -> None:
    """Show the plan: levels, exchanges, state tables and views."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        plan = reader.plan_of(snapshot.manifest)
    draw = mermaid if as_mermaid else explain_text
    output.write(TextPart("mermaid" if as_mermaid else "explain", draw(plan, cut(plan))))

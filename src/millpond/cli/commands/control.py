"""`millpond rescale`, `savepoint` and `rollback`: control of a pipeline, from any process."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, WaitOption, open_reader, parse_epoch
from millpond.cli.sending import answer, send
from millpond.engine.coordinator import require_parallelism
from millpond.errors import InvalidError


def rescale(
    pond: PondArgument,
    tasks: Annotated[
        int, typer.Argument(metavar="N", help="Tasks of each level, 1 to 32768.", show_default=False)
    ],
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Change how many tasks the next epochs have; no state is moved."""
    require_parallelism(tasks)
    reader = open_reader(pond)
    sent = send(reader.store, reader.head(), "rescale", {"parallelism": tasks}, wait_s=wait)
    output.write(answer(sent, f"rescaled to {tasks}", f"rescale to {tasks}"))


def savepoint(
    pond: PondArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name to read it by.", show_default=False)],
    drop: Annotated[bool, typer.Option("--drop", help="Forget this savepoint instead.")] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Name the newest epoch: it stays readable for as long as the name is kept."""
    if name.isdecimal() or not name:
        raise InvalidError(
            "a savepoint cannot be named by a number",
            detail=f"got {name!r}",
            hint="numbers are epochs; use a word",
        )
    reader = open_reader(pond)
    head = reader.head()
    if drop and name not in head.savepoints:
        known = ", ".join(sorted(head.savepoints)) or "none"
        raise InvalidError(f"no savepoint named {name!r}", detail=f"savepoints are {known}")
    kind = "drop_savepoint" if drop else "savepoint"
    sent = send(reader.store, head, kind, {"name": name}, wait_s=wait)
    done = f"savepoint {name} dropped" if drop else f"savepoint {name} made"
    output.write(answer(sent, done, f"{'dropping' if drop else 'making'} savepoint {name}"))


def rollback(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="An epoch, or the name of a savepoint.", show_default=False)
    ],
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Go back to an older epoch: state, source positions and watermarks; history is kept."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:  # refuses epochs that are not there
        wanted = snapshot.epoch
    sent = send(reader.store, reader.head(), "rollback", {"epoch": wanted}, wait_s=wait)
    output.write(answer(sent, f"rolled back to epoch {wanted}", f"rollback to epoch {wanted}"))

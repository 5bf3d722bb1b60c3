"""`millpond rescale`, `savepoint` and `rollback`: control of a pipeline, from any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, WaitOption, open_reader, parse_epoch
from millpond.cli.output import Column, Rows
from millpond.cli.sending import answer, send
from millpond.cli.values import local
from millpond.engine.coordinator import require_parallelism
from millpond.errors import InvalidError
from millpond.serve.moment import utc
from millpond.state import history
from millpond.state.store import Store

SAVEPOINTS = (Column("name"), Column("epoch", right=True), Column("when", "at", local))


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
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A name to read it by; none lists them.", show_default=False),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Forget this savepoint instead.")] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Name the newest epoch: it stays readable for as long as the name is kept. Without a name: list them."""
    reader = open_reader(pond)
    head = reader.head()
    if name is None:
        if drop:
            raise InvalidError("which savepoint?", hint="millpond savepoint POND NAME --drop")
        output.write(Rows("savepoints", SAVEPOINTS, list(named(reader.store, head.savepoints))))
        return
    if name.isdecimal() or not name:
        raise InvalidError(
            "a savepoint cannot be named by a number",
            detail=f"got {name!r}",
            hint="numbers are epochs; use a word",
        )
    if drop and name not in head.savepoints:
        known = ", ".join(sorted(head.savepoints)) or "none"
        raise InvalidError(f"no savepoint named {name!r}", detail=f"savepoints are {known}")
    kind = "drop_savepoint" if drop else "savepoint"
    sent = send(reader.store, head, kind, {"name": name}, wait_s=wait)
    done = f"savepoint {name} dropped" if drop else f"savepoint {name} made"
    output.write(answer(sent, done, f"{'dropping' if drop else 'making'} savepoint {name}"))


def named(store: Store, savepoints: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Every savepoint with its epoch and the time of that."""
    for name, epoch in sorted(savepoints.items(), key=lambda item: (item[1], item[0])):
        manifest = history.find_manifest(store, epoch)
        yield {"name": name, "epoch": epoch, "when": None if manifest is None else utc(manifest.now_us)}


def rollback(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="An epoch, or the name of a savepoint.", show_default=False)
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Also behind what an append-only sink has written; that stays there."),
    ] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Go back to an older epoch: state, source positions and watermarks; history is kept."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:  # refuses epochs that are not there
        wanted = snapshot.epoch
    head = reader.head()
    if not force:
        reader.require_behind_no_sink(head, wanted)
    args = {"epoch": wanted, **({"force": True} if force else {})}
    sent = send(reader.store, head, "rollback", args, wait_s=wait)
    output.write(answer(sent, f"rolled back to epoch {wanted}", f"rollback to epoch {wanted}"))

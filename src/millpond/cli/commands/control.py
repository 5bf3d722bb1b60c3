"""`millpond rescale`, `advance`, `finish`, `savepoint`, `rollback`: control a pipeline from any process."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from millpond.cli.arguments import TEXT, OutputOption, PondArgument, WaitOption, open_reader, parse_epoch
from millpond.cli.command_answer import answer
from millpond.cli.output import OutputColumn, TablePart
from millpond.cli.values import local
from millpond.control.inbox_sender import InboxSender
from millpond.engine.coordinator.commands import require_parallelism
from millpond.engine.task.settled_watermarks import END_US
from millpond.errors import InvalidError
from millpond.kernels.watermark_strategies import instant_us
from millpond.plan.watermark_steps import watermark_steps
from millpond.serve.epoch_view import utc
from millpond.state.manifest import history
from millpond.state.store.store import Store

SAVEPOINTS = (OutputColumn("name"), OutputColumn("epoch", right=True), OutputColumn("when", "at", local))


def rescale(
    pond: PondArgument,
    tasks: Annotated[
        int, typer.Argument(metavar="N", help="Tasks of each level, 1 to 32768.", show_default=False)
    ],
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Change the number of tasks of the next epochs; no state is moved."""
    require_parallelism(tasks)
    reader = open_reader(pond)
    reader.head()  # refuses a folder that is no pond
    sent = InboxSender(reader.store).send("rescale", {"parallelism": tasks}, wait_s=wait)
    output.write(answer(sent, f"rescaled to {tasks}", f"rescale to {tasks}"))


SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The name of the stream, table or source.", show_default=False)
]


def advance(
    pond: PondArgument,
    source: SourceArgument,
    time: Annotated[
        str,
        typer.Argument(metavar="TIME", help="Such as '2026-05-01 12:00:00'; UTC.", show_default=False),
    ],
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Promise that a source sends nothing before a time: the watermarks that it feeds rise to it."""
    try:
        at = datetime.datetime.fromisoformat(time)
    except ValueError:
        raise InvalidError(f"not a time: {time!r}", hint="'2026-05-01 12:00:00'") from None
    _promise(pond, source, instant_us(at), wait, output, f"advanced {source} to {time}")


def finish(
    pond: PondArgument, source: SourceArgument, wait: WaitOption = 10.0, output: OutputOption = TEXT
) -> None:
    """Say that a source has ended: its watermarks go to the end of time, and all its windows close."""
    _promise(pond, source, END_US, wait, output, f"finished {source}")


def _promise(pond: Any, source: str, at_us: int, wait: float, output: Any, done: str) -> None:
    reader = open_reader(pond)
    head = reader.head()
    if not watermark_steps(reader.plan_of(head)).fed_by(source):
        raise InvalidError(
            f"source {source!r} feeds no watermark", hint="SHOW WATERMARKS lists those that do"
        )
    sent = InboxSender(reader.store).send("advance", {"source": source, "at_us": at_us}, wait_s=wait)
    output.write(answer(sent, done, f"the promise for {source}"))


def savepoint(
    pond: PondArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="The name; without one, savepoints are listed.", show_default=False
        ),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop this savepoint instead.")] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Name the newest epoch, which stays readable until the name is dropped. Without a name: list them."""
    reader = open_reader(pond)
    head = reader.head()
    if name is None:
        if drop:
            raise InvalidError("no savepoint is named", hint="millpond savepoint POND NAME --drop")
        output.write(TablePart("savepoints", SAVEPOINTS, list(named(reader.store, head.savepoints))))
        return
    if name.isdecimal() or not name:
        raise InvalidError(
            "a number cannot be the name of a savepoint",
            detail=f"got {name!r}",
            hint="numbers are epochs; use a word",
        )
    if drop and name not in head.savepoints:
        known = ", ".join(sorted(head.savepoints)) or "none"
        raise InvalidError(f"no savepoint named {name!r}", detail=f"savepoints are {known}")
    kind = "drop_savepoint" if drop else "savepoint"
    sent = InboxSender(reader.store).send(kind, {"name": name}, wait_s=wait)
    done = f"savepoint {name} dropped" if drop else f"savepoint {name} made"
    output.write(answer(sent, done, f"{'dropping' if drop else 'making'} savepoint {name}"))


def named(store: Store, savepoints: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Every savepoint with its epoch and time."""
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
        typer.Option(
            "--force", help="Also if an append-only sink has received later epochs; it keeps their rows."
        ),
    ] = False,
    wait: WaitOption = 10.0,
    output: OutputOption = TEXT,
) -> None:
    """Return to an older epoch: state, source positions and watermarks. The history is kept."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:  # refuses epochs that do not exist
        wanted = snapshot.epoch
    head = reader.head()
    if not force:
        reader.require_no_sink_retracts(head, wanted)
    args = {"epoch": wanted, **({"force": True} if force else {})}
    sent = InboxSender(reader.store).send("rollback", args, wait_s=wait)
    output.write(answer(sent, f"rolled back to epoch {wanted}", f"rollback to epoch {wanted}"))

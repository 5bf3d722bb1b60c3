"""The arguments that several commands have, and their parsers."""

from __future__ import annotations

from typing import Annotated

import typer

import millpond
from millpond.cli.output import CommandOutput
from millpond.cli.output_formats import make_output
from millpond.cli.store_arguments import PAIRS, store_options_for
from millpond.engine.task.worker import Worker
from millpond.errors import InvalidError
from millpond.serve.reader import Reader
from millpond.state.store.store import Store
from millpond.state.trust import Trust

PondArgument = Annotated[
    str, typer.Argument(metavar="POND", help="Path or URI of the pond.", show_default=False)
]
EpochOption = Annotated[
    str | None,
    typer.Option(
        "--epoch",
        "-e",
        metavar="N|SAVEPOINT",
        help="An older epoch, or the name of a savepoint.",
        show_default=False,
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows to show; 0 shows all.")]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait until the running pipeline has executed it.")
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run code that is stored in the pond, even if somebody else may have written it."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Master of the Spark cluster, such as spark://host:7077 or yarn; by default the cores of this "
        "machine, or the master of spark-submit.",
        show_default=False,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar=PAIRS, help="A setting of the Spark session; may be repeated.", show_default=False
    ),
]
TEXT: CommandOutput = make_output("text")


def parse_output(kind: str | CommandOutput) -> CommandOutput:
    try:
        return make_output(kind)
    except InvalidError as error:
        raise typer.BadParameter(f"{error.message}: {error.hint}") from None


OutputOption = Annotated[
    CommandOutput,
    typer.Option(
        "--output",
        "-o",
        parser=parse_output,
        metavar="text|json",
        help="text for people (the default), json for scripts.",
        show_default=False,
    ),
]


def parse_epoch(text: str | None) -> int | str | None:
    """A number is an epoch, anything else the name of a savepoint.

    >>> parse_epoch("12"), parse_epoch("before-the-change"), parse_epoch(None)
    (12, 'before-the-change', None)
    """
    if text is None:
        return None
    return int(text) if text.isdecimal() else text


def open_reader(pond: str, trust: bool = False) -> Reader:
    """Open a pond for reading; nothing is started."""
    store = open_store_of(pond)
    return Reader(Worker(store, trust=Trust(store, trust), options=store_options_for(pond)))


def open_store_of(pond: str) -> Store:
    return millpond.open(pond, store_options=store_options_for(pond)).store

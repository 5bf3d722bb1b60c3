"""`python -m benchmarks <name>`: run a benchmark against its peers, on this machine, in one go."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import data, headline
from benchmarks.peers import flink

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
Rows = Annotated[int, typer.Option(min=1, help="rows of input")]
Keys = Annotated[int, typer.Option(min=1, help="distinct auctions")]
Peers = Annotated[str, typer.Option(help="comma-separated peers")]
Cores = Annotated[int, typer.Option(min=1, help="processors each contender may use")]
Rounds = Annotated[int, typer.Option(min=1, help="turns; the best of each contender counts")]
Millpond = Annotated[bool, typer.Option(help="run Millpond beside its peers")]
Tune = Annotated[bool, typer.Option(help="try every variant of a peer, not only the first")]
PEERS = ",".join(name for name in headline.CONTENDERS if name != "millpond")


@app.command("headline")
def run_headline(
    rows: Rows = 20_000_000,
    keys: Keys = 1_000_000,
    against: Peers = PEERS,
    cores: Cores = 2,
    rounds: Rounds = 1,
    tune: Tune = True,
    millpond: Millpond = True,
) -> None:
    """count(*) and sum(price) by auction over bids in Parquet, with durable state."""
    console = Console() if sys.stdout.isatty() else Console(width=120)  # a file has no width
    with headline.alone():
        headline.run(data.Input(rows, keys), against.split(","), millpond, cores, rounds, tune, console)


@app.command("prepare")
def prepare(rows: Rows = 20_000_000, keys: Keys = 1_000_000) -> None:
    """Make the input and fetch the peers, so that a later run needs no network."""
    flink.python()
    flink.jars()
    data.ensure(headline.SMALL)
    data.ensure(data.Input(rows, keys))


app(prog_name="python -m benchmarks")

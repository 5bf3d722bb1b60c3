"""The commands besides throughput: `latency`, `recovery`, `growth` and `soak`, in the form of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import headline
from benchmarks.latency import run as latency
from benchmarks.nexmark import queries as nexmark_queries

Queries = Annotated[str, typer.Option(help="comma-separated, of those that the peers can follow")]
Rates = Annotated[str, typer.Option(help="events a second, comma-separated: one table for each")]
Seconds = Annotated[int, typer.Option(min=1, help="that are measured, of each query at each rate")]
Warm = Annotated[int, typer.Option(min=0, help="seconds of the feed before they are")]
Peers = Annotated[str, typer.Option(help="comma-separated peers")]
Cores = Annotated[int, typer.Option(min=1, help="processors each contender may use")]
Millpond = Annotated[bool, typer.Option(help="run Millpond beside its peers")]
LATENCY_PEERS = ",".join(name for name in latency.CONTENDERS if name != "millpond")


def add(app: typer.Typer, console: Callable[[], Console]) -> None:
    """Put the commands into the program."""

    @app.command("latency")
    def run_latency(
        queries: Queries = latency.QUERY_NAMES,
        rates: Rates = latency.RATES,
        seconds: Seconds = 60,
        warm: Warm = 20,
        against: Peers = LATENCY_PEERS,
        cores: Cores = 2,
        millpond: Millpond = True,
    ) -> None:
        """Age of the newest event in a committed view, while events come at a fixed rate."""
        asked = nexmark_queries.choose(queries)
        each = [int(one) for one in rates.split(",")]
        with headline.alone():
            latency.run(asked, each, seconds, warm, _names(against), millpond, cores, console())


def _names(text: str) -> list[str]:
    """
    >>> _names("flink,spark"), _names("")
    (['flink', 'spark'], [])
    """
    return [name for name in text.split(",") if name]

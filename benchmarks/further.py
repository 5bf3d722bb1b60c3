"""The commands besides throughput of queries: latency, recovery, growth, soak, Kafka sinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import growth, headline
from benchmarks.kafka_sink import run as kafka_sink
from benchmarks.latency import run as latency
from benchmarks.nexmark import queries as nexmark_queries
from benchmarks.nexmark import topics
from benchmarks.recovery import run as recovery
from benchmarks.soak import run as soak
from benchmarks.soak.pipeline import Soak

Queries = Annotated[str, typer.Option(help="comma-separated, of those that the peers can follow")]
Rates = Annotated[str, typer.Option(help="events a second, comma-separated: one table for each")]
Seconds = Annotated[int, typer.Option(min=1, help="that are measured, of each query at each rate")]
Warm = Annotated[int, typer.Option(min=0, help="seconds of the feed before they are")]
Peers = Annotated[str, typer.Option(help="comma-separated peers")]
Cores = Annotated[int, typer.Option(min=1, help="processors each contender may use")]
Millpond = Annotated[bool, typer.Option(help="run Millpond beside its peers")]
GrowthParts = Annotated[list[str] | None, typer.Argument(help=f"{', '.join(growth.PARTS)}; all without it")]
GROWTH_SIZES = ",".join(map(str, growth.SIZES))
RECOVERY_PEERS = ",".join(name for name in recovery.FOLLOWERS if name != "millpond")
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

    @app.command("kafka-sink")
    def run_kafka_sink(
        events: Annotated[int, typer.Option(min=1, help="of Nexmark; most of them are bids")] = 2_000_000,
        against: Peers = "flink",
        cores: Cores = 2,
        rounds: Annotated[int, typer.Option(min=1, help="turns; the best of each contender counts")] = 2,
        millpond: Millpond = True,
        brokers: Annotated[str | None, typer.Option(help="host:port; else a broker is started")] = None,
    ) -> None:
        """Rows from a topic to a topic, exactly once, beside Flink's sink for Kafka."""
        with headline.alone(), topics.cluster(brokers) as found:
            kafka_sink.run(events, _names(against), millpond, cores, rounds, found, console())

    @app.command("growth")
    def run_growth(
        parts: GrowthParts = None,
        sizes: Annotated[str, typer.Option(help="keys of `updates`, comma-separated")] = GROWTH_SIZES,
    ) -> None:
        """How the time of an epoch grows with state, tasks, splits, windows, hot keys and runs."""
        try:
            wanted, keys = growth.choose(parts or []), [int(one) for one in sizes.split(",")]
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        with headline.alone():
            growth.run(wanted, keys)

    @app.command("recovery")
    def run_recovery(
        keys: Annotated[str, typer.Option(help="keys of state, comma-separated")] = "1000000,10000000",
        against: Peers = RECOVERY_PEERS,
        rounds: Annotated[int, typer.Option(min=1, help="kills of each; the median counts")] = 3,
        cores: Cores = 2,
        millpond: Millpond = True,
    ) -> None:
        """From kill -9 to the first new result, and the pause of a rescale, with much state."""
        sizes = [int(one) for one in keys.split(",")]
        with headline.alone():
            recovery.run(sizes, _names(against), millpond, cores, rounds, console())

    @app.command("soak")
    def run_soak(
        minutes: Annotated[float, typer.Option(min=0.5, help="how long events come")] = 60.0,
        rate: Annotated[int, typer.Option(min=100, help="events a second")] = 10_000,
        disorder: Annotated[float, typer.Option(help="seconds within which events are shuffled")] = 4.04,
        retain: Annotated[int, typer.Option(min=1, help="epochs that stay readable")] = 1_000,
        every: Annotated[float, typer.Option(min=1.0, help="seconds between two looks")] = 60.0,
        cores: Cores = 2,
    ) -> None:
        """Memory, disk and epoch time over an hour with disorder and late rows: flat, or not."""
        with headline.alone():
            good = soak.run(Soak(rate, round(minutes * 60), disorder), every, retain, cores, console())
        raise typer.Exit(0 if good else 1)


def _names(text: str) -> list[str]:
    """
    >>> _names("flink,spark"), _names("")
    (['flink', 'spark'], [])
    """
    return [name for name in text.split(",") if name]

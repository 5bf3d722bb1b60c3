"""`python -m benchmarks <name>`: run a benchmark against its peers, on this machine, in one go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks import (
    autoscaling,
    cold_start,
    compare,
    data,
    further,
    headline,
    keyed_state,
    passes,
    postgres,
    reads,
    scale,
    shedding,
    spark_reads,
    thresholds,
    tpch,
    transactions,
    views,
    windows,
)
from benchmarks.cluster import run as on_cluster
from benchmarks.nexmark import events as nexmark_events
from benchmarks.nexmark import on_flink, topics
from benchmarks.nexmark import queries as nexmark_queries
from benchmarks.nexmark import run as nexmark
from benchmarks.peers import bytewax_state, flink, spark_state
from benchmarks.serving import run as serving

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
Rows = Annotated[int, typer.Option(min=1, help="rows of input")]
Keys = Annotated[int, typer.Option(min=1, help="distinct auctions")]
Peers = Annotated[str, typer.Option(help="comma-separated peers")]
Cores = Annotated[int, typer.Option(min=1, help="processors each contender may use")]
Rounds = Annotated[int, typer.Option(min=1, help="turns; the best of each contender counts")]
Millpond = Annotated[bool, typer.Option(help="run Millpond beside its peers")]
Tune = Annotated[bool, typer.Option(help="try every variant of a peer, not only the first")]
KeyCounts = Annotated[str, typer.Option(help="distinct auctions, comma-separated: one table for each")]
Queries = Annotated[str, typer.Option(help="comma-separated, q0 to q22, or all")]
NumberOfEvents = Annotated[int, typer.Option(min=1, help="events of input: people, auctions and bids")]
Minutes = Annotated[float, typer.Option(min=0.1, help="what a run may take; one that takes longer is ended")]
Source = Annotated[
    Literal["parquet", "kafka"], typer.Option("--input", help="where the events are read from")
]
Brokers = Annotated[str | None, typer.Option(help="with --input kafka: host:port; else one is started")]
VerifyOnly = Annotated[bool, typer.Option(help="check the answers on the small input and time nothing")]
PEERS = ",".join(name for name in headline.CONTENDERS if name != "millpond")
STATE_PEERS = ",".join(name for name in keyed_state.CONTENDERS if not name.startswith("millpond"))

NEXMARK_PEERS = ",".join(name for name in nexmark.CONTENDERS if name != "millpond")


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=120)  # a file has no width


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
    with headline.alone():
        headline.run(data.Input(rows, keys), against.split(","), millpond, cores, rounds, tune, _console())


@app.command("windows")
def run_windows(
    flat: bool = typer.Option(False, help="Stream rows through windows and show the size of their state."),
    millions: int = typer.Option(10, help="Rows of --flat, in millions."),
) -> None:
    """What windows cost: open sessions, early panes, and sliding windows by their number for a row."""
    if flat:
        windows.flat(_console(), millions)
    else:
        windows.run(_console())


@app.command("keyed-state")
def run_keyed_state(
    rows: Rows = 10_000_000,
    keys: KeyCounts = "1000000,1000",
    against: Peers = STATE_PEERS,
    cores: Cores = 2,
    rounds: Rounds = 1,
    tune: Tune = True,
    millpond: Millpond = True,
) -> None:
    """Python reads and updates a state of its key for each record, durably; slow peers get fewer rows."""
    inputs = [keyed_state.input_of(rows, int(one)) for one in keys.split(",")]
    with headline.alone():
        keyed_state.run(inputs, against.split(","), millpond, cores, rounds, tune, _console())


@app.command("nexmark")
def run_nexmark(
    queries: Queries = "all",
    events: NumberOfEvents = 20_000_000,
    against: Peers = NEXMARK_PEERS,
    cores: Cores = 2,
    rounds: Rounds = 2,
    minutes: Minutes = 30.0,
    millpond: Millpond = True,
    verify_only: VerifyOnly = False,
    source: Source = "parquet",
    brokers: Brokers = None,
) -> None:
    """The queries of Nexmark over files or topics, each system in turn: durable state, discarding sinks."""
    wanted = nexmark_events.of_size(events)
    asked = nexmark_queries.choose(queries)
    with headline.alone():
        peers, limit_s = against.split(","), minutes * 60
        how = (wanted, asked, peers, millpond, cores, rounds, limit_s, verify_only, _console())
        if source == "parquet":
            nexmark.run(*how)
            return
        with topics.cluster(brokers) as found:
            nexmark.run(*how, found)


@app.command("reads")
def run_reads(rows: Rows = 5_000_000, cores: Cores = 2) -> None:
    """Scans of a view against DuckDB over the same rows in Parquet; lookups from several processes."""
    with headline.alone():
        reads.run(rows, cores, _console())


@app.command("transactions")
def run_transactions(
    clients: Annotated[str, typer.Option(help="clients at once, comma-separated")] = "1,4,16",
    seconds: Annotated[float, typer.Option(min=1, help="what each turn takes")] = 10,
) -> None:
    """Transactions per second, by the number of clients."""
    with headline.alone():
        transactions.run(_console(), [int(n) for n in clients.split(",")], seconds)


@app.command("serving")
def run_serving(
    rows: Rows = 1_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="what each turn of point reads takes")] = 8,
    connections: Annotated[str, typer.Option(help="connections at once, comma-separated")] = "1,16,64",
    processes: Annotated[int, typer.Option(min=0, help="processes that serve PostgreSQL clients")] = 0,
) -> None:
    """Point reads, scans and subscriptions over the network, beside PostgreSQL with the same rows."""
    with headline.alone():
        serving.run(_console(), rows, seconds, [int(n) for n in connections.split(",")], processes)


@app.command("spark-read")
def run_spark_reads(rows: Rows = 5_000_000, cores: Cores = 2) -> None:
    """A view read through Spark against Spark reading the same rows from Parquet."""
    with headline.alone():
        spark_reads.run(rows, cores, _console())


@app.command("postgres")
def run_postgres(
    rows: Rows = 200_000,
    rounds: Annotated[int, typer.Option(min=1, help="turns; the median of each counts")] = 3,
) -> None:
    """Upserts into PostgreSQL beside COPY, and changes from it."""
    with headline.alone():
        postgres.run(rows, rounds, _console())


@app.command("views")
def run_views(
    counts: Annotated[str, typer.Option(help="how many views, comma-separated")] = "1,10,100",
    epochs: Annotated[int, typer.Option(min=5, help="epochs that are timed")] = 80,
) -> None:
    """How the epoch floor grows with the number of views over one source."""
    with headline.alone():
        views.run([int(n) for n in counts.split(",")], epochs, _console())


@app.command("passes")
def run_passes(
    names: Annotated[str, typer.Option(help="passes of the physical plan, comma-separated")] = "all",
    blocks: Annotated[int, typer.Option(min=2, help="blocks of four epochs: on, off, off, on")] = 12,
) -> None:
    """What each pass of the physical plan saves: CPU of epochs with and without it, in turns."""
    try:
        wanted = passes.choose(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with headline.alone():
        passes.run(wanted, blocks, _console())


@app.command("thresholds")
def run_thresholds(
    names: Annotated[str, typer.Option(help="groups of thresholds, comma-separated")] = "all",
    turns: Annotated[int, typer.Option(min=1, help="how often each value is measured")] = 7,
) -> None:
    """What the thresholds of `millpond.tuning` decide: CPU of the same work with other values, in turns."""
    try:
        wanted = thresholds.choose(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with headline.alone():
        thresholds.run(wanted, turns, _console())


@app.command("shedding")
def run_shedding(
    engines: Annotated[str, typer.Option(help="inline, spark, comma-separated")] = "inline,spark",
    seconds: Annotated[float, typer.Option(min=2, help="how long too many rows arrive")] = 20,
) -> None:
    """Load shedding: lag at twice the sustainable rate, recovery, and its cost when it has nothing to do."""
    with headline.alone():
        shedding.run(engines.split(","), seconds, _console())


@app.command("scale")
def run_scale(
    latency_ms: Annotated[float, typer.Option(min=0, help="of every answer of the store")] = 20,
    epochs: Annotated[int, typer.Option(min=1, help="epochs that are measured of each size")] = 8,
    largest: Annotated[int, typer.Option(min=1, help="leave out sizes with more live runs")] = 2_000_000,
) -> None:
    """What a driver does for many tasks, views and runs: a real coordinator, a simulated engine."""
    with headline.alone():
        scale.run(latency_ms, epochs, largest, _console())


@app.command("autoscaling")
def run_autoscaling() -> None:
    """DS2 beside an autoscaler by utilisation, on a simulated pipeline: steps, ramp, spike, daily curve."""
    autoscaling.run(_console())


@app.command("cold-start")
def run_cold_start(
    keys: Annotated[int, typer.Option(min=1, help="keys in the state")] = 10_000_000,
    rows: Annotated[str, typer.Option(help="rows of the first epoch, comma-separated")] = "1,100,10000",
    latency_ms: Annotated[float, typer.Option(min=0.1, help="of the store, for each request")] = 20.0,
    turns: Rounds = 3,
) -> None:
    """The first epoch on S3 with an empty disk cache, beside one with a warm cache; requests and bytes."""
    cold_start.run(_console(), keys, [int(n) for n in rows.split(",")], latency_ms, turns)


@app.command("cluster")
def run_cluster(
    rows: Rows = 8_000_000,
    keys: Keys = 500_000,
    against: Annotated[str, typer.Option(help="millpond, spark, comma-separated")] = ",".join(
        on_cluster.CONTENDERS
    ),
    storages: Annotated[str, typer.Option(help="folder, s3, comma-separated")] = ",".join(
        on_cluster.STORAGES
    ),
    rounds: Rounds = 2,
) -> None:
    """Epoch floor and catch-up on a standalone cluster, in a folder and on S3, beside Spark."""
    with headline.alone():
        on_cluster.run(rows, keys, against.split(","), storages.split(","), rounds, _console())


@app.command("compare")
def run_compare(
    before: Annotated[Path, typer.Argument(help="folder of the other checkout, with its .venv", exists=True)],
    names: Annotated[str, typer.Option(help="comma-separated")] = "nexmark,headline,keyed-state,views,growth",
    queries: Queries = "all",
    events: NumberOfEvents = 4_000_000,
    rounds: Rounds = 3,
) -> None:
    """This checkout against another one, in turns: what a change costs or saves."""
    asked = [query.name for query in nexmark_queries.choose(queries)]
    compare.run(before, names.split(","), asked, events, rounds, _console())


@app.command("tpch")
def run_tpch(
    scale: Annotated[float, typer.Option(help="of the generated tables; 1 is 8.7 M rows")] = 1.0,
    cores: Cores = 2,
    repeats: Annotated[int, typer.Option(min=1, help="refreshes of each size; the best counts")] = 3,
    spark: Annotated[bool, typer.Option(help="recompute with Spark SQL as well")] = True,
    verify: Annotated[bool, typer.Option(help="compare all views after every refresh")] = False,
    engine: Annotated[str, typer.Option(help="spark or inline")] = "spark",
) -> None:
    """All 22 queries of TPC-H as views at once: refreshes against computing them again."""
    with headline.alone():
        tpch.run(scale, cores, repeats, spark, verify, engine, _console())


@app.command("prepare")
def prepare(rows: Rows = 20_000_000, keys: Keys = 1_000_000) -> None:
    """Make the input and fetch the peers, so that a later run needs no network."""
    flink.python()
    flink.jars()
    on_flink.library()
    bytewax_state.python()
    spark_state.python()
    data.ensure(headline.SMALL)
    data.ensure(data.Input(rows, keys))
    nexmark_events.ensure(nexmark.SMALL)


further.add(app, _console)
app(prog_name="python -m benchmarks")

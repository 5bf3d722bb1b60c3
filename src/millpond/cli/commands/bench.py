"""`millpond bench`: the benchmarks of a source tree, from its command line.

The benchmarks are not part of the package: the other systems, their settings and the results are in the
`benchmarks` folder next to `src`, which has its own command.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import millpond
from millpond.cli.arguments import TEXT, OutputOption
from millpond.errors import InvalidError

BENCHMARKS = ("headline", "keyed-state", "nexmark")


def bench(
    name: Annotated[str, typer.Argument(help=f"Which: {', '.join(BENCHMARKS)}.")] = "nexmark",
    queries: Annotated[
        str | None,
        typer.Option("--queries", help="Of nexmark: q0 to q22, comma-separated.", show_default=False),
    ] = None,
    events: Annotated[
        int | None, typer.Option("--events", min=1, help="Of nexmark: events of input.", show_default=False)
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Peers, comma-separated.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Runs of each system.", show_default=False)
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option("--cores", min=1, help="Cores that each system may use.", show_default=False),
    ] = None,
    output: OutputOption = TEXT,
) -> None:
    """Compare Millpond with Flink, Spark and DuckDB on this machine; works in a source tree only."""
    del output  # the benchmarks print their own tables and write JSON
    given = {"queries": queries, "events": events, "against": against, "rounds": rounds, "cores": cores}
    command = bench_command(
        name, {option: str(value) for option, value in given.items() if value is not None}
    )
    ended = subprocess.run(command, cwd=source_tree()).returncode
    if ended:
        raise typer.Exit(ended)


def bench_command(name: str, options: dict[str, str]) -> list[str]:
    """
    >>> bench_command("nexmark", {"queries": "q4,q7"})[1:]
    ['-m', 'benchmarks', 'nexmark', '--queries', 'q4,q7']
    """
    if name not in BENCHMARKS:
        raise InvalidError(f"no benchmark named {name!r}", hint=f"one of {', '.join(BENCHMARKS)}")
    for option in ("queries", "events"):
        if option in options and name != "nexmark":
            raise InvalidError(f"--{option} is an option of nexmark", detail=f"got it with {name}")
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    return [sys.executable, "-m", "benchmarks", name, *words]


def source_tree() -> Path:
    """The folder that holds `src/millpond` and `benchmarks`."""
    root = Path(millpond.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise InvalidError(
            "the benchmarks are not installed",
            detail="they compare with other systems and are in the source tree only",
            hint="clone the repository, run `make setup`, and call `.venv/bin/millpond bench` there",
        )
    return root

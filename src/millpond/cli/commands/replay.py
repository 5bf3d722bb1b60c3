"""`millpond replay`: runs a committed epoch again, to inspect or debug it."""

from __future__ import annotations

from bdb import BdbQuit
from typing import Annotated, Any

import typer

from millpond.cli.arguments import (
    TEXT,
    LimitOption,
    OutputOption,
    PondArgument,
    TrustOption,
    open_reader,
    parse_epoch,
)
from millpond.cli.debugger import Debugger
from millpond.cli.loading import load
from millpond.cli.output import MessagePart, OutputColumn, OutputPart, TablePart
from millpond.cli.values import count
from millpond.errors import InvalidError, MillpondError
from millpond.serve.replay import Replay
from millpond.serve.replay import replay as run_again

DIFFERENT, LEFT = 1, 130  # exit codes: it came out otherwise; somebody left the debugger
STEPS = (
    OutputColumn("step"),
    OutputColumn("rows", "rows out", count, right=True),
    OutputColumn("inserts", show=count, right=True),
    OutputColumn("retracts", show=count, right=True),
)


def replay(
    pond: PondArgument,
    epoch: Annotated[
        str, typer.Argument(metavar="EPOCH", help="Its number, or a savepoint.", show_default=False)
    ],
    step: Annotated[
        str | None,
        typer.Option("--step", "-s", metavar="STEP", help="Show only this step.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE.py",
            help="Run the code of this pipeline file instead of the stored code, to try a fix.",
            show_default=False,
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--pdb", help="Open pdb where your code raises an exception, and before --step if it is given."
        ),
    ] = False,
    trust: TrustOption = False,
    rows: Annotated[bool, typer.Option("--rows", help="Show the output rows of each step.")] = False,
    limit: LimitOption = 20,
    output: OutputOption = TEXT,
) -> None:
    """Run a committed epoch again, from the same state and input, and compare the results.

    Nothing is written. Your functions run in this process, so a breakpoint() in them works. Exit code 1
    says that the outcome differs.
    """
    reader = open_reader(pond, trust)
    plan = None if file is None else load(file).plan()
    debugger = Debugger() if debug else None
    if debugger is not None and not isinstance(output, type(TEXT)):
        raise InvalidError("--pdb needs a terminal", hint="leave out --output json")
    try:
        found = run_again(
            reader,
            parse_epoch(epoch) or 0,
            plan=plan,
            step=step,
            on_input=debugger.on_input if debugger is not None and step is not None else None,
            on_error=None if debugger is None else debugger.on_error,
        )
    except MillpondError as error:
        if isinstance(error.__cause__, BdbQuit):
            raise typer.Exit(LEFT) from None
        raise
    output.write(*answered(found, rows, limit))
    if not found.same:
        raise typer.Exit(DIFFERENT)


def answered(found: Replay, rows: bool, limit: int) -> list[OutputPart]:
    """The verdict, the output of each step, and the differences."""
    parts: list[OutputPart] = []
    facts: dict[str, Any] = {
        "epoch": found.epoch,
        "same": found.same,
        "tables_compared": found.tables,
        "counts": found.counts,
        "committed_counts": found.committed_counts,
        "differing_tables": sorted(found.differences),
    }
    if found.same:
        said = f"epoch {found.epoch} came out the same: {found.tables} tables compared"
        if not found.tables and not found.outputs:
            said = f"epoch {found.epoch} ran no step: there is nothing to compare"
    else:
        said = f"epoch {found.epoch} came out DIFFERENT: {reasons(found)}"
    parts.append(MessagePart(said, facts, found.same))
    parts.append(TablePart("steps", STEPS, [step_row(s, t) for s, t in found.outputs.items()]))
    if rows:
        for step, table in found.outputs.items():
            parts.append(table_part(f"output {step}", f"rows of step {step}", table, limit))
    for name, table in found.differences.items():
        parts.append(
            table_part(f"differences {name}", f"rows of table {name} in only one of the two", table, limit)
        )
    return parts


def reasons(found: Replay) -> str:
    what = [f"{t.num_rows} rows of {name}" for name, t in found.differences.items()]
    if found.counts != found.committed_counts:
        names = {*found.counts, *found.committed_counts}
        what += [
            f"count {n} is {found.counts.get(n, 0)} and was {found.committed_counts.get(n, 0)}"
            for n in sorted(names)
            if found.counts.get(n) != found.committed_counts.get(n)
        ]
    if found.watermarks != found.committed_watermarks:
        what.append("watermarks")
    if found.drops_differ:
        what.append("expired state")
    return ", ".join(what)


def step_row(step: str, table: Any) -> dict[str, Any]:
    weights = table.column("_w").to_pylist() if "_w" in table.column_names else [1] * table.num_rows
    return {
        "step": step,
        "rows": table.num_rows,
        "inserts": sum(w for w in weights if w > 0),
        "retracts": -sum(w for w in weights if w < 0),
    }


def table_part(name: str, title: str, table: Any, limit: int) -> TablePart:
    part = table.slice(0, limit) if limit else table
    some = f"{part.num_rows} of " if part.num_rows < table.num_rows else ""
    columns = [OutputColumn(n) for n in table.column_names]
    return TablePart(name, columns, part.to_pylist(), f"{some}{table.num_rows} {title}")

"""`millpond sql`: runs statements from a prompt, a file or the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import millpond
from millpond.cli.arguments import TEXT, ConfOption, MasterOption, PondArgument, TrustOption
from millpond.cli.csv_output import CsvOutput
from millpond.cli.output import CommandOutput, MessagePart, OutputColumn, TablePart
from millpond.cli.output_formats import make_output
from millpond.cli.prompt import history, texts
from millpond.cli.store_arguments import parse_pairs, store_options_for
from millpond.column_names import distinct_names
from millpond.engine.change.backfill import Progress
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sql.result import Result

HELP = r"""\d        all tables, sources, views, sinks and indexes
\d NAME   the columns of one
\df       all functions
\timing   show how long statements take, or no longer
\q        quit (or Ctrl-D)
A statement ends with ; and may take many lines; Ctrl-C clears the input."""


def parse_sql_output(kind: str | CommandOutput) -> CommandOutput:
    if not isinstance(kind, str):
        return kind
    if kind == "csv":
        return CsvOutput()
    try:
        return make_output("text" if kind == "table" else kind)
    except InvalidError as error:
        raise typer.BadParameter(f"{error.message}: table, json or csv") from None


SqlOutputOption = Annotated[
    CommandOutput,
    typer.Option(
        "--output",
        "-o",
        parser=parse_sql_output,
        metavar="table|json|csv",
        help="table for people (the default), json or csv for scripts.",
        show_default=False,
    ),
]


def sql(
    pond: PondArgument,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="TEXT", help="Run these statements.", show_default=False),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run a file of statements.", show_default=False),
    ] = None,
    dialect: Annotated[
        str, typer.Option("--dialect", metavar="NAME", help="The SQL dialect: postgres, spark, duckdb, …")
    ] = "postgres",
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="inline|spark", help="The engine, if this process runs the epochs."),
    ] = "inline",
    master: MasterOption = None,
    conf: ConfOption = None,
    trust: TrustOption = False,
    select_memory_bytes_max: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Memory limit of a SELECT; 2 GiB by default.",
            show_default=False,
        ),
    ] = None,
    select_spill_bytes_max: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Disk limit of a SELECT; 10 GiB by default.",
            show_default=False,
        ),
    ] = None,
    select_ms_max: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="MS",
            help="Time limit of a SELECT; ten minutes by default, 0 is no limit.",
            show_default=False,
        ),
    ] = None,
    select_rows_max: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="ROWS",
            help="Maximum number of rows of a SELECT; no limit by default.",
            show_default=False,
        ),
    ] = None,
    output: SqlOutputOption = TEXT,
) -> None:
    """Run SQL on a pond: interactively, or statements from -c, -f or a pipe."""
    kind: Any = "spark" if master is not None else engine
    limits = {
        "select_memory_bytes_max": select_memory_bytes_max,
        "select_spill_bytes_max": select_spill_bytes_max,
        "select_ms_max": select_ms_max,
        "select_rows_max": select_rows_max,
    }
    given_limits: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    with millpond.open(
        pond,
        engine=kind,
        master=master,
        spark_conf=parse_pairs(conf, "--conf"),
        trust=trust,
        store_options=store_options_for(pond),
        **given_limits,
    ) as opened:
        given = [*(command or []), *(_read(f) for f in file or [])]
        if not given and not sys.stdin.isatty():
            given = [sys.stdin.read()]
        if given:
            for text in given:
                for result in opened.session.run_each(text, dialect=dialect):
                    show(result, output)
        else:
            Prompt(opened, output, dialect).run()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} cannot be read", detail=f"{type(error).__name__}: {error}") from error


def show(result: Result, output: CommandOutput, ms: float | None = None) -> None:
    """Write the result of a statement."""
    took = "" if ms is None else f"; {ms:.1f} ms"
    if not result.columns:
        if result.status:
            more: dict[str, Any] = {"warnings": result.warnings} if result.warnings else {}
            lines = [result.status + took, *(f"warning: {text}" for text in result.warnings)]
            output.write(MessagePart("\n".join(lines), {"status": result.status, **more}))
        return
    names = distinct_names(result.columns)
    columns = [
        OutputColumn(name, title, right=_is_number(kind))
        for name, title, kind in zip(names, result.columns, result.types, strict=True)
    ]
    if result.status.startswith("SUBSCRIBE"):
        for row in result:  # for as long as epochs come
            output.write(TablePart("rows", columns, [dict(zip(names, row, strict=True))]))
        return
    found = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    note = f"{len(found)} row{'' if len(found) == 1 else 's'}{took}"
    output.write(
        TablePart("rows", columns, found, note, {} if result.epoch is None else {"epoch": result.epoch})
    )


def _is_number(kind: str) -> bool:
    return kind.endswith("INT") or kind.startswith("DECIMAL") or kind in ("INTEGER", "DOUBLE", "FLOAT")


class Prompt:
    """Run statements as they are typed; an error is shown, and the prompt continues."""

    def __init__(self, pond: Pond, output: CommandOutput, dialect: str) -> None:
        self.pond = pond
        self.output = output
        self.dialect = dialect
        self.timing = False

    def run(self) -> None:
        typer.echo(f"millpond {millpond.__version__}, {self.pond.store.uri}; \\? for help")
        self.pond.session.on_progress = self._progress
        with history(self._names):
            for text in texts(input, typer.echo):
                if text.startswith("\\"):
                    if text == "\\q":
                        return
                    self._guarded(self._backslash(text))
                else:
                    self._guarded(self.pond.session.run_each(text, dialect=self.dialect))

    def _guarded(self, results: Iterator[Result]) -> None:
        try:
            started = time.perf_counter()
            for result in results:
                _ = result.rowcount  # a change is over when its turn was
                ms = (time.perf_counter() - started) * 1000
                show(result, self.output, ms if self.timing else None)
                started = time.perf_counter()
        except MillpondError as error:
            self.output.error(error)
        except KeyboardInterrupt:
            typer.echo("interrupted")

    def _backslash(self, text: str) -> Iterator[Result]:
        word, _, rest = text.partition(" ")
        if word == "\\timing":
            self.timing = not self.timing
            typer.echo(f"timing is {'on' if self.timing else 'off'}")
        elif word == "\\d":
            name = rest.strip().rstrip(";")
            yield self.pond.sql(f"DESCRIBE {name}" if name else "SHOW OBJECTS")
        elif word == "\\df":
            name = rest.strip().rstrip(";")
            yield self.pond.sql(f"DESCRIBE FUNCTION {name}" if name else "SHOW FUNCTIONS")
        else:
            typer.echo(HELP)

    def _names(self) -> list[str]:
        objects = self.pond.session.catalog.objects.values()
        return sorted({o.name for o in objects} | {c.name for o in objects for c in o.columns})

    def _progress(self, progress: Progress) -> None:
        if sys.stderr.isatty():
            end = progress.rows >= progress.total
            part = f"\rbackfilling views: {progress.rows:,} of at most {progress.total:,} rows"
            typer.echo(part, err=True, nl=end)

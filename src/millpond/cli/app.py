"""Assembles the commands into one program, and turns errors into exit codes.

Every error is one of five kinds, and each kind has its exit code, so a script can tell "fix the call" from
"try again" without reading text.
`0` means done, `1` means that the answer is no (a replay that differs).
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

import millpond
from millpond.cli.commands import clear
from millpond.cli.commands.backup import backup, restore
from millpond.cli.commands.bench import bench
from millpond.cli.commands.control import advance, finish, rescale, rollback, savepoint
from millpond.cli.commands.demo import demo
from millpond.cli.commands.epochs import epochs, show
from millpond.cli.commands.explain import explain
from millpond.cli.commands.fork import fork
from millpond.cli.commands.package import package
from millpond.cli.commands.replay import replay
from millpond.cli.commands.run import run
from millpond.cli.commands.serve import serve
from millpond.cli.commands.sql import sql
from millpond.cli.commands.state import diff, export, get, ls
from millpond.cli.commands.status import status
from millpond.cli.commands.upkeep import compact, gc
from millpond.cli.commands.version import version
from millpond.cli.commands.views import errors, read, views
from millpond.cli.output import CommandOutput
from millpond.cli.store_arguments import giving, with_store_options
from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)

Command = Callable[..., None]
TRACEBACK = "MILLPOND_TRACEBACK"  # an environment variable: show the stack of unexpected errors
EXIT_CODES: dict[type[MillpondError], int] = {
    InvalidError: 2,
    ConflictError: 3,
    UnavailableError: 4,
    DataError: 5,
    InternalError: 70,
}
COMMANDS: dict[str, tuple[Command, ...]] = {
    "Run": (demo, run, serve, sql),
    "Look": (status, epochs, show, views, read, errors, explain, replay),
    "Control": (rescale, advance, finish, savepoint, rollback, fork),
    "Upkeep": (compact, gc, backup, restore),
    "Other": (package, bench, version),
}
GROUPS: dict[str, tuple[str, str, tuple[Command, ...]]] = {  # name: panel, help, commands
    "state": (
        "Look",
        "List, read, compare and export the state of steps, at any retained epoch.",
        (ls, get, diff, export),
    ),
    "clear": ("Upkeep", "Drop error rows or late rows.", (clear.errors, clear.late)),
}
EXITS = (
    "Exit codes: 0 done; 1 the answer is no (a replay that differs); 2 the call is wrong: fix it; "
    "3 another writer won; 4 something is unavailable: try again; 5 stored data is wrong: stop; "
    "70 a bug in millpond."
)


def exit_code(error: MillpondError) -> int:
    """
    >>> exit_code(ConflictError("x")), exit_code(MillpondError("x"))
    (3, 70)
    """
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 70)


def guarded(command: Command) -> Command:
    """The command, with its errors written to its output and turned into exit codes."""

    @functools.wraps(command)
    def run(*args: Any, output: CommandOutput, store_option: list[str] | None = None, **kwargs: Any) -> None:
        try:
            with giving(store_option):
                command(*args, output=output, **kwargs)
        except MillpondError as error:
            output.error(error)
            raise typer.Exit(exit_code(error)) from None
        except ModuleNotFoundError as error:
            # A plan names the user's functions and sources by their modules.
            output.error(
                InvalidError(
                    f"the pipeline uses python module {error.name!r}, which cannot be imported here",
                    hint="run this where the pipeline's code is, or add its folder to PYTHONPATH",
                )
            )
            raise typer.Exit(EXIT_CODES[InvalidError]) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:  # unexpected: shown in the same form, with its own exit code
            unexpected = wrapped(error)
            output.error(unexpected)
            if TRACEBACK in os.environ:
                traceback.print_exception(error)
            raise typer.Exit(exit_code(unexpected)) from error

    with_store_options(command, run)
    return run


def wrapped(error: Exception) -> MillpondError:
    """An exception of another kind as one of ours."""
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        return UnavailableError("an operation of the system failed", detail=detail)
    hint = f"it is a bug in millpond, or in your own code; {TRACEBACK}=1 shows where"
    return InternalError("an unexpected error occurred", detail=detail, hint=hint)


def make_app() -> typer.Typer:
    made = typer.Typer(
        name="millpond",
        help="Run, inspect, change and maintain ponds: the state of streaming pipelines on Apache Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        epilog=EXITS,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for panel, commands in COMMANDS.items():
        for command in commands:
            made.command(rich_help_panel=panel)(guarded(command))
    for name, (panel, text, commands) in GROUPS.items():
        group = typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode="rich")
        for command in commands:
            group.command()(guarded(command))
        made.add_typer(group, rich_help_panel=panel)

    @made.callback()
    def top(
        version: Annotated[
            bool,
            typer.Option(
                "--version", help="Show the version and exit.", is_eager=True, callback=_print_version
            ),
        ] = False,
    ) -> None:
        del version

    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(millpond.__version__)
        raise typer.Exit()


app = make_app()

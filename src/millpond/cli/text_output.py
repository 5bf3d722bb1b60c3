"""Answers for people: tables and colours in a terminal, plain text in a pipe or a log."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

from millpond.cli.output import Column, Facts, Part, Rows, Said, Screen, Text
from millpond.errors import MillpondError

LOG_WIDTH = 160  # a file has no width of its own


@dataclass(frozen=True)
class TextOutput:
    """Writes to the streams given, or to those the process has when there is something to say."""

    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def write(self, *parts: Part) -> None:
        to = console(self.stdout or sys.stdout)
        for number, part in enumerate(parts):
            if number:
                to.print()
            print_part(to, part)

    def screen(self) -> Screen:
        from millpond.cli.screen import LiveScreen, LogScreen

        to = console(self.stdout or sys.stdout)
        return LiveScreen(to) if to.is_terminal else LogScreen(to)

    def error(self, error: MillpondError) -> None:
        to = console(self.stderr or sys.stderr)
        first, _, rest = str(error).partition("\n")
        to.print(Styled(first, style="bold red"), soft_wrap=True)
        if rest:
            to.print(Styled(rest, style="red"), soft_wrap=True)


def print_part(to: Console, part: Part) -> None:
    match part:
        case Rows():
            if part.rows:
                to.print(drawn(part))
            if part.note or not part.rows:
                to.print(Styled(part.note or f"no {part.name}", style="dim"))
        case Facts():
            to.print(listed(part))
        case Text():
            to.print(Styled(part.body), soft_wrap=True)
        case Said():
            to.print(Styled(part.sentence, style="green" if part.good else "yellow"), soft_wrap=True)


def console(stream: TextIO) -> Console:
    """A console on a stream; it sends control codes only to a terminal."""
    width = None if stream.isatty() or "COLUMNS" in os.environ else LOG_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False)


def drawn(part: Rows) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in part.columns:
        table.add_column(
            Styled(column.title or column.field),
            justify="right" if column.right else "left",
            overflow="fold",
        )
    for row in part.rows:
        table.add_row(*(Styled(c.show(row.get(c.field))) for c in part.columns))
    return table


def listed(part: Facts) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    known = {c.field: c for c in part.columns}
    for name, value in part.facts.items():
        column = known.get(name, Column(name))
        table.add_row(Styled(column.title or name), Styled(column.show(value)))
    return table

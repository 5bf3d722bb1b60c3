"""Draws the parts of a result with rich: tables and colours in a terminal, plain text elsewhere."""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

from millpond.cli.output import FactsPart, MessagePart, OutputColumn, OutputPart, TablePart, TextPart

LOG_WIDTH = 160  # a file has no width


def print_part(to: Console, part: OutputPart) -> None:
    match part:
        case TablePart():
            if part.rows:
                to.print(rich_table(part))
            if part.note or not part.rows:
                to.print(Styled(part.note or f"no {part.name}", style="dim"))
        case FactsPart():
            to.print(rich_list(part))
        case TextPart():
            to.print(Styled(part.body), soft_wrap=True)
        case MessagePart():
            to.print(Styled(part.sentence, style="green" if part.good else "yellow"), soft_wrap=True)


def console(stream: TextIO) -> Console:
    """A console on a stream; it sends control codes only to a terminal."""
    width = None if stream.isatty() or "COLUMNS" in os.environ else LOG_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False)


def rich_table(part: TablePart) -> Table:
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


def rich_list(part: FactsPart) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    known = {c.field: c for c in part.columns}
    for name, value in part.facts.items():
        column = known.get(name, OutputColumn(name))
        table.add_row(Styled(column.title or name), Styled(column.show(value)))
    return table

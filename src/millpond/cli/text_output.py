"""Results for people: tables and colours in a terminal, plain text in a pipe or a log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TextIO

from rich.text import Text as Styled

from millpond.cli.drawing import console, print_part
from millpond.cli.output import OutputPart, Screen
from millpond.cli.screen import LiveScreen, LogScreen
from millpond.errors import MillpondError


@dataclass(frozen=True)
class TextOutput:
    """Writes to the given streams, or else to those that the process has at the time of the call."""

    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def write(self, *parts: OutputPart) -> None:
        to = console(self.stdout or sys.stdout)
        for number, part in enumerate(parts):
            if number:
                to.print()
            print_part(to, part)

    def screen(self) -> Screen:
        to = console(self.stdout or sys.stdout)
        return LiveScreen(to) if to.is_terminal else LogScreen(to)

    def error(self, error: MillpondError) -> None:
        to = console(self.stderr or sys.stderr)
        first, _, rest = str(error).partition("\n")
        to.print(Styled(first, style="bold red"), soft_wrap=True)
        if rest:
            to.print(Styled(rest, style="red"), soft_wrap=True)

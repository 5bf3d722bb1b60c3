"""Screens on which long commands show their progress: a live table, a log, or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text as Styled

from millpond.cli.drawing import print_part, rich_table
from millpond.cli.output import OutputColumn, OutputPart, TablePart

LIVE_ROWS = 12
TICK_S = 0.1
STATUS_S = 1.0  # the minimum time between two status lines in a log
BAR_WIDTH = 24


class SilentScreen:
    """For scripts: shows nothing before the result."""

    def __enter__(self) -> SilentScreen:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def act(self, text: str) -> None:
        return None

    def say(self, text: str, *, good: bool | None = None) -> None:
        return None

    def waiting(self, text: str) -> None:
        return None

    def status(self, text: str, done: float | None = None) -> None:
        return None

    def tick(self) -> None:
        return None

    def progress(self, columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> None:
        return None

    def show(self, part: OutputPart) -> None:
        return None


class LogScreen:
    """Writes one line for each event, without control codes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._titled = False
        self._status_s = float("-inf")

    def __enter__(self) -> LogScreen:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def act(self, text: str) -> None:
        self._titled = False
        self.console.print()
        self._print(Styled(text, style="bold cyan"))

    def say(self, text: str, *, good: bool | None = None) -> None:
        self._titled = False
        mark = {None: "  ", True: "  ok: ", False: "  WRONG: "}[good]
        style = {None: "", True: "green", False: "bold red"}[good]
        self._print(Styled(mark + text, style=style))

    def waiting(self, text: str) -> None:
        self.say(f"{text} ...")

    def status(self, text: str, done: float | None = None) -> None:
        now = time.monotonic()
        if now - self._status_s >= STATUS_S:
            self._status_s = now
            self.say(text if done is None else f"{done:4.0%}  {text}")

    def tick(self) -> None:
        return None

    def progress(self, columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> None:
        if not self._titled:
            self._titled = True
            self.console.print(
                "  " + "  ".join(_cell(c, c.title or c.field) for c in columns), soft_wrap=True
            )
        self.console.print(
            "  " + "  ".join(_cell(c, c.show(row.get(c.field))) for c in columns), soft_wrap=True
        )

    def _print(self, text: Styled) -> None:
        """Wraps lines in a terminal only."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def show(self, part: OutputPart) -> None:
        self._titled = False
        print_part(self.console, part)


class LiveScreen(LogScreen):
    """For terminals: the table of epochs stays at the bottom, everything else scrolls above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        # Only this thread draws: a refresh thread could draw in the middle of a print.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._spinner: Spinner | None = None
        self._ticked_s = 0.0
        self._rows: list[Mapping[str, Any]] = []
        self._columns: Sequence[OutputColumn] = ()

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def act(self, text: str) -> None:
        self._settle()
        super().act(text)

    def say(self, text: str, *, good: bool | None = None) -> None:
        self._settle()
        super().say(text, good=good)

    def waiting(self, text: str) -> None:
        self._spinner = Spinner("dots", text=Styled(text, style="dim"))
        self._draw()

    def status(self, text: str, done: float | None = None) -> None:
        self._spinner = self._spinner or Spinner("dots")
        shown = Styled(text, style="cyan")
        if done is None:
            self._spinner.update(text=shown)
        else:
            line = Table.grid(padding=(0, 1))
            line.add_row(ProgressBar(1.0, done, width=BAR_WIDTH), Styled(f"{done:4.0%}"), shown)
            self._spinner.update(text=line)
        self._draw()

    def tick(self) -> None:
        now = time.monotonic()
        if self._spinner is not None and now - self._ticked_s > TICK_S:
            self._ticked_s = now
            self._live.refresh()

    def progress(self, columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> None:
        self._columns = columns
        self._rows.append(row)
        self._draw()

    def show(self, part: OutputPart) -> None:
        self._settle()
        super().show(part)

    def _settle(self) -> None:
        """Print the live table above and start a new one, so that everything is shown in order."""
        rows, self._rows, self._spinner = self._rows, [], None
        self._draw()
        if rows:
            self.console.print(rich_table(TablePart("epochs", self._columns, rows)))

    def _draw(self) -> None:
        parts: list[Any] = []
        if self._rows:
            parts.append(rich_table(TablePart("epochs", self._columns, self._rows[-LIVE_ROWS:])))
        if self._spinner is not None:
            parts.append(self._spinner)
        self._live.update(Group(*parts), refresh=True)


def _cell(column: OutputColumn, text: str) -> str:
    width = max(len(column.title or column.field), column.width)
    return text.rjust(width) if column.right else text.ljust(width)

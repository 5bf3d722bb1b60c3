"""The results of commands as data, and the protocols that show them.

A command produces one result made of parts.
Text shows the parts one below the other.
JSON merges them into one object, so a script always reads one document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from millpond.cli.values import text_of
from millpond.errors import MillpondError


@dataclass(frozen=True)
class OutputColumn:
    """How text shows one field of a row; JSON and CSV get the value itself."""

    field: str
    title: str | None = None
    show: Callable[[Any], str] = text_of
    right: bool = False
    width: int = 0  # the minimum, where rows are written one by one


@dataclass(frozen=True)
class TablePart:
    """A table; `name` is its field in JSON; text shows the `note`, JSON has the `facts` instead."""

    name: str
    columns: Sequence[OutputColumn]
    rows: Sequence[Mapping[str, Any]]
    note: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FactsPart:
    """Names and values; `columns` say how text shows some of them."""

    facts: Mapping[str, Any]
    columns: Sequence[OutputColumn] = ()


@dataclass(frozen=True)
class TextPart:
    """A text that is shown unchanged: a plan, a drawing."""

    name: str
    body: str


@dataclass(frozen=True)
class MessagePart:
    """A sentence for people, and the same as facts for scripts; not `good` when work remains."""

    sentence: str
    facts: Mapping[str, Any]
    good: bool = True


OutputPart = TablePart | FactsPart | TextPart | MessagePart


class Screen(Protocol):
    """Where a long command shows its progress."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def act(self, text: str) -> None:
        """Show a heading in one line."""

    def say(self, text: str, *, good: bool | None = None) -> None:
        """Show what happened; `good` says whether a check passed."""

    def waiting(self, text: str) -> None:
        """Show what the command waits for, until the next message."""

    def status(self, text: str, done: float | None = None) -> None:
        """Show the current status in one line that the next one replaces; a log gets some of these lines.

        `done`, from 0 to 1, is drawn as a bar.
        """

    def tick(self) -> None:
        """Redraw what moves; called often while the command waits."""

    def progress(self, columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> None:
        """Add a row to the table of progress."""

    def show(self, part: OutputPart) -> None:
        """Show a table or facts that stay on the screen."""


class CommandOutput(Protocol):
    def write(self, *parts: OutputPart) -> None:
        """Write the result of a command; called once."""

    def error(self, error: MillpondError) -> None:
        """Write why there is no result."""

    def screen(self) -> Screen:
        """The screen on which a long command shows its progress before the result."""

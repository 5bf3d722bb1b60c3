"""What commands hand over, and who takes it: an `Output`.

A command gives one answer made of parts.  Text shows the parts one below the
other; JSON merges them into one object, so a script always reads one document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from millpond.cli.values import text_of
from millpond.errors import InvalidError, MillpondError


@dataclass(frozen=True)
class Column:
    """How people see one field of a row; scripts get the value itself."""

    field: str
    title: str | None = None
    show: Callable[[Any], str] = text_of
    right: bool = False
    width: int = 0  # at least, where rows are written one by one


@dataclass(frozen=True)
class Rows:
    """A table; `name` is its field in JSON; the `note` is for people, the `facts` say the same to scripts."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    note: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Names and values of one thing; `columns` say how people see some of them."""

    facts: Mapping[str, Any]
    columns: Sequence[Column] = ()


@dataclass(frozen=True)
class Text:
    """A text that is copied as it is: a plan, a drawing."""

    name: str
    body: str


@dataclass(frozen=True)
class Said:
    """A sentence for people about facts for scripts; not `good` when something is left to do."""

    sentence: str
    facts: Mapping[str, Any]
    good: bool = True


Part = Rows | Facts | Text | Said


class Screen(Protocol):
    """Where a long command shows how it comes along."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def act(self, text: str) -> None:
        """A new part of the story, in one line."""

    def say(self, text: str, *, good: bool | None = None) -> None:
        """What happened; `good` tells whether it is what should have."""

    def waiting(self, text: str) -> None:
        """What is being waited for, until something else is said."""

    def status(self, text: str, done: float | None = None) -> None:
        """How things stand, in one line that the next one replaces; a log gets some of them.

        `done`, from 0 to 1, is drawn as a bar.
        """

    def tick(self) -> None:
        """Called often while waiting, so that what moves can move."""

    def progress(self, columns: Sequence[Column], row: Mapping[str, Any]) -> None:
        """One more row of the table that shows how it comes along."""

    def show(self, part: Part) -> None:
        """A table or facts that stay."""


class Output(Protocol):
    def write(self, *parts: Part) -> None:
        """The answer of a command, all of it, once."""

    def error(self, error: MillpondError) -> None:
        """Why there is no answer."""

    def screen(self) -> Screen:
        """For a command that takes long: what people see before the answer."""


def make_output(kind: str | Output) -> Output:
    """The output of a kind: `text` or `json`."""
    if not isinstance(kind, str):
        return kind
    if kind == "text":
        from millpond.cli.text_output import TextOutput

        return TextOutput()
    if kind == "json":
        from millpond.cli.json_output import JsonOutput

        return JsonOutput()
    raise InvalidError(f"no output named {kind!r}", hint="text or json")

"""Chooses an output by the name that a user gives: `text` or `json`."""

from __future__ import annotations

from millpond.cli.json_output import JsonOutput
from millpond.cli.output import CommandOutput
from millpond.cli.text_output import TextOutput
from millpond.errors import InvalidError


def make_output(name: str | CommandOutput) -> CommandOutput:
    """The output of this name; an output is returned unchanged."""
    if not isinstance(name, str):
        return name
    if name == "text":
        return TextOutput()
    if name == "json":
        return JsonOutput()
    raise InvalidError(f"no output named {name!r}", hint="text or json")

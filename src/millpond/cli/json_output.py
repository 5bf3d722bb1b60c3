"""Answers for scripts: one JSON object on stdout; an error is its fields on stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from millpond.cli.output import Facts, Part, Rows, Said, Screen, Text
from millpond.cli.values import json_of
from millpond.errors import MillpondError


@dataclass(frozen=True)
class JsonOutput:
    """Writes to the streams given, or to those the process has when there is something to say."""

    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def write(self, *parts: Part) -> None:
        print(
            json.dumps(merged(parts), indent=2, allow_nan=False), file=self.stdout or sys.stdout, flush=True
        )

    def screen(self) -> Screen:
        from millpond.cli.screen import SilentScreen

        return SilentScreen()

    def error(self, error: MillpondError) -> None:
        print(json.dumps(json_of(error.fields())), file=self.stderr or sys.stderr, flush=True)


def merged(parts: tuple[Part, ...]) -> dict[str, Any]:
    """All parts as one object."""
    found: dict[str, Any] = {}
    for part in parts:
        match part:
            case Facts():
                found.update(json_of(part.facts))
            case Rows():
                found.update(json_of(part.facts))
                found[part.name] = [json_of(row) for row in part.rows]
            case Text():
                found[part.name] = part.body
            case Said():
                found.update(json_of(part.facts))
    return found

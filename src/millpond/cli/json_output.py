"""Results for scripts: one JSON object on stdout; the fields of an error go to stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from millpond.cli.output import FactsPart, MessagePart, OutputPart, Screen, TablePart, TextPart
from millpond.cli.screen import SilentScreen
from millpond.cli.values import json_of
from millpond.errors import MillpondError


@dataclass(frozen=True)
class JsonOutput:
    """Writes to the given streams, or else to those that the process has at the time of the call."""

    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def write(self, *parts: OutputPart) -> None:
        print(
            json.dumps(merged(parts), indent=2, allow_nan=False), file=self.stdout or sys.stdout, flush=True
        )

    def screen(self) -> Screen:
        return SilentScreen()

    def error(self, error: MillpondError) -> None:
        print(json.dumps(json_of(error.fields())), file=self.stderr or sys.stderr, flush=True)


def merged(parts: tuple[OutputPart, ...]) -> dict[str, Any]:
    """Merge all parts into one object."""
    found: dict[str, Any] = {}
    for part in parts:
        match part:
            case FactsPart():
                found.update(json_of(part.facts))
            case TablePart():
                found.update(json_of(part.facts))
                found[part.name] = [json_of(row) for row in part.rows]
            case TextPart():
                found[part.name] = part.body
            case MessagePart():
                found.update(json_of(part.facts))
    return found

"""Results as CSV: only the rows of a query; messages go to stderr."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from typing import TextIO

from millpond.cli.output import FactsPart, MessagePart, OutputPart, Screen, TablePart, TextPart
from millpond.cli.screen import SilentScreen
from millpond.cli.text_output import TextOutput
from millpond.cli.values import json_of
from millpond.errors import MillpondError


@dataclass(frozen=True)
class CsvOutput:
    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def write(self, *parts: OutputPart) -> None:
        to = self.stdout or sys.stdout
        for part in parts:
            match part:
                case TablePart():
                    writer = csv.writer(to, lineterminator="\n")
                    writer.writerow([c.title or c.field for c in part.columns])
                    for row in part.rows:
                        cells = (json_of(row[c.field]) for c in part.columns)
                        writer.writerow(["" if cell is None else cell for cell in cells])
                case TextPart():
                    print(part.body, file=to)
                case MessagePart():
                    print(part.sentence, file=self.stderr or sys.stderr)
                case FactsPart():
                    for name, value in part.facts.items():
                        csv.writer(to, lineterminator="\n").writerow([name, value])
        to.flush()

    def error(self, error: MillpondError) -> None:
        TextOutput(self.stdout, self.stderr).error(error)

    def screen(self) -> Screen:
        return SilentScreen()

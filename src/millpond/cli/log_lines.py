"""The log of a command that runs for long: lines of text, or with `--log json` one JSON object per line."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import traceback
from typing import Annotated, Any

import typer

from millpond.errors import MillpondError
from millpond.masking import masked

LogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="text|json", help="Log epochs and warnings to stderr.", show_default=False),
]


class JsonLogLines(logging.Formatter):
    """One object per record: time, level, logger, message, and the facts of the record."""

    def format(self, record: logging.LogRecord) -> str:
        r"""
        >>> record = logging.LogRecord("millpond.pond", logging.INFO, "", 0, "epoch %d", (7,), None)
        >>> record.created, record.facts = 0.5, {"epoch": 7}
        >>> print(JsonLogLines().format(record).replace(', "me', ',\n"me'))
        {"time": "1970-01-01T00:00:00.500+00:00", "level": "info", "logger": "millpond.pond",
        "message": "epoch 7", "epoch": 7}
        """
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        found: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masked(record.getMessage()),
            **getattr(record, "facts", {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, MillpondError):
            found["error"] = error.fields()
        elif error is not None:
            found["error"] = {"kind": type(error).__name__, "message": masked(str(error))}
        if error is not None:
            found["stack"] = masked("".join(traceback.format_exception(error)))
        return json.dumps(found, default=str, ensure_ascii=False)


def log_to_stderr(kind: str | None) -> None:
    """Log what Millpond does; without a kind only warnings are logged, as Python does by itself."""
    if kind is None:
        return
    if kind not in ("text", "json"):
        raise typer.BadParameter(f"no log format {kind!r}: text or json", param_hint="--log")
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(JsonLogLines() if kind == "json" else logging.Formatter(text))
    log = logging.getLogger("millpond")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False

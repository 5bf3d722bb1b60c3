"""Promises that a source sends nothing before a time: the watermarks that it feeds rise to that time."""

from __future__ import annotations

from functools import partial

from millpond.errors import InvalidError, nearest
from millpond.plan.watermark_steps import watermark_steps
from millpond.pond.inbox_client import InboxClient


def promise(inbox: InboxClient, source: str, at_us: int) -> None:
    """Promise that a source sends nothing before `at_us`; rows that it has sent already are read first."""
    inbox.execution.require_open()
    steps = watermark_steps(inbox.execution.plan)
    if not steps.fed_by(source):
        feeding = sorted({scan for step in steps.steps for scan in step.scans})
        raise InvalidError(
            f"source {source!r} feeds no watermark",
            detail=f"those that do are {', '.join(feeding) or 'none'}",
            hint=nearest(source, feeding, 'stream(..., event_time="at")'),
        )
    args = {"source": source, "at_us": at_us}
    inbox.command("advance", args, done=partial(_is_kept, inbox, source))


def _is_kept(inbox: InboxClient, source: str, number: int) -> bool:
    """Whether a promise is kept, or waits for rows that the background thread has yet to read."""
    if not inbox.has_executed(number):
        return False
    execution = inbox.execution
    return source not in inbox.components.reader.head().promised or (
        execution.thread is not None and execution.backlog_rows > 0
    )

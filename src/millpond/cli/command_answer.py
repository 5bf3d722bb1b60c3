"""Says what became of a command that was sent to the inbox."""

from __future__ import annotations

from typing import Any

from millpond.cli.output import MessagePart
from millpond.control.inbox_sender import Sent
from millpond.errors import InvalidError


def answer(sent: Sent, done: str, what: str) -> MessagePart:
    """The result of a command as a message; a refused command is an error."""
    facts: dict[str, Any] = {"inbox": sent.number, "running": sent.running}
    if sent.executed is None:
        why = (
            "the running pipeline has not executed it yet"
            if sent.running
            else "no pipeline is running on this pond; the next run executes it"
        )
        return MessagePart(
            f"{what} is queued: {why}", {"status": "queued", "epoch": None, **facts}, good=False
        )
    refused = sent.executed.metrics.get("refused")
    if refused is not None:
        raise InvalidError("the pipeline refused the command", detail=str(refused), epoch=sent.executed.epoch)
    return MessagePart(
        f"{done} in epoch {sent.executed.epoch}", {"status": "done", "epoch": sent.executed.epoch, **facts}
    )

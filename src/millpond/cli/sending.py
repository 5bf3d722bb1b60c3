"""Commands to a pond that another process runs: through the inbox, and then waiting for it.

An entry is durable once it is in the inbox; whoever runs the pond executes it
in order.  The head manifest says how far that is; the lease says whether
anybody is there to do it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.cli.output import Said
from millpond.control import lease
from millpond.errors import InvalidError
from millpond.state import history, inbox
from millpond.state.manifest import Manifest
from millpond.state.store import Store

POLL_S = 0.1


@dataclass(frozen=True)
class Sent:
    number: int  # its place in the inbox
    done: Manifest | None  # the epoch that executed it
    running: bool  # was a pipeline seen alive?


def send(
    store: Store,
    head: Manifest,
    kind: str,
    args: Mapping[str, Any],
    *,
    wait_s: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Sent:
    """Put a command into the inbox; wait until it is executed, if somebody is there to do it."""
    number = inbox.append(store, kind, args, start=_taken(head))
    first = lease.latest(store)
    running = False
    until = monotonic() + wait_s
    while True:
        now = history.read_head(store)
        if now is not None and _taken(now) > number:
            return Sent(number, _executed(store, now, number), True)
        beat = lease.latest(store)
        running = running or (beat != first and beat is not None and not beat.released)
        if beat is None or beat.over or monotonic() >= until:
            return Sent(number, None, running)
        sleep(POLL_S)


def answer(sent: Sent, done: str, what: str) -> Said:
    """What became of it, in words; a refusal is an error."""
    facts: dict[str, Any] = {"inbox": sent.number, "running": sent.running}
    if sent.done is None:
        why = (
            "the running pipeline has not come to it yet"
            if sent.running
            else "no pipeline is running on this pond; the next run executes it"
        )
        return Said(f"{what} is queued: {why}", {"status": "queued", "epoch": None, **facts}, good=False)
    refused = sent.done.metrics.get("refused")
    if refused is not None:
        raise InvalidError("the pipeline refused the command", detail=str(refused), epoch=sent.done.epoch)
    return Said(f"{done} in epoch {sent.done.epoch}", {"status": "done", "epoch": sent.done.epoch, **facts})


def _taken(head: Manifest) -> int:
    return int(head.positions.get("inbox", 0))


def _executed(store: Store, head: Manifest, number: int) -> Manifest:
    """The epoch that took this entry: the first whose inbox position is beyond it."""
    found = head
    while found.epoch > head.floor:
        before = history.find_manifest(store, found.epoch - 1)
        if before is None or _taken(before) <= number:
            break
        found = before
    return found

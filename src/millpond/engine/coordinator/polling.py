"""Polls the inbox and the sources for input after the positions of the head.

Law 9: a command that is first in the inbox is executed even if sources are unavailable; so a source that
cannot be reached can be dropped.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine.coordinator.inbox_polling import INBOX, InboxPoll, poll_inbox
from millpond.engine.coordinator.protocol import Polled, PollSources
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.worker import Worker
from millpond.operators.source_traits import PollsForReader, ReadsInbox
from millpond.secret_references import secrets_from
from millpond.sources.source import Poll, Source
from millpond.sources.unavailable import named
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.secret_files import SecretFiles


class Polling:
    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._seen: dict[str, tuple[str, pa.Table]] = {}  # step -> (the nonce of the manifest, rows)

    def poll(self, ask: PollSources, program: RunningProgram, head: Manifest) -> Polled:
        found: InboxPoll = poll_inbox(self._worker, program, head, int(ask.positions.get(INBOX, 0)))
        if found.command is not None:
            return Polled(
                self._clock.now_us(), {}, (found.command,), found.rollback_to, found.program, found.cleared
            )
        polls: dict[str, Poll] = {}
        secrets = SecretFiles(self._worker.store)
        for step, source in sorted(program.sources.items()):
            if isinstance(source, ReadsInbox):
                continue
            seen = self._seen_rows(step, source, head)
            with naming_step(step, head.epoch + 1), named(step), secrets_from(secrets.value):
                polls[step] = _poll(source, (head.pond, step), ask.positions.get(step), seen, ask.max_rows)
        polls[INBOX] = found.rows
        return Polled(self._clock.now_us(), polls)

    def _seen_rows(self, step: str, source: Source, head: Manifest) -> pa.Table | None:
        """The rows of the table in which a source records what it has read; updated epoch by epoch."""
        spec = source.table(step)
        if spec is None:
            return None
        known = self._seen.get(step)
        if known is not None and known[0] == head.nonce:
            return known[1]
        snapshot = Snapshot(self._worker.store, head, self._worker.pages, self._worker.open_file)
        if known is not None and known[0] == head.parent_nonce and head.kind == "epoch":
            rows = known[1]
            if any(r.table == spec.name and r.kind == "delta" for r in head.added):
                added = snapshot.changes(spec, spec.schema.names).select(spec.schema.names)
                rows = pa.concat_tables([rows, added])
        else:
            rows = snapshot.scan(spec, spec.schema.names)
        self._seen[step] = (head.nonce, rows)
        return rows


def _poll(
    source: Source, reader: tuple[str, str], position: Any, seen: pa.Table | None, max_rows: int
) -> Poll:
    if isinstance(source, PollsForReader):
        found: Poll = source.poll_for(reader, position, seen, max_rows)
        return found
    return source.poll(position, seen, max_rows)

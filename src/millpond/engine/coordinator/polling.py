"""Polls the inbox and the sources for input after the positions of the head.

Law 9: a command of the inbox is executed even if sources are unavailable or input is held back; so a source
that cannot be reached can be dropped, and a paused pond resumed.  Rows in front of the command are admitted
first, as the inbox is executed in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine.coordinator.inbox_polling import INBOX, InboxPoll, poll_inbox
from millpond.engine.coordinator.protocol import Polled, PollSources
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.worker import Worker
from millpond.errors import MillpondError
from millpond.operators.source_traits import PollsForReader, ReadsInbox
from millpond.secret_references import secrets_from
from millpond.sources.source import Poll, Source
from millpond.sources.unavailable import named
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.secret_files import SecretFiles
from millpond.state.store.store import MissingError


class Polling:
    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._seen: dict[str, tuple[str, pa.Table]] = {}  # step -> (the nonce of the manifest, rows)
        self._rows_before = 0  # entries before this number are rows, as far as they were looked at

    def poll(self, ask: PollSources, program: RunningProgram, head: Manifest) -> Polled:
        polled: InboxPoll = poll_inbox(self._worker, program, head, int(ask.positions.get(INBOX, 0)))
        if polled.command is not None:
            return Polled(
                self._clock.now_us(),
                {},
                (polled.command,),
                polled.rollback_to,
                polled.program,
                polled.cleared,
            )
        waits = polled.command_waits or (ask.held and self._has_command(polled))
        sources = {s: one for s, one in program.sources.items() if not isinstance(one, ReadsInbox)}
        try:
            polls, unpolled = self._poll_sources(ask, sources, head), frozenset[str]()
        except (MillpondError, OSError) as error:
            if isinstance(error, MissingError) or not (waits or self._has_command(polled)):
                raise
            polls, unpolled, waits = {}, frozenset(sources), True
        polls[INBOX] = polled.rows
        return Polled(self._clock.now_us(), polls, command_waits=waits, unpolled=unpolled)

    def _poll_sources(
        self, ask: PollSources, sources: Mapping[str, Source], head: Manifest
    ) -> dict[str, Poll]:
        polls: dict[str, Poll] = {}
        secrets = SecretFiles(self._worker.store)
        for step, source in sorted(sources.items()):
            seen = self._seen_rows(step, source, head)
            with naming_step(step, head.epoch + 1), named(step), secrets_from(secrets.value):
                polls[step] = _poll(source, (head.pond, step), ask.positions.get(step), seen, ask.max_rows)
        return polls

    def _has_command(self, polled: InboxPoll) -> bool:
        """Is there a command behind the rows of the inbox?  Entries beyond a poll are read once, here."""
        if polled.command_waits or not (polled.rows.splits or polled.rows.rejects):
            return polled.command_waits
        start = max(polled.end, self._rows_before)
        for number in inbox.numbers(self._worker.store, after=inbox.entry_name(start - 1)):
            if inbox.read(self._worker.store, number).kind not in inbox.ROW_KINDS:
                return True
            self._rows_before = number + 1
        return False

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
        polled: Poll = source.poll_for(reader, position, seen, max_rows)
        return polled
    return source.poll(position, seen, max_rows)

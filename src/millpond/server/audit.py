"""Records what clients do, for all protocols: statements, logins and actions, also those that failed.

Equal statements of one client are counted in one record until it is written, so thousands of point reads a
second cost one record.

Law: recording never fails and never waits for I/O; a record is written within `FLUSH_S`, and a statement that
could not be recorded is counted in a record.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millpond.errors import MillpondError
from millpond.masking import masked, masked_options
from millpond.server.metrics.activity import outcome_of
from millpond.state.audit_log import AuditRecord, AuditWriter, delete_old
from millpond.state.store.store import Store

FLUSH_S = 2.0
CLEAN_S = 3600.0
WAITING_MAX = 10_000  # records that are not written yet
TEXT_MAX = 4000  # characters of a statement
KEPT_MAX = 2 * TEXT_MAX  # of one that waits: masking takes seconds for some megabytes
DAY_US = 86_400_000_000
LOGIN = "LOGIN"
log = logging.getLogger("millpond.server")


@dataclass
class _Folded:
    at_us: int
    last_us: int
    count: int = 0
    seconds: float = 0.0
    error: str | None = None


Who = tuple[str, str, str]  # the user, the protocol, the address
Key = tuple[Who, str, str, str]  # who, the kind, the text, the outcome


class Audit:
    """The audit of one server; with `days` 0 nothing is recorded."""

    def __init__(
        self, store: Store, days: int, bytes_max: int, now_us: Callable[[], int] | None = None
    ) -> None:
        self.is_on = days > 0
        self._store = store
        self._days, self._bytes_max = days, bytes_max
        self._now_us = now_us or (lambda: time.time_ns() // 1000)
        self._writer = AuditWriter(store, secrets.token_hex(6))
        self._lock = threading.Lock()  # of what waits
        self._writing = threading.Lock()
        self._waiting: dict[Key, _Folded] = {}
        self._unrecorded = 0
        self._number = 0
        self._failed = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if self.is_on:
            self._thread = threading.Thread(target=self._run, name="millpond-audit", daemon=True)
            self._thread.start()

    def ran(self, who: Who, kind: str, text: str, error: BaseException | None, seconds: float) -> None:
        """Record a statement."""
        if not self.is_on:
            return
        now_us = self._now_us()
        key = who, kind, text[:KEPT_MAX], outcome_of(error)
        with self._lock:
            found = self._waiting.get(key)
            if found is None:
                if len(self._waiting) >= WAITING_MAX:
                    self._unrecorded += 1
                    return
                found = self._waiting[key] = _Folded(now_us, now_us)
            found.last_us = max(found.last_us, now_us)
            found.count += 1
            found.seconds += seconds
            if error is not None:
                found.error = _said(error)

    def logged_in(self, who: Who, error: BaseException | None = None) -> None:
        """Record a login, or one that was refused."""
        self.ran(who, LOGIN, "", error, 0.0)

    def flush(self) -> None:
        """Write what waits; if the storage refuses it, it waits on."""
        with self._writing:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
                unrecorded, self._unrecorded = self._unrecorded, 0
            if not waiting and not unrecorded:
                return
            records = [self._record(key, found) for key, found in waiting.items()]
            if unrecorded:
                now_us = self._now_us()
                key = ("", "", ""), "AUDIT", f"{unrecorded} statements were not recorded", "lost"
                records.append(self._record(key, _Folded(now_us, now_us, unrecorded)))
            try:
                self._writer.write(records)
                self._failed = False
            except MillpondError as error:
                if not self._failed:
                    log.warning("the audit log cannot be written: %s", error)
                self._failed = True
                with self._lock:
                    self._waiting = {**waiting, **self._waiting}
                    self._unrecorded += unrecorded

    def stop(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self.flush()

    def _record(self, key: Key, found: _Folded) -> AuditRecord:
        (user, protocol, address), kind, text, outcome = key
        self._number += 1
        return AuditRecord(
            self._number,
            found.at_us,
            found.last_us,
            user,
            protocol,
            address,
            kind,
            _shown(text),
            outcome,
            found.error,
            found.count,
            round(found.seconds * 1000, 3),
        )

    def _run(self) -> None:
        cleaned = 0.0
        while not self._ended.wait(FLUSH_S):
            self.flush()
            if time.monotonic() - cleaned > CLEAN_S or not cleaned:
                cleaned = time.monotonic()
                self.clean()

    def clean(self) -> None:
        """Delete records that are no longer kept."""
        try:
            delete_old(self._store, self._now_us() - self._days * DAY_US, self._bytes_max)
        except MillpondError as error:
            log.warning("old records of the audit log cannot be deleted: %s", error)


def _shown(text: str) -> str:
    shown = masked_options(text)
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]} …"


def _said(error: BaseException) -> str:
    return masked(error.message if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}")

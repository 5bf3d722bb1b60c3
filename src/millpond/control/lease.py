"""The lease: a hint that a coordinator is alive, never a matter of safety.

Renewals are immutable objects with rising numbers; a standby judges silence
by its own monotonic clock, so clocks of two machines are never compared. Where
the holder was a process of this machine that has ended, silence need not be
waited for.  A renewal says how often its holder renews, so nobody with shorter
patience takes a slow holder for a dead one; and it says when it was made, which
is only shown to people.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from millpond.control import process_name
from millpond.errors import UnavailableError
from millpond.state.checksummed_json import sealed, unsealed
from millpond.state.store.store import MissingError, Put, Store
from millpond.state.store.waiting_store import at_once

PREFIX = "lease/"
CHECK_EVERY = 4  # renewals after which a keeper also reads the newest one
FORMAT = 2  # of a renewal; version 1 has neither this number nor a checksum
_OPTIONAL_FIELDS = ("since_us", "at_us", "lease_ms", "token", "error", "instance")


@dataclass(frozen=True)
class Beat:
    number: int
    holder: str
    released: bool
    process: str | None = None  # see `process_name`
    since_us: int | None = None  # when the holder began, by its own clock
    at_us: int | None = None  # when this renewal was made, by the same clock
    lease_ms: int | None = None  # silence after which the holder may be taken for dead
    token: int | None = None  # of the holder's reign, once it has one
    error: str | None = None  # why the holder stopped, where it failed
    instance: str | None = None  # of the holder: random, so no two processes have the same

    @property
    def over(self) -> bool:
        """Is the holder gone, so that nobody will renew it?"""
        return self.released or process_name.is_gone(self.process)

    @property
    def is_ours(self) -> bool:
        """Is the holder this very process?  Two containers may have one host name and one process number."""
        if self.instance is not None:
            return self.instance == process_name.instance()
        own = process_name.own()
        if self.process is not None and own is not None:
            return self.process == own
        return self.holder == holder_name()

    @property
    def is_on_this_machine(self) -> bool:
        return process_name.is_here(self.process)

    def silence_s(self, patience_s: float) -> float:
        """How long it must be silent before its holder is taken for dead."""
        return max(patience_s, (self.lease_ms or 0) / 1000)

    def described(self) -> str:
        """Who holds it, since when, and when it was last renewed."""
        host, _, pid = self.holder.rpartition(":")
        parts = [f"process {pid} on {host}" if host else self.holder]
        if self.since_us is not None:
            parts.append(f"since {_utc(self.since_us)}")
        if self.at_us is not None:
            parts.append(f"lease last renewed at {_utc(self.at_us)}")
        return ", ".join(parts)


def holder_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def latest(store: Store) -> Beat | None:
    names = _names(store)
    while names:
        try:
            raw = store.get(names[-1])
        except MissingError:  # an older renewal, swept between the listing and the read
            names = _names(store)
            continue
        return _parse(int(names[-1][len(PREFIX) :]), raw)
    return None


def _names(store: Store) -> list[str]:
    return [name for name in store.list(PREFIX) if name[len(PREFIX) :].isdecimal()]


def _parse(number: int, raw: bytes) -> Beat:
    """A verified renewal; a damaged one only says that somebody renewed."""
    try:
        data = unsealed(raw)
        known = {name: data.get(name) for name in ("process", *_OPTIONAL_FIELDS)}
        return Beat(number, str(data["holder"]), bool(data["released"]), **known)
    except (ValueError, KeyError, TypeError):
        return Beat(number, "a process whose lease cannot be read", released=False)


def beat(
    store: Store,
    number: int,
    holder: str,
    *,
    released: bool = False,
    process: str | None = None,
    **fields: int | str | None,
) -> int:
    """Renew under this number, unless another has it; the next free number. All but the last few go.

    `fields` are further fields of `Beat`.
    """
    return renewed(store, number, holder, released=released, process=process, **fields)[1]


def renewed(
    store: Store,
    number: int,
    holder: str,
    *,
    released: bool = False,
    process: str | None = None,
    **fields: int | str | None,
) -> tuple[bool, int]:
    """Was the number free, and the next free number; a renewal whose number is free makes two requests."""
    data = {"format": FORMAT, "holder": holder, "released": released, "process": process, **fields}
    if store.put_new(f"{PREFIX}{number:016d}", sealed(data)) is Put.WON:
        if number > 2:
            store.delete(f"{PREFIX}{number - 3:016d}")
        return True, number + 1
    numbers = [int(name[len(PREFIX) :]) for name in _names(store)]
    return False, max([number, *numbers]) + 1


def sweep(store: Store, number: int) -> None:
    """Delete all renewals but the last few before this one: those that a killed holder left, too."""
    for name in _names(store):
        if int(name[len(PREFIX) :]) < number - 2:
            store.delete(name)


def silent_for(
    store: Store,
    silence_s: float,
    *,
    stop: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until there was no renewal for this long, or the holder is gone.  False when stopped."""
    last = latest(store)
    since = monotonic()
    while not stop():
        if last is None or last.over or monotonic() - since > last.silence_s(silence_s):
            return True
        sleep(min(0.25, silence_s / 4))
        asked = monotonic()
        now = latest(store)
        if now != last:
            last, since = now, monotonic()
        elif monotonic() - asked > silence_s / 2:  # the storage was unavailable, to the holder perhaps, too
            since = monotonic()
    return False


def alive_elsewhere(store: Store, silence_s: float) -> Beat | None:
    """The lease of another living process, if there is one: waits for a renewal to find out."""
    last = latest(store)
    if last is None or last.over or last.is_ours:
        return None
    until = time.monotonic() + last.silence_s(silence_s)
    while time.monotonic() < until:
        now = latest(store)
        if now is not None and now.over:
            return None
        if now is not None and now != last:
            return now
        time.sleep(0.05)
    return None


class Keeper:
    """Renews a lease in the background, at a quarter of its silence."""

    def __init__(self, store: Store, lease_ms: int) -> None:
        # A renewal that fails is made again soon anyway, and release() must not wait for the storage.
        self._store = at_once(store)
        self._lease_ms = lease_ms
        self._every_s = lease_ms / 4000
        self._holder = holder_name()
        self._process = process_name.own()
        self._since_us = _now_us()
        self._stop = threading.Event()
        self.token: int | None = None  # of our reign, once the pond is taken over
        last = latest(store)
        self._next = 0 if last is None else last.number + 1
        self._renewed_s = time.monotonic()
        self._beat()
        sweep(self._store, self._next - 1)
        self._thread = threading.Thread(target=self._run, name="millpond-lease", daemon=True)
        self._thread.start()

    def _beat(self, *, released: bool = False, error: str | None = None) -> bool:
        """Renew; False if another process took the number."""
        was_free, self._next = renewed(
            self._store,
            self._next,
            self._holder,
            released=released,
            process=self._process,
            since_us=self._since_us,
            at_us=_now_us(),
            lease_ms=self._lease_ms,
            token=self.token,
            error=error,
            instance=process_name.instance(),
        )
        self._renewed_s = time.monotonic()
        return was_free

    def _run(self) -> None:
        for count in itertools.count():
            if self._stop.wait(self._every_s):
                return
            try:
                # Another holder takes the number after ours, so a free one says that there is none; unless
                # this process was asleep for so long that the other one's renewals were swept already.
                slept = time.monotonic() - self._renewed_s > 2 * self._every_s
                if (slept or count % CHECK_EVERY == 0) and self._is_lost():
                    return
                if not self._beat() and self._is_lost():
                    return
            except UnavailableError:
                continue  # a standby may take over now; that is what the lease is for

    def _is_lost(self) -> bool:
        """Did a later reign begin?  Then the pond is not ours, whether or not we noticed yet."""
        last = latest(self._store)
        later = None if last is None else last.token
        return later is not None and self.token is not None and later > self.token

    def stop(self) -> None:
        """Stop renewing without a release: another process may own the pond by now."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def release(self, error: str | None = None) -> None:
        """Stop renewing and release the lease, so that nobody waits for it; `error` says why it failed."""
        if self._stop.is_set():
            return
        self.stop()
        try:
            if not self._is_lost():
                _ = self._beat(released=True, error=error) or self._beat(released=True, error=error)
        except UnavailableError:
            return  # the lease expires


def _now_us() -> int:
    return time.time_ns() // 1000


def _utc(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"

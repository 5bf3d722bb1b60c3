"""The lease: a hint that a coordinator is alive, never a matter of safety.

Renewals are immutable objects with rising numbers; a standby judges silence
by its own monotonic clock, so clocks of two machines are never compared. Where
the holder was a process of this machine that has ended, silence need not be
waited for.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millpond.control import process_name
from millpond.errors import UnavailableError
from millpond.state.seal import sealed, unsealed
from millpond.state.store import MissingError, Store

PREFIX = "lease/"
FORMAT = 2  # of a renewal; version 1 has neither this number nor a checksum


@dataclass(frozen=True)
class Beat:
    number: int
    holder: str
    released: bool
    process: str | None = None  # see `process_name`

    @property
    def over(self) -> bool:
        """Is nobody left to renew it?"""
        return self.released or process_name.is_gone(self.process)


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
    """A renewal, verified; a damaged one says no more than that somebody renewed."""
    try:
        data = unsealed(raw)
        return Beat(number, str(data["holder"]), bool(data["released"]), data.get("process"))
    except (ValueError, KeyError, TypeError):
        return Beat(number, "a process whose lease cannot be read", released=False)


def beat(
    store: Store, number: int, holder: str, *, released: bool = False, process: str | None = None
) -> int:
    """Renew under this number, unless another has it; the next free number. All but the last few go."""
    data = {"format": FORMAT, "holder": holder, "released": released, "process": process}
    store.put_new(f"{PREFIX}{number:016d}", sealed(data))
    numbers = [int(name[len(PREFIX) :]) for name in _names(store)]
    for old in numbers:
        if old < number - 2:
            store.delete(f"{PREFIX}{old:016d}")
    return max([number, *numbers]) + 1


def silent_for(
    store: Store,
    silence_s: float,
    *,
    stop: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until no new renewal was seen for so long, or nobody is left to renew. False when stopped."""
    last = latest(store)
    since = monotonic()
    while not stop():
        if last is None or last.over or monotonic() - since > silence_s:
            return True
        sleep(min(0.25, silence_s / 4))
        now = latest(store)
        if now != last:
            last, since = now, monotonic()
    return False


def alive_elsewhere(store: Store, silence_s: float) -> Beat | None:
    """The lease of another process that is alive, if there is one: it is watched for a while."""
    last = latest(store)
    if last is None or last.over or last.holder == holder_name():
        return None
    until = time.monotonic() + silence_s
    while time.monotonic() < until:
        now = latest(store)
        if now is not None and now.over:
            return None
        if now is not None and now != last:
            return last
        time.sleep(0.05)
    return None


class Keeper:
    """Renews a lease in the background, at a quarter of its silence."""

    def __init__(self, store: Store, lease_ms: int) -> None:
        self._store = store
        self._every_s = lease_ms / 4000
        self._holder = holder_name()
        self._process = process_name.own()
        self._stop = threading.Event()
        last = latest(store)
        self._next = 0 if last is None else last.number + 1
        self._beat()
        self._thread = threading.Thread(target=self._run, name="millpond-lease", daemon=True)
        self._thread.start()

    def _beat(self, *, released: bool = False) -> None:
        self._next = beat(self._store, self._next, self._holder, released=released, process=self._process)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._beat()
            except UnavailableError:
                continue  # silence is what the lease is for: a standby may now take over

    def stop(self) -> None:
        """Renew no more, and say nothing: the pond may be another's by now."""
        self._stop.set()
        self._thread.join()

    def release(self) -> None:
        """Renew no more, and tell whoever waits that it need not."""
        if self._stop.is_set():
            return
        self.stop()
        try:
            self._beat(released=True)
        except UnavailableError:
            return  # the lease runs out by itself

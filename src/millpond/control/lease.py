"""The lease: a hint that a coordinator is alive, never a matter of safety.

Renewals are immutable objects with rising numbers; a standby judges silence
by its own monotonic clock, so clocks of two machines are never compared.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millpond.errors import UnavailableError
from millpond.state.store import MissingError, Store

PREFIX = "lease/"


@dataclass(frozen=True)
class Beat:
    number: int
    holder: str
    released: bool


def holder_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def latest(store: Store) -> Beat | None:
    names = store.list(PREFIX)
    while names:
        try:
            data = json.loads(store.get(names[-1]))
        except MissingError:  # an older renewal, swept between the listing and the read
            names = store.list(PREFIX)
            continue
        return Beat(int(names[-1][len(PREFIX) :]), data["holder"], data["released"])
    return None


def beat(store: Store, number: int, holder: str, *, released: bool = False) -> None:
    store.put_new(f"{PREFIX}{number:016d}", json.dumps({"holder": holder, "released": released}).encode())
    for name in store.list(PREFIX):
        if int(name[len(PREFIX) :]) < number - 2:
            store.delete(name)


def silent_for(
    store: Store, silence_s: float, *, stop: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Wait until no new renewal was seen for so long (or the lease was released). False when stopped."""
    last = latest(store)
    since = time.monotonic()
    while not stop():
        if last is None or last.released or time.monotonic() - since > silence_s:
            return True
        sleep(min(0.25, silence_s / 4))
        now = latest(store)
        if now != last:
            last, since = now, time.monotonic()
    return False


class Keeper:
    """Renews a lease in the background, at a quarter of its silence."""

    def __init__(self, store: Store, lease_ms: int) -> None:
        self._store = store
        self._every_s = lease_ms / 4000
        self._holder = holder_name()
        self._stop = threading.Event()
        last = latest(store)
        self._number = 0 if last is None else last.number + 1
        beat(store, self._number, self._holder)
        self._thread = threading.Thread(target=self._run, name="millpond-lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._number += 1
            try:
                beat(self._store, self._number, self._holder)
            except UnavailableError:
                continue  # silence is what the lease is for: a standby may now take over

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        try:
            beat(self._store, self._number + 1, self._holder, released=True)
        except UnavailableError:
            return  # the lease runs out by itself

"""Waits while a remote storage is unavailable, instead of failing.

A bucket that does not answer for half a minute must not end a pipeline that runs for months.  Reads are
repeated after growing pauses until the storage answers or `wait_s` have passed.  A run or a page of a
listing has a random name that no other writer uses, so its put is repeated, too.  Every other put is sent
once (law 2): its outcome may be unknown, and the caller reads the name back, which waits.

An address that never answered in this process is not waited for: it is more likely wrong than unavailable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from millpond.state.store.store import (
    Data,
    MissingError,
    Names,
    NotWritableError,
    Put,
    PutUnknownError,
    ReadsParts,
    RefusedError,
    Store,
    StoreError,
    buffers_of,
)

PAUSE_S, PAUSE_S_MAX = 0.1, 2.0  # before the first retry, and the longest
SAY_AFTER_S = 1.0  # a shorter outage is not mentioned
SAY_EVERY_S = 5.0  # how often a wait is logged
WRITTEN_ONCE = ("runs/", "pages/")  # files with random names: only one writer ever writes a name
T = TypeVar("T")
log = logging.getLogger("millpond.store")


@dataclass(frozen=True)
class Outage:
    """A storage that does not answer, since when by the monotonic clock, and what it said last."""

    since_s: float
    error: str

    def described(self, now_s: float) -> str:
        """
        >>> Outage(10.0, "connection refused").described(22.4)
        'the storage has not answered for 12 s: connection refused'
        """
        return f"the storage has not answered for {now_s - self.since_s:.0f} s: {self.error}"


@runtime_checkable
class Resumable(Protocol):
    """A store that can read the rest of a file."""

    def chunks(self, name: str, start: int = 0) -> Iterator[memoryview]:
        """The bytes from `start` on, in order; the length is checked at the end."""


class WaitingStore:
    """A Store that repeats what failed because the storage was unavailable; thread-safe."""

    def __init__(
        self,
        store: Store,
        wait_s: float,
        *,
        sleep: Callable[[float], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._wait_s = wait_s
        self._monotonic = monotonic
        self._hurry = threading.Event()
        self._sleep = sleep or self._hurry.wait
        self._lock = threading.Lock()
        self._said_s = float("-inf")
        self.answered = False  # did the storage ever answer this process?
        self.outage: Outage | None = None  # the current one
        self.on_outage: Callable[[Outage], None] | None = None  # called every few seconds while it lasts

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def at_once(self) -> ImpatientStore:
        """The same store without waiting, for callers that have their own schedule; it notes outages here."""
        return ImpatientStore(self)

    def hurry(self, hurry: bool) -> None:
        """End all waits with the error that caused them, and begin no other until called with False."""
        if hurry:
            self._hurry.set()
        else:
            self._hurry.clear()

    def put_new(self, name: str, data: Data) -> Put:
        pieces = buffers_of(data)
        if not name.startswith(WRITTEN_ONCE):
            return self.once(lambda: self._store.put_new(name, pieces))
        doubted = False

        def put() -> Put:
            nonlocal doubted
            try:
                outcome = self._store.put_new(name, pieces)
            except PutUnknownError:
                doubted = True
                raise
            if outcome is Put.LOST and doubted and self._store.get(name) == b"".join(pieces):
                return Put.WON  # the put whose answer was lost
            return outcome

        return self._patiently(put)

    def get(self, name: str) -> bytes:
        return self._patiently(lambda: self._store.get(name))

    def map(self, name: str) -> pa.Buffer:
        return self._patiently(lambda: self._store.map(name))

    def list(self, prefix: str, after: str | None = None) -> Names:
        return self._patiently(lambda: self._store.list(prefix, after))

    def delete(self, name: str) -> None:
        self._patiently(lambda: self._store.delete(name))

    def size(self, name: str) -> int | None:
        return self._patiently(lambda: self._store.size(name))

    def chunks(self, name: str, start: int = 0) -> Iterator[memoryview]:
        """The bytes, in order; after an outage the rest is read, not all of it again."""
        store, seen = self._store, start
        if not isinstance(store, Resumable):
            yield from buffers_of(self.map(name)[start:])
            return
        reading = store.chunks(name, seen)

        def following() -> memoryview | None:
            nonlocal reading
            try:
                return next(reading, None)
            except StoreError:
                reading = store.chunks(name, seen)
                raise

        while (chunk := self._patiently(following)) is not None:
            seen += chunk.nbytes
            yield chunk

    @property
    def reads_parts(self) -> bool:
        return isinstance(self._store, ReadsParts) and self._store.reads_parts

    def read_part(self, name: str, start: int, length: int) -> tuple[memoryview, int]:
        store = self._store
        assert isinstance(store, ReadsParts)
        return self._patiently(lambda: store.read_part(name, start, length))

    def read_end(self, name: str, length: int) -> tuple[memoryview, int]:
        store = self._store
        assert isinstance(store, ReadsParts)
        return self._patiently(lambda: store.read_end(name, length))

    def once(self, call: Callable[[], T]) -> T:
        """Make a call without repeating it, and note whether the storage answered."""
        try:
            result = call()
        except StoreError as error:
            if _answers(error):
                self._note(None)
            else:
                self._note(error)
            raise
        self._note(None)
        return result

    def _patiently(self, call: Callable[[], T]) -> T:
        until, pause = self._monotonic() + self._wait_s, PAUSE_S
        while True:
            try:
                return self.once(call)
            except StoreError as error:
                left = until - self._monotonic()
                if _answers(error) or not self.answered or self._hurry.is_set() or left <= 0:
                    raise
            self._sleep(min(pause, left))
            pause = min(PAUSE_S_MAX, pause * 2)

    def _note(self, error: StoreError | None) -> None:
        """Record and report an outage, or its end."""
        if error is None and self.outage is None:
            self.answered = True
            return
        now_s = self._monotonic()
        with self._lock:
            before = self.outage
            if error is None:
                self.answered, self.outage = True, None
            else:
                why = error.detail or error.message
                self.outage = Outage(now_s if before is None else before.since_s, why)
            lasts = self.outage is not None and now_s - self.outage.since_s >= SAY_AFTER_S
            due = lasts and self.answered and now_s - self._said_s >= SAY_EVERY_S
            if error is not None and due:
                self._said_s = now_s
            outage = self.outage
        if error is None and before is not None and self._said_s > before.since_s:
            log.warning("the storage of %s answers again after %.0f s", self.uri, now_s - before.since_s)
        elif outage is not None and due:
            log.warning("%s (%s); waiting for it", outage.described(now_s), self.uri)
            if self.on_outage is not None:
                self.on_outage(outage)


class ImpatientStore:
    """A view of a WaitingStore that fails at once."""

    def __init__(self, store: WaitingStore) -> None:
        self._waiting = store
        self._store = store._store

    @property
    def uri(self) -> str:
        return self._store.uri

    def put_new(self, name: str, data: Data) -> Put:
        return self._waiting.once(lambda: self._store.put_new(name, data))

    def get(self, name: str) -> bytes:
        return self._waiting.once(lambda: self._store.get(name))

    def map(self, name: str) -> pa.Buffer:
        return self._waiting.once(lambda: self._store.map(name))

    def list(self, prefix: str, after: str | None = None) -> Names:
        return self._waiting.once(lambda: self._store.list(prefix, after))

    def delete(self, name: str) -> None:
        self._waiting.once(lambda: self._store.delete(name))

    def size(self, name: str) -> int | None:
        return self._waiting.once(lambda: self._store.size(name))


def waiting_store(store: Store) -> WaitingStore | None:
    """The WaitingStore at or below a store; None for a storage that is not waited for."""
    below: object = store
    while below is not None and not isinstance(below, WaitingStore):
        below = getattr(below, "below", None)
    return below


def at_once(store: Store) -> Store:
    """A store that does not wait while its storage is unavailable."""
    waiting = waiting_store(store)
    return store if waiting is None else waiting.at_once


def _answers(error: StoreError) -> bool:
    """Is the error an answer of the storage, so that waiting would not change it?"""
    return isinstance(error, MissingError | NotWritableError | RefusedError)

"""A remote storage that is unavailable for a while is waited for; nothing is written twice or taken for another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import (
    MissingError,
    Put,
    PutUnknownError,
    RefusedError,
    StoreError,
    open_store,
)
from millpond.state.store.waiting_store import WaitingStore, at_once, waiting_store


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


class Flaky:
    """A store that fails until a time; `after` says whether a put takes effect before it fails."""

    def __init__(self, time: Time) -> None:
        self.store = MemoryStore()
        self.time = time
        self.down_until_s = 0.0
        self.after = False
        self.error: Callable[[], StoreError] = lambda: StoreError(
            "the store did not answer", detail="refused"
        )
        self.calls = 0

    uri = "s3://bucket/pond"

    def _ask(self) -> None:
        self.calls += 1
        if self.time.now_s < self.down_until_s:
            raise self.error()

    def put_new(self, name: str, data: Any) -> Put:
        self.calls += 1
        if self.time.now_s < self.down_until_s:
            if self.after:
                self.store.put_new(name, data)
            raise PutUnknownError("cannot say", detail="refused")
        return self.store.put_new(name, data)

    def get(self, name: str) -> bytes:
        self._ask()
        return self.store.get(name)

    def map(self, name: str) -> pa.Buffer:
        self._ask()
        return self.store.map(name)

    def list(self, prefix: str, after: str | None = None) -> list[str]:
        self._ask()
        return self.store.list(prefix, after)

    def delete(self, name: str) -> None:
        self._ask()
        self.store.delete(name)

    def size(self, name: str) -> int | None:
        self._ask()
        return self.store.size(name)

    def chunks(self, name: str, start: int = 0) -> Iterator[memoryview]:
        whole = memoryview(self.store.get(name))
        for at in range(start, len(whole), 2):
            self._ask()
            yield whole[at : at + 2]


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def flaky(time: Time) -> Flaky:
    return Flaky(time)


@pytest.fixture
def store(flaky: Flaky, time: Time) -> WaitingStore:
    made = WaitingStore(flaky, 60, sleep=time.sleep, monotonic=time.monotonic)
    made.put_new("manifests/0", b"first")
    return made


def test_reads_wait_for_an_outage_of_30_s_and_say_so(
    store: WaitingStore, flaky: Flaky, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    told = []
    store.on_outage = lambda outage: told.append(outage.described(time.now_s))
    flaky.down_until_s = 30.0
    assert store.get("manifests/0") == b"first"
    assert 30 <= time.now_s < 33
    assert store.outage is None
    assert 4 <= len(told) <= 8, told
    assert told[-1].startswith("the storage has not answered for 2")
    said = [record.getMessage() for record in caplog.records]
    assert any("refused (s3://bucket/pond); waiting for it" in text for text in said)
    assert "answers again after 31 s" in said[-1]


@pytest.mark.parametrize("read", ["get", "map", "list", "delete", "size"])
def test_every_read_waits(store: WaitingStore, flaky: Flaky, time: Time, read: str) -> None:
    flaky.down_until_s = 10.0
    getattr(store, read)("manifests/0")
    assert time.now_s >= 10


def test_the_wait_is_bounded(store: WaitingStore, flaky: Flaky, time: Time) -> None:
    flaky.down_until_s = 1000.0
    with pytest.raises(StoreError, match="did not answer"):
        store.get("manifests/0")
    assert 59 < time.now_s < 63
    assert store.outage is not None


def test_the_rest_of_a_file_is_read_after_an_outage(store: WaitingStore, flaky: Flaky, time: Time) -> None:
    flaky.store.put_new("runs/1/a", b"abcdefg")
    found = b""
    for piece in store.chunks("runs/1/a"):
        found += bytes(piece)
        if found == b"abcd":
            flaky.down_until_s = time.now_s + 20
    assert found == b"abcdefg"


@pytest.mark.parametrize("took_effect", [False, True])
def test_a_run_is_put_again(store: WaitingStore, flaky: Flaky, time: Time, took_effect: bool) -> None:
    flaky.down_until_s, flaky.after = 20.0, took_effect
    assert store.put_new("runs/1/a", [b"ab", b"c"]) is Put.WON
    assert flaky.store.get("runs/1/a") == b"abc"


def test_a_run_that_another_wrote_is_lost(store: WaitingStore, flaky: Flaky, time: Time) -> None:
    flaky.store.put_new("runs/1/a", b"other")
    flaky.down_until_s = 20.0
    assert store.put_new("runs/1/a", b"abc") is Put.LOST


@pytest.mark.parametrize("name", ["manifests/7", "inbox/3", "lease/1", "pins/a"])
def test_other_puts_are_sent_once(store: WaitingStore, flaky: Flaky, name: str) -> None:
    """Law 2: only the caller can tell its own bytes from equal ones of another writer."""
    flaky.down_until_s = 20.0
    calls = flaky.calls
    with pytest.raises(PutUnknownError):
        store.put_new(name, b"x")
    assert flaky.calls == calls + 1


@pytest.mark.parametrize("error", [MissingError, RefusedError])
def test_an_answer_is_not_waited_for(
    store: WaitingStore, flaky: Flaky, time: Time, error: type[StoreError]
) -> None:
    flaky.down_until_s, flaky.error = 20.0, lambda: error("no")
    with pytest.raises(error):
        store.get("manifests/0")
    assert time.now_s == 0


def test_an_address_that_never_answered_is_not_waited_for(flaky: Flaky, time: Time) -> None:
    store = WaitingStore(flaky, 60, sleep=time.sleep, monotonic=time.monotonic)
    flaky.down_until_s = 20.0
    with pytest.raises(StoreError):
        store.list("manifests/")
    assert time.now_s == 0


def test_a_hurry_ends_waits(store: WaitingStore, flaky: Flaky, time: Time) -> None:
    flaky.down_until_s = 20.0
    store.hurry(True)
    with pytest.raises(StoreError):
        store.get("manifests/0")
    assert time.now_s == 0
    store.hurry(False)
    assert store.get("manifests/0") == b"first"


def test_an_impatient_view_fails_at_once_and_notes_the_outage(
    store: WaitingStore, flaky: Flaky, time: Time
) -> None:
    flaky.down_until_s = 20.0
    with pytest.raises(StoreError):
        at_once(store).list("lease/")
    assert time.now_s == 0
    assert store.outage is not None
    time.now_s = 21.0
    at_once(store).list("lease/")
    assert store.outage is None


def test_a_remote_store_is_opened_with_it(tmp_path: Any) -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    found = open_store("s3://b/p?region=eu", wait_ms="1000", cache=str(tmp_path), **keys)
    assert waiting_store(found) is not None
    assert "wait_ms" not in found.uri
    assert waiting_store(open_store(str(tmp_path), wait_ms=1000)) is None

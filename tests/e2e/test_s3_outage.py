"""A pond on S3 while the storage is cut off: it waits, says so, and goes on; nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import UnavailableError
from millpond.sources.memory import MemorySource
from tests.link import Link, link_to
from tests.waiting import until

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def link(endpoint: str) -> Iterator[Link]:
    with link_to(endpoint) as found:
        yield found


def opened(link: Link, tmp_path: Path, name: str, source: MemorySource, **settings: int) -> millpond.Pond:
    options = {"endpoint": link.endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache"), **KEYS}
    pond = millpond.open(f"s3://pond/{name}", engine="inline", store_options=options, **settings)
    pond.stream("in", source).key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
    return pond


def test_an_outage_is_waited_for_with_a_message(link: Link, tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(link, tmp_path, "outage", source) as pond:
        told: list[str] = []
        pond.on_wait(told.append)
        source.push([{"k": 1, "v": 2}])
        pond.start()
        until(lambda: pond.lookup("g", 1).num_rows == 1)
        link.cut()
        source.push([{"k": 1, "v": 3}])
        until(lambda: any("has not answered" in text for text in told), 30)
        status = pond.status
        assert status.state == "running"
        assert "has not answered" in (status.waiting or "")
        time.sleep(6)  # longer than all retries of the storage client, and than the retries of an epoch
        link.restore()
        until(lambda: pond.lookup("g", 1).to_pylist() == [{"k": 1, "n": 2, "s": 5}], 60)
        until(lambda: pond.status.waiting is None)
        pond.stop()
    assert {getattr(text, "kind", None) for text in told} == {"storage"}


def test_the_wait_ends_at_its_bound(link: Link, tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(link, tmp_path, "bound", source, store_wait_ms=300) as pond:
        pond.drain()
        link.cut()
        source.push([{"k": 1, "v": 3}])
        with pytest.raises(UnavailableError):
            pond.drain()
        link.restore()
        pond.drain()
        assert pond.lookup("g", 1).to_pylist() == [{"k": 1, "n": 1, "s": 3}]


def test_stop_does_not_wait_for_the_storage(link: Link, tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    pond = opened(link, tmp_path, "stopped", source)
    pond.drain()
    pond.start()
    link.cut()
    until(lambda: pond.status.waiting is not None, 30)
    ended = threading.Event()

    def stop() -> None:
        pond.stop()
        ended.set()

    threading.Thread(target=stop, daemon=True).start()
    assert ended.wait(20), "stop() waits for the storage"
    link.restore()
    pond.close()


def test_a_fork_in_a_bucket_has_the_options_of_its_pond(link: Link, tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(link, tmp_path, "parent", source) as pond:
        source.push([{"k": 1, "v": 2}])
        pond.drain()
        pond.fork("s3://pond/child")
    options = {"endpoint": link.endpoint, "region": "us-east-1", "cache": str(tmp_path / "other"), **KEYS}
    with millpond.open("s3://pond/child", engine="inline", store_options=options) as child:
        assert child.lookup("g", 1).to_pylist() == [{"k": 1, "n": 1, "s": 2}]
        assert child.read("g").num_rows == 1

"""The store contract on a real S3 protocol, with servers that the tests start themselves.

moto comes with the test packages.  versitygw, a gateway in Go, is used as well
where it is installed (`go install github.com/versity/versitygw/cmd/versitygw@latest`).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond.state.store.disk_cache import DiskCache
from millpond.state.store.store import Put, Store, StoreError, open_store, prove_put_new
from tests.unit.state.store.test_store import CONTRACT

pytestmark = pytest.mark.e2e

KEYS = {"access_key_id": "millpond", "secret_access_key": "a-secret-for-tests"}

# One request at a time: moto looks for the key and writes it in two steps, and only its
# own single thread makes the two one.
MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[str]:
    """The endpoint of a server that lives as long as the block; skips where it does not come up."""
    endpoint = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not answers(endpoint):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"{Path(command[0]).name} does not start: {log.read_text()[-300:]}")
            time.sleep(0.05)
        yield endpoint
    finally:
        process.terminate()
        process.wait(10)


def answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True  # it refuses a request without a signature: it is there
    except OSError:
        return False


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("flask_cors", reason="flask-cors, which moto's server needs, is not installed")
    import boto3

    port = free_port()
    with running([sys.executable, "-c", MOTO, str(port)], port, folder / "moto.log") as endpoint:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="pond")
        yield endpoint


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    (folder / "buckets" / "pond").mkdir(parents=True)
    port = free_port()
    keys = ["--access", KEYS["access_key_id"], "--secret", KEYS["secret_access_key"]]
    command = ["versitygw", "--port", f"127.0.0.1:{port}", *keys, "posix", str(folder / "buckets")]
    with running(command, port, folder / "versitygw.log") as endpoint:
        yield endpoint


SERVERS = [moto, versitygw] if shutil.which("versitygw") else [moto]


@pytest.fixture(scope="module", params=SERVERS, ids=lambda server: server.__name__)
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def opened(endpoint: str) -> Callable[..., Store]:
    """Opens the same empty prefix of the bucket as often as it is called."""
    prefix = f"t{time.time_ns()}"

    def connect(**options: object) -> Store:
        return open_store(f"s3://pond/{prefix}?region=us-east-1", endpoint=endpoint, **KEYS, **options)

    return connect


@pytest.mark.parametrize("law", CONTRACT, ids=lambda law: law.__name__)
def test_contract(opened: Callable[..., Store], law: Callable[[Store], None]) -> None:
    law(opened())


@pytest.mark.parametrize("law", CONTRACT, ids=lambda law: law.__name__)
def test_contract_through_a_disk_cache(
    opened: Callable[..., Store], law: Callable[[Store], None], tmp_path: Path
) -> None:
    store = opened(cache=tmp_path, cache_bytes=10_000_000)
    assert isinstance(store, DiskCache)
    law(store)


def test_put_if_absent_is_honoured(opened: Callable[..., Store]) -> None:
    prove_put_new(opened())


def test_of_eight_clients_one_wins(opened: Callable[..., Store]) -> None:
    """Eight clients with connections of their own."""
    clients = [opened() for _ in range(8)]
    for round in range(15):
        gate = threading.Barrier(8)

        def put(client: int, gate: threading.Barrier = gate, round: int = round) -> Put:
            gate.wait()
            return clients[client].put_new(f"manifests/{round}", f"client {client}".encode())

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(put, range(8)))
        assert sorted(o.value for o in outcomes) == ["lost"] * 7 + ["won"]
        assert clients[0].get(f"manifests/{round}") == f"client {outcomes.index(Put.WON)}".encode()


def test_more_names_than_a_page(opened: Callable[..., Store]) -> None:
    store = opened()
    names = [f"inbox/{n:06}" for n in range(1105)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = set(pool.map(lambda name: store.put_new(name, b"x"), names))
    assert outcomes == {Put.WON}
    assert store.list("inbox") == names
    assert store.list("inbox", after=names[1000]) == names[1001:]


def test_a_large_run_comes_through_the_cache_whole(opened: Callable[..., Store], tmp_path: Path) -> None:
    body = os.urandom(1 << 20)
    writer = opened()
    assert writer.put_new("runs/1/large", [body] * 25) is Put.WON
    reader = opened(cache=tmp_path)
    assert isinstance(reader, DiskCache)
    for _ in range(2):
        assert bytes(memoryview(reader.map("runs/1/large"))) == body * 25
    assert (reader.counts.misses, reader.counts.hits, reader.counts.skipped) == (1, 1, 0)


def test_the_environment_gives_the_keys(
    opened: Callable[..., Store], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.put_new("a", b"1")
    assert KEYS["secret_access_key"] not in store.uri
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret_access_key"])
    assert open_store(store.uri).get("a") == b"1"


def test_a_bucket_that_is_not_there(endpoint: str) -> None:
    store = open_store("s3://no-such-bucket/x?region=us-east-1", endpoint=endpoint, **KEYS)
    with pytest.raises(StoreError, match="no such bucket") as caught:
        store.put_new("a", b"1")
    assert not caught.value.unknown


def test_a_large_object_is_fetched_in_parts(tmp_path: Path) -> None:
    with moto(tmp_path) as endpoint:
        store = open_store("s3://pond/parts", endpoint=endpoint, region="us-east-1", **KEYS)
        body = os.urandom(20 << 20)
        store.put_new("runs/large", body)
        store.put_new("runs/small", b"abc")
        cache = DiskCache(store, tmp_path / "cache", 1 << 30)
        assert cache.map("runs/large").to_pybytes() == body
        assert cache.map("runs/small").to_pybytes() == b"abc"
        assert cache.counts.fetched_bytes == len(body) + 3
        parts = DiskCache(store, tmp_path / "parts", 1 << 30)
        mapped, fetch = parts.map_parts("runs/large")
        assert fetch is not None and mapped[-1000:].to_pybytes() == body[-1000:]
        fetch([(5_000_000, 5_000_100), (12_000_000, 12_500_000)])
        assert mapped[5_000_000:5_000_100].to_pybytes() == body[5_000_000:5_000_100]
        assert mapped[12_000_000:12_500_000].to_pybytes() == body[12_000_000:12_500_000]
        assert parts.counts.fetched_bytes < 1 << 20 and parts.counts.parts == 3
        small, fetch = parts.map_parts("runs/small")
        assert fetch is None and small.to_pybytes() == b"abc"

"""The store contract (laws 2 and 6), held by every kind of store, and what is special to each."""

from __future__ import annotations

import errno
import http.server
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore.store
import pyarrow as pa
import pytest

from millpond.errors import InternalError, InvalidError, UnavailableError
from millpond.state.store import local_store, object_store
from millpond.state.store.disk_cache import DiskCache
from millpond.state.store.local_store import LocalStore, write_buffers
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.object_store import ObjectStore
from millpond.state.store.store import (
    MissingError,
    NotWritableError,
    Put,
    PutUnknownError,
    Store,
    StoreError,
    buffers_of,
    open_store,
    prove_put_new,
)


def in_obstore_memory() -> ObjectStore:
    memory = obstore.store.MemoryStore()
    return ObjectStore(memory, memory, "obstore-memory://")


MAKERS: dict[str, Callable[[Path], Store]] = {
    "local": lambda folder: LocalStore(folder / "pond"),
    "local, not durable": lambda folder: LocalStore(folder / "pond", durable=False),
    "memory": lambda folder: MemoryStore(),
    "object": lambda folder: in_obstore_memory(),
    "cache over object": lambda folder: DiskCache(in_obstore_memory(), folder / "cache", 1 << 20),
    "cache over memory": lambda folder: DiskCache(MemoryStore(), folder / "cache", 1 << 20),
}


# --- the contract: each function takes an empty store; tests/e2e runs them on real servers ---


def a_put_name_is_taken_for_ever(store: Store) -> None:
    assert store.put_new("a/b", b"first") is Put.WON
    assert store.put_new("a/b", b"second") is Put.LOST
    assert store.put_new("a/b", b"first") is Put.LOST
    assert store.get("a/b") == b"first"
    assert bytes(memoryview(store.map("a/b"))) == b"first"
    assert store.size("a/b") == 5


def pieces_are_put_in_order(store: Store) -> None:
    pieces = [b"ab", memoryview(b"-cd-")[1:3], pa.py_buffer(b"ef"), b""]
    assert store.put_new("runs/whole", pieces) is Put.WON
    assert store.get("runs/whole") == b"abcdef"
    many = [bytes([i % 256]) * (i % 5) for i in range(3000)]
    assert store.put_new("runs/many", many) is Put.WON
    assert store.get("runs/many") == b"".join(many)
    assert bytes(memoryview(store.map("runs/many"))) == b"".join(many)


def nothing_is_a_file_too(store: Store) -> None:
    assert store.put_new("runs/empty", b"") is Put.WON
    assert store.put_new("runs/none", []) is Put.WON
    assert store.get("runs/empty") == b""
    assert store.map("runs/none").size == 0
    assert store.size("runs/empty") == 0
    assert store.list("runs") == ["runs/empty", "runs/none"]


def an_absent_name_is_missing(store: Store) -> None:
    for read in (store.get, store.map):
        with pytest.raises(MissingError) as caught:
            read("not/there")
        assert not caught.value.unknown
    assert store.size("not/there") is None
    store.delete("not/there")
    assert store.list("not") == []


def delete_forgets_a_name_but_not_what_is_mapped(store: Store) -> None:
    store.put_new("runs/1/x", b"x" * 100_000)
    mapped = store.map("runs/1/x")
    store.delete("runs/1/x")
    store.delete("runs/1/x")
    assert store.size("runs/1/x") is None
    assert store.list("") == []
    with pytest.raises(MissingError):
        store.map("runs/1/x")
    assert bytes(memoryview(mapped)) == b"x" * 100_000


def lists_are_sorted_names_below_a_folder(store: Store) -> None:
    names = ["m/10", "m/9", "m/a-b", "m/a/b", "m/a/c/d", "mm/1", "z"]
    for name in reversed(names):
        store.put_new(name, name.encode())
    assert store.list("") == names
    assert store.list("m") == store.list("m/") == names[:5]
    assert store.list("m/a") == ["m/a/b", "m/a/c/d"]
    assert store.list("m", after="m/9") == ["m/a-b", "m/a/b", "m/a/c/d"]
    assert store.list("m", after="m/8~") == ["m/9", "m/a-b", "m/a/b", "m/a/c/d"]
    assert store.list("m", after="m/a/c/d") == []
    assert store.list("", after="m/a/c") == ["m/a/c/d", "mm/1", "z"]


def any_allowed_character_survives(store: Store) -> None:
    names = sorted(
        [
            "n/A.z_0",
            "n/a=b",
            "n/a+b",
            "n/a@b",
            "n/a:b",
            "n/a,b",
            "n/a~b",
            "n/a%2Fb",
            "n/-",
            "n/ä",
            "n/日本",
            "n/𝄞",
        ]
    )
    for name in names:
        assert store.put_new(name, name.encode()) is Put.WON
    assert store.list("n") == names
    assert [store.get(name) for name in names] == [name.encode() for name in names]


def bad_names_are_refused(store: Store) -> None:
    long = "x" * 256
    for name in [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        ".tmp/x",
        "a b",
        "a\\b",
        "a\0",
        "\u2028",
        "\ud800",
        "\x85",
        "é" * 128,
        long,
    ]:
        for call in (store.get, store.map, store.size, store.delete, lambda n: store.put_new(n, b"")):
            with pytest.raises(InvalidError):
                call(name)
    for prefix in ["..", "/", "a/../b"]:
        with pytest.raises(InvalidError):
            store.list(prefix)


def of_many_writers_one_wins(store: Store) -> None:
    rounds, writers = 20, 8
    for round in range(rounds):
        name = f"race/{round:02}"
        gate = threading.Barrier(writers)

        def put(writer: int, name: str = name, gate: threading.Barrier = gate) -> Put:
            gate.wait()
            return store.put_new(name, [f"writer {writer} ".encode() * 1000])

        with ThreadPoolExecutor(writers) as pool:
            outcomes = list(pool.map(put, range(writers)))
        assert outcomes.count(Put.WON) == 1
        assert outcomes.count(Put.LOST) == writers - 1
        assert store.get(name) == f"writer {outcomes.index(Put.WON)} ".encode() * 1000


def put_if_absent_can_be_proved(store: Store) -> None:
    prove_put_new(store)
    assert store.list("") == []


CONTRACT = [
    a_put_name_is_taken_for_ever,
    pieces_are_put_in_order,
    nothing_is_a_file_too,
    an_absent_name_is_missing,
    delete_forgets_a_name_but_not_what_is_mapped,
    lists_are_sorted_names_below_a_folder,
    any_allowed_character_survives,
    bad_names_are_refused,
    of_many_writers_one_wins,
    put_if_absent_can_be_proved,
]


@pytest.mark.parametrize("law", CONTRACT, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", MAKERS)
def test_contract(kind: str, law: Callable[[Store], None], tmp_path: Path) -> None:
    law(MAKERS[kind](tmp_path))


# --- opening ---


@pytest.mark.parametrize("durable", [True, False])
def test_a_local_uri_opens_the_same_store(tmp_path: Path, durable: bool) -> None:
    first = LocalStore(tmp_path / "with space, ? and #", durable=durable)
    first.put_new("a", b"1")
    second = open_store(first.uri)
    assert second.get("a") == b"1"
    assert second.uri == first.uri
    assert open_store(str(tmp_path / "with space, ? and #")).get("a") == b"1"


def test_opening_a_local_store_makes_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "typo"))
    assert store.list("") == [] and store.size("a") is None
    assert not (tmp_path / "typo").exists()


def test_a_memory_store_is_found_while_somebody_holds_it() -> None:
    store = MemoryStore()
    store.put_new("a", b"1")
    assert open_store(store.uri).get("a") == b"1"
    uri = store.uri
    with pytest.raises(InvalidError, match="open already"):
        MemoryStore(uri.removeprefix("memory://"))
    del store
    assert open_store(uri).list("") == []


def test_a_cache_is_an_option_of_the_uri(tmp_path: Path) -> None:
    inner = LocalStore(tmp_path / "pond")
    cached = open_store(inner.uri, cache=tmp_path / "cache dir", cache_bytes=12345)
    assert isinstance(cached, DiskCache)
    cached.put_new("runs/a", b"1")
    again = open_store(cached.uri)
    assert isinstance(again, DiskCache)
    assert again.uri == cached.uri
    assert bytes(memoryview(again.map("runs/a"))) == b"1"
    assert again.counts.hits == 1


def test_an_object_store_uri_opens_the_same_store_and_holds_no_secret() -> None:
    store = open_store(
        "s3://bucket/some/prefix?region=eu-west-1",
        endpoint="http://127.0.0.1:9",
        access_key_id="the-key",
        secret_access_key="the-secret",
        skip_signature=False,
        timeout="3s",
        retries=2,
    )
    assert "the-" not in store.uri
    again = open_store(store.uri)
    assert again.uri == store.uri
    for kept in ("s3://bucket/some/prefix?", "region=eu-west-1", "timeout=3s", "retries=2"):
        assert kept in store.uri


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("ftp://x", "there is no store for ftp"),
        ("file://relative/path", "absolute path"),
        ("file:///x?durabel=true", "no option durabel"),
        ("file:///x?durable=perhaps", "true or false"),
        ("memory://x?a=b", "no option a"),
        ("s3://b?secret_access_key=x", "does not belong in a store's uri"),
        ("file:///x?cache=/y&cache_bytes=lots", "whole number"),
    ],
)
def test_a_wrong_uri_says_what_is_wrong(uri: str, says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        open_store(uri)


def test_an_unknown_object_store_option_is_refused() -> None:
    with pytest.raises(InvalidError, match="cannot open the store"):
        open_store("s3://bucket", no_such_option="1")


def test_errors_survive_the_way_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(PutUnknownError("m", detail="d")))
    assert isinstance(error, UnavailableError) and isinstance(error, PutUnknownError)
    assert error.unknown and error.detail == "d"


class Overwriting(MemoryStore):
    """A storage that takes the condition and ignores it."""

    def put_new(self, name: str, data: Any) -> Put:
        self.delete(name)
        return super().put_new(name, data)


def test_a_storage_that_ignores_the_condition_is_found_out() -> None:
    with pytest.raises(InvalidError, match="does not honour put-if-absent"):
        prove_put_new(Overwriting())


# --- local: what a crash, a power cut or a full disk may leave ---


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_a_short_write_is_continued(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(fd: int, pieces: list[memoryview]) -> int:
        return os.write(fd, b"".join(pieces)[:limit])

    data = [bytes([65 + i]) * i for i in range(20)]
    monkeypatch.setattr(os, "writev", short)
    with open(tmp_path / "f", "wb") as file:
        write_buffers(file.fileno(), buffers_of(data))
    assert (tmp_path / "f").read_bytes() == b"".join(data)


def trace_syncs(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    seen: list[str] = []
    real_sync, real_link = local_store.sync, os.link

    def sync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_relative_to(root):  # a merge that another test left behind may end meanwhile
            seen.append("sync temp" if path.parent.name == ".tmp" else f"sync {path.relative_to(root)}")
        real_sync(fd)

    def link(source: Path, target: Path) -> None:
        if target.is_relative_to(root):
            seen.append(f"link {target.relative_to(root)}")
        real_link(source, target)

    monkeypatch.setattr(local_store, "sync", sync)
    monkeypatch.setattr(os, "link", link)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc to name descriptors")
def test_data_is_synced_before_its_name_and_its_name_before_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = trace_syncs(monkeypatch, tmp_path)
    store = LocalStore(tmp_path / "pond")
    store.put_new("runs/1/x", b"data")
    # every new folder is synced into its parent, from the top
    assert seen[:4] == ["sync .", "sync pond", "sync pond", "sync pond/runs"]
    assert seen[4:] == ["sync temp", "link pond/runs/1/x", "sync pond/runs/1"]
    seen.clear()
    assert store.put_new("runs/1/x", b"other") is Put.LOST
    assert seen == ["sync temp", "link pond/runs/1/x", "sync pond/runs/1"]
    seen.clear()
    # a folder made by another process may not be durable yet
    LocalStore(tmp_path / "pond").put_new("runs/1/y", b"data")
    assert seen[:3] == ["sync pond", "sync pond", "sync pond/runs"]
    seen.clear()
    LocalStore(tmp_path / "pond", durable=False).put_new("runs/2/z", b"data")
    assert seen == ["link pond/runs/2/z"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)

    def full(fd: int, pieces: list[memoryview]) -> int:
        os.write(fd, b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        with pytest.raises(StoreError, match="no room to write a/b") as caught:
            store.put_new("a/b", b"half of it")
    assert not caught.value.unknown
    assert "needs 10 bytes" in (caught.value.detail or "")
    assert "free space" in (caught.value.hint or "")
    assert store.list("") == [] and list((tmp_path / ".tmp").iterdir()) == []
    assert store.put_new("a/b", b"whole") is Put.WON


def test_a_failed_sync_before_the_link_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put_new("a/first", b"")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(local_store, "sync", broken)
        with pytest.raises(StoreError) as caught:
            store.put_new("a/b", b"x")
    assert not caught.value.unknown
    assert store.list("") == ["a/first"]


def test_a_failed_sync_after_the_link_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.put_new("a/first", b"")

    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(store, "_sync_folder", broken)
    with pytest.raises(PutUnknownError) as caught:
        store.put_new("a/b", b"x")
    assert caught.value.unknown
    assert store.get("a/b") == b"x"


def test_a_name_is_a_file_or_a_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_new("a/b", b"")
    with pytest.raises(InvalidError, match="not both"):
        store.put_new("a", b"")
    with pytest.raises(InvalidError, match="not both"):
        store.put_new("a/b/c", b"")
    for name in ("a", "a/b/c"):
        assert store.size(name) is None
        for read in (store.get, store.map):
            with pytest.raises(MissingError):
                read(name)


def test_a_repeated_link_is_still_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may carry the link out, lose the answer, and try again."""
    real = os.link

    def twice(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "link", twice)
    assert store.put_new("a", b"x") is Put.WON
    assert store.put_new("a", b"y") is Put.LOST


def test_sweep_takes_only_old_leftovers(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert store.sweep() == 0
    store.put_new("a", b"x")
    for name, age_h in (("old", 25), ("young", 23)):
        left = tmp_path / ".tmp" / name
        left.write_bytes(b"junk")
        os.utime(left, (time.time() - age_h * 3600,) * 2)
    assert store.sweep() == 1
    assert [p.name for p in (tmp_path / ".tmp").iterdir()] == ["young"]
    assert store.list("") == ["a"]


def test_the_first_put_of_a_process_sweeps(tmp_path: Path) -> None:
    LocalStore(tmp_path).put_new("a", b"x")
    left = tmp_path / ".tmp" / "old"
    left.write_bytes(b"junk")
    os.utime(left, (time.time() - 25 * 3600,) * 2)
    after = LocalStore(tmp_path)
    after.put_new("b", b"y")
    assert list((tmp_path / ".tmp").iterdir()) == []
    left.mkdir()  # what cannot be removed does no harm
    os.utime(left, (time.time() - 25 * 3600,) * 2)
    assert after.sweep() == 0
    assert LocalStore(tmp_path).put_new("c", b"z") is Put.WON


def test_maps_are_zero_copy_and_hold_no_descriptor(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durable=False)
    store.put_new("big", b"x" * (1 << 20))
    descriptors = Path("/proc/self/fd")
    before, allocated = len(list(descriptors.iterdir())), pa.total_allocated_bytes()
    held = [store.map("big") for _ in range(50)]
    assert len(list(descriptors.iterdir())) == before
    assert pa.total_allocated_bytes() == allocated
    assert not held[0].is_mutable


KILLER = """
import os, random, signal, sys, time
from millpond.state.store.local_store import LocalStore
root, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
for kill in range(kills):
    started, start = os.pipe()
    pid = os.fork()
    if pid == 0:
        store, i = LocalStore(root, durable=kill % 2 == 0), 0
        while True:
            fill = bytes([(kill + i) % 256])
            store.put_new(f"k{kill}/{i}", [fill * 100_000] * 20)
            os.write(start, b"1")
            i += 1
    os.close(start)
    os.read(started, 1)
    os.close(started)
    time.sleep(rng.uniform(0, 0.02))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def run_script(script: str, *arguments: object) -> None:
    source = Path(local_store.__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        timeout=60,
    )


def test_a_killed_writer_leaves_whole_files_or_none(tmp_path: Path) -> None:
    seed, kills = random.randrange(1 << 30), 40
    print(f"seed {seed}")
    run_script(KILLER, tmp_path, seed, kills)
    store = LocalStore(tmp_path)
    names = store.list("")
    assert len(names) >= kills
    for name in names:
        kill, i = name[1:].split("/")
        body = store.map(name)
        assert body.size == 2_000_000, name
        assert body.equals(pa.py_buffer(bytes([(int(kill) + int(i)) % 256]) * 2_000_000)), name
    # The kills did hit writers at work, and what they left is swept without harm.
    left = store.sweep(now=time.time() + 2 * local_store.STALE_S)
    assert left >= 1
    assert store.list("") == names


RACERS = """
import os, sys
from millpond.state.store.local_store import LocalStore
root, writers, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate, opener = os.pipe()
children = []
for writer in range(writers):
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        os.read(gate, 1)
        store = LocalStore(root, durable=False)
        outcomes = [store.put_new(f"race/{n}", [f"{writer}".encode() * 5000]).value for n in range(names)]
        LocalStore(root).put_new(f"outcomes/{writer}", " ".join(outcomes).encode())
        os._exit(0)
    children.append(pid)
os.close(opener)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def test_of_eight_processes_one_wins(tmp_path: Path) -> None:
    writers, names = 8, 100
    run_script(RACERS, tmp_path, writers, names)
    store = LocalStore(tmp_path)
    outcomes = [store.get(f"outcomes/{w}").decode().split() for w in range(writers)]
    for n in range(names):
        said = [outcomes[w][n] for w in range(writers)]
        assert sorted(said) == ["lost"] * (writers - 1) + ["won"]
        assert store.get(f"race/{n}") == f"{said.index('won')}".encode() * 5000


# --- object: every doubt is told ---


class Server(http.server.ThreadingHTTPServer):
    """An S3 that answers puts as told and heads by whether the object is said to be there."""

    put_status = 200
    exists = False
    drop = False
    delay_s = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.puts: list[tuple[str, str | None, bytes]] = []
        self.released = threading.Event()


class Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.puts.append((self.path, self.headers["if-none-match"], body))
        self.server.released.wait(self.server.delay_s)
        if not self.server.drop:
            self._answer(self.server.put_status)

    def do_HEAD(self) -> None:
        self._answer(200 if self.server.exists else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.released.set()
        made.shutdown()
        thread.join()


def at(server: Server, **options: object) -> Store:
    endpoint = f"http://127.0.0.1:{server.server_port}"
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    return open_store("s3://bucket/pond?region=us-east-1", endpoint=endpoint, **keys, **options)


def test_a_put_is_conditional_and_whole(server: Server) -> None:
    assert at(server).put_new("a/b", [b"12", b"3"]) is Put.WON
    assert server.puts == [("/bucket/pond/a/b", "*", b"123")]


@pytest.mark.parametrize("status", [400, 429, 500, 501, 502, 503])
def test_an_error_status_is_unknown_and_the_put_is_not_repeated(server: Server, status: int) -> None:
    server.put_status = status
    with pytest.raises(PutUnknownError) as caught:
        at(server).put_new("a", b"1")
    assert caught.value.unknown
    assert len(server.puts) == 1


def test_a_dropped_connection_is_unknown(server: Server) -> None:
    server.drop = True
    with pytest.raises(PutUnknownError):
        at(server).put_new("a", b"1")
    assert len(server.puts) == 1


def test_a_timeout_is_unknown(server: Server) -> None:
    server.delay_s = 30
    with pytest.raises(PutUnknownError):
        at(server, timeout="200ms").put_new("a", b"1")
    assert len(server.puts) == 1


def test_nobody_listening_is_an_error(server: Server) -> None:
    with pytest.raises(StoreError):
        open_store("s3://b?region=x&endpoint=http://127.0.0.1:1", skip_signature=True).put_new("a", b"1")


@pytest.mark.parametrize("status", [409, 412])
def test_lost_needs_the_winner_to_be_there(server: Server, status: int) -> None:
    server.put_status = status
    with pytest.raises(PutUnknownError):
        at(server).put_new("a", b"1")
    server.exists = True
    assert at(server).put_new("a", b"1") is Put.LOST


@pytest.mark.parametrize(("status", "hint"), [(401, "credentials"), (403, "credentials"), (404, "create it")])
def test_a_clear_refusal_is_no_doubt(server: Server, status: int, hint: str) -> None:
    server.put_status = status
    with pytest.raises(StoreError, match=r"cannot write|may not write") as caught:
        at(server).put_new("a", b"1")
    assert not caught.value.unknown
    assert isinstance(caught.value, NotWritableError) == (status != 404), "readers go on without a pin"
    assert hint in (caught.value.hint or "")


def test_a_forked_child_is_told_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    store = in_obstore_memory()
    monkeypatch.setattr(object_store, "_process", os.getpid() + 1)
    for call in (lambda: store.put_new("a", b"1"), lambda: store.get("a"), lambda: store.list("")):
        with pytest.raises(InternalError, match="forked"):
            call()


def test_chunks_are_the_whole_object_in_order() -> None:
    store = in_obstore_memory()
    body = os.urandom(3 * object_store.CHUNK_BYTES + 17)
    store.put_new("a", body)
    assert b"".join(store.chunks("a")) == body
    with pytest.raises(MissingError):
        list(store.chunks("b"))

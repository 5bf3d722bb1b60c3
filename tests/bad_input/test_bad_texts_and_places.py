"""Texts that no UTF-8 can hold, and places that cannot be a pond: an InvalidError that says so."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource
from millpond.state.store import s3_credentials
from millpond.state.store.store import open_store

LONE = "a\ud800b"
TOLD = "is not valid Unicode text|cannot be the (name|id)|cannot be a"
CALLS: dict[str, Callable[[Pond], object]] = {
    "a row": lambda pond: pond.insert("t", [{"k": LONE, "v": "x"}]),
    "a row to delete": lambda pond: pond.delete("t", [{"k": LONE, "v": "x"}]),
    "a key": lambda pond: pond.lookup("t", LONE),
    "a key among others": lambda pond: pond.lookup("t", [{"k": "x"}, {"k": LONE}]),
    "a literal": lambda pond: pond.sql(f"INSERT INTO t VALUES ('{LONE}', 'x')"),
    "a query": lambda pond: pond.sql(f"SELECT '{LONE}'"),
    "an identifier": lambda pond: pond.sql(f'CREATE TABLE "{LONE}" (k int)'),
    "a parameter": lambda pond: pond.sql("INSERT INTO t VALUES (?, 'x')", params=[LONE]),
    "a parameter of a query": lambda pond: pond.sql("SELECT * FROM t WHERE k = :k", params={"k": LONE}),
    "a parameter inside a list": lambda pond: pond.sql("SELECT ?", params=[["x", LONE]]),
    "a savepoint": lambda pond: pond.savepoint(LONE),
    "another name": lambda pond: pond.rename_view("t", LONE),
    "a path": lambda pond: pond.fork(f"/tmp/{LONE}"),
    "an address": lambda pond: pond.backup(f"memory://{LONE}"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_lone_surrogate_is_refused_and_nothing_is_written(call: str) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k text PRIMARY KEY, v text)")
        before = pond.store.list("inbox/")
        with pytest.raises(InvalidError, match=TOLD) as caught:
            CALLS[call](pond)
        str(caught.value).encode()
        assert pond.store.list("inbox/") == before
        pond.drain()


def test_a_lone_surrogate_in_a_definition_is_refused() -> None:
    pond = millpond.open("memory://", engine="inline")
    text = pa.schema([("k", pa.string())])
    good = pond.table("good", text, key="k")
    sink = CallbackSink(print)
    source = MemorySource(text)
    for call in (
        lambda: pond.table(LONE, text, key="k"),
        lambda: pond.table("x", {LONE: str}),
        lambda: good.view(LONE),
        lambda: good.sink(LONE, sink),
        lambda: pond.stream(LONE, source),
        lambda: good.filter("k = 'x'", id=LONE),
        lambda: source.push([{"k": LONE}]),
    ):
        with pytest.raises(InvalidError, match=TOLD):
            call()


def test_a_file_is_no_pond(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    for path in (tmp_path / "plain", tmp_path / "plain" / "below", str(tmp_path / "plain")):
        with pytest.raises(InvalidError, match="plain is a file, and a pond is a folder"):
            millpond.open(path, engine="inline")


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        closed = listener.getsockname()
    monkeypatch.setattr(s3_credentials, "METADATA", closed)


@pytest.mark.usefixtures("no_credentials")
def test_a_bucket_without_credentials_is_told_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    pond = millpond.open("s3://bucket/pond", engine="inline", store_options={"cache": str(tmp_path)})
    for call in (lambda: pond.epoch, lambda: pond.store.put_new("a", b"1"), lambda: pond.sql("SHOW TABLES")):
        with pytest.raises(InvalidError, match="there are no credentials for s3://bucket/pond") as caught:
            call()
        assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize(
    "options",
    [{"access_key_id": "a", "secret_access_key": "b"}, {"AWS_ACCESS_KEY_ID": "a"}, {"skip_signature": True}],
)
def test_credentials_that_are_given_are_used(options: dict[str, object]) -> None:
    assert s3_credentials.has_credentials(options)
    assert not s3_credentials.has_credentials({"region": "x", "endpoint": "http://x"})
    if "AWS_ACCESS_KEY_ID" not in options:
        store = open_store(
            "s3://bucket/pond", region="x", endpoint="http://127.0.0.1:1", retries=0, **options
        )
        with pytest.raises(millpond.UnavailableError):
            store.list("")


def test_a_path_with_a_nul_character() -> None:
    with pytest.raises(InvalidError, match="NUL character"):
        millpond.open("ponds/a\0b", engine="inline")

"""The HTTP sink against a real server: conformance, failures, refused rows, waiting, and secrets."""

from __future__ import annotations

import contextlib
import decimal
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.plan.codec import dumps
from millpond.sinks import http as http_sinks
from millpond.sinks.http import HttpSink, retry_after_s
from millpond.testing.sinks import CHECKS, Deliverer, Feed, run_check
from tests.lakes.kills import kill_and_compare


class Receiver:
    """A receiver that remembers idempotency keys, as a careful one does."""

    def __init__(self) -> None:
        self.bodies: dict[str, Any] = {}  # by key, in the order in which they came
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, dict[str, str], str]] = []  # given before anything is stored
        self.fails = 0.0  # the share of requests that fail, before or after they are stored
        self.refuses: Any = None  # of a row: the reason why it is refused
        self.rng = random.Random(1)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), json.loads(raw)))
                status, headers, text = receiver.answer(self.headers["Idempotency-Key"], json.loads(raw))
                if status == 0:  # the connection breaks
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, key: str, body: Any) -> tuple[int, dict[str, str], str]:
        if self.answers:
            return self.answers.pop(0)
        luck = self.rng.random()
        if luck < self.fails / 2:
            return self.rng.choice([0, 500, 503, 429]), {"Retry-After": "0"}, "try again"
        if self.refuses is not None:
            for row in body["rows"]:
                if (why := self.refuses(row)) is not None:
                    return 422, {}, why
        known = self.bodies.setdefault(key, body)
        assert known == body, f"another request had the key {key}"
        if luck < self.fails:
            return 0, {}, ""  # it is stored, and nobody learns it
        return 200, {}, "ok"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(http_sinks.random, "uniform", lambda low, high: 0.01)  # pauses are short
    found = Receiver()
    with contextlib.closing(found):
        yield found


class Target:
    """What a receiver has that counts every key once."""

    whole = False

    def __init__(self, receiver: Receiver, fails: float) -> None:
        self.receiver, receiver.fails = receiver, fails

    def sink(self) -> HttpSink:
        return HttpSink(self.receiver.url, batch_rows=700, tries=20)

    def reset(self) -> None:
        self.receiver.bodies.clear()
        self.receiver.requests.clear()
        self.receiver.refuses = None

    def read(self) -> Sequence[Mapping[str, Any]]:
        bodies = list(self.receiver.bodies.values())
        if not bodies:
            return []
        if bodies[0]["mode"] == "complete":
            newest = max(b["epoch"] for b in bodies)
            return [row for b in bodies if b["epoch"] == newest for row in b["rows"]]
        if bodies[0]["mode"] != "upsert":
            return [row for b in bodies for row in b["rows"]]
        found: dict[int, Any] = {}
        for body in sorted(bodies, key=lambda b: (b["epoch"], b["first"])):
            for row in body["rows"]:
                found.pop(row["k"], None)
                if row["_op"] == "upsert":
                    found[row["k"]] = {n: v for n, v in row.items() if n != "_op"}
        return list(found.values())

    def poison(self, row: dict[str, Any]) -> dict[str, Any]:
        bad = row["k"]
        self.receiver.refuses = lambda one: "k is not welcome" if one["k"] == bad else None
        return row

    def same(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, decimal.Decimal):
            return expected == decimal.Decimal(found)
        return http_sinks.json_text(expected) == http_sinks.json_text(found)


@pytest.mark.parametrize("fails", [0.0, 0.3])
@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: str, fails: float, receiver: Receiver) -> None:
    run_check(check, Target(receiver, fails))


def give(receiver: Receiver, sink: HttpSink, count: int = 5) -> Any:
    feed = Feed("append")
    deliverer = Deliverer(Target(receiver, 0.0), "append")
    deliverer.sink = sink
    try:
        return deliverer.give(feed.following(count))
    finally:
        deliverer.close()


def test_requests_have_keys_headers_and_places(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken-of-the-hook")
    sink = HttpSink(
        receiver.url + "?source=pond",
        {"Authorization": "Bearer ${env:HOOK_TOKEN}"},
        batch_rows=2,  # type: ignore[arg-type]
    )
    assert not give(receiver, sink)
    assert [path for path, _, _ in receiver.requests] == ["/hook?source=pond"] * 3
    assert {h["Authorization"] for _, h, _ in receiver.requests} == {"Bearer t0ken-of-the-hook"}
    epoch = receiver.requests[0][2]["epoch"]
    keys = [h["Idempotency-Key"] for _, h, _ in receiver.requests]
    assert keys == [f"c0ffee:checked:{epoch}:{first}" for first in ("0+2", "2+2", "4+1")]
    assert [(b["first"], b["total"], len(b["rows"])) for _, _, b in receiver.requests] == [
        (0, 5, 2),
        (2, 5, 2),
        (4, 5, 1),
    ]
    for shown in (repr(sink), str(dumps(sink))):
        assert "t0ken-of-the-hook" not in shown


def test_retry_after_is_honoured_and_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(http_sinks.time, "sleep", slept.append)
    receiver.answers = [(429, {"Retry-After": "3"}, "slowly"), (503, {}, "later")]
    assert not give(receiver, HttpSink(receiver.url))
    assert slept[0] == 3.0 and slept[1] < 1.0
    receiver.answers = [(429, {"Retry-After": "3600"}, "slowly")]
    with pytest.raises(UnavailableError, match="the receiver is unavailable") as error:
        give(receiver, HttpSink(receiver.url))
    assert "429: slowly" in str(error.value)
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_a_receiver_that_never_answers_times_out(receiver: Receiver) -> None:
    began = time.monotonic()
    slow = threading.Event()
    answer = receiver.answer
    receiver.answer = lambda key, body: (slow.wait(10), answer(key, body))[1]  # type: ignore[assignment,method-assign,func-returns-value]
    with pytest.raises(UnavailableError, match="unavailable") as error:
        give(receiver, HttpSink(receiver.url, timeout="50ms", tries=2))
    slow.set()
    assert "timed out" in str(error.value)
    assert time.monotonic() - began < 5
    with pytest.raises(UnavailableError, match="unavailable"):
        give(receiver, HttpSink("http://127.0.0.1:9/", tries=1))


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 410])
def test_a_wrong_address_loses_no_row(status: int, receiver: Receiver) -> None:
    receiver.answers = [(status, {"Location": "/elsewhere"}, "no")] * 10
    with pytest.raises(InvalidError, match=f"HTTP status {status}"):
        give(receiver, HttpSink(receiver.url))
    assert len(receiver.requests) == 1, "it is neither repeated nor taken apart"


def test_refused_rows_are_found_and_others_arrive(receiver: Receiver) -> None:
    receiver.refuses = lambda row: "too small" if row["k"] in (3, 77) else None
    refused = give(receiver, HttpSink(receiver.url), 100)
    assert sorted(json.loads(r.row)["k"] for r in refused) == [3, 77]
    assert all(r.reason == "HTTP status 422: too small" for r in refused)
    arrived = [row["k"] for body in receiver.bodies.values() for row in body["rows"]]
    assert sorted(arrived) == [k for k in range(100) if k not in (3, 77)]


def test_a_receiver_that_refuses_everything_is_an_error(receiver: Receiver) -> None:
    """Rows of another format must not all become error rows."""
    receiver.refuses = lambda row: "what is this?"
    with pytest.raises(InvalidError, match="refuses more than 10 rows"):
        give(receiver, HttpSink(receiver.url, refused_max=10), 100)
    assert len(receiver.requests) < 40


def test_through_sql_with_a_secret(receiver: Receiver, tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("CREATE SECRET hook WITH (value = 't0ken-of-sql')")
        pond.sql(f"""
            CREATE TABLE orders (id BIGINT PRIMARY KEY, n BIGINT);
            CREATE SINK hook FROM orders WITH (connector = 'http', url = '{receiver.url}', mode = 'upsert',
                header.authorization = secret hook, batch.rows = 10, timeout = '5s', tries = 3);
        """)
        pond.sql("INSERT INTO orders VALUES (1, 2), (2, 3)")
        pond.drain()
        pond._runner.drain(settle=True)  # type: ignore[union-attr]
        (_, headers, body) = receiver.requests[-1]
        assert headers["authorization"] == "t0ken-of-sql"
        assert sorted(row["id"] for row in body["rows"]) == [1, 2]
        assert pond.sinks()[0].guarantee == "at_least_once"
    stored = [p for p in (tmp_path / "pond").rglob("*") if p.is_file() and b"t0ken-of-sql" in p.read_bytes()]
    assert [p.name for p in stored] == ["hook"], "the value is in its own file only"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://x"}, "needs an address"),
        ({"url": "http://ann:pw@x/"}, "must not contain credentials"),
        ({"url": "http://x", "headers": {"Host": "y"}}, "cannot be set"),
        ({"url": "http://x", "headers": {"a b": "y"}}, "cannot be set"),
        ({"url": "http://x", "headers": {"A": "${vault:x}"}}, "no secret is found"),
        ({"url": "http://x", "batch_rows": 0}, "batch_rows"),
        ({"url": "http://x", "tries": True}, "tries"),
        ({"url": "http://x", "timeout": "0s"}, "timeout"),
    ],
)
def test_wrong_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        HttpSink(**given)


def test_a_line_break_in_a_secret_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_TOKEN", "hunter2\r\nX-Evil: 1")
    with pytest.raises(InvalidError, match="characters that a header cannot have") as error:
        HttpSink("http://x", {"Authorization": "${env:BROKEN_TOKEN}"}).open(None)  # type: ignore[arg-type]
    assert "hunter2" not in str(error.value)


def test_an_answer_that_repeats_a_secret_does_not_show_it(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "hunter2-of-the-hook")
    receiver.refuses = lambda row: f"refused: {receiver.requests[-1][1]}"  # as gateways that show the request
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        view = pond.table("t", {"k": int}).view("v")
        view.sink("hook", HttpSink(receiver.url, {"Authorization": "Bearer ${env:HOOK_TOKEN}"}))
        pond.insert("t", {"k": 1})
        pond.drain()
        (row,) = pond.errors().to_pylist()
        assert "Bearer ***" in row["reason"]
    assert "hunter2-of-the-hook" in str(receiver.requests)
    stored = b"".join(p.read_bytes() for p in (tmp_path / "p").rglob("*") if p.is_file())
    assert b"hunter2" not in stored


KILLED = """
from millpond.sinks.http import HttpSink
def attach(view, folder):
    view.sink("log", HttpSink({url!r}), mode="changelog")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 50])
def test_kills_with_two_coordinators(kills: int, receiver: Receiver, tmp_path: Path) -> None:
    """A receiver that ignores keys that it has counts each change once, also if requests fail."""
    receiver.fails = 0.1

    def read(folder: Path) -> tuple[list[dict[str, Any]], None]:
        return [row for body in receiver.bodies.values() for row in body["rows"]], None

    kill_and_compare(tmp_path, KILLED.format(url=receiver.url), read, kills=kills, workers=2, seed=5)
    assert len(receiver.requests) > len(receiver.bodies)  # some came again

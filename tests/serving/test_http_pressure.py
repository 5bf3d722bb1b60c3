"""HTTP under pressure: backpressure, a server that stops, clients that leave or do not read."""

from __future__ import annotations

import concurrent.futures
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

import millpond
from millpond.server.http import http_listener
from tests.waiting import until

ENDLESS = {"sql": "SELECT count(*) FROM range(10000000) a, range(10000000) b"}


def test_backpressure_refuses_rows_until_epochs_catch_up(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    with millpond.open(tmp_path / "pond", engine="inline") as first:
        first.sql("CREATE TABLE t (a int)")
    with (
        millpond.open(tmp_path / "pond", engine="inline") as runner,
        millpond.open(tmp_path / "pond", engine="inline") as pond,
    ):
        runner.on_epoch(lambda manifest: gate.wait(60) and None)
        runner.start()
        gate.clear()  # from now on each epoch waits
        with pond.serve(http_port=0, inbox_entries_max=3) as server:
            url = f"{server.urls['http']}/v1/tables/t"
            answers = [httpx.post(url, json={"a": n}, timeout=60) for n in range(8)]
            codes = [answer.status_code for answer in answers]
            assert codes == sorted(codes) and codes[0] == 200 and codes[-1] == 429, codes
            refused = answers[-1]
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["kind"] == "UnavailableError"
            gate.set()
            until(lambda: httpx.post(url, json={"a": 100}, timeout=60).status_code == 200)
            accepted = codes.count(200) + 1
            until(lambda: pond.read("t").num_rows >= accepted)
            assert pond.read("t").num_rows == accepted, "what was refused was not written"
        runner.stop()


def test_a_stopped_server_ends_statements_with_a_reason() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        server = pond.serve(http_port=0)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            running = [
                pool.submit(httpx.post, f"{server.urls['http']}/v1/sql", json=ENDLESS, timeout=60)
                for _ in range(3)
            ]
            until(
                lambda: (
                    server.serving.statements.activity.samples().value("millpond_connections", "http") == 3
                )
            )
            time.sleep(0.2)  # most of them run by now; the others have not begun
            server.stop()
            for answer in (future.result() for future in running):
                assert answer.status_code == 503
                assert "shutting down" in answer.json()["error"]["message"]


def test_a_client_that_leaves_ends_its_statement() -> None:
    with (
        millpond.open("memory://", engine="inline") as pond,
        pond.serve(http_port=0, statements_max=1) as server,
    ):
        url = f"{server.urls['http']}/v1/sql"
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=ENDLESS, timeout=0.5)
        assert httpx.post(url, json={"sql": "SELECT 1 AS x"}, timeout=60).json()["rows"] == [{"x": 1}]


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "STALL_S_MAX", 0.3)
    with millpond.open("memory://", engine="inline") as pond, pond.serve(http_port=0) as server:
        port = int(server.urls["http"].rpartition(":")[2])
        body = b'{"sql": "SELECT repeat(\'x\', 1000) AS t FROM range(100000)"}'
        head = b"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head % len(body) + body)
            activity = server.serving.statements.activity
            until(lambda: activity.samples().value("millpond_connections", "http") == 1, 20)
            until(lambda: activity.samples().value("millpond_connections", "http") == 0, 60)
        assert httpx.get(f"{server.urls['http']}/health", timeout=60).status_code == 200

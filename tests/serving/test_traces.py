"""Spans of statements and epochs reach an OTLP collector; `--log json` writes JSON lines."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import millpond
from tests.serving.served_process import served

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    received: list[bytes] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_and_json_logs_of_a_server(tmp_path: Path, collector: tuple[str, list[bytes]]) -> None:
    url, received = collector
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    with served(tmp_path / "pond", "--http", "0", "--log", "json", env=env) as found:
        sql = found.url("http") + "/v1/sql"
        assert httpx.post(sql, json={"sql": "INSERT INTO t VALUES (2)"}, timeout=60).status_code == 200
        assert httpx.post(sql, json={"sql": "SELECT nope FROM t"}, timeout=60).status_code == 400
        code, errors = found.stop()
    assert code == 0, errors
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    epochs = [line for line in lines if line["logger"] == "millpond.pond" and "epoch" in line]
    assert epochs and {"time", "level", "message", "rows", "ms"} <= set(epochs[-1])
    spans = [
        span
        for raw in received
        for resource in trace_service.ExportTraceServiceRequest.FromString(raw).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    named = {span.name: span for span in spans}
    assert {"INSERT", "SELECT", "epoch", "run", "level 0"} <= set(named)
    attributes = {a.key: a.value for a in named["INSERT"].attributes}
    assert attributes["db.statement"].string_value == "INSERT INTO t VALUES (2)"
    assert attributes["millpond.protocol"].string_value == "http"
    assert named["SELECT"].status.code == 2, "an error"
    assert named["run"].parent_span_id == named["epoch"].span_id

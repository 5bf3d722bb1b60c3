"""A folder in a bucket: the coordinator retries polls, so a request is not retried for long by Arrow too."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from millpond.errors import UnavailableError
from millpond.sources.folder import Folder


def test_a_bucket_that_is_away_is_reported_after_one_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Away(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Away)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        }.items():
            monkeypatch.setenv(name, value)
        folder = Folder("s3://bucket/orders?region=us-east-1")
        with pytest.raises(UnavailableError, match=r"folder 's3://bucket/orders"):
            folder.list(None)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert 1 <= len(asked) <= 2

"""An HTTP proxy in front of an S3 server, which refuses, stalls and loses answers for a while.

A lost answer is that of a request that took effect: the connection ends after the server has answered.
"""

from __future__ import annotations

import http.client
import random
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHARE = 0.4  # of the requests that meet a fault while it lasts
REFUSED = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class FaultyS3:
    """`503`: requests are refused; `stall`: answers wait; `lost`: answers of requests never come."""

    def __init__(self, host: str, port: int, server_port: int) -> None:
        self.server_port = server_port
        self.met: Counter[str] = Counter()  # by fault: requests that met it
        self._host = host
        self._random = random.Random(7)
        self._lock = threading.Lock()
        self._fault, self._until, self._stall_s = "", 0.0, 0.0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                try:
                    proxy.answer(self)
                except ConnectionError:  # the client was killed, or has given up
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any

            def log_message(self, format: str, *args: object) -> None: ...

        class Listener(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                if not isinstance(sys.exception(), ConnectionError):  # of a client that was killed
                    super().handle_error(request, client_address)

        self._listener = Listener((host, port), Handler)
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, name="faulty-s3", daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()

    def fault(self, kind: str, seconds: float) -> None:
        with self._lock:
            self._fault, self._until, self._stall_s = kind, time.monotonic() + seconds, seconds

    def _meets(self) -> str:
        with self._lock:
            if time.monotonic() > self._until or self._random.random() > SHARE:
                return ""
            self.met[self._fault] += 1
            return self._fault

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        fault = self._meets()
        if fault == "503":
            asked.send_response(503)
            asked.send_header("Content-Length", str(len(REFUSED)))
            asked.end_headers()
            asked.wfile.write(b"" if asked.command == "HEAD" else REFUSED)
            return
        server = http.client.HTTPConnection(self._host, self.server_port, timeout=120)
        try:
            server.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                server.putheader(name, value)
            server.endheaders(body)
            given = server.getresponse()
            data = given.read()
        except (OSError, http.client.HTTPException):  # the server was killed: so is the connection to it
            asked.close_connection = True
            return
        finally:
            server.close()
        if fault == "lost":
            asked.close_connection = True
            return
        if fault == "stall":
            time.sleep(self._stall_s)
        asked.send_response_only(given.status)
        for name, value in given.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                asked.send_header(name, value)
        length = given.getheader("Content-Length") if asked.command == "HEAD" else None
        asked.send_header("Content-Length", length or str(len(data)))
        asked.end_headers()
        asked.wfile.write(data)

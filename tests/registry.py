"""A schema registry for tests: a real HTTP server on the loopback address."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class Registry:
    def __init__(self) -> None:
        schemas: dict[int, str] = {}
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                number = self.path.rpartition("/")[2]
                found = schemas.get(int(number)) if number.isdecimal() else None
                body = json.dumps({"schema": found} if found else {"error_code": 40403}).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.schemas, self.asked = schemas, asked
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def add(self, schema: Mapping[str, Any]) -> int:
        number = len(self.schemas) + 1
        self.schemas[number] = json.dumps(schema)
        return number

    def message(self, number: int, row: Mapping[str, Any]) -> bytes:
        """A message in the form of the registry."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(self.schemas[number])), row)
        return struct.pack(">BI", 0, number) + out.getvalue()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""A schema registry for tests: a real HTTP server on the loopback address."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import fastavro


class Registry:
    def __init__(self) -> None:
        schemas: dict[int, str] = {}
        asked: list[str] = []
        subjects: dict[str, list[int]] = {}  # the ids of their versions
        references: dict[int, list[dict[str, Any]]] = {}
        kinds: dict[int, str] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                parts = unquote(self.path).strip("/").split("/")
                number = None
                if parts[0] == "schemas" and parts[-1].isdecimal():
                    number = int(parts[-1])
                elif parts[0] == "subjects" and subjects.get(parts[1]):
                    versions = subjects[parts[1]]
                    number = versions[-1] if parts[-1] == "latest" else versions[int(parts[-1]) - 1]
                if number in schemas:
                    found = {"schema": schemas[number], "references": references.get(number, [])}
                    self.answer(200, {**found, "schemaType": kinds.get(number, "AVRO")})
                else:
                    self.answer(404, {"error_code": 40403})

            def do_POST(self) -> None:
                asked.append(self.path)
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = unquote(self.path).strip("/").split("/")[1]
                kind = sent.get("schemaType", "AVRO")
                if kind == "AVRO":
                    fastavro.parse_schema(json.loads(sent["schema"]))
                same = [n for n, text in schemas.items() if text == sent["schema"]]
                number = same[0] if same else len(schemas) + 1
                schemas[number], kinds[number] = sent["schema"], kind
                if number not in subjects.setdefault(subject, []):
                    subjects[subject].append(number)
                self.answer(200, {"id": number})

            def answer(self, status: int, found: Any) -> None:
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.schemas, self.asked = schemas, asked
        self.subjects, self.references = subjects, references
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

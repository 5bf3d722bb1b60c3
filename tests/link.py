"""A TCP proxy in front of a server: it can be cut, stalled and slowed down, and it counts HTTP requests.

A test that reaches its S3 server through a Link can have outages, lost answers and latency without touching the
server.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_REQUEST = re.compile(rb"(?:^|\r\n|\n)?(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")


class Link:
    def __init__(self, port: int, latency_s: float = 0.0) -> None:
        self._port = port
        self.latency_s = latency_s  # added to each answer
        self.requests: list[tuple[float, str, str]] = []  # when, method, path
        self.bytes = 0  # of answers
        self._up = threading.Event()
        self._up.set()
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="link", daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and reset the open ones."""
        self._up.clear()
        self._close_all()

    def restore(self) -> None:
        self._up.set()

    def stall(self, stalled: bool) -> None:
        """Hold back all answers, without closing anything."""
        if stalled:
            self._flows.clear()
        else:
            self._flows.set()

    def close(self) -> None:
        self._up.clear()
        self._listener.close()
        self._flows.set()
        self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            found, self._open = self._open, set()
        for one in found:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._up.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            asked = threading.Event()
            threading.Thread(target=self._forward, args=(client, server, asked), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, asked), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                for found in _REQUEST.finditer(data):
                    self.requests.append((time.monotonic(), found[1].decode(), found[2].decode()))
                    asked.set()
                server.sendall(data)
        self._end(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 18):
                if asked.is_set():
                    asked.clear()
                    time.sleep(self.latency_s)
                self._flows.wait()
                self.bytes += len(data)
                client.sendall(data)
        self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._open -= set(sockets)
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def link_to(endpoint: str, latency_s: float = 0.0) -> Iterator[Link]:
    made = Link(int(endpoint.rpartition(":")[2]), latency_s)
    try:
        yield made
    finally:
        made.close()

"""The bytes of one connection: reads messages whole, writes with backpressure, can be upgraded to TLS.

Law: at most one message and what the socket delivers at once is buffered; a client that does not read only
stops itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable

from millpond.server.pgwire.messages import (
    KINDS,
    STARTUP_BYTES_MAX,
    ClientMessage,
    ProtocolError,
    StartupMessage,
    client_message,
    startup_message,
)

READ_AHEAD = 256 << 10  # bytes of further messages that are buffered while a statement runs
SEND_AT = 64 << 10  # bytes that are collected before they are sent


class ClientGoneError(ConnectionError):
    """The client has closed the connection."""


class PgTransport(asyncio.Protocol):
    def __init__(self, connected: Callable[[PgTransport], None]) -> None:
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._in = bytearray()
        self._out: list[bytes] = []
        self._out_size = 0
        self._wanted = 0
        self._waiting: asyncio.Future[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._paused = False
        self._upgrading = False
        self.gone = False
        self.gone_soon = False  # the server stops: no further message is read
        self.on_gone: Callable[[], None] = lambda: None
        # While it is set, messages that arrive are shown to it first; it returns how many bytes it has taken.
        self.quick: Callable[[bytearray], int] | None = None

    @property
    def address(self) -> str:
        """The address of the client, without its port."""
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) else ""

    # -- what asyncio calls -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        first = self._transport is None
        self._transport = transport
        if first:
            found = transport.get_extra_info("socket")
            if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connected(self)

    def data_received(self, data: bytes) -> None:
        self._in += data
        if self.quick is not None and not self.gone_soon and (taken := self.quick(self._in)):
            del self._in[:taken]
        if len(self._in) >= max(self._wanted, READ_AHEAD) and not self._paused and self._transport:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._lost()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _lost(self) -> None:
        if not self.gone:
            self.gone = True
            self._may_write.set()
            self._wake()
            self.on_gone()

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None and not waiting.done() and (self.gone or len(self._in) >= self._wanted):
            waiting.set_result(None)

    # -- reading ------------------------------------------------------------------------

    async def _take(self, count: int) -> bytes:
        while len(self._in) < count:
            if self.gone:
                raise ClientGoneError("the client has closed the connection")
            self._wanted = count
            if self._paused and self._transport is not None:
                self._paused = False
                self._transport.resume_reading()
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting, self._wanted = None, 0
        found = bytes(self._in[:count])
        del self._in[:count]
        if self._paused and len(self._in) < READ_AHEAD and self._transport is not None and not self.gone:
            self._paused = False
            self._transport.resume_reading()
        return found

    async def startup(self) -> StartupMessage:
        (size,) = struct.unpack("!i", await self._take(4))
        if not 8 <= size <= STARTUP_BYTES_MAX:
            raise ProtocolError("this is not the PostgreSQL protocol", detail=f"a length of {size}")
        return startup_message(await self._take(size - 4))

    def message_now(self, bytes_max: int) -> ClientMessage | None:
        """The next message, if it has arrived as a whole; most clients send several at once."""
        data = self._in
        if self.gone_soon or self._paused or len(data) < 5:
            return None
        size = int.from_bytes(data[1:5], "big", signed=True)
        if data[0] not in KINDS or not 4 <= size <= bytes_max + 4 or len(data) <= size:
            return None  # `message` waits for it, or refuses it
        kind, body = bytes(data[:1]), bytes(data[5 : size + 1])
        del data[: size + 1]
        return client_message(kind, body)

    async def message(self, bytes_max: int) -> ClientMessage:
        if self.gone_soon:
            raise ClientGoneError("the server stops")
        head = await self._take(5)
        kind, (size,) = head[:1], struct.unpack("!i", head[1:])
        if kind[0] not in KINDS:
            raise ProtocolError(f"there is no message of type {kind!r}")
        if not 4 <= size <= bytes_max + 4:
            raise ProtocolError(f"a message of {size} bytes is not accepted", detail=f"at most {bytes_max}")
        return client_message(kind, await self._take(size - 4))

    @property
    def has_input(self) -> bool:
        return len(self._in) > 0

    # -- writing ------------------------------------------------------------------------

    @property
    def may_write(self) -> bool:
        """Does the client read what it is sent?"""
        return self._may_write.is_set() and not self.gone

    def put(self, data: bytes) -> None:
        """Collect bytes to be sent."""
        self._out.append(data)
        self._out_size += len(data)

    async def flush(self) -> None:
        """Send what was collected; waits while the client does not read."""
        self.send()
        if not self._may_write.is_set():
            await self._may_write.wait()
        if self.gone:
            raise ClientGoneError("the client has closed the connection")

    async def flush_if_large(self) -> None:
        if self._out_size >= SEND_AT:
            await self.flush()

    def send(self) -> None:
        if self._out and self._transport is not None and not self.gone:
            self._transport.write(b"".join(self._out))
        self._out.clear()
        self._out_size = 0

    # -- the connection -----------------------------------------------------------------

    async def upgrade(self, context: ssl.SSLContext) -> None:
        """Continue over TLS."""
        assert self._transport is not None
        if self._in:
            raise ProtocolError("data came before the TLS handshake")
        made = await asyncio.get_running_loop().start_tls(self._transport, self, context, server_side=True)
        if made is None:
            raise ClientGoneError("the TLS handshake was not completed")
        self._transport = made

    def stop_reading(self) -> None:
        """Accept no further message; what runs can still be answered."""
        self.gone_soon = True

    def close(self) -> None:
        if self._transport is not None:
            self.send()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

"""Hands accepted connections to another process: the socket of each, with its number.

Each message has a fixed size and carries one socket, so that the receiver can take them one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MESSAGE = struct.Struct("!I?")


@dataclass(frozen=True)
class HandedSocket:
    """A connection, its number, and whether the server has a place for it."""

    client: socket.socket
    pid: int
    has_place: bool


async def hand_over(to: socket.socket, client: socket.socket, pid: int, has_place: bool) -> None:
    """Send a socket to the process at the other end; the sender may close it then."""
    while True:
        try:
            socket.send_fds(to, [_MESSAGE.pack(pid, has_place)], [client.fileno()])
            return
        except BlockingIOError:
            await _writable(to)


def received(of: socket.socket) -> Iterator[HandedSocket]:
    """The sockets that have arrived; EOFError when the other process has closed its end."""
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(of, _MESSAGE.size, 1)
        except BlockingIOError:
            return
        if not data:
            raise EOFError
        pid, has_place = _MESSAGE.unpack(data)
        os.set_inheritable(descriptors[0], False)
        yield HandedSocket(socket.socket(fileno=descriptors[0]), pid, has_place)


async def _writable(to: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(to, writable.set)
    try:
        await writable.wait()
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_writer(to)

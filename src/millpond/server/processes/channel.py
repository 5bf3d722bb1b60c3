"""Calls between two processes over a socket, both ways: a line of JSON for each call and each answer.

Law: a call ends with the answer of the other process, with its error, or with UnavailableError when the
other process has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from millpond import errors
from millpond.errors import InternalError, MillpondError, UnavailableError

log = logging.getLogger("millpond.server")
Handler = Callable[..., Awaitable[Any]]
LINE_BYTES_MAX = 64 << 20


class Channel:
    """One end; `run` must be running for calls to be answered."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[str, Handler],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self) -> None:
        """Answer calls until the other process closes its end."""
        try:
            while line := await self._reader.readline():
                self._received(json.loads(line))
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
            log.debug("the channel to a process has ended: %s", error)
        finally:
            self.close()

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a handler of the other process; called on the event loop."""
        if self._closed:
            raise _gone()
        number = next(self._numbers)
        answer = self._waiting[number] = self.loop.create_future()
        try:
            self._send({"call": name, "arguments": arguments, "number": number})
            return await answer
        finally:
            self._waiting.pop(number, None)

    def call_from_thread(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """The same from another thread than that of the event loop."""
        try:
            asked = asyncio.run_coroutine_threadsafe(self.call(name, *arguments), self.loop)
        except RuntimeError:  # the loop is closed
            raise _gone() from None
        return asked.result(timeout_s)

    def tell(self, name: str, *arguments: Any) -> None:
        """Call a handler of the other process without waiting for it; called on the event loop."""
        if not self._closed:
            self._send({"call": name, "arguments": arguments})

    def tell_from_thread(self, name: str, *arguments: Any) -> None:
        """The same from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self.loop.call_soon_threadsafe(self.tell, name, *arguments)

    def close(self) -> None:
        """End all calls that wait with an error."""
        self._closed = True
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_gone())

    def _send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    def _received(self, message: Mapping[str, Any]) -> None:
        if "call" in message:
            task = self.loop.create_task(self._answer(message))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)
            return
        answer = self._waiting.get(message["number"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(_error(message["error"]))
        else:
            answer.set_result(message["result"])

    async def _answer(self, message: Mapping[str, Any]) -> None:
        number = message.get("number")
        try:
            result = await self._handlers[message["call"]](*message["arguments"])
        except MillpondError as error:
            answer: dict[str, Any] = {"error": error.fields()}
        except Exception as error:
            log.exception("a call of another process of the server failed: %s", message["call"])
            answer = {"error": InternalError(f"{type(error).__name__}: {error}").fields()}
        else:
            answer = {"result": result}
        if number is not None and not self._closed:
            self._send({"number": number, **answer})


def _gone() -> UnavailableError:
    return UnavailableError("another process of the server has ended", hint="try again")


def _error(fields: Mapping[str, Any]) -> MillpondError:
    """The error that another process sent.

    >>> _error(errors.InvalidError("no", hint="yes").fields())
    InvalidError('no')
    """
    kind = getattr(errors, fields["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, MillpondError)):
        kind = MillpondError
    rest = {name: fields[name] for name in ("detail", "hint", "step", "epoch")}
    return kind(fields["message"], **rest)

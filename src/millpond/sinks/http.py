"""Posts the changes of a view as JSON to an HTTP endpoint (a webhook), at least once.

Law 7: a request has the header `Idempotency-Key` with the pond, the sink, the epoch and the rows of the epoch
that it contains.  A request that is repeated, also after a crash, has the same key and the same body, so a
receiver that remembers keys counts each row once.
Law 9: rows that the receiver refuses are found by halving their request, and become error rows.

Requests are sent in order, one at a time.  Redirects are not followed: a POST would become a GET.
"""

from __future__ import annotations

import email.utils
import http.client
import random
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import SplitResult, quote, urlsplit

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.arguments.durations import microseconds
from millpond.errors import InvalidError, UnavailableError
from millpond.plan.sink_settings import Guarantee, SinkMode
from millpond.secret_references import check_references, resolved
from millpond.sinks.delivery import Delivery, RefusedRow, SinkBinding
from millpond.sinks.json_rows import json_text
from millpond.version import __version__

RETRIED = (408, 409, 425, 429, 500, 502, 503, 504)
REFUSED = (400, 413, 422)  # the content is wrong, not the address or the rights
WAIT_S_MAX = 30.0  # a receiver that asks for more is tried again with the next delivery
ANSWER_BYTES = 4_096  # of an answer that are read for its reason
_OURS = ("content-type", "content-length", "idempotency-key", "host", "transfer-encoding", "connection")


@checked
@dataclass(frozen=True)
class HttpSink:
    """An address that takes POST requests with JSON.

    `headers` may refer to secrets: ``{"Authorization": "Bearer ${env:TOKEN}"}``.  A request has at most
    `batch_rows` rows.  A request that fails is sent up to `tries` times; then the delivery is repeated later.
    If a delivery has more than `refused_max` rows that the receiver refuses, it fails as a whole instead.
    """

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    batch_rows: int = 500
    timeout: str = "10s"
    tries: int = 5
    refused_max: int = 100

    guarantee: ClassVar[Guarantee] = "at_least_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("changelog", "upsert", "append", "changes", "complete")

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or urlsplit(self.url).scheme not in ("http", "https"):
            raise InvalidError("an HttpSink needs an address", hint="https://host/path")
        if "@" in urlsplit(self.url).netloc:
            raise InvalidError(
                "the address of an HttpSink must not contain credentials",
                detail="addresses are stored in the catalog",
                hint='headers={"Authorization": "Bearer ${env:TOKEN}"}',
            )
        headers = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        object.__setattr__(self, "headers", tuple((str(k), str(v)) for k, v in headers))
        for name, _ in self.headers:
            if name.lower() in _OURS or not name.replace("-", "").replace("_", "").isalnum():
                raise InvalidError(f"header {name!r} cannot be set", detail=f"{', '.join(_OURS)} are ours")
        for text in (self.url, *(value for _, value in self.headers)):
            check_references(text)
        for what, number, least in (
            ("batch_rows", self.batch_rows, 1),
            ("tries", self.tries, 1),
            ("refused_max", self.refused_max, 0),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise InvalidError(
                    f"{what} of an HttpSink is a number from {least} on", detail=f"got {number!r}"
                )
        if microseconds(self.timeout) <= 0:
            raise InvalidError("the timeout of an HttpSink must be positive", detail=f"got {self.timeout!r}")

    def open(self, binding: SinkBinding) -> HttpWriter:
        headers = {name: resolved(value) for name, value in self.headers}
        for name, value in headers.items():
            if not value.isprintable() or not value.isascii():
                raise InvalidError(f"header {name!r} has characters that a header cannot have")
        address = urlsplit(resolved(self.url, lambda value: quote(value, safe="")))
        return HttpWriter(self, binding, address, headers)


@dataclass(frozen=True)
class _Answer:
    status: int
    reason: str
    wait_s: float | None  # what Retry-After says


class HttpWriter:
    def __init__(
        self, sink: HttpSink, binding: SinkBinding, address: SplitResult, headers: Mapping[str, str]
    ) -> None:
        self._sink, self._binding, self._address = sink, binding, address
        self._headers = {"User-Agent": f"millpond/{__version__}", "Accept": "*/*", **headers}
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        rows, size = delivery.rows, self._sink.batch_rows
        refused: list[RefusedRow] = []
        first = 0
        while first < rows.num_rows or (self._binding.mode == "complete" and first == 0):
            self._send(delivery, rows.slice(first, size), first, refused)
            first += size
        return refused

    def _send(self, delivery: Delivery, rows: pa.Table, first: int, refused: list[RefusedRow]) -> None:
        """Send rows; if the receiver refuses them, smaller and smaller parts of them."""
        answer = self._post(self._body(delivery, rows, first), self._key(delivery, rows, first))
        if answer.status < 300:
            return
        if answer.status not in REFUSED or not rows.num_rows:
            raise self._failed(answer)
        if rows.num_rows == 1:
            if len(refused) >= self._sink.refused_max:
                raise InvalidError(
                    f"the receiver refuses more than {self._sink.refused_max} rows of one delivery",
                    detail=f"{self._address_shown} answered {answer.status}: {answer.reason}",
                    hint="does it expect another format? nothing of the delivery counts as delivered",
                )
            refused.append(delivery.refused(first, f"HTTP status {answer.status}: {answer.reason}"))
            return
        half = rows.num_rows // 2
        self._send(delivery, rows.slice(0, half), first, refused)
        self._send(delivery, rows.slice(half), first + half, refused)

    def _key(self, delivery: Delivery, rows: pa.Table, first: int) -> str:
        """What identifies a request: the same rows always have the same key."""
        sink = quote(self._binding.sink, safe="")
        return f"{self._binding.pond}:{sink}:{delivery.epoch}:{first}+{rows.num_rows}"

    def _body(self, delivery: Delivery, rows: pa.Table, first: int) -> bytes:
        content = {
            "pond": self._binding.pond,
            "sink": self._binding.sink,
            "epoch": delivery.epoch,
            "mode": self._binding.mode,
            "first": first,  # the place of the first row in the delivery
            "total": delivery.rows.num_rows,
            "rows": rows.to_pylist(),
        }
        return json_text(content).encode()

    def _post(self, body: bytes, key: str) -> _Answer:
        """Send a request, again while the receiver is unavailable, with growing pauses."""
        headers = {**self._headers, "Content-Type": "application/json", "Idempotency-Key": key}
        wait_s, last = 0.0, "?"
        for number in range(self._sink.tries):
            if wait_s:
                time.sleep(wait_s)
            wait_s = min(WAIT_S_MAX, 0.1 * 2**number) * random.uniform(0.5, 1.0)
            try:
                answer = self._ask(body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                last = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                continue
            if answer.status not in RETRIED:
                return answer
            last = f"HTTP status {answer.status}: {answer.reason}"
            if answer.wait_s is not None:
                if answer.wait_s > WAIT_S_MAX:
                    break
                wait_s = max(wait_s, answer.wait_s)
        raise UnavailableError("the receiver is unavailable", detail=f"{last} ({self._address_shown})")

    def _ask(self, body: bytes, headers: Mapping[str, str]) -> _Answer:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connected()
        path = self._address.path or "/"
        target = f"{path}?{self._address.query}" if self._address.query else path
        connection.request("POST", target, body, dict(headers))
        with connection.getresponse() as answer:
            text = answer.read(ANSWER_BYTES).decode("utf-8", "replace")
            if answer.will_close or answer.read(1):  # the rest of a long answer is not worth reading
                self.close()
            reason = " ".join(text.split())[:300] or answer.reason or "no reason given"
            return _Answer(answer.status, reason, retry_after_s(answer.getheader("Retry-After")))

    def _connected(self) -> http.client.HTTPConnection:
        timeout_s = microseconds(self._sink.timeout) / 1e6
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    @property
    def _address_shown(self) -> str:
        """The address without the query, which may be secret."""
        port = f":{self._address.port}" if self._address.port else ""
        return f"{self._address.scheme}://{self._address.hostname}{port}"

    def _failed(self, answer: _Answer) -> InvalidError:
        hint = "redirects are not followed: give the final address" if answer.status < 400 else None
        return InvalidError(
            f"the receiver answered with HTTP status {answer.status}",
            detail=f"{answer.reason} ({self._address_shown})",
            hint=hint or "check the address and the headers; the delivery is repeated",
        )


def retry_after_s(value: str | None) -> float | None:
    """The seconds of a header Retry-After: a number, or a date.

    >>> retry_after_s("7"), retry_after_s("soon"), retry_after_s(None)
    (7.0, None, None)
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
        return max(0.0, at.timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def http_sink(options: Mapping[str, Any]) -> HttpSink:
    """The sink of the options of CREATE SINK."""
    numbers: dict[str, Any] = {}
    for option, name in (("batch.rows", "batch_rows"), ("tries", "tries"), ("refused.max", "refused_max")):
        if option in options:
            if not options[option].isdecimal():
                raise InvalidError(f"option {option!r} is a number", detail=f"got {options[option]!r}")
            numbers[name] = int(options[option])
    headers = {n.removeprefix("header."): v for n, v in options.items() if n.startswith("header.")}
    return HttpSink(options["url"], tuple(headers.items()), timeout=options.get("timeout", "10s"), **numbers)

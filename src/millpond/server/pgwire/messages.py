"""The messages of the PostgreSQL protocol, version 3: bytes to values and back, without I/O.

Law: a message that is not exactly what the protocol says is refused with `ProtocolError`; nothing is read
beyond its length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from millpond.errors import InvalidError

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102
STARTUP_BYTES_MAX = 10_000


class ProtocolError(InvalidError):
    """A client broke the protocol; its connection ends, unless it is known where the message ends."""


# -- from the client ----------------------------------------------------------------


@dataclass(frozen=True)
class Startup:
    major: int
    minor: int
    params: dict[str, str]
    options: tuple[str, ...] = ()  # protocol options `_pq_.…` that were asked for


@dataclass(frozen=True)
class SslRequest:
    pass


@dataclass(frozen=True)
class GssRequest:
    pass


@dataclass(frozen=True)
class CancelRequest:
    pid: int
    secret: bytes


@dataclass(frozen=True)
class SimpleQuery:
    text: str


@dataclass(frozen=True)
class Parse:
    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True)
class Describe:
    kind: str  # "S" a statement, "P" a portal
    name: str


@dataclass(frozen=True)
class ExecutePortal:
    portal: str
    rows_max: int


@dataclass(frozen=True)
class CloseNamed:
    kind: str
    name: str


@dataclass(frozen=True)
class Sync:
    pass


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Terminate:
    pass


@dataclass(frozen=True)
class SaslFirst:
    mechanism: str
    data: bytes


@dataclass(frozen=True)
class PasswordBytes:
    """A message `p`: a password, or a part of a SASL exchange."""

    data: bytes


@dataclass(frozen=True)
class CopyDataIn:
    data: bytes


@dataclass(frozen=True)
class CopyDone:
    pass


@dataclass(frozen=True)
class CopyFail:
    reason: str


@dataclass(frozen=True)
class FunctionCall:
    pass


@dataclass(frozen=True)
class BrokenMessage:
    """A message of known type and length whose fields are wrong: an error, but not the end."""

    kind: bytes
    error: ProtocolError


StartupMessage = Startup | SslRequest | GssRequest | CancelRequest
ClientMessage = (
    SimpleQuery
    | Parse
    | Bind
    | Describe
    | ExecutePortal
    | CloseNamed
    | Sync
    | Flush
    | Terminate
    | PasswordBytes
    | CopyDataIn
    | CopyDone
    | CopyFail
    | FunctionCall
    | BrokenMessage
)


class Fields:
    """Reads the fields of one message from left to right."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise ProtocolError("a message is shorter than its fields")
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def int16(self) -> int:
        return int(struct.unpack("!h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack("!i", self.take(4))[0])

    def uint32(self) -> int:
        return int(struct.unpack("!I", self.take(4))[0])

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in a message is not ended by a zero byte")
        raw = self._data[self._at : end]
        self._at = end + 1
        return decoded(raw)

    def count(self) -> int:
        number = int(struct.unpack("!H", self.take(2))[0])
        return number

    def rest(self) -> bytes:
        raw = self._data[self._at :]
        self._at = len(self._data)
        return raw

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("a message is longer than its fields")


def decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a text in a message is not UTF-8", detail=str(error)) from None


def startup_message(body: bytes) -> StartupMessage:
    """Read the first message of a connection, without its length."""
    fields = Fields(body)
    code = fields.uint32()
    if code == SSL_REQUEST:
        fields.end()
        return SslRequest()
    if code == GSS_REQUEST:
        fields.end()
        return GssRequest()
    if code == CANCEL_REQUEST:
        return CancelRequest(fields.uint32(), fields.rest())
    if code >> 16 != 3:  # the fields of another protocol are not known
        return Startup(code >> 16, code & 0xFFFF, {})
    params: dict[str, str] = {}
    while name := fields.text():
        params[name] = fields.text()
    fields.end()
    own = tuple(name for name in params if name.startswith("_pq_."))
    plain = {name: value for name, value in params.items() if name not in own}
    return Startup(code >> 16, code & 0xFFFF, plain, own)


def client_message(kind: bytes, body: bytes) -> ClientMessage:
    """Read a message after the startup; `body` is what follows its length."""
    if kind[0] not in KINDS:
        raise ProtocolError(f"there is no message of type {kind!r}")
    try:
        return _whole_message(kind, body)
    except ProtocolError as error:
        return BrokenMessage(kind, error)


def _whole_message(kind: bytes, body: bytes) -> ClientMessage:
    fields = Fields(body)
    match kind:
        case b"Q":
            message: ClientMessage = SimpleQuery(fields.text())
        case b"P":
            message = Parse(
                fields.text(), fields.text(), tuple(fields.uint32() for _ in range(fields.count()))
            )
        case b"B":
            message = _bind(fields)
        case b"D":
            message = Describe(_kind(fields), fields.text())
        case b"E":
            message = ExecutePortal(fields.text(), max(0, fields.int32()))
        case b"C":
            message = CloseNamed(_kind(fields), fields.text())
        case b"S":
            message = Sync()
        case b"H":
            message = Flush()
        case b"X":
            message = Terminate()
        case b"p":
            message = PasswordBytes(fields.rest())
        case b"d":
            message = CopyDataIn(fields.rest())
        case b"c":
            message = CopyDone()
        case b"f":
            message = CopyFail(fields.text())
        case _:  # b"F"
            fields.rest()
            message = FunctionCall()
    fields.end()
    return message


KINDS = frozenset(b"QPBDECSHXpdcfF")  # the types of messages that a client can send


def _bind(fields: Fields) -> Bind:
    portal, statement = fields.text(), fields.text()
    formats = _formats(fields)
    values: list[bytes | None] = []
    for _ in range(fields.count()):
        size = fields.int32()
        values.append(None if size == -1 else fields.take(size))
    if len(formats) not in (0, 1, len(values)):
        raise ProtocolError(f"there are {len(formats)} formats for {len(values)} parameters")
    return Bind(portal, statement, formats, tuple(values), _formats(fields))


def _formats(fields: Fields) -> tuple[int, ...]:
    formats = tuple(fields.int16() for _ in range(fields.count()))
    for one in formats:
        if one not in (0, 1):
            raise ProtocolError(f"there is no format {one}", hint="0 is text, 1 is binary")
    return formats


def _kind(fields: Fields) -> str:
    kind = fields.take(1)
    if kind not in (b"S", b"P"):
        raise ProtocolError("only statements and portals can be described or closed")
    return kind.decode()


def sasl_first(data: bytes) -> SaslFirst:
    """Read a SASLInitialResponse."""
    fields = Fields(data)
    mechanism, size = fields.text(), fields.int32()
    first = SaslFirst(mechanism, b"" if size == -1 else fields.take(size))
    fields.end()
    return first


# -- to the client ------------------------------------------------------------------


def message(kind: bytes, *parts: bytes) -> bytes:
    """A message with its length."""
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace").replace(b"\0", b"\\0") + b"\0"


def parse_bytes(sent: Parse) -> bytes:
    """A Parse as the client sent it."""
    types = struct.pack(f"!H{len(sent.types)}I", len(sent.types), *sent.types)
    return message(b"P", sent.name.encode() + b"\0", sent.text.encode() + b"\0", types)


def authentication_ok() -> bytes:
    return message(b"R", struct.pack("!i", 0))


def authentication_sasl(*mechanisms: str) -> bytes:
    return message(b"R", struct.pack("!i", 10), *(text_bytes(m) for m in mechanisms), b"\0")


def authentication_continue(data: str) -> bytes:
    return message(b"R", struct.pack("!i", 11), data.encode())


def authentication_final(data: str) -> bytes:
    return message(b"R", struct.pack("!i", 12), data.encode())


def negotiate_version(minor: int, unknown: Sequence[str]) -> bytes:
    newest = 3 << 16 | minor  # PostgreSQL sends the whole version, and libpq expects it
    return message(b"v", struct.pack("!ii", newest, len(unknown)), *(text_bytes(name) for name in unknown))


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", text_bytes(name), text_bytes(value))


def backend_key(pid: int, secret: bytes) -> bytes:
    return message(b"K", struct.pack("!I", pid), secret)


def ready(status: str) -> bytes:
    """ReadyForQuery: "I" idle, "T" in a transaction, "E" in a failed one."""
    return message(b"Z", status.encode())


def command_complete(tag: str) -> bytes:
    return message(b"C", text_bytes(tag))


@dataclass(frozen=True)
class FieldInfo:
    """A column of a result, as a RowDescription shows it."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1
    format: int = 0


def row_description(columns: Sequence[FieldInfo]) -> bytes:
    return message(
        b"T",
        struct.pack("!H", len(columns)),
        *(
            text_bytes(c.name) + struct.pack("!IhIhih", 0, 0, c.oid, c.size, c.modifier, c.format)
            for c in columns
        ),
    )


def parameter_description(types: Sequence[int]) -> bytes:
    return message(b"t", struct.pack("!H", len(types)), *(struct.pack("!I", oid) for oid in types))


def copy_response(kind: bytes, columns: int, binary: bool) -> bytes:
    """CopyInResponse `G` or CopyOutResponse `H`."""
    form = 1 if binary else 0
    return message(kind, struct.pack("!bH", form, columns), struct.pack("!h", form) * columns)


def copy_data(data: bytes) -> bytes:
    return message(b"d", data)


def report(kind: bytes, fields: Sequence[tuple[str, str]]) -> bytes:
    """ErrorResponse `E` or NoticeResponse `N`: fields by their letters."""
    return message(kind, *(letter.encode() + text_bytes(value) for letter, value in fields), b"\0")


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")
COPY_DONE = message(b"c")

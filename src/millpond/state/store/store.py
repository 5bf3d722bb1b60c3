"""The store: the only way to read and write durable bytes.

Law 6 begins here.  `put_new` writes a name once and completely, and its bytes never change, so they may be
mapped and cached for ever.  A put has three outcomes: WON, LOST, or an error whose `unknown` is true when the
write may have succeeded; the caller then reads the name back (law 2).
"""

from __future__ import annotations

import enum
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import parse_qsl, unquote, urlencode

import pyarrow as pa

from millpond.errors import InvalidError, UnavailableError
from millpond.state.store.shared_credentials import with_values

Chunk: TypeAlias = bytes | memoryview | pa.Buffer
Data: TypeAlias = Chunk | Sequence[Chunk]
Names: TypeAlias = list[str]  # `Store.list` hides the builtin inside the classes
Span: TypeAlias = tuple[int, int]  # bytes of a file: the first, and the one after the last

# Sinks write folders whose names have letters outside of ASCII; the names of a pond's own files have none.
_SEGMENT = re.compile(r"(?!\.)(?:[A-Za-z0-9._=+@:,~%-]|[^\x00-\x9f\s\ud800-\udfff])+")
_SEGMENT_MAX = 255  # bytes
_NAME_MAX = 900  # object stores allow 1024 bytes, including the prefix of the pond
CACHE_BYTES = 10 * 1024**3


class Put(enum.Enum):
    """The outcome of a put-if-absent."""

    WON = "won"  # the name was free and now has these bytes, durably
    LOST = "lost"  # the name was taken; these bytes were not stored


class StoreError(UnavailableError):
    """The storage failed; if `unknown` is false, nothing has changed."""

    unknown: bool = False


class MissingError(StoreError):
    """No file has this name."""


class NotWritableError(StoreError):
    """Nothing can be written: the storage is read-only or full, or access is denied; nothing has changed."""


class ReadOnlyError(NotWritableError):
    """The storage is read-only, or this user may not write: a retry does not help."""


class RefusedError(StoreError):
    """The storage answered, and refused: the credentials, or a bucket that does not exist."""


class PutUnknownError(StoreError):
    """The put may have succeeded: read the name back and compare."""

    unknown = True


class Store(Protocol):
    """Immutable files by name; every method may be called from any thread."""

    @property
    def uri(self) -> str:
        """The uri with which another process opens the same store: `open_store(uri)`.  It has no secrets."""

    def put_new(self, name: str, data: Data) -> Put:
        """Put if absent; durable on return."""

    def get(self, name: str) -> bytes:
        """All bytes; MissingError if the name does not exist."""

    def map(self, name: str) -> pa.Buffer:
        """All bytes as a buffer, without a copy if possible; MissingError if the name does not exist."""

    def list(self, prefix: str, after: str | None = None) -> Names:
        """The names below the folder `prefix` ("" is everything), at any depth, sorted, > after."""

    def delete(self, name: str) -> None:
        """Delete the name, if it exists.  Mapped bytes stay readable."""

    def size(self, name: str) -> int | None:
        """The size in bytes; None if the name does not exist."""


@runtime_checkable
class Streaming(Protocol):
    """A store that can read a file in chunks, so that it need not fit in memory."""

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The bytes, in order; the length is checked at the end."""


@runtime_checkable
class ReadsParts(Protocol):
    """A store that can read a part of a file, so that the parts of a large one come at the same time."""

    @property
    def reads_parts(self) -> bool: ...

    def read_part(self, name: str, start: int, length: int) -> tuple[memoryview, int]:
        """The bytes from `start` on, at most `length`, and the size of the file."""

    def read_end(self, name: str, length: int) -> tuple[memoryview, int]:
        """The last bytes, at most `length`, and the size of the file."""


class Fetch(Protocol):
    """Fetches bytes into a mapping; see `PartialFile.fetch`."""

    def __call__(self, spans: Sequence[Span], again: bool = False) -> None: ...


@runtime_checkable
class MapsParts(Protocol):
    """A store that can map a large file before all of it is here."""

    def map_parts(self, name: str) -> tuple[pa.Buffer, Fetch | None]:
        """The file as a buffer, and what fetches a part of it before it is read; None if all of it is here.

        The last bytes are here.  A part may be damaged or absent until it was fetched: check it, and fetch it
        again if it does not match.
        """


def buffers_of(data: Data) -> list[memoryview]:
    """The data as flat byte views, without copies and without empty ones.

    >>> [bytes(p) for p in buffers_of([b"ab", b"", pa.py_buffer(b"c")])]
    [b'ab', b'c']
    """
    parts: Sequence[Chunk] = (data,) if isinstance(data, bytes | memoryview | pa.Buffer) else data
    views = (memoryview(part) for part in parts)
    return [view.cast("B") for view in views if view.nbytes]


@lru_cache(maxsize=1024)
def check_name(name: str) -> str:
    """Return the name, or raise InvalidError if it could leave the store or differ between storages.

    >>> check_name("runs/1/7-0-3-a1b2")
    'runs/1/7-0-3-a1b2'
    """
    parts = name.split("/")
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    too_long = max(sizes) > _SEGMENT_MAX or sum(sizes) + len(parts) - 1 > _NAME_MAX
    if too_long or not all(_SEGMENT.fullmatch(part) for part in parts):
        raise InvalidError(
            "this cannot be a name in a store",
            detail=f"got {name[:120]!r}",
            hint="use letters, digits and . _ = + @ : , ~ % - between slashes, and no '.' in front",
        )
    return name


def check_prefix(prefix: str) -> str:
    """The folder without its trailing slash; "" means the complete store."""
    return check_name(prefix.removesuffix("/")) if prefix else ""


def missing(name: str, uri: str) -> MissingError:
    """The error for a name that does not exist."""
    return MissingError(f"no such file in the store: {name}", detail=f"store {uri}")


def with_options(uri: str, options: dict[str, str]) -> str:
    """The uri with further options in its query.

    >>> with_options("s3://b/p?region=eu", {"cache": "/c"})
    's3://b/p?region=eu&cache=%2Fc'
    """
    if not options:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(options)}"


def flag(options: dict[str, object], name: str, default: bool) -> bool:
    """Remove a boolean option from the options and return it; in a uri it is a word."""
    value = str(options.pop(name, default)).lower()
    if value not in ("true", "false"):
        raise InvalidError(f"the store option {name} is true or false", detail=f"got {value!r}")
    return value == "true"


def open_store(uri: str, **options: object) -> Store:
    """Open `file://`, `memory://`, `s3://`, `gs://`, `az://` or a plain path.

    Options come from the uri's query and from keywords; keywords take precedence.  With `cache=<folder>` (and
    `cache_bytes`) maps go through a disk cache.  With `wait_ms` calls wait while a remote storage is
    unavailable, at most that long.

    >>> open_store("memory://doc").put_new("a/b", b"x")
    <Put.WON: 'won'>
    """
    from millpond.state.store.local_store import LocalStore

    scheme, separator, rest = uri.partition("://")
    written: dict[str, object] = {}
    if not separator:
        # A plain path is used literally: '?' is an ordinary character in it.
        scheme, body, merged = "file", uri, dict(options)
    else:
        body, _, query = rest.partition("?")
        written.update(parse_qsl(query, keep_blank_values=True))
        merged = {**written, **options}
        if scheme == "file":
            body = unquote(body.removeprefix("localhost"))
            if not body.startswith("/"):
                raise InvalidError("a file uri needs an absolute path", detail=f"got {uri!r}")
    merged = with_values(merged)
    cache = merged.pop("cache", None)
    cache_bytes = _positive_integer(merged.pop("cache_bytes", CACHE_BYTES), "cache_bytes")
    wait_ms = _positive_integer(merged.pop("wait_ms"), "wait_ms") if "wait_ms" in merged else 0

    store: Store
    if scheme == "file":
        store = LocalStore(_folder(body), durable=flag(merged, "durable", True))
        _refuse(merged, scheme)
    elif scheme == "memory":
        from millpond.state.store.memory_store import MemoryStore

        _refuse(merged, scheme)
        store = MemoryStore.named(body)
    else:
        from millpond.state.store.object_store import SCHEMES, ObjectStore

        if scheme not in SCHEMES:
            raise InvalidError(
                f"there is no store for {scheme}://",
                hint=f"use a path or file, memory, {', '.join(SCHEMES)}",
            )
        store = ObjectStore.open(scheme, body, merged, in_uri=set(written) & set(merged))
    if wait_ms and scheme not in ("file", "memory"):
        from millpond.state.store.waiting_store import WaitingStore

        store = WaitingStore(store, wait_ms / 1000)
    if cache is None:
        return store
    from millpond.state.store.disk_cache import DiskCache

    return DiskCache(store, Path(str(cache)), cache_bytes)


def prove_put_new(store: Store) -> None:
    """Raise InvalidError unless the storage honours put-if-absent.

    Some servers accept `If-None-Match` and ignore it.  A pond there would silently break law 2, so the
    storage is tested once, when the pond is created.
    """
    name = f"probe/{secrets.token_hex(12)}"
    outcomes = [store.put_new(name, text) for text in (b"first", b"second")]
    stored = store.get(name)
    store.delete(name)
    if outcomes != [Put.WON, Put.LOST] or stored != b"first":
        raise InvalidError(
            "this storage does not honour put-if-absent, so two writers could both commit an epoch",
            detail=f"two puts of one name: {', '.join(o.value for o in outcomes)}; it holds {stored!r}",
            hint="use a storage with conditional writes (If-None-Match: *), or switch them on",
        )


def _folder(path: str) -> Path:
    """The path; refused if it or a parent of it is a file."""
    absolute = Path(path).expanduser().absolute()
    for folder in (absolute, *absolute.parents):
        if os.path.isdir(folder):
            break
        if os.path.isfile(folder):
            raise InvalidError(
                f"{folder} is a file, and a pond is a folder",
                detail=f"asked for {absolute}",
                hint="name a folder, or a path where there is nothing yet",
            )
    return absolute


def _refuse(options: dict[str, object], scheme: str) -> None:
    if options:
        raise InvalidError(f"{scheme} stores know no option {', '.join(sorted(options))}")


def _positive_integer(value: object, name: str) -> int:
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        unit = "milliseconds" if name.endswith("_ms") else "bytes"
        raise InvalidError(f"the store option {name} is a whole number of {unit}", detail=f"got {text!r}")
    return int(text)

"""The packed run file: all segments that a task writes in one epoch, with one footer.

`packed_writer` writes it.

Law: no byte of a file is trusted before it is checked.  The length is checked against the header before
anything is read (reading beyond the end of a mapped file is SIGBUS), the footer against its checksum before
it is parsed, and every block of a segment against the footer on first access.  A file never changes once it
is written (law 6).

    header    64 bytes: magic, version u32, 0 u32, file length u64, xxh3_64 of these 24 bytes
    segments  each one Arrow IPC file with one record batch, 64-byte aligned; small tables with the same
              column types may share one, a stack: the rows of one follow those of the other; the footer
              lists each as a segment
    footer    JSON, its xxh3_64 u64, its length u64, magic

A column whose values are all equal is not stored: its value is in the footer.  All numbers are little-endian.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from millpond import hashing
from millpond.errors import DataError
from millpond.state.runs.segment import Segment, stacked_name
from millpond.state.runs.segment_entry import SegmentEntry
from millpond.state.store.store import Fetch

VERSION = 3
MAGIC = b"MPONDRUN"
ALIGN = 64
HEADER = struct.Struct("<8sIIQQ")
TAIL = struct.Struct("<QQ8s")
TEXTS_MAX = 1_000  # the number of cached constants: most are the weight 1, or zero
KNOWN_CHARS = 1000  # the maximum length of a cached constant


class PackedFile:
    """An opened run file: the parsed footer, and segments that are opened on demand and stay open."""

    def __init__(
        self, name: str, buffer: pa.Buffer, entries: Sequence[SegmentEntry], fetch: Fetch | None = None
    ) -> None:
        self.name = name
        self.entries = tuple(entries)
        self._buffer = buffer
        self._fetch = fetch
        self._segments: dict[int, Segment] = {}
        self._stacks: dict[int, Segment] = {}  # stacks by offset

    @staticmethod
    def open(name: str, buffer: pa.Buffer, fetch: Fetch | None = None) -> PackedFile:
        """Check the header and read the footer of a file; no segment is read.

        `fetch` fetches bytes of the file into the buffer, if they may be absent.  Then the header is not
        read: the footer is at the end, and it has the version, too.
        """
        if fetch is None:
            _check_header(name, buffer)
        footer = _checked_footer(name, buffer, fetch)
        if footer["hash_version"] != hashing.VERSION:
            raise DataError(
                f"run file {name} is sorted by another version of the key hash",
                detail=f"file has hash version {footer['hash_version']}, this program {hashing.VERSION}",
                hint="use the program version that wrote it, or rebuild the pond",
            )
        sizes = (footer["block"], footer["fence_rows"])
        return PackedFile(name, buffer, [_entry_from_json(raw, *sizes) for raw in footer["segments"]], fetch)

    @property
    def is_partial(self) -> bool:
        """May bytes of the file be absent?"""
        return self._fetch is not None

    def segment(self, index: int) -> Segment:
        """One segment, opened on first use."""
        known = self._segments.get(index)
        if known is None:
            if not 0 <= index < len(self.entries):
                raise DataError(
                    f"run file {self.name} has no such segment",
                    detail=f"asked for segment {index}, the footer has {len(self.entries)}",
                    hint="the manifest and the file disagree; restore the file",
                )
            entry = self.entries[index]
            data = self._buffer.slice(entry.offset, entry.length)
            known = self._segments[index] = Segment(
                f"{self.name}#{index}", data, entry, self.stack(index), self._fetch
            )
        return known

    def stack(self, index: int) -> Segment | None:
        """The rows of all tables that share a batch with this segment; None if it has its own batch."""
        entry = self.entries[index]
        if entry.first is None:
            return None
        known = self._stacks.get(entry.offset)
        if known is None:
            own = {name: stacked_name(index) for index, name in enumerate(entry.names)}
            whole = replace(
                entry,
                table=f"{entry.table} and others",
                rows=entry.of,
                fences=entry.fences[:0],
                constants={own.get(name, name): value for name, value in entry.constants.items()},
                first=None,
                names=(),
            )
            data = self._buffer.slice(entry.offset, entry.length)
            known = self._stacks[entry.offset] = Segment(
                f"{self.name}#{index}", data, whole, fetch=self._fetch
            )
            known.verified()
        return known


RESTORE = "the file is damaged or cut short; keep it, and restore it from a copy"


def _check_header(name: str, buffer: pa.Buffer) -> None:
    size = buffer.size
    if size < ALIGN + TAIL.size:
        raise DataError(
            f"run file {name} is too short",
            detail=f"{size} bytes, at least {ALIGN + TAIL.size} needed",
            hint=RESTORE,
        )
    magic, version, _, length, checksum = HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise DataError(
            f"run file {name} does not start as a run file",
            detail=f"found {magic!r}, expected {MAGIC!r}",
            hint=RESTORE,
        )
    _check_version(name, version)
    _match(name, "header", checksum, xxhash.xxh3_64_intdigest(memoryview(buffer)[: HEADER.size - 8]))
    if length != size:
        raise DataError(
            f"run file {name} has another length than written",
            detail=f"{size} bytes found, {length} written",
            hint=RESTORE,
        )


def _check_version(name: str, version: int) -> None:
    """Refuse a newer format, whose header may look different; a version that cannot be is damage."""
    if VERSION < version < 1000:
        raise DataError(
            f"run file {name} was written by a newer version",
            detail=f"file has format {version}, this program reads up to {VERSION}",
            hint="upgrade this program",
        )


def _checked_footer(name: str, buffer: pa.Buffer, fetch: Fetch | None) -> dict[str, Any]:
    size = buffer.size
    checksum, footer_length, magic = TAIL.unpack_from(buffer, size - TAIL.size)
    if magic != MAGIC and fetch is not None:
        fetch([(size - TAIL.size, size)], again=True)
        checksum, footer_length, magic = TAIL.unpack_from(buffer, size - TAIL.size)
    start = size - TAIL.size - footer_length
    if magic != MAGIC or start < ALIGN:
        raise DataError(
            f"run file {name} does not end as a run file",
            detail=f"found {magic!r} and a footer of {footer_length} bytes in {size}, expected {MAGIC!r}",
            hint=RESTORE,
        )
    raw = memoryview(buffer)[start : size - TAIL.size]
    if fetch is not None:
        fetch([(start, size)])
        if xxhash.xxh3_64_intdigest(raw) != checksum:
            fetch([(start, size)], again=True)
    _match(name, "footer", checksum, xxhash.xxh3_64_intdigest(raw))
    footer: dict[str, Any] = json.loads(bytes(raw))
    _check_version(name, footer["version"])
    block, fence_rows = footer["block"], footer["fence_rows"]
    if block < 1 or block & (block - 1) or fence_rows < 1:
        raise DataError(
            f"run file {name} has blocks of an impossible size",
            detail=f"{block} bytes and {fence_rows} rows",
            hint="use the program version that wrote it",
        )
    for entry in footer["segments"]:
        if entry["offset"] + entry["length"] > start:
            raise DataError(
                f"run file {name} has a segment beyond its end",
                detail=f"segment ends at {entry['offset'] + entry['length']}, footer starts at {start}",
                hint=RESTORE,
            )
    return footer


def _match(name: str, part: str, said: int, actual: int) -> None:
    if said != actual:
        raise DataError(
            f"run file {name} has a damaged {part}",
            detail=f"checksum written {said:016x}, found {actual:016x}",
            hint=RESTORE,
        )


def _entry_from_json(raw: dict[str, Any], block: int, fence_rows: int) -> SegmentEntry:
    return SegmentEntry(
        table=raw["table"],
        bucket=raw["bucket"],
        offset=raw["offset"],
        length=raw["length"],
        rows=raw["rows"],
        h_min=int(raw["h_min"], 16),
        h_max=int(raw["h_max"], 16),
        body=(raw["body"][0], raw["body"][1]),
        checksums=np.frombuffer(base64.b64decode(raw["checksums"]), np.uint64),
        fences=np.frombuffer(base64.b64decode(raw["fences"]), np.uint64),
        constants={name: _constant_from_text(text) for name, text in raw["constants"].items()},
        block=block,
        fence_rows=fence_rows,
        first=raw.get("first"),
        of=raw.get("of", 0),
        names=tuple(raw.get("names", ())),
    )


def _constant_from_text(text: str) -> pa.Array:
    return _known_constant(text) if len(text) < KNOWN_CHARS else _constant(text)


def _constant(text: str) -> pa.Array:
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch().column(0)


_known_constant = lru_cache(maxsize=TEXTS_MAX)(_constant)

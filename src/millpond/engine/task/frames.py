"""Frames: the messages between the levels of one epoch.

A frame is a small fixed head and a payload.  Data frames carry at most
`FRAME_BYTES` of Arrow IPC for one edge.  Every task sends one *header* to every
task it can reach (its attempt, how many frames it sent, their digest, its
watermarks).  A *report* travels to the end of the chain, where the driver
collects it.  A receiver requires exactly one header from every source task and
matching frames, else it raises (law 9: an exhausted iterator never means "no
data").
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import xxhash

from millpond.buffers import BufferList
from millpond.engine.task import wire
from millpond.errors import InternalError

Raw: TypeAlias = bytes | memoryview  # a frame as bytes

FRAME_BYTES = 8 << 20
DATA, HEADER, REPORT = 0, 1, 2
_HEAD = struct.Struct("<2sBBHHHI")  # magic, kind, to_level, to_task, edge, 0, sequence
_MAGIC = b"mp"
# Padded to 32 bytes: after an odd head, Arrow data would be misaligned, which is slow and causes a warning.
_FROM = struct.Struct("<BH15x")
HEAD_BYTES = _HEAD.size + _FROM.size


@dataclass(frozen=True)
class Frame:
    kind: int
    to_level: int
    to_task: int
    from_level: int
    from_task: int
    edge: int
    sequence: int
    raw: Raw  # the complete frame, including its head

    @property
    def payload(self) -> memoryview:
        return memoryview(self.raw)[HEAD_BYTES:]

    def digest(self) -> int:
        return xxhash.xxh3_64_intdigest(self.raw)


def make(
    kind: int,
    to: tuple[int, int],
    source: tuple[int, int],
    edge: int,
    sequence: int,
    *payload: bytes | memoryview | pa.Buffer,
) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, to[0], to[1], edge, 0, sequence) + _FROM.pack(source[0], source[1])
    return b"".join((head, *payload))


def parse(raw: Raw) -> Frame:
    if len(raw) < HEAD_BYTES:
        raise InternalError("a frame is too short", detail=f"{len(raw)} bytes, a head has {HEAD_BYTES}")
    magic, kind, to_level, to_task, edge, _, sequence = _HEAD.unpack_from(raw)
    if magic != _MAGIC:
        raise InternalError("a frame has the wrong magic", detail=repr(magic))
    if kind not in (DATA, HEADER, REPORT):
        raise InternalError("a frame is of an unknown kind", detail=f"kind {kind}")
    from_level, from_task = _FROM.unpack_from(raw, _HEAD.size)
    return Frame(kind, to_level, to_task, from_level, from_task, edge, sequence, raw)


def encode_table(table: pa.Table, max_bytes: int = FRAME_BYTES) -> Iterator[tuple[bytes | pa.Buffer, ...]]:
    """A table as one or more Arrow IPC streams of at most about `max_bytes`, each as a list of buffers."""
    if table.num_rows == 0:
        return
    table = wire.narrow(table)
    pieces = max(1, -(-table.nbytes // max_bytes))
    rows = -(-table.num_rows // pieces)
    for start in range(0, table.num_rows, rows):
        sink = BufferList()
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
            writer.write_table(table.slice(start, rows))
        yield tuple(sink.buffers)


def decode_table(payload: memoryview) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return wire.widen(reader.read_all())


@dataclass(frozen=True)
class Header:
    """The message of one source task to one receiver."""

    attempt: str
    frames: int
    digest: int
    watermarks: dict[str, Any]

    def encode(self) -> bytes:
        return json.dumps([self.attempt, self.frames, f"{self.digest:x}", self.watermarks]).encode()

    @staticmethod
    def decode(payload: memoryview) -> Header:
        try:
            attempt, frames, digest, watermarks = json.loads(bytes(payload))
            return Header(attempt, frames, int(digest, 16), watermarks)
        except (ValueError, TypeError) as broken:
            raise InternalError(
                "a header is damaged", detail=str(broken), hint="the epoch is run again"
            ) from broken


@dataclass(frozen=True)
class Received:
    """Everything that reached one task: tables by edge, the headers, and frames to pass on."""

    tables: dict[int, list[pa.Table]]
    headers: dict[tuple[int, int], Header]
    passing: list[Frame]


def receive(level: int, task: int, frames: Iterator[Raw], sources: Sequence[tuple[int, int]]) -> Received:
    """Read every frame of this task, and check that none is missing, duplicated or damaged.

    `sources` are the (level, task) pairs that must each have sent one header.
    """
    by_edge: dict[int, list[Frame]] = {}
    headers: dict[tuple[int, int], Header] = {}
    counted: dict[tuple[int, int], list[int]] = {}
    passing: list[Frame] = []
    for raw in frames:
        frame = parse(raw)
        if frame.kind == REPORT or frame.to_level != level:
            passing.append(frame)
            continue
        if frame.to_task != task:
            raise InternalError(
                "a frame reached the wrong task",
                detail=f"meant for task {frame.to_task}, this is task {task} of level {level}",
            )
        source = (frame.from_level, frame.from_task)
        if frame.kind == HEADER:
            if source in headers:
                raise InternalError("a task sent two headers", detail=f"level {source[0]} task {source[1]}")
            headers[source] = Header.decode(frame.payload)
            continue
        seen = counted.setdefault(source, [0, 0])
        seen[0] += 1
        seen[1] = (seen[1] + frame.digest()) & 0xFFFFFFFFFFFFFFFF
        by_edge.setdefault(frame.edge, []).append(frame)  # decoded after all checks
    for source in sources:
        header = headers.get(source)
        if header is None:
            raise InternalError(
                "frames are missing: no header arrived",
                detail=f"level {level} task {task} heard nothing from level {source[0]} task {source[1]}",
                hint="the epoch is run again; if it stays, look for a lost executor in Spark's log",
            )
        frames_seen, digest = counted.get(source, [0, 0])
        if (frames_seen, digest) != (header.frames, header.digest):
            raise InternalError(
                "frames are missing or damaged",
                detail=f"level {source[0]} task {source[1]} sent {header.frames}, {frames_seen} arrived",
                hint="the epoch is run again",
            )
    unknown = {*headers, *counted} - set(sources)
    if unknown:
        raise InternalError("a frame came from a task that should not exist", detail=str(sorted(unknown)))
    # Arrival order in the shuffle must not matter (law 3): sort tables by the order in which they were sent.
    tables = {
        edge: [
            decode_table(f.payload)
            for f in sorted(frames_of_edge, key=lambda f: (f.from_level, f.from_task, f.sequence))
        ]
        for edge, frames_of_edge in by_edge.items()
    }
    return Received(tables, headers, passing)

"""Writes packed run files; `packed` has the format, and reads them.

Law 6: a file never changes once it is written, so everything that is written here has its checksum beside it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from millpond import hashing, tuning
from millpond.buffers import BufferList
from millpond.delta import HASH
from millpond.errors import InternalError
from millpond.identity import fixed_view
from millpond.state.runs.packed import ALIGN, HEADER, MAGIC, TAIL, TEXTS_MAX, VERSION
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import stacked_name
from millpond.state.runs.segment_entry import BLOCK, FENCE_ROWS, SegmentEntry
from millpond.state.runs.sorted_rows import sorted_columns
from millpond.state.tables.table_spec import TableSpec

MESSAGE = struct.Struct("<Ii")  # what Arrow writes before a message: a marker and the length of its metadata
ELIDE_ROWS = 64  # a smaller column takes less space than its entry in the footer
_texts: dict[tuple[pa.DataType, int], str] = {}  # constants as texts, by type and bits
_ONE_THREAD = pa.ipc.IpcWriteOptions(use_threads=False)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class SegmentInfo:
    """What the writer of a file reports about one segment."""

    segment: int
    table: str
    bucket: int | None
    rows: int
    bytes: int
    h_min: int
    h_max: int

    def ref(
        self,
        file: str,
        *,
        lo: int,
        hi: int,
        kind: Literal["delta", "merge"],
        h_min: int | None = None,
        h_max: int | None = None,
    ) -> RunRef:
        """The ref of this segment; its hash range is that of its rows unless another one is passed."""
        return RunRef(
            self.table,
            file,
            self.segment,
            self.bucket,
            lo,
            hi,
            self.rows,
            self.bytes,
            self.h_min if h_min is None else h_min,
            self.h_max if h_max is None else h_max,
            kind,
        )


class PackedWriter:
    """Collects sorted segments and returns the file as a list of buffers.

    >>> spec = TableSpec("count/out", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    >>> from millpond.state.runs.packed import PackedFile
    >>> writer = PackedWriter()
    >>> writer.add(spec, pa.table({"k": [1, 2], "n": [10, 20]})).rows
    2
    >>> buffers, infos = writer.finish()
    >>> PackedFile.open("a", pa.py_buffer(b"".join(buffers))).segment(0).rows
    2
    """

    def __init__(self) -> None:
        self._buffers: list[Any] = []
        self._entries: list[SegmentEntry] = []
        self._size = HEADER.size + (-HEADER.size % ALIGN)

    def add(
        self, spec: TableSpec, rows: pa.Table, *, bucket: int | None = None, presorted: bool = False
    ) -> SegmentInfo | None:
        """Sort these rows and add them as a segment; without rows no segment is added."""
        columns = sorted_columns(spec, rows, presorted=presorted)
        hashes = columns[HASH].to_numpy()
        if not len(hashes):
            return None
        whole = self._put(spec.name, bucket, columns)
        self._entries.append(whole)
        return _info(len(self._entries) - 1, whole)

    def add_stack(
        self, members: Sequence[tuple[TableSpec, int]], columns: dict[str, pa.Array]
    ) -> list[SegmentInfo | None]:
        """Add several tables with equal types as segments of one Arrow batch; `members` has the rows of each.

        Columns are _h, those of the schemas by position, and _w; the rows of a table are sorted by hash, and
        each has a different hash.
        """
        hashes = columns[HASH].to_numpy()
        firsts = np.cumsum([0, *(rows for _, rows in members)])
        rises = np.append(hashes[1:] > hashes[:-1], True)
        rises[firsts[1:] - 1] = True
        if firsts[-1] != len(hashes) or not rises.all():
            raise InternalError("the rows of a stack do not lie in order", detail=members[0][0].name)
        if not len(hashes):
            return [None] * len(members)
        whole = self._put("", None, columns)
        infos: list[SegmentInfo | None] = []
        for (spec, rows), first in zip(members, firsts.tolist(), strict=False):
            if not rows:
                infos.append(None)
                continue
            names = {stacked_name(index): name for index, name in enumerate(spec.schema.names)}
            own = hashes[first : first + rows]
            entry = replace(
                whole,
                table=spec.name,
                rows=rows,
                h_min=int(own[0]),
                h_max=int(own[-1]),
                fences=own[::FENCE_ROWS].copy(),
                constants={names.get(name, name): value for name, value in whole.constants.items()},
                first=first,
                of=whole.rows,
                names=tuple(spec.schema.names),
            )
            self._entries.append(entry)
            infos.append(_info(len(self._entries) - 1, entry))
        return infos

    def _put(self, table: str, bucket: int | None, columns: dict[str, pa.Array]) -> SegmentEntry:
        """Write an Arrow batch; returns its entry in the footer."""
        hashes: Hashes = columns[HASH].to_numpy()
        stored, constants = _elide(columns)
        body, lies = _write_ipc(stored)
        self._buffers += body.buffers
        entry = SegmentEntry(
            table=table,
            bucket=bucket,
            offset=self._size,
            length=body.size,
            rows=len(hashes),
            h_min=int(hashes[0]),
            h_max=int(hashes[-1]),
            body=lies,
            checksums=_checksums(body.buffers),
            fences=hashes[::FENCE_ROWS].copy(),
            constants=constants,
            block=BLOCK,
            fence_rows=FENCE_ROWS,
        )
        self._size += body.size
        if padding := -self._size % ALIGN:
            self._buffers.append(bytes(padding))
            self._size += padding
        return entry

    def finish(self) -> tuple[list[Any], list[SegmentInfo]]:
        """The complete file as buffers to write in order, and its contents."""
        footer = json.dumps(
            {
                "version": VERSION,
                "hash_version": hashing.VERSION,
                "block": BLOCK,
                "fence_rows": FENCE_ROWS,
                "segments": [_entry_to_json(entry) for entry in self._entries],
            },
            separators=(",", ":"),
        ).encode()
        tail = TAIL.pack(xxhash.xxh3_64_intdigest(footer), len(footer), MAGIC)
        length = self._size + len(footer) + len(tail)
        buffers = [_header(length), *self._buffers, footer + tail]
        return buffers, [_info(index, entry) for index, entry in enumerate(self._entries)]


def _header(length: int) -> bytes:
    facts = struct.pack("<8sIIQ", MAGIC, VERSION, 0, length)
    packed = HEADER.pack(MAGIC, VERSION, 0, length, xxhash.xxh3_64_intdigest(facts))
    return packed + bytes(-len(packed) % ALIGN)


def _info(index: int, entry: SegmentEntry) -> SegmentInfo:
    return SegmentInfo(index, entry.table, entry.bucket, entry.rows, entry.bytes, entry.h_min, entry.h_max)


def _elide(columns: dict[str, pa.Array]) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """(stored columns, constants): a column with one value is stored as one row in the footer."""
    stored, constants = {}, {}
    for name, column in columns.items():
        if name != HASH and len(column) >= ELIDE_ROWS and _is_constant(column):
            constants[name] = column.slice(0, 1)
        else:
            stored[name] = column
    return stored, constants


def _is_constant(column: pa.Array) -> bool:
    """Do all values have the same bits?  Compares both ends and the middle before all values."""
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_nested(column.type) or isinstance(column, pa.ExtensionArray):
        return False
    raw = fixed_view(column)
    if raw is not None:
        return bool(raw[0] == raw[-1] == raw[len(raw) // 2]) and bool((raw == raw[0]).all())
    first = column[0]
    if column[-1] != first or column[len(column) // 2] != first:
        return False
    try:
        return bool(pc.all(pc.equal(column, first)).as_py())
    except pa.ArrowNotImplementedError:
        return False


def _write_ipc(columns: dict[str, pa.Array]) -> tuple[BufferList, tuple[int, int]]:
    """A segment, and the range of its column data; everything around it is Arrow's metadata.

    Large columns are not copied: their buffers become buffers of the file.
    """
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    body = BufferList()
    small = pa.ipc.get_record_batch_size(batch) < tuning.WRITE_COPY_BYTES_MAX
    sink: pa.NativeFile = pa.BufferOutputStream() if small else pa.PythonFile(body, mode="w")
    with pa.ipc.new_file(sink, batch.schema, options=_ONE_THREAD) as writer:
        start = sink.tell()
        writer.write_batch(batch)
        stop = sink.tell()
    if small:
        body.write(sink.getvalue())
    # A message is a marker, the length of its metadata, the metadata, and then the data.
    _, length = MESSAGE.unpack(_first_bytes(body.buffers, start + MESSAGE.size)[start:])
    return body, (start + MESSAGE.size + length, stop)


def _first_bytes(parts: Sequence[bytes | pa.Buffer], size: int) -> bytes:
    first = b""
    for part in parts:
        if len(first) >= size:
            break
        first += bytes(memoryview(part)[: size - len(first)])
    return first


def _checksums(parts: Sequence[bytes | pa.Buffer]) -> Hashes:
    """A checksum for each block of the concatenated buffers; a block may span several."""
    sums = []
    block, room = xxhash.xxh3_64(), BLOCK
    for part in parts:
        view = memoryview(part)
        at = 0
        while at < len(view):
            if room == BLOCK and len(view) - at >= BLOCK:  # a separate block
                sums.append(xxhash.xxh3_64_intdigest(view[at : at + BLOCK]))
                at += BLOCK
                continue
            more = view[at : at + room]
            block.update(more)
            at += len(more)
            room -= len(more)
            if not room:
                sums.append(block.intdigest())
                block, room = xxhash.xxh3_64(), BLOCK
    if room < BLOCK:
        sums.append(block.intdigest())
    return np.array(sums, np.uint64)


def _entry_to_json(entry: SegmentEntry) -> dict[str, Any]:
    return {
        "table": entry.table,
        "bucket": entry.bucket,
        "offset": entry.offset,
        "length": entry.length,
        "rows": entry.rows,
        "h_min": f"{entry.h_min:016x}",
        "h_max": f"{entry.h_max:016x}",
        "body": list(entry.body),
        "checksums": base64.b64encode(entry.checksums.tobytes()).decode(),
        "fences": base64.b64encode(entry.fences.tobytes()).decode(),
        "constants": {name: _constant_to_text(value) for name, value in entry.constants.items()},
        **({} if entry.first is None else {"first": entry.first, "of": entry.of, "names": list(entry.names)}),
    }


def _constant_to_text(value: pa.Array) -> str:
    raw = None if value.null_count else fixed_view(value)
    if raw is None:
        return _as_text(value)
    text = _texts.get((value.type, bits := int(raw[0])))
    if text is None:
        if len(_texts) > TEXTS_MAX:
            _texts.clear()
        text = _texts[value.type, bits] = _as_text(value)
    return text


def _as_text(value: pa.Array) -> str:
    batch = pa.record_batch([value], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()

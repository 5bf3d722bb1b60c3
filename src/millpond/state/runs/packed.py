"""The packed run file: all segments that a task writes in one epoch, with one footer.

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
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from millpond import hashing, tuning
from millpond.buffers import BufferList
from millpond.delta import HASH, WEIGHT, weights
from millpond.errors import DataError, InternalError
from millpond.identity import canonical, fixed_view, one_chunk, refine, same_rows, take, ties
from millpond.ordering import Order
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import BLOCK, FENCE_ROWS, Segment, SegmentEntry, stacked_name
from millpond.state.store.store import Fetch
from millpond.state.tables.table_spec import TableSpec

VERSION = 3
MAGIC = b"MPONDRUN"
ALIGN = 64
HEADER = struct.Struct("<8sIIQQ")
TAIL = struct.Struct("<QQ8s")
MESSAGE = struct.Struct("<Ii")  # what Arrow writes before a message: a marker and the length of its metadata
ELIDE_ROWS = 64  # a smaller column takes less space than its entry in the footer

TEXTS_MAX = 1_000
KNOWN_CHARS = 1000  # the maximum length of a cached constant
# the number of cached constants: most are the weight 1, or zero
_texts: dict[tuple[pa.DataType, int], str] = {}
_ONE_THREAD = pa.ipc.IpcWriteOptions(use_threads=False)

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


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
        found: list[SegmentInfo | None] = []
        for (spec, rows), first in zip(members, firsts.tolist(), strict=False):
            if not rows:
                found.append(None)
                continue
            names = {stacked_name(place): name for place, name in enumerate(spec.schema.names)}
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
            found.append(_info(len(self._entries) - 1, entry))
        return found

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
        return buffers, [_info(place, entry) for place, entry in enumerate(self._entries)]


def _header(length: int) -> bytes:
    facts = struct.pack("<8sIIQ", MAGIC, VERSION, 0, length)
    packed = HEADER.pack(MAGIC, VERSION, 0, length, xxhash.xxh3_64_intdigest(facts))
    return packed + bytes(-len(packed) % ALIGN)


def _info(place: int, entry: SegmentEntry) -> SegmentInfo:
    return SegmentInfo(place, entry.table, entry.bucket, entry.rows, entry.bytes, entry.h_min, entry.h_max)


# ---------------------------------------------------------------- sorting rows


def sorted_columns(spec: TableSpec, rows: pa.Table, *, presorted: bool = False) -> dict[str, pa.Array]:
    """The columns of a segment (_h, the schema's, _w) sorted by (_h, key, order[, rest])."""
    given = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = {field.name: _plain(spec, given.get(field.name), field, rows) for field in spec.fields}
    for name in spec.identity:
        columns[name] = canonical(columns[name])
    w = weights(rows)
    if HASH in given:
        hash_column = one_chunk(given[HASH])
        if hash_column.type != pa.uint64() or hash_column.null_count:
            raise InternalError(
                f"rows for table {spec.name!r} have no proper key hashes",
                detail=f"{HASH} is {hash_column.type}",
            )
        hashes: Hashes = hash_column.to_numpy()
    else:
        hashes = hashing.hash_columns([columns[name] for name in spec.key], rows.num_rows)
    perm, same = sort_rows(spec, columns, hashes)
    if presorted and perm is not None:
        raise InternalError(f"rows for table {spec.name!r} were said to be sorted, and are not")
    if same is not None and same.any():
        perm = np.arange(len(hashes)) if perm is None else perm
        if spec.rule == "latest":
            twice = perm[np.flatnonzero(same)[:1]]
            row = {name: columns[name][int(twice[0])].as_py() for name in spec.identity}
            raise InternalError(
                f"rows for table {spec.name!r} hold one identity twice",
                detail=f"{int(same.sum())} rows too many, first {row}",
                hint="one epoch writes one row per key and order",
            )
        starts = np.flatnonzero(~same)
        w = np.add.reduceat(w[perm], starts)
        alive = np.flatnonzero(w)
        perm, w = perm[starts[alive]], w[alive]
    elif perm is not None:
        w = w[perm]
    if spec.rule == "weights" and not w.all():
        alive = np.flatnonzero(w)
        perm, w = alive if perm is None else perm[alive], w[alive]
    if perm is not None:
        hashes = hashes[perm]
        columns = {name: take(column, perm) for name, column in columns.items()}
    return {HASH: pa.array(hashes), **columns, WEIGHT: pa.array(w)}


def sort_rows(
    spec: TableSpec, columns: dict[str, pa.Array], hashes: Hashes
) -> tuple[Ints | None, npt.NDArray[np.bool_] | None]:
    """(perm, same): the table order and which neighbours are one row; None for identity and for no ties."""
    if len(hashes) < 2:
        return None, None
    if (hashes[1:] > hashes[:-1]).all():
        return None, None
    in_order = bool((hashes[1:] >= hashes[:-1]).all())
    perm = np.arange(len(hashes)) if in_order else np.argsort(hashes)
    same = ties(hashes[perm])
    again = np.flatnonzero(same)
    if not len(again):
        return perm, None
    key = [columns[name] for name in spec.key]
    before, after = perm[again - 1], perm[again]
    if not hashing.is_injective(key) and not same_rows(key, before, after):
        for column in key:  # two keys share a hash
            refine(perm, same, partial(take, column), Order(""))
    for order in spec.order_within_key:
        refine(perm, same, partial(take, columns[order.column]), order)
    if in_order and (perm[1:] > perm[:-1]).all():
        return None, same
    return perm, same


def _plain(spec: TableSpec, column: pa.ChunkedArray | None, field: pa.Field, rows: pa.Table) -> pa.Array:
    """One column as the table declares it; encodings are removed, other types are refused."""
    if column is None:
        raise InternalError(
            f"rows for table {spec.name!r} lack a column", detail=f"{field.name!r} not in {rows.column_names}"
        )
    column = one_chunk(column)
    if column.type == field.type:
        return column
    if isinstance(field.type, pa.BaseExtensionType) and field.type.storage_type == column.type:
        return pa.ExtensionArray.from_storage(field.type, column)
    if _same_values(column.type, field.type):
        return column.cast(field.type)
    raise InternalError(
        f"rows for table {spec.name!r} have another type than declared",
        detail=f"column {field.name!r} is {column.type}, declared {field.type}",
    )


def _same_values(a: pa.DataType, b: pa.DataType) -> bool:
    """Do two types differ only in layout or field names?  A column of NULLs fits any type."""
    t = pa.types
    if t.is_null(a) or a == b:
        return True
    texts = (pa.string(), pa.large_string(), pa.string_view())
    binaries = (pa.binary(), pa.large_binary(), pa.binary_view())
    if (a in texts and b in texts) or (a in binaries and b in binaries):
        return True
    same_kind = any(test(a) and test(b) for test in (t.is_struct, t.is_list, t.is_large_list, t.is_map))
    names = [[kind.field(place) for place in range(kind.num_fields)] for kind in (a, b)]
    return (
        same_kind
        and len(names[0]) == len(names[1])
        and all(
            _same_values(x.type, y.type) and (x.name == y.name or not t.is_struct(a))
            for x, y in zip(*names, strict=True)
        )
    )


# ---------------------------------------------------------------- writing a segment


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
    found = b""
    for part in parts:
        if len(found) >= size:
            break
        found += bytes(memoryview(part)[: size - len(found)])
    return found


def _checksums(parts: Sequence[bytes | pa.Buffer]) -> Hashes:
    """A checksum for each block of the concatenated buffers; a block may span several."""
    found = []
    block, room = xxhash.xxh3_64(), BLOCK
    for part in parts:
        view = memoryview(part)
        at = 0
        while at < len(view):
            if room == BLOCK and len(view) - at >= BLOCK:  # a separate block
                found.append(xxhash.xxh3_64_intdigest(view[at : at + BLOCK]))
                at += BLOCK
                continue
            more = view[at : at + room]
            block.update(more)
            at += len(more)
            room -= len(more)
            if not room:
                found.append(block.intdigest())
                block, room = xxhash.xxh3_64(), BLOCK
    if room < BLOCK:
        found.append(block.intdigest())
    return np.array(found, np.uint64)


# ---------------------------------------------------------------- the footer


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


def _constant_to_text(value: pa.Array) -> str:
    raw = None if value.null_count else fixed_view(value)
    if raw is None:
        return _as_text(value)
    found = _texts.get((value.type, bits := int(raw[0])))
    if found is None:
        if len(_texts) > TEXTS_MAX:
            _texts.clear()
        found = _texts[value.type, bits] = _as_text(value)
    return found


def _as_text(value: pa.Array) -> str:
    batch = pa.record_batch([value], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _constant_from_text(text: str) -> pa.Array:
    return _known_constant(text) if len(text) < KNOWN_CHARS else _constant(text)


def _constant(text: str) -> pa.Array:
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch().column(0)


_known_constant = lru_cache(maxsize=TEXTS_MAX)(_constant)


# ---------------------------------------------------------------- opening


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

    def segment(self, place: int) -> Segment:
        """One segment, opened on first use."""
        found = self._segments.get(place)
        if found is None:
            if not 0 <= place < len(self.entries):
                raise DataError(
                    f"run file {self.name} has no such segment",
                    detail=f"asked for segment {place}, the footer has {len(self.entries)}",
                    hint="the manifest and the file disagree; restore the file",
                )
            entry = self.entries[place]
            data = self._buffer.slice(entry.offset, entry.length)
            found = self._segments[place] = Segment(
                f"{self.name}#{place}", data, entry, self.stack(place), self._fetch
            )
        return found

    def stack(self, place: int) -> Segment | None:
        """The rows of all tables that share a batch with this segment; None if it has its own batch."""
        entry = self.entries[place]
        if entry.first is None:
            return None
        found = self._stacks.get(entry.offset)
        if found is None:
            own = {name: stacked_name(place) for place, name in enumerate(entry.names)}
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
            found = self._stacks[entry.offset] = Segment(
                f"{self.name}#{place}", data, whole, fetch=self._fetch
            )
            found.verified()
        return found


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
    if version > VERSION:
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


def _match(name: str, part: str, said: int, found: int) -> None:
    if said != found:
        raise DataError(
            f"run file {name} has a damaged {part}",
            detail=f"checksum written {said:016x}, found {found:016x}",
            hint=RESTORE,
        )

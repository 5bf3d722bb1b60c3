"""The run file: what is written comes back sorted; what is damaged is refused, or was not needed."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import hashing
from millpond.errors import DataError, InternalError, InvalidError
from millpond.ordering import Order
from millpond.state.runs import packed, packed_writer, segment_entry
from millpond.state.runs.packed import MAGIC, PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec
from tests.sampling import first

SPEC = TableSpec("count/out", pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())]), ("k",))
BAG = TableSpec("join/left", SPEC.schema, ("k",), (Order("n"),), "weights")


def rows(count: int, **more: Any) -> pa.Table:
    numbers = np.arange(count)
    texts = pa.array([f"value {i}" for i in range(count)], pa.string())
    return pa.table({"k": numbers, "n": numbers % 7, "s": texts, **more})


def file_of(*tables: pa.Table, spec: TableSpec = SPEC) -> bytes:
    writer = PackedWriter()
    for table in tables:
        writer.add(spec, table)
    return b"".join(bytes(buffer) for buffer in writer.finish()[0])


def opened(data: bytes) -> PackedFile:
    return PackedFile.open("runs/1/2-0-0-ab", pa.py_buffer(data))


def read(data: bytes, place: int = 0) -> pa.Table:
    part = opened(data).segment(place)
    names = ["_h", *SPEC.schema.names, "_w"]
    return pa.table([part.slice(name, 0, part.rows) for name in names], names=names)


# ---------------------------------------------------------------- writing and reading


def test_rows_come_back_sorted_by_hash() -> None:
    table = rows(1000)
    back = read(file_of(table))
    assert back["_h"].to_pylist() == sorted(back["_h"].to_pylist())
    assert (hashing.hash_array(back["k"]) == back["_h"].to_numpy()).all()
    assert back["_w"].to_pylist() == [1] * 1000
    assert back.select(table.column_names).sort_by("k").equals(table.combine_chunks())


def test_a_file_holds_many_segments_each_aligned() -> None:
    writer = PackedWriter()
    first = writer.add(SPEC, rows(10))
    assert writer.add(SPEC, rows(0)) is None
    second = writer.add(BAG, rows(20), bucket=-3)
    buffers, infos = writer.finish()
    assert infos == [first, second]
    data = b"".join(bytes(b) for b in buffers)
    file = opened(data)
    assert [(e.table, e.bucket, e.rows) for e in file.entries] == [
        ("count/out", None, 10),
        ("join/left", -3, 20),
    ]
    assert all(entry.offset % 64 == 0 for entry in file.entries)
    for place, entry in enumerate(file.entries):  # each segment is a plain Arrow file
        raw = data[entry.offset : entry.offset + entry.length]
        assert pa.ipc.open_file(raw).get_batch(0).num_rows == entry.rows == file.segment(place).rows
    assert second is not None
    ref = second.ref("f", lo=3, hi=5, kind="merge", h_min=0)
    assert (ref.segment, ref.h_min, ref.h_max, ref.lo, ref.hi) == (1, 0, second.h_max, 3, 5)


def test_reading_copies_nothing() -> None:
    data = pa.py_buffer(file_of(rows(1000)))
    part = PackedFile.open("f", data).segment(0)
    for column in (part.slice("n", 100, 200), part.slice("s", 100, 200), part.slice("_h", 0, 1000)):
        assert all(
            data.address <= b.address < data.address + data.size for b in column.buffers() if b is not None
        )
    inside = part.hashes(0, 10).__array_interface__["data"][0]
    assert data.address <= inside < data.address + data.size


def test_large_columns_are_not_copied_on_their_way_into_the_file() -> None:
    table = read(file_of(rows(60_000)))  # in the order of the file
    writer = PackedWriter()
    writer.add(SPEC, table, presorted=True)
    buffers, _ = writer.finish()
    written = {b.address for b in buffers if isinstance(b, pa.Buffer)}
    assert {table["s"].chunk(0).buffers()[2].address, table["n"].chunk(0).buffers()[1].address} <= written


@pytest.mark.parametrize("count", [10, 10_000, 60_000])
def test_every_block_of_a_segment_has_its_checksum_wherever_columns_end(count: int) -> None:
    data = file_of(rows(count), rows(count + 1))
    file = opened(data)
    for place, entry in enumerate(file.entries):
        raw = data[entry.offset : entry.offset + entry.length]
        blocks = [raw[at : at + segment_entry.BLOCK] for at in range(0, len(raw), segment_entry.BLOCK)]
        assert entry.checksums.tolist() == [xxhash.xxh3_64_intdigest(block) for block in blocks]
        assert file.segment(place).verified()


def test_constant_columns_are_not_stored() -> None:
    same = rows(1000, x=pa.array([None] * 1000, pa.string()), y=pa.array(["all the same"] * 1000))
    kinds = [("x", pa.string()), ("y", pa.string())]
    spec = TableSpec("t", pa.schema([*SPEC.schema, *(pa.field(n, t) for n, t in kinds)]), ("k",))
    part = opened(file_of(same, spec=spec)).segment(0)
    assert set(part.entry.constants) == {"x", "y", "_w"}
    assert part.take("y", np.array([3, 999])).to_pylist() == ["all the same"] * 2
    assert part.slice("x", 5, 7).to_pylist() == [None, None]
    assert part.take("_w", np.empty(0, np.int64)).to_pylist() == []
    nearly = rows(1000, _w=np.where(np.arange(1000) == 500, 2, 1))
    assert "_w" not in opened(file_of(nearly, spec=BAG)).segment(0).entry.constants
    assert len(file_of(rows(1000))) + 7000 < len(file_of(nearly, spec=BAG))


def test_minus_zero_is_not_a_constant_among_zeros() -> None:
    spec = TableSpec("t", pa.schema([("k", pa.int64()), ("f", pa.float64())]), ("k",))
    values = np.zeros(100)
    values[50] = -0.0
    part = opened(file_of(pa.table({"k": np.arange(100), "f": values}), spec=spec)).segment(0)
    back = part.slice("f", 0, 100).to_numpy()
    assert np.signbit(back).sum() == 1


def test_keys_and_identities_are_stored_canonically() -> None:
    spec = TableSpec("t", pa.schema([("f", pa.float64()), ("v", pa.float64())]), ("f",))
    nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    for bits in (np.array([-0.0]), nan[:1], nan[1:]):
        part = opened(file_of(pa.table({"f": bits, "v": bits}), spec=spec)).segment(0)
        clean = np.array([0.0]) if bits[0] == 0 else np.array([np.nan])
        assert part.slice("f", 0, 1).to_numpy().tobytes() == clean.tobytes()
        assert part.slice("v", 0, 1).to_numpy().tobytes() == bits.tobytes()


def test_weights_are_summed_and_zero_is_not_stored() -> None:
    table = pa.table(
        {"k": [1, 1, 2, 3, 3], "n": [5] * 5, "s": ["a", "a", "b", "c", "d"], "_w": [1, 2, 0, 1, -1]}
    )
    part = opened(file_of(table, spec=BAG)).segment(0)
    got = sorted(zip(part.slice("s", 0, 3).to_pylist(), part.slice("_w", 0, 3).to_pylist(), strict=True))
    assert got == [("a", 3), ("c", 1), ("d", -1)]
    cancelled = pa.table({"k": [1, 1], "n": [5, 5], "s": ["a", "a"], "_w": [1, -1]})
    assert PackedWriter().add(BAG, cancelled) is None


def test_a_tombstone_is_stored() -> None:
    part = opened(file_of(rows(3, _w=[0, 1, 0]))).segment(0)
    assert sorted(part.slice("_w", 0, 3).to_pylist()) == [0, 0, 1]


def test_one_identity_twice_is_refused() -> None:
    with pytest.raises(InternalError, match="one identity twice") as caught:
        PackedWriter().add(SPEC, pa.table({"k": [1, 2, 1], "n": [1, 2, 3], "s": ["a", "b", "c"]}))
    assert "{'k': 1}" in str(caught.value.detail)


def test_rows_said_to_be_sorted_are_checked() -> None:
    back = read(file_of(rows(100)))
    writer = PackedWriter()
    assert writer.add(SPEC, back, presorted=True) is not None
    with pytest.raises(InternalError, match="said to be sorted"):
        writer.add(SPEC, back.take(list(range(99, -1, -1))), presorted=True)
    bag = read(file_of(pa.table({"k": [1, 1], "n": [2, 1], "s": ["a", "b"]}), spec=BAG))
    assert bag["n"].to_pylist() == [1, 2]
    with pytest.raises(InternalError, match="said to be sorted"):
        writer.add(BAG, bag.take([1, 0]), presorted=True)


def test_encoded_rows_are_decoded_and_other_types_refused() -> None:
    table = rows(100)
    encoded = table.set_column(2, "s", table["s"].dictionary_encode())
    assert read(file_of(encoded)).equals(read(file_of(table)))
    with pytest.raises(InternalError, match="another type") as caught:
        PackedWriter().add(SPEC, table.set_column(1, "n", table["n"].cast(pa.int32())))
    assert "int32" in str(caught.value.detail) and "int64" in str(caught.value.detail)
    nested = TableSpec(
        "n", pa.schema([("k", pa.int64()), ("l", pa.struct([("x", pa.list_(pa.string()))]))]), ("k",)
    )
    other = pa.struct([pa.field("x", pa.list_(pa.field("l", pa.large_string())), nullable=False)])
    values = pa.array([{"x": ["a"]}], other)
    part = opened(file_of(pa.table({"k": [1], "l": values}), spec=nested)).segment(0)
    assert part.slice("l", 0, 1).to_pylist() == [{"x": ["a"]}]
    assert PackedWriter().add(nested, pa.table({"k": [1], "l": pa.nulls(1)})) is not None
    for bad in (pa.struct([("y", pa.list_(pa.string()))]), pa.struct([("x", pa.list_(pa.int64()))])):
        with pytest.raises(InternalError, match="another type"):
            PackedWriter().add(nested, pa.table({"k": [1], "l": pa.nulls(1, bad)}))
    with pytest.raises(InternalError, match="lack a column"):
        PackedWriter().add(SPEC, table.drop_columns("n"))
    with pytest.raises(InternalError, match="key hashes"):
        PackedWriter().add(SPEC, table.append_column("_h", pa.array(np.arange(100))))


# ---------------------------------------------------------------- damage


def refused(data: bytes, words: str) -> DataError:
    with pytest.raises(DataError, match=words) as caught:
        read(data)
    assert "runs/1/2-0-0-ab" in caught.value.message
    assert caught.value.detail and caught.value.hint
    return caught.value


def test_every_truncation_is_refused() -> None:
    data = file_of(rows(300))
    for size in [*range(0, 200, 7), *range(200, len(data), 997), *range(len(data) - 40, len(data))]:
        with pytest.raises(DataError) as caught:
            opened(data[:size])
        assert str(size) in str(caught.value.detail)
    assert str(len(data)) in str(refused(data[:-1], "another length").detail)
    refused(data + b"\0", "another length")


def test_a_newer_format_is_refused_with_both_numbers() -> None:
    data = bytearray(file_of(rows(3)))
    struct.pack_into("<I", data, 8, packed.VERSION + 1)
    error = refused(bytes(data), "newer version")
    assert f"format {packed.VERSION + 1}" in str(error.detail)
    assert f"up to {packed.VERSION}" in str(error.detail)


def test_other_files_are_refused() -> None:
    data = file_of(rows(3))
    refused(b"PAR1" + data[4:], "does not start")
    refused(data[:-8] + b"PAR1PAR1", "does not end")
    refused(data[:10] + b"\1" + data[11:], "header")
    refused(b"", "too short")


def with_footer(data: bytes, change: Any) -> bytes:
    """The same file with another footer, properly signed."""
    _, length, _ = packed.TAIL.unpack_from(data, len(data) - packed.TAIL.size)
    start = len(data) - packed.TAIL.size - length
    footer = json.loads(data[start : start + length])
    change(footer)
    raw = json.dumps(footer).encode()
    tail = packed.TAIL.pack(xxhash.xxh3_64_intdigest(raw), len(raw), MAGIC)
    return packed_writer._header(start + len(raw) + len(tail)) + data[64:start] + raw + tail


def test_a_footer_that_contradicts_the_file_is_refused() -> None:
    data = file_of(rows(100))
    assert read(with_footer(data, lambda f: None)).equals(read(data))
    refused(with_footer(data, lambda f: f.update(hash_version=2)), "another version of the key hash")
    refused(with_footer(data, lambda f: f.update(block=4095)), "impossible size")
    refused(with_footer(data, lambda f: f.update(block=4096)), "does not match its footer")
    refused(with_footer(data, lambda f: f["segments"][0].update(length=10**9)), "beyond its end")
    refused(
        with_footer(data, lambda f: f["segments"][0].update(length=512)), "does not match its footer|damaged"
    )
    refused(with_footer(data, lambda f: f["segments"][0].update(rows=99)), "does not match its footer")
    with pytest.raises(DataError, match="no such segment") as caught:
        opened(data).segment(1)
    assert "segment 1" in str(caught.value.detail)
    with pytest.raises(DataError, match="lacks a column"):
        opened(data).segment(0).take("price", np.array([0]))


NESTED = pa.list_(pa.struct([("x", pa.string()), ("y", pa.map_(pa.string(), pa.int64()))]))
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "float": (pa.float64(), lambda r: r.random()),
    "text": (pa.string(), lambda r: "x" * r.randint(0, 30)),
    "large": (pa.large_binary(), lambda r: bytes(r.randint(0, 50))),
    "nested": (
        NESTED,
        lambda r: [{"x": "ab" * r.randint(0, 9), "y": [("k", r.randint(0, 9))] * r.randint(0, 3)}],
    ),
    "pair": (pa.list_(pa.int64(), 2), lambda r: [r.randint(0, 9), None]),
    "fixed": (pa.binary(3), lambda r: r.randbytes(3)),
    "decimal": (pa.decimal128(20, 2), lambda r: r.randint(0, 10**6)),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in a small file."""
    monkeypatch.setattr(packed_writer, "BLOCK", 1 << 9)
    monkeypatch.setattr(packed_writer, "FENCE_ROWS", 1 << 6)


def wide_table(r: random.Random, count: int) -> tuple[TableSpec, pa.Table]:
    columns = {"k": pa.array(range(count), pa.int64())}
    for name, (kind, make) in KINDS.items():
        columns[name] = pa.array([None if r.random() < 0.1 else make(r) for _ in range(count)], kind)
    table = pa.table(columns)
    return TableSpec("wide", table.schema, ("k",)), table


@pytest.mark.usefixtures("small_blocks")
def test_reads_verify_just_what_they_touch() -> None:
    spec, table = wide_table(random.Random(1), 2000)
    data = file_of(table, spec=spec)
    file = opened(data)
    part = file.segment(0)
    entry = part.entry
    assert not part._blocks.verified.all()
    keys = KeySet.of(table.slice(500, 1), ["k"])
    ref = PackedWriter().add(spec, table)
    assert ref is not None
    found = Table(spec, [ref.ref("f", lo=1, hi=1, kind="delta")], lambda _: file).lookup(keys)
    assert found.table.drop_columns("_w").equals(table.slice(500, 1))
    touched = int(part._blocks.verified.sum())
    assert touched < 0.5 * len(entry.checksums)
    assert touched < 100
    part.slice("nested", 0, 2000)
    assert touched < int(part._blocks.verified.sum()) < len(entry.checksums)
    for name in ["_h", "_w", *spec.schema.names]:
        part.slice(name, 0, 2000)
    assert part._blocks.verified.all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", first(1, range(4)))
def test_a_flipped_bit_is_refused_or_was_not_needed(seed: int) -> None:
    """Any bit of the file: a lookup either raises DataError or gives the right rows."""
    r = random.Random(seed)
    spec, table = wide_table(r, 400)
    data = file_of(table, spec=spec)
    info = PackedWriter().add(spec, table)
    assert info is not None
    ref = info.ref("f", lo=1, hi=1, kind="delta")
    raised = right = 0
    for _ in range(60):
        hurt = bytearray(data)
        hurt[r.randrange(len(data))] ^= 1 << r.randrange(8)
        row = r.randrange(400)
        keys = KeySet.of(table.slice(row, 1), ["k"])
        try:
            file = PackedFile.open("f", pa.py_buffer(bytes(hurt)))
            got = Table(spec, [ref], lambda _, file=file: file).lookup(keys).table
            assert got.drop_columns("_w").equals(table.slice(row, 1))
            right += 1
            scanned = Table(spec, [ref], lambda _, file=file: file).scan()
            assert scanned.select(table.column_names).sort_by("k").equals(table)
        except DataError:
            raised += 1
    assert raised > 10 and right > 10


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 500), asked=st.integers(1, 40))
def test_searches_are_right_before_and_after_all_is_verified(seed: int, count: int, asked: int) -> None:
    """Few keys go by the fences, many by the whole column: the same rows, hot keys over many blocks too."""
    r = random.Random(seed)
    spec = TableSpec("t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ("k",), (Order("v"),), "weights")
    table = pa.table({"k": [int(r.expovariate(0.1)) for _ in range(count)], "v": range(count)})
    file = opened(file_of(table, spec=spec))
    info = PackedWriter().add(spec, table)
    assert info is not None
    state = Table(spec, [info.ref("f", lo=1, hi=1, kind="delta")], lambda _: file)
    for _ in range(3):
        wanted = [r.randint(0, 60) for _ in range(asked)]
        keys = KeySet.of(pa.table({"k": wanted}), ["k"])
        rows = state.lookup(keys).table
        expected = {(k, v) for k, v in zip(*table.to_pydict().values(), strict=True) if k in set(wanted)}
        assert sorted(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)) == sorted(expected)
        low = r.randrange(2**64)
        high = r.randrange(low, 2**64)
        start, stop = file.segment(0).cut(low, high)
        hashes = np.sort(hashing.hash_array(table["k"]))
        assert stop - start == int(((hashes >= np.uint64(low)) & (hashes <= np.uint64(high))).sum())


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": ("x",)}, "lacks columns"),
        ({"order": (Order("x"),)}, "lacks columns"),
        ({"time": "x"}, "lacks columns"),
        ({"rule": "newest"}, "no such merge rule"),
        ({"schema": pa.schema([("k", pa.int64()), ("_w", pa.int64())])}, "reserved"),
        ({"schema": pa.schema([("k", pa.int64()), ("k", pa.int64())])}, "one name"),
        ({"schema": pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])}, "plain columns"),
        ({"bucket_width": 5}, "needs a time column"),
        ({"bucket_width": 0, "time": "n"}, "positive width"),
    ],
)
def test_a_wrong_spec_is_refused(change: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {"name": "t", "schema": SPEC.schema, "key": ("k",)}
    TableSpec(**right)
    with pytest.raises(InvalidError, match=words):
        TableSpec(**{**right, **change})


def test_buckets_are_floors_of_microseconds() -> None:
    spec = TableSpec(
        "t", pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms"))]), ("k",), (), "latest", "t", 1000
    )
    table = pa.table({"k": [0, 1, 2], "t": pa.array([0, 1, -1], pa.timestamp("ms"))})
    assert spec.buckets(table).tolist() == [0, 1, -1]
    with pytest.raises(InternalError, match="without a time"):
        spec.buckets(pa.table({"k": [0], "t": pa.array([None], pa.timestamp("ms"))}))
    with pytest.raises(InternalError, match="no buckets"):
        SPEC.buckets(table)


def test_identity_follows_from_the_spec() -> None:
    assert SPEC.identity == ("k",)
    assert BAG.identity == ("k", "n", "s")
    mapped = TableSpec("m", SPEC.schema, ("k",), (Order("s", True),))
    assert mapped.identity == ("k", "s")
    assert mapped.rest == ("n",)
    assert TableSpec("m", SPEC.schema, ("k",), (Order("k"), Order("n"))).identity == ("k", "n")

"""A followed folder: every file once, whole, or an error that says why (laws 1, 2, 9)."""

from __future__ import annotations

import datetime
import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.plan import codec
from millpond.sources import files, text_format
from millpond.sources.files import FileSource
from millpond.sources.source import Poll, Split

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def put(
    folder: Path, name: str, values: list[int] | pa.Table, mtime: int | None = None, **options: Any
) -> Path:
    """A Parquet file, put into the folder whole."""
    table = (
        values if isinstance(values, pa.Table) else pa.table({"k": [f"k{v}" for v in values], "v": values})
    )
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}.writing")
    pq.write_table(table, hidden, **options)
    if mtime is not None:
        os.utime(hidden, (mtime, mtime))
    hidden.rename(target)
    return target


class Crash(RuntimeError):
    pass


class Pipeline:
    """One pond over one folder, opened anew for every run, as after a restart."""

    def __init__(self, tmp: Path, make: Callable[[Path], FileSource] = FileSource, **settings: Any) -> None:
        self.input = tmp / "input"
        self.input.mkdir()
        self.tmp = tmp
        self.make = make
        self.settings = settings

    def open(self, **more: Any) -> millpond.Pond:
        pond = millpond.open(self.tmp / "pond", engine="inline", durable=False, **{**self.settings, **more})
        stream = pond.stream("s", self.make(self.input))
        stream.view("rows")
        stream.aggregate(n="count(*)", total="sum(v)").view("sum")
        return pond

    def run(self, **more: Any) -> list[int]:
        """The values in the view, sorted; the two views must agree."""
        with self.open(**more) as pond:
            pond.drain()
            values = sorted(r["v"] for r in pond.read("rows").to_pylist())
            held = pond.read("sum").to_pylist()
            assert held == ([{"n": len(values), "total": sum(values)}] if values else held)
            self.errors = pond.errors().to_pylist()
            self.head = pond.head()
            self.seen = {r["path"]: r for r in _seen(pond).to_pylist()}
            return values

    def crash_after(self, epochs: int) -> None:
        """Run until so many epochs have admitted input, then die."""
        left = [epochs]

        def die(manifest: Any) -> None:
            if manifest.admitted:
                left[0] -= 1
                if left[0] == 0:
                    raise Crash

        pond = self.open(on_epoch=die)
        with pytest.raises(Crash):
            pond.drain()
        pond.close()


def _seen(pond: millpond.Pond) -> pa.Table:
    spec = pond.plan.nodes["s"].operator.source.table("s")  # type: ignore[attr-defined]
    with pond._reader.pinned() as snapshot:
        return snapshot.scan(spec, spec.schema.names)


def read(source: FileSource, splits: Any, columns: list[str] | None = None) -> list[dict[str, Any]]:
    names = source.schema.names if columns is None else columns
    return [row for split in splits for table in source.read(split, names) for row in table.to_pylist()]


# -- each file once -------------------------------------------------------------


def test_files_that_appear_are_read_once_across_restarts(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1, 2])
    assert pipeline.run() == [1, 2]
    assert pipeline.run() == [1, 2]
    put(pipeline.input, "b.parquet", [3])
    assert pipeline.run() == [1, 2, 3]
    assert pipeline.head.positions["s"] == {"files": 2, "partial": None}
    assert {p: (r["rows"], r["status"]) for p, r in pipeline.seen.items()} == {
        "a.parquet": (2, "read"),
        "b.parquet": (1, "read"),
    }
    assert pipeline.errors == []


def test_files_that_appear_while_it_runs(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1])
    with pipeline.open() as pond:
        for n in range(2, 6):
            pond.drain()
            put(pipeline.input, f"{n}.parquet", [n])
        pond.drain()
        assert sorted(r["v"] for r in pond.read("rows").to_pylist()) == [1, 2, 3, 4, 5]


def test_a_late_file_with_an_older_time_is_new(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "new.parquet", [2], mtime=2_000_000)
    assert pipeline.run() == [2]
    put(pipeline.input, "a-old.parquet", [1], mtime=1_000_000)
    assert pipeline.run() == [1, 2]


def test_order_is_time_then_name(tmp_path: Path) -> None:
    for name, mtime in (("b", 20), ("a", 20), ("z", 10)):
        put(tmp_path, f"{name}.parquet", [1], mtime=mtime)
    poll = FileSource(str(tmp_path)).poll(None, None, 100)
    assert [s.what["path"] for s in poll.splits] == ["z.parquet", "a.parquet", "b.parquet"]


def test_names_in_any_script_and_folders_in_folders(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    names = ["größe.parquet", "数据/水车.parquet", "a b/'c' \"d\".parquet", "day=2024-01-01/😀.parquet"]
    for n, name in enumerate(names):
        put(pipeline.input, name, [n])
    assert pipeline.run() == [0, 1, 2, 3]
    assert pipeline.run() == [0, 1, 2, 3]
    assert sorted(pipeline.seen) == sorted(names)


def test_what_is_hidden_or_being_written_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1])
    written = [f"b.parquet{end}" for end in (".tmp", ".part", ".partial", ".crdownload", "._COPYING_")]
    for name in ("_SUCCESS", ".a.crc", *written, "_temporary/c.parquet", ".x/d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"not data")
    (tmp_path / "loop").symlink_to(tmp_path)
    poll = FileSource(str(tmp_path)).poll(None, None, 100)
    assert [s.what["path"] for s in poll.splits] == ["a.parquet"]
    assert poll.rejects == ()


def test_a_pattern_chooses_files(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1])
    put(tmp_path, "deep/b.parquet", [1])
    (tmp_path / "README.txt").write_text("hello")
    source = FileSource(str(tmp_path), pattern="*.parquet")
    assert [s.what["path"] for s in source.poll(None, None, 100).splits] == ["a.parquet", "deep/b.parquet"]
    assert [
        s.what["path"] for s in FileSource(str(tmp_path), pattern="deep/*").poll(None, None, 9).splits
    ] == ["deep/b.parquet"]


def test_a_name_that_is_not_utf8_is_an_error_row_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1])
    os.rename(put(pipeline.input, "b.parquet", [2]), os.fsencode(pipeline.input) + b"/b\xff.parquet")
    assert pipeline.run() == [1]
    assert pipeline.run() == [1]
    (error,) = pipeline.errors
    assert json.loads(error["row"])["path"] == "b\\xff.parquet"
    assert "UTF-8" in error["reason"]


def test_a_link_that_leads_to_itself_is_an_error_row_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1])
    (pipeline.input / "loop.parquet").symlink_to("loop.parquet")
    (pipeline.input / "deep").mkdir()
    (pipeline.input / "deep" / "x").symlink_to("y")
    (pipeline.input / "deep" / "y").symlink_to("x")
    (pipeline.input / "deep" / "up").symlink_to("..")  # a link to a folder is not followed
    assert pipeline.run() == [1]
    put(pipeline.input, "b.parquet", [2])
    assert pipeline.run() == [1, 2]
    assert sorted(json.loads(e["row"])["path"] for e in pipeline.errors) == [
        "deep/x",
        "deep/y",
        "loop.parquet",
    ]
    assert {e["reason"] for e in pipeline.errors} == {
        f"the file cannot be opened: {os.strerror(errno.ELOOP)}"
    }
    (pipeline.input / "loop.parquet").unlink()
    put(pipeline.input, "loop.parquet", [3])
    assert pipeline.run() == [1, 2, 3]


@pytest.mark.parametrize("lines_max", [100, 4096])
@pytest.mark.parametrize("at_end", [True, False])
def test_a_line_that_is_too_long_is_one_error_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines_max: int, at_end: bool
) -> None:
    monkeypatch.setattr(text_format, "LINE_BYTES_MAX", lines_max)
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(text_format, "PIECE_BYTES_MIN", 256)
    monkeypatch.setattr(text_format, "_SAMPLE_BYTES", 64)
    pipeline = Pipeline(tmp_path, lambda path: FileSource(path, "json", SCHEMA), epoch_rows_max=8)
    short = [json.dumps({"k": "x" * (n % 50), "v": n}) for n in range(40)]
    # Were it cut, a piece of it would be a row.
    long = json.dumps({"k": '\\n{"k": "y", "v": 7}' * lines_max, "v": 0})
    lines = [*short[:20], *([] if at_end else [long]), *short[20:], *([long] if at_end else [])]
    (pipeline.input / "a.json").write_text("\n".join(lines))
    assert pipeline.run() == list(range(40))
    (error,) = pipeline.errors
    assert f"the line has {len(long)} bytes, and at most {lines_max} are read" in error["reason"]
    assert len(error["row"]) < 1100


def test_empty_files_are_read_and_done(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", SCHEMA.empty_table(), mtime=1)
    put(pipeline.input, "b.parquet", [1], mtime=2)
    assert pipeline.run() == [1]
    epoch = pipeline.head.epoch
    assert pipeline.seen["a.parquet"]["rows"] == 0
    assert pipeline.run() == [1]
    assert pipeline.head.epoch == epoch + 1  # taking over, and nothing else


def test_views_that_need_no_column_count_rows(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.parquet", list(range(10)), row_group_size=3)
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, epoch_rows_max=100) as pond:
        pond.stream("s", FileSource(str(tmp_path / "in"))).aggregate(n="count(*)").view("n")
        pond.drain()
        assert pond.read("n").to_pylist() == [{"n": 10}]


# -- large files -------------------------------------------------------------------


def test_a_large_file_spans_epochs_and_a_restart_goes_on_in_its_middle(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, epoch_rows_max=100)
    put(pipeline.input, "a.parquet", list(range(1000)), row_group_size=30, mtime=1)
    put(pipeline.input, "b.parquet", [5000], mtime=2)
    pipeline.crash_after(3)
    with pipeline.open() as pond:
        partial = pond.head().positions["s"]["partial"]
        assert partial["path"] == "a.parquet"
        assert 0 < partial["next"] < 34
    pipeline.crash_after(2)
    assert pipeline.run() == [*range(1000), 5000]
    admitted = [s for m in _history(pipeline) for s in m.admitted.get("s", [])]
    ranges = [(s["first"], s["last"]) for s in admitted if s["path"] == "a.parquet"]
    assert [a for a, _ in ranges[1:]] == [b for _, b in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 34)
    assert len([m for m in _history(pipeline) if m.admitted]) >= 10


def _history(pipeline: Pipeline) -> list[Any]:
    from millpond.state.manifest.history import read_manifest

    with pipeline.open() as pond:
        return [read_manifest(pond.store, e) for e in range(pond.head().epoch + 1)]


def test_pieces_are_cut_between_row_groups_within_the_budget(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", list(range(1000)), row_group_size=10)
    source = FileSource(str(tmp_path))
    poll = source.poll(None, None, 320)
    assert sum(s.rows for s in poll.splits) == 320
    assert {s.rows for s in poll.splits} == {20}  # 16 pieces, so that all tasks have work
    assert poll.backlog_rows == 680
    assert all(s.bytes > 0 for s in poll.splits)
    tiny = source.poll(None, None, 1)
    assert [s.rows for s in tiny.splits] == [10]


def test_a_poll_looks_only_into_the_files_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    for n in range(50):
        put(tmp_path, f"{n:02d}.parquet", [n], mtime=n + 1)
    source = FileSource(str(tmp_path))
    look = files._FORMATS["parquet"].look

    def counted(folder: Any, file: Any, schema: pa.Schema) -> Any:
        looked.append(file.path)
        return look(folder, file, schema)

    monkeypatch.setattr(files._FORMATS["parquet"], "look", counted)
    poll = source.poll(None, None, 5)
    assert len(poll.splits) == len(looked) == 5
    assert poll.backlog_rows == 45
    source.poll(None, None, 5)
    assert len(looked) == 5  # what is known of a file is kept
    monkeypatch.setattr(files, "FILES_PER_POLL", 7)
    assert len(source.poll(None, None, 1000).splits) == 7


# -- files that do not stay as they are -----------------------------------------------


def test_a_file_that_grew_after_it_was_read_is_reported_once_and_not_read_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, "json", SCHEMA))
    log = pipeline.input / "log.json"
    log.write_text('{"k": "a", "v": 1}\n')
    assert pipeline.run() == [1]
    with log.open("a") as file:
        file.write('{"k": "a", "v": 2}\n')
    assert pipeline.run() == [1]
    (error,) = pipeline.errors
    assert error["step"] == "s"
    assert "changed after it was read" in error["reason"]
    assert pipeline.run() == [1]
    assert len(pipeline.errors) == 1
    with log.open("a") as file:
        file.write('{"k": "a", "v": 3}\n')
    assert pipeline.run() == [1]
    assert len(pipeline.errors) == 2
    assert pipeline.head.counts["errors/s"] == 2


def test_a_file_replaced_after_it_was_read_is_reported_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1], mtime=10)
    with pipeline.open() as pond:
        pond.drain()
        put(pipeline.input, "a.parquet", [2, 3], mtime=20)
        pond.drain()
        pond.drain()
        assert [e["reason"].split(" (")[0] for e in pond.errors().to_pylist()] == [
            "the file changed after it was read"
        ]
        put(pipeline.input, "b.parquet", [4])
        pond.drain()
        assert sorted(r["v"] for r in pond.read("rows").to_pylist()) == [1, 4]
    assert pipeline.run() == [1, 4]
    assert len(pipeline.errors) == 1


def test_a_touched_parquet_file_is_the_same_file(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, epoch_rows_max=100)
    path = put(pipeline.input, "a.parquet", list(range(300)), row_group_size=30, mtime=10)
    pipeline.crash_after(1)
    os.utime(path, (20, 20))
    assert pipeline.run() == list(range(300))
    os.utime(path, (30, 30))
    assert pipeline.run() == list(range(300))
    assert pipeline.errors == []


def test_a_file_that_changes_between_two_of_its_pieces_stops_the_pipeline(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, epoch_rows_max=100)
    original = put(pipeline.input, "a.parquet", list(range(300)), row_group_size=30).read_bytes()
    pipeline.crash_after(1)
    put(pipeline.input, "a.parquet", list(range(200)), row_group_size=30)
    with pytest.raises(DataError, match=r"'a\.parquet' changed") as caught:
        pipeline.run()
    assert str(len(original)) in str(caught.value.detail)
    assert "renaming" in str(caught.value.hint)
    (pipeline.input / "a.parquet").write_bytes(original)
    assert pipeline.run() == list(range(300))


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_reading_a_piece_checks_that_the_file_is_the_admitted_one(tmp_path: Path, format: Any) -> None:
    path = tmp_path / "a"
    if format == "parquet":
        put(tmp_path, "a", [1, 2])
    else:
        path.write_text('{"k": "a", "v": 1}\n')
    source = FileSource(str(tmp_path), format, SCHEMA)
    (split,) = source.poll(None, None, 100).splits
    assert read(source, [split]) == read(source, [split])
    size = path.stat().st_size
    if format == "parquet":
        put(tmp_path, "a", [1, 2, 3, 4, 5])
    else:
        path.write_text('{"k": "a", "v": 1}\n{"k": "a", "v": 2}\n')
    with pytest.raises(DataError) as caught:
        read(source, [split])
    assert f"had {size} bytes" in str(caught.value.detail)
    assert f"has {path.stat().st_size} bytes" in str(caught.value.detail)
    path.write_bytes(b"")
    with pytest.raises(DataError):
        read(source, [split])
    path.unlink()
    with pytest.raises(UnavailableError, match="'a' is gone"):
        read(source, [split])


def test_a_file_that_is_gone_before_it_is_admitted_was_never_there(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1])
    assert pipeline.run() == [1]
    put(pipeline.input, "b.parquet", [2]).unlink()
    (pipeline.input / "a.parquet").unlink()
    put(pipeline.input, "c.parquet", [3])
    assert pipeline.run() == [1, 3]
    assert pipeline.errors == []


def test_a_file_that_is_gone_before_its_end_halts_and_nothing_is_lost(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, epoch_rows_max=100)
    path = put(pipeline.input, "a.parquet", list(range(300)), row_group_size=30)
    put(pipeline.input, "b.parquet", [1000])
    pipeline.crash_after(1)
    path.rename(tmp_path / "aside")
    with pytest.raises(UnavailableError, match=r"'a\.parquet' is gone"):
        pipeline.run()
    (tmp_path / "aside").rename(path)
    assert pipeline.run() == [*range(300), 1000]


def test_a_folder_that_is_gone_is_not_an_empty_folder(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, schema=SCHEMA))
    assert pipeline.run() == []
    pipeline.input.rmdir()
    with pytest.raises(UnavailableError, match="cannot be listed"):
        pipeline.run()


# -- files that cannot be read -------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a parquet file"),
        (b"hello", "not a parquet file"),
        (b"PAR1" + b"x" * 100, "not a parquet file"),
        (b"PAR1" + b"\xff" * 60 + b"\x10\x00\x00\x00PAR1", "the footer cannot be read"),
        (b"PAR1" + b"x" * 60 + b"\xff\xff\x00\x00PAR1", "the footer says it has 65543 bytes"),
    ],
)
def test_a_corrupt_file_is_an_error_row_and_the_others_go_on(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "b.parquet", [1], mtime=10)
    (pipeline.input / "a.parquet").write_bytes(content)
    assert pipeline.run() == [1]
    assert pipeline.run() == [1]
    (error,) = pipeline.errors
    assert reason in error["reason"]
    assert json.loads(error["row"])["path"] == "a.parquet"
    assert pipeline.head.counts["errors/s"] == 1
    put(pipeline.input, "a.parquet", [2])
    assert pipeline.run() == [1, 2]
    assert pipeline.run() == [1, 2]
    assert len(pipeline.errors) == 1
    assert pipeline.seen["a.parquet"]["status"] == "read"


def test_a_corrupt_file_that_is_replaced_twice_in_one_run(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "b.parquet", [1])
    bad = pipeline.input / "a.parquet"
    with pipeline.open() as pond:
        for n in (1, 2):
            bad.write_bytes(b"bad" * n)
            pond.drain()
        put(pipeline.input, "a.parquet", [2])
        pond.drain()
        pond.drain()
        assert sorted(r["v"] for r in pond.read("rows").to_pylist()) == [1, 2]
        assert pond.errors().num_rows == 2


def test_a_row_group_that_cannot_be_decoded_is_an_error_row_that_counts_its_rows(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, schema=SCHEMA))
    path = put(
        pipeline.input,
        "a.parquet",
        list(range(90)),
        row_group_size=30,
        use_dictionary=False,
        compression="snappy",
    )
    meta = pq.read_metadata(path).row_group(1).column(1)
    with path.open("r+b") as file:
        file.seek(meta.data_page_offset + 25)
        file.write(b"\xff" * (meta.total_compressed_size - 30))
    assert pipeline.run() == [*range(30), *range(60, 90)]
    (error,) = pipeline.errors
    assert json.loads(error["row"]) == {"path": "a.parquet", "row_group": 1}
    assert error["reason"].startswith("30 rows cannot be decoded")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"k": ["x"]}, "column 'v' is missing, columns are k"),
        ({"k": ["x"], "v": ["1"]}, "column 'v' is string, and int64 is wanted"),
        ({"k": ["x"], "v": [1.5]}, "column 'v' is double, and int64 is wanted"),
        ({"k": [1], "v": [1]}, "column 'k' is int64, and string is wanted"),
    ],
)
def test_a_file_with_other_columns_is_an_error_row(
    tmp_path: Path, columns: dict[str, list[Any]], reason: str
) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1], mtime=1)
    put(pipeline.input, "b.parquet", pa.table(columns), mtime=2)
    put(pipeline.input, "c.parquet", [3], mtime=3)
    assert pipeline.run() == [1, 3]
    assert [e["reason"] for e in pipeline.errors] == [reason]


def test_narrower_types_and_more_columns_fit(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    put(pipeline.input, "a.parquet", [1], mtime=1)
    words = pa.array(["x", "y"]).dictionary_encode()
    narrow = pa.table({"more": [[1], []], "v": pa.array([2, None], pa.int16()), "k": words})
    put(pipeline.input, "b.parquet", narrow, mtime=2)
    large = pa.table({"v": pa.array([3], pa.uint32()), "k": pa.array(["z"], pa.large_string())})
    put(pipeline.input, "c.parquet", large, mtime=3)
    with pipeline.open() as pond:
        pond.drain()
        rows = pond.read("rows")
        assert rows.schema.types == [pa.string(), pa.int64()]
        assert sorted(rows.to_pylist(), key=lambda r: r["k"]) == [
            {"k": "k1", "v": 1},
            {"k": "x", "v": 2},
            {"k": "y", "v": None},
            {"k": "z", "v": 3},
        ]
        assert pond.errors().num_rows == 0


def test_required_columns_without_a_value_make_error_rows_whatever_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", pa.table({"k": ["a", None, "c"], "v": [1, 2, 3]}))
    required = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.int64())])
    source = FileSource(str(tmp_path), schema=required)
    (split,) = source.poll(None, None, 100).splits
    for columns in (["k", "v"], ["v"], []):
        good, bad = 0, []
        for table in source.read(split, columns):
            if "_error" in table.column_names:
                bad += table["_error"].to_pylist()
            else:
                assert table.column_names == columns
                good += table.num_rows
        assert (good, bad) == (2, ["column 'k' is NULL"])


# -- columns -------------------------------------------------------------------------------


def test_the_first_file_tells_the_columns(tmp_path: Path) -> None:
    stamps = pa.array([1], pa.timestamp("ms", "Europe/Berlin"))
    table = pa.table({"d": pa.array(["x"]).dictionary_encode(), "t": stamps, "l": pa.array([["a"]])})
    put(tmp_path, "a.parquet", table, mtime=2)
    (tmp_path / "bad.parquet").write_bytes(b"bad")
    os.utime(tmp_path / "bad.parquet", (1, 1))
    source = FileSource(str(tmp_path))
    assert source.schema == pa.schema(
        [("d", pa.string()), ("t", pa.timestamp("ms", "Europe/Berlin")), ("l", pa.list_(pa.string()))]
    )
    assert read(source, source.poll(None, None, 10).splits)[0]["d"] == "x"


def test_a_folder_without_files_must_be_given_a_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="are unknown") as caught:
        FileSource(str(tmp_path))
    assert caught.value.detail == "there is no file in it"
    assert "schema=" in str(caught.value.hint)
    (tmp_path / "a.parquet").write_bytes(b"bad")
    with pytest.raises(InvalidError) as caught:
        FileSource(str(tmp_path))
    assert "a.parquet: not a parquet file" in str(caught.value.detail)
    assert FileSource(str(tmp_path), schema=SCHEMA).schema == SCHEMA
    with pytest.raises(InvalidError, match="there is no folder"):
        FileSource(str(tmp_path / "nowhere"))
    with pytest.raises(InvalidError, match="is a file"):
        FileSource(str(tmp_path / "a.parquet"))


def test_names_that_belong_to_millpond_are_refused_and_can_be_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", pa.table({"_w": [1], "v": [2]}))
    with pytest.raises(InvalidError, match="'_w'") as caught:
        FileSource(str(tmp_path))
    assert "schema=" in str(caught.value.hint)
    source = FileSource(str(tmp_path), schema=pa.schema([("v", pa.int64())]))
    assert read(source, source.poll(None, None, 10).splits) == [{"v": 2}]


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", pa.table({"a": [1], "a.b": [2], "c": [{"d": 3}]}))
    source = FileSource(str(tmp_path))
    (split,) = source.poll(None, None, 10).splits
    assert read(source, [split], ["a.b"]) == [{"a.b": 2}]
    assert read(source, [split], ["c", "a"]) == [{"c": {"d": 3}, "a": 1}]
    assert [t.num_rows for t in source.read(split, [])] == [1]


@pytest.mark.parametrize(
    "options", [{"format": "xml"}, {"format": "csv", "schema": pa.schema([("l", pa.list_(pa.int64()))])}]
)
def test_what_no_file_could_be_is_refused_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        FileSource(str(tmp_path), **options)


# -- positions and plans ------------------------------------------------------------------


@pytest.mark.parametrize("position", [7, {"next": 5}, {"files": 1, "partial": {"path": "a"}}, "x"])
def test_a_position_of_another_source_is_refused(tmp_path: Path, position: Any) -> None:
    source = FileSource(str(tmp_path), schema=SCHEMA)
    with pytest.raises(DataError, match="position is not one of the folder"):
        source.poll(position, None, 10)


def test_a_source_survives_the_catalog(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1])
    source = FileSource(str(tmp_path), pattern="*.parquet")
    source.poll(None, None, 10)
    again = codec.loads(codec.dumps(source))
    assert again == source
    (tmp_path / "a.parquet").unlink()
    assert codec.loads(codec.dumps(source)).schema == SCHEMA  # without a look at the folder


def test_paths_and_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "in/a b.parquet", [1])
    put(tmp_path, "in/_x/b.parquet", [2])
    monkeypatch.chdir(tmp_path)
    assert FileSource("in") == FileSource(tmp_path / "in")
    source = FileSource((tmp_path / "in").as_uri())
    assert read(source, source.poll(None, None, 10).splits) == [{"k": "k1", "v": 1}]
    with pytest.raises(InvalidError, match="can be opened"):
        FileSource("nonsense://x/y")


def test_advance_follows_what_was_admitted(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", list(range(40)), row_group_size=10, mtime=1)
    put(tmp_path, "b.parquet", [1], mtime=2)
    source = FileSource(str(tmp_path))
    poll = source.poll(None, None, 41)
    assert [s.rows for s in poll.splits] == [10, 10, 10, 10, 1]
    part = source.advance(None, poll.splits[:2], ())
    assert part.seen is None
    assert part.position["partial"]["next"] == 2
    rest = source.poll(json.loads(json.dumps(part.position)), None, 1000)
    assert [(s.what["path"], s.what["first"]) for s in rest.splits] == [("a.parquet", 2), ("b.parquet", 0)]
    done = source.advance(part.position, rest.splits, ())
    assert done.position == {"files": 2, "partial": None}
    assert done.seen is not None
    assert source.poll(done.position, done.seen, 100) == Poll((), (), 0)


# -- text ----------------------------------------------------------------------------------


def test_bad_lines_become_error_rows_and_the_good_ones_rows(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, "json", SCHEMA))
    lines = [
        b'{"k": "a", "v": 1}',
        b"",
        b"null",
        b'  {"k": "b", "v": 2, "more": [1, {"x": null}]}\r',
        b'{"k": "c", "v": "3"}',
        b'{"k": "d", "v": 4',
        b'{"v": 5}{"v": 6}',
        b'{"k": "\xff", "v": 7}',
        b"[8]",
        b'{"v": 9.5}',
        b"{}",
        b'{"k": "\xc3\xa9", "v": 10}',
    ]
    (pipeline.input / "a.json").write_bytes(b"\n".join(lines))
    with pipeline.open() as pond:
        pond.drain()
        rows = sorted(pond.read("rows").to_pylist(), key=lambda r: r["v"] or 0)
        assert rows == [
            {"k": None, "v": None},
            {"k": "a", "v": 1},
            {"k": "b", "v": 2},
            {"k": "é", "v": 10},
        ]
        errors = {e["row"]: e["reason"] for e in pond.errors("rows").to_pylist()}
        assert sorted(errors) == [
            "[8]",
            "null",
            '{"k": "\\xff", "v": 7}',
            '{"k": "c", "v": "3"}',
            '{"k": "d", "v": 4',
            '{"v": 5}{"v": 6}',
            '{"v": 9.5}',
        ]
        assert errors["null"] == "a.json, byte 20: not a JSON object"
        assert "number to string" in errors['{"k": "c", "v": "3"}']
        assert pond.head().counts == {"rows/s": 4, "errors/s": 7}


def test_json_types(tmp_path: Path) -> None:
    row = {
        "i": 1,
        "f": 1.5,
        "b": True,
        "s": "x",
        "t": "2024-01-02T03:04:05.678Z",
        "l": [1, None],
        "n": {"x": 1},
    }
    (tmp_path / "a.json").write_text(json.dumps({**row, "t": "2024-01-02T03:04:05Z", "none": None}) + "\n")
    source = FileSource(str(tmp_path), "json")
    assert source.schema.field("t").type == pa.timestamp("us")
    assert source.schema.field("none").type == pa.string()
    (tmp_path / "b.json").write_text(json.dumps(row) + "\n")
    rows = read(source, source.poll(None, None, 10).splits)
    assert rows[1]["t"].isoformat() == "2024-01-02T03:04:05.678000"
    assert rows[1]["l"] == [1, None]
    dates = FileSource(
        str(tmp_path), "json", pa.schema([("t", pa.date32()), ("f", pa.decimal128(5, 2))]), "d.json"
    )
    (tmp_path / "d.json").write_text('{"t": "2024-02-29", "f": 1.25}\n{"t": "2023-02-29"}\n{"f": 1.255}\n')
    good, *bad = read(dates, dates.poll(None, None, 10).splits)
    assert (good["t"].isoformat(), str(good["f"])) == ("2024-02-29", "1.25")
    assert [b["_row"] for b in bad] == ['{"t": "2023-02-29"}', '{"f": 1.255}']


def test_csv_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbfv,more,k\r\n1,x,plain\r\n2,,"quoted, ""twice"""\r\n3,"",""\r\n,,\r\n\r\n'
        b'5,y, spaces \r\nsix,z,bad\r\n7,too few\r\n8,"open,bad\r\n9,5" pipe,inch\r\n10,x,"open'
    )
    source = FileSource(str(tmp_path), "csv", SCHEMA)
    rows = read(source, source.poll(None, None, 10).splits)
    assert [(r["k"], r["v"]) for r in rows if "_row" not in r] == [
        ("plain", 1),
        ('quoted, "twice"', 2),
        ("", 3),
        (None, None),
        (" spaces ", 5),
        ("inch", 9),
    ]
    bad = {r["_row"]: r["_error"] for r in rows if "_row" in r}
    assert sorted(bad) == ['10,x,"open', "7,too few", '8,"open,bad', "six,z,bad"]
    assert "column 'v'" in bad["six,z,bad"]
    assert "'six'" in bad["six,z,bad"]
    assert bad["7,too few"].endswith("Expected 3 columns, got 2")
    assert bad['10,x,"open'].endswith("; multiline = 'true' reads values with line ends")


def test_csv_headers(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, "csv", SCHEMA))
    contents = {
        "1.csv": "k,v\na,1\n",
        "2.csv": "v,k\n2,b\n",
        "3.csv": "k,w\nc,3\n",
        "4.csv": "k,v,v\nd,4,4\n",
        "5.csv": "",
        "6.csv": "k,v",
    }
    for name, content in contents.items():
        (pipeline.input / name).write_text(content)
    assert pipeline.run() == [1, 2]
    assert {json.loads(e["row"])["path"]: e["reason"] for e in pipeline.errors} == {
        "3.csv": "column 'v' is missing, columns are k, w",
        "4.csv": "column 'v' comes 2 times",
    }
    assert FileSource(str(pipeline.input), "csv", pattern="1.csv").schema == SCHEMA


def test_csv_with_one_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('v\n1\n\n2\n"3"\nx\n')
    source = FileSource(str(tmp_path), "csv", pa.schema([("v", pa.int64())]))
    rows = read(source, source.poll(None, None, 10).splits)
    assert [r["v"] for r in rows if "v" in r] == [1, 2, 3]
    assert [r["_row"] for r in rows if "_row" in r] == ["x"]


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_text_cut_into_pieces_is_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, size: int
) -> None:
    monkeypatch.setattr(text_format, "PIECE_BYTES_MIN", size)
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", max(2, size // 2))
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, format, SCHEMA), epoch_rows_max=20)
    values = list(range(0, 120, 3))
    if format == "json":
        lines = [json.dumps({"k": "é" * (v % 9), "v": v}) for v in values]
    else:
        lines = ["v,k", *(f'{v},"{"é" * (v % 9)}"' for v in values)]
    lines.insert(9, "bad")
    (pipeline.input / f"a.{format}").write_text("\n".join(lines))
    pipeline.crash_after(1)
    assert pipeline.run() == values
    assert [e["row"] for e in pipeline.errors] == ["bad"]
    pieces = [s for m in _history(pipeline) for s in m.admitted.get("s", [])]
    assert len(pieces) > (1 if size < 1000 else 0)


def test_compressed_text(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, "csv", SCHEMA))
    text = "k,v\n" + "".join(f"k{n},{n}\n" for n in range(2000))
    (pipeline.input / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    (pipeline.input / "b.csv.zst").write_bytes(pa.compress(b"k,v\nx,5000\n", "zstd", asbytes=True))
    (pipeline.input / "c.csv.gz").write_bytes(b"not gzip")
    assert pipeline.run() == [*range(2000), 5000]
    assert "cannot be unpacked" in pipeline.errors[0]["reason"]


def test_compressed_text_that_breaks_off_gives_what_it_has_and_an_error_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", 10_000)
    pipeline = Pipeline(tmp_path, lambda p: FileSource(p, "csv", SCHEMA))
    text = "k,v\n" + "".join(f"{os.urandom(500).hex()},{n}\n" for n in range(1000))
    packed = gzip.compress(text.encode())
    (pipeline.input / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    values = pipeline.run()
    assert values == list(range(len(values)))
    assert 300 < len(values) < 700
    (error,) = pipeline.errors
    assert error["reason"].startswith("nothing beyond byte")


def test_split_is_plain_data(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1])
    source = FileSource(str(tmp_path))
    (split,) = source.poll(None, None, 10).splits
    again = Split(json.loads(json.dumps(split.what)), split.rows, split.bytes)
    assert read(source, [again]) == [{"k": "k1", "v": 1}]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_that_lie_in_dictionaries_are_read_as_they_are(
    kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are decoded as numbers; each row group has a dictionary of its own, and NULL is in none."""
    texts = ["", None, "apple", "Zoë", *(f"text {n}" for n in range(50))]
    rows = pa.table(
        {
            "few": pa.array([texts[n * n % 41 + n // 5000 * 10] for n in range(10_000)], kind),
            "own": pa.array([f"{n} is a text of its own" * 5 for n in range(10_000)], kind),
            "n": range(10_000),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=5000, dictionary_pagesize_limit=10_000)
    asked: list[list[str]] = []
    opened = pq.ParquetFile

    def noted(*args: Any, **named: Any) -> pq.ParquetFile:
        asked.append(named.get("read_dictionary", []))
        return opened(*args, **named)

    source = FileSource(tmp_path, schema=rows.schema)
    (split,) = source.poll(None, None, 1_000_000).splits
    monkeypatch.setattr(pq, "ParquetFile", noted)
    found = pa.concat_tables(source.read(split, ["few", "own", "n"]))
    assert found.equals(rows.cast(found.schema)) and found.schema.field("few").type == kind
    assert ["few"] in asked, "and texts that are all different are not"


def test_times_as_spark_and_hive_wrote_them(tmp_path: Path) -> None:
    """INT96 has no zone, and reaches beyond the years that nanoseconds in 64 bits have."""
    times = [
        datetime.datetime(*at)
        for at in ((1, 1, 1), (1969, 12, 31, 23, 59, 59, 999_999), (9999, 12, 31, 1, 2, 3, 4))
    ]
    table = pa.table({"at": pa.array(times, pa.timestamp("us")), "same": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    zoned = pa.timestamp("us", "UTC")
    for schema in ({"at": pa.timestamp("us"), "same": zoned}, None):
        source = FileSource(str(tmp_path), schema=None if schema is None else pa.schema(list(schema.items())))
        (split,) = source.poll(None, None, 100).splits
        (rows,) = source.read(split, ["at", "same"])
        assert [at.replace(tzinfo=None) for at in rows["same"].to_pylist()] == rows["at"].to_pylist() == times
        assert rows["same"].type == (pa.timestamp("us") if schema is None else zoned)


def test_lines_that_end_in_a_carriage_return_are_one_error_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"k,s\r1,x\r2,y\r")
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    poll = FileSource(str(tmp_path), "csv", schema).poll(None, None, 100)
    assert "the header cannot be read: new-line character seen" in poll.rejects[0][1]
    with pytest.raises(InvalidError, match="header cannot be read"):
        _ = FileSource(str(tmp_path), "csv").schema


def test_endings_of_compressed_files_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "A.JSON.GZ").write_bytes(gzip.compress(b'{"k": 1}\n'))
    source = FileSource(str(tmp_path), "json", pa.schema([("k", pa.int64())]))
    (split,) = source.poll(None, None, 100).splits
    assert [rows.to_pylist() for rows in source.read(split, ["k"])] == [[{"k": 1}]]


def test_an_address_may_refer_to_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.parquet", [1])
    monkeypatch.setenv("PLACE", tmp_path.name)
    address = f"file://{tmp_path.parent}/${{env:PLACE}}"
    pond = tmp_path.parent / "pond"
    with millpond.open(pond, engine="inline", durable=False) as one:
        one.stream("s", FileSource(address)).view("v")
        one.drain()
        assert one.read("v").num_rows == 1
    stored = b"".join(p.read_bytes() for p in pond.rglob("*") if p.is_file())
    assert b"${env:PLACE}" in stored
    assert tmp_path.name.encode() not in stored
    with pytest.raises(InvalidError, match="no secret is found"):
        FileSource("s3://key:${vault:x}@bucket/folder", schema=pa.schema([("k", pa.int64())]))


def test_nested_columns_with_other_names_inside(tmp_path: Path) -> None:
    """Writers name the parts of maps and lists as they like."""
    kind = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("m", pa.int32()))
    lists = pa.list_(pa.field("element", kind))
    rows = [{"m": [("a", 1), ("b", None)], "l": [[("c", 3)], None]}, {"m": None, "l": []}]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([("m", kind), ("l", lists)])), tmp_path / "a.parquet")
    wide = pa.map_(pa.string(), pa.int64())
    for schema in (None, pa.schema([("m", wide), ("l", pa.list_(wide))])):
        source = FileSource(str(tmp_path), schema=schema)
        (split,) = source.poll(None, None, 100).splits
        (found,) = source.read(split, ["m", "l"])
        assert found.to_pylist() == rows
    poll = FileSource(str(tmp_path), schema=pa.schema([("m", pa.map_(pa.int64(), pa.int64()))])).poll(
        None, None, 9
    )
    assert "column 'm' is map" in poll.rejects[0][1]

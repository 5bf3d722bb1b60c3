"""A folder of epochs: each once and whole, whatever dies when (law 7)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.plan import codec
from millpond.sinks import parquet as module
from millpond.sinks.parquet import ParquetSink
from millpond.sources.memory import MemorySource

POND = "f00d"
ROWS = 5_000


def delta(epoch: int, rows: int = 3) -> pa.Table:
    values = np.arange(epoch * rows, (epoch + 1) * rows)
    return pa.table({"v": values, "_w": np.ones(rows, np.int64)})


def shown(folder: Path) -> list[str]:
    """What a reader sees."""
    return sorted(p.name for p in folder.glob("*.parquet"))


def name(epoch: int, pond: str = POND) -> str:
    return f"epoch-{epoch:016d}-{pond}.parquet"


def left_over(folder: Path) -> list[Path]:
    return list((folder / ".millpond").glob("*"))


def test_one_file_an_epoch_that_says_what_it_is(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path / "new" / "out"))
    out = tmp_path / "new" / "out"
    for epoch in (1, 2, 10):
        sink.deliver(POND, epoch, delta(epoch))
    assert shown(out) == [name(1), name(2), name(10)]
    table = pq.read_table(out / name(2))
    assert table.to_pylist() == delta(2).to_pylist()
    metadata = pq.read_metadata(out / name(2)).metadata
    assert (metadata[b"millpond.pond"], metadata[b"millpond.epoch"]) == (POND.encode(), b"2")
    assert left_over(out) == []
    assert ParquetSink.exactly_once


def test_an_epoch_delivered_again_is_already_there(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
    sink.deliver(POND, 1, delta(1))
    before = (tmp_path / name(1)).stat()
    sink.deliver(POND, 1, delta(1))
    assert (tmp_path / name(1)).stat().st_ino == before.st_ino
    sink.deliver("beef", 1, delta(1))
    assert shown(tmp_path) == [name(1, "beef"), name(1)]  # two ponds may share a folder


def test_what_stands_under_the_name_must_be_the_epoch(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
    (tmp_path / name(1)).write_bytes(b"torn")
    with pytest.raises(DataError, match="cannot be read"):
        sink.deliver(POND, 1, delta(1))
    pq.write_table(delta(2), tmp_path / name(2))
    with pytest.raises(DataError, match="has other content") as caught:
        sink.deliver(POND, 2, delta(2))
    assert POND in str(caught.value.detail)


def test_somebody_who_was_taken_for_dead_links_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(str(tmp_path))
    write = module._write

    def slowly(*args: Any) -> None:
        write(*args)
        monkeypatch.setattr(module, "_write", write)
        ParquetSink(str(tmp_path / "other")).deliver(POND, 1, delta(1))
        os.link(tmp_path / "other" / name(1), tmp_path / name(1))

    monkeypatch.setattr(module, "_write", slowly)
    sink.deliver(POND, 1, delta(1))
    assert shown(tmp_path) == [name(1)]
    assert left_over(tmp_path) == []


def test_append_writes_plain_rows_as_often_as_they_came(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), "append")
    sink.deliver(POND, 1, pa.table({"v": [7, 8], "_w": [1, 3]}))
    assert pq.read_table(tmp_path / name(1)).to_pylist() == [{"v": 7}, {"v": 8}, {"v": 8}, {"v": 8}]
    with pytest.raises(InvalidError, match="cannot retract rows") as caught:
        sink.deliver(POND, 2, pa.table({"v": [7, 9], "_w": [-1, 1]}))
    assert "1 of 2 changes" in str(caught.value.detail)
    assert "changes" in str(caught.value.hint)
    assert shown(tmp_path) == [name(1)]


def test_a_disk_that_fails_is_a_matter_of_trying_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnavailableError, match="cannot be written"):
        ParquetSink(str(tmp_path)).deliver(POND, 1, delta(1))
    assert shown(tmp_path) == []
    monkeypatch.undo()
    ParquetSink(str(tmp_path)).deliver(POND, 1, delta(1))
    assert shown(tmp_path) == [name(1)]
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("wrong", [{"folder": "s3://bucket/x"}, {"folder": "x", "mode": "upsert"}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        ParquetSink(**wrong)


def test_a_sink_survives_the_catalog(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), "append")
    assert codec.loads(codec.dumps(sink)) == sink


# -- in a pipeline --------------------------------------------------------------


def test_the_files_add_up_to_the_view_across_restarts(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    source = MemorySource(schema)
    out = tmp_path / "out"

    def run() -> list[dict[str, Any]]:
        with millpond.open(tmp_path / "pond", engine="inline", durable=False, epoch_rows_max=2) as pond:
            view = pond.stream("s", source).key_by("k").aggregate(total="sum(v)").view("sums")
            view.sink("out", ParquetSink(str(out)))
            pond.drain()
            rows: list[dict[str, Any]] = pond.read("sums").to_pylist()
            return rows

    for n in range(4):
        source.push([{"k": "a", "v": n}, {"k": f"k{n}", "v": 1}], [{"k": "b", "v": n}])
        view = run()
        total: dict[str, int] = {}
        for path in sorted(out.glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                item = json.dumps([row["k"], row["total"]])
                total[item] = total.get(item, 0) + row["_w"]
        assert {i for i, w in total.items() if w} == {json.dumps([r["k"], r["total"]]) for r in view}
        assert set(total.values()) <= {0, 1}
    assert left_over(out) == []


def test_an_append_sink_stops_at_a_retraction_and_says_so(tmp_path: Path) -> None:
    source = MemorySource(pa.schema([("k", pa.string())]))
    source.push([{"k": "a"}])
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        view = pond.stream("s", source).key_by("k").aggregate(n="count(*)").view("n")
        view.sink("out", ParquetSink(str(tmp_path / "out"), "append"))
        pond.drain()
        source.push([{"k": "a"}])
        with pytest.raises(InvalidError, match="cannot retract rows"):
            pond.drain()
        assert pond.read("n").to_pylist() == [{"k": "a", "n": 2}]  # delivery holds back no commit
    assert len(shown(tmp_path / "out")) == 1


# -- killed ------------------------------------------------------------------------


def test_killed_between_any_two_steps_of_a_delivery(tmp_path: Path) -> None:
    """A child dies at each line of the sink in turn; what it leaves is whole, and can be completed."""
    answer = subprocess.run(
        [sys.executable, __file__, "lines", str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["deaths"] > 20
    assert 3 < found["before_it_was_shown"] < found["deaths"]


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, __file__, "moments", str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["deaths"] == 12
    assert found["epochs"] >= 12


def check(folder: Path, epochs: int, rows: int, newest: int = 2) -> None:
    """Whole epochs, each once, without a gap, with the rows they should have."""
    assert shown(folder) == [name(e) for e in range(1, epochs + 1)], shown(folder)
    for epoch in range(max(1, epochs - newest + 1), epochs + 1):
        assert pq.read_table(folder / name(epoch)).equals(delta(epoch, rows)), epoch


def die_at_line(folder: Path) -> None:
    sink = ParquetSink(str(folder))
    epoch = deaths = unseen = 0
    died = True
    while died:
        epoch += 1
        child = os.fork()
        if child == 0:
            kill_at(deaths + 1)
            sink.deliver(POND, epoch, delta(epoch))
            os._exit(0)
        died = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        deaths += died
        there = (folder / name(epoch)).exists()
        unseen += not there
        check(folder, epoch if there else epoch - 1, 3)
        sink.deliver(POND, epoch, delta(epoch))
        check(folder, epoch, 3)
    sink.deliver(POND, epoch + 1, delta(epoch + 1))
    assert left_over(folder) == []
    print(json.dumps({"deaths": deaths, "before_it_was_shown": unseen}))


def kill_at(line: int) -> None:
    """Die when so many lines of the sink's module have been reached."""
    left = line

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def die_at_moment(folder: Path) -> None:
    """A child delivers epoch after epoch and is killed; the next begins some epochs before the end, as after
    a crash between delivery and the commit of the cursor."""
    sink = ParquetSink(str(folder))
    chance = random.Random(7)
    deaths = done = 0
    while deaths < 12:
        start = max(1, done + 1 - chance.randrange(3))
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            for epoch in range(start, start + 1000):
                sink.deliver(POND, epoch, delta(epoch, ROWS))
                os.write(tell, b".")
            os._exit(0)
        for _ in range(3):  # one of these is new
            os.read(told, 1)
        time.sleep(chance.random() * 0.01)  # and it dies somewhere in the next
        os.kill(child, signal.SIGKILL)
        deaths += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        os.close(told)
        os.close(tell)
        done = len(shown(folder))
        check(folder, done, ROWS)
    check(folder, done, ROWS, newest=done)
    print(json.dumps({"deaths": deaths, "epochs": done}))


if __name__ == "__main__":
    {"lines": die_at_line, "moments": die_at_moment}[sys.argv[1]](Path(sys.argv[2]))

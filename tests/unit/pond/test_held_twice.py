"""One pond, two Pond objects of one process: the second is refused like another process, never the first ended."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import ConflictError
from millpond.pond import Pond, execution
from millpond.pond.open_ponds import location_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(path: str | Path, **options: Any) -> Pond:
    pond = millpond.open(path, engine="inline", durable=False, poll_ms=5, **options)
    pond.table("t", SCHEMA, key="k")
    return pond


SPELLINGS: list[Callable[[Path], str | Path]] = [
    lambda path: path,
    lambda path: f"{path}/",
    lambda path: path.as_uri(),
    lambda path: f"{path.parent}/../{path.parent.name}/{path.name}",
    lambda path: os.path.relpath(path),
    lambda path: path.parent / "link",
    lambda path: (path.parent / "link").as_uri() + "/",
]


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("way", ["drain", "start", "run"])
def test_a_second_one_that_runs_is_refused(
    tmp_path: Path, spelled: Callable[[Path], str | Path], way: str
) -> None:
    path = tmp_path / "pond"
    (tmp_path / "link").symlink_to(path)
    with opened(path) as first:
        first.start()
        with opened(spelled(path)) as second:
            with pytest.raises(ConflictError, match="another Pond object of this process") as caught:
                getattr(second, way)()
            assert "close()" in (caught.value.hint or "")
        first.insert("t", [{"k": 1, "v": 1}])
        first.drain()
        assert first.read("t").num_rows == 1
        assert first.status.state == "running"


def test_it_may_read_write_rows_and_wait_for_the_first(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as first, opened(tmp_path / "p") as second:
        first.start()
        second.insert("t", [{"k": 1, "v": 1}])
        second.flush()
        assert second.read("t").num_rows == 1
        assert first.head().token == 1


def test_one_that_rests_is_not_taken_over_either(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as first, opened(tmp_path / "p") as second:
        first.drain()
        for call in (
            second.drain,
            second.flush,
            second.compact,
            lambda: second.sql("CREATE TABLE x (a int)"),
        ):
            with pytest.raises(ConflictError, match="another Pond object"):
                call()
        assert first.drain() == 0


def test_closed_or_unreachable_ones_do_not_block(tmp_path: Path) -> None:
    first = opened(tmp_path / "p")
    first.drain()
    first.close()
    second = opened(tmp_path / "p")
    second.drain()
    second.sql("SELECT * FROM t")  # a session knows its pond: a cycle
    del second
    with opened(tmp_path / "p") as third:
        third.drain()
        assert third.head().token == 3
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name.startswith("millpond-lease")]


def test_one_that_failed_does_not_block(tmp_path: Path) -> None:
    def stop(manifest: object) -> None:
        raise ValueError("mine")

    with opened(tmp_path / "p") as first:
        first.on_epoch(stop)
        with pytest.raises(ValueError, match="mine"):
            first.drain()
        with opened(tmp_path / "p") as second:
            second.drain()


def test_taking_over_ends_the_first_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = opened(tmp_path / "p")
    first.start()
    with opened(tmp_path / "p", take_over=True) as second:
        second.insert("t", [{"k": 1, "v": 1}])
        second.drain()
        assert second.head().token == 2
        with pytest.raises(ConflictError, match="another coordinator committed epoch"):
            while True:
                first.insert("t", [{"k": 2, "v": 2}])
                first.drain()
        assert first.status.state == "failed"
        assert isinstance(first.status.last_error, ConflictError)
        second.drain()  # it goes on
    assert "the pipeline stopped: another coordinator committed" in caplog.text
    first.close()


def test_a_standby_of_the_same_process_waits(tmp_path: Path) -> None:
    first = opened(tmp_path / "p")
    first.drain()
    with opened(tmp_path / "p", standby=True) as second:
        seen: list[str] = []

        def waiting(holder: str) -> None:
            seen.append(second.status.state)
            threading.Timer(0.05, first.close).start()

        second.on_wait(waiting)
        second.drain()
        assert second.head().token == 2
    assert seen in (["stopped"], ["standby"])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3://b/p", "s3://b/p/", True),
        ("s3://b/p", "s3a://b/p", True),
        ("s3://b/p?cache=%2Fx&endpoint=http%3A%2F%2Fh%3A1", "s3://b/p?endpoint=http%3A%2F%2Fh%3A1", True),
        ("s3://b/p?endpoint=http%3A%2F%2Fh%3A1", "s3://b/p?endpoint=http%3A%2F%2Fh%3A2", False),
        ("s3://b/p", "s3://b/q", False),
        ("memory://a", "memory://b", False),
        ("file:///tmp/x?durable=false", "/tmp/x", True),
    ],
)
def test_places_of_uris(one: str, other: str, same: bool) -> None:
    assert (location_of(one) == location_of(other)) is same


def test_a_pond_that_another_one_creates_first_with_another_program_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = execution.new_runner

    def late(*args: Any, **more: Any) -> Any:
        runner = make(*args, **more)  # it has seen that there is no pond
        monkeypatch.undo()
        with millpond.open(tmp_path / "p", engine="inline", take_over=True) as other:
            other.table("theirs", SCHEMA, key="k")
            other.insert("theirs", [{"k": 1, "v": 1}])
            other.drain()
        return runner

    monkeypatch.setattr(execution, "new_runner", late)
    with opened(tmp_path / "p") as pond:
        with pytest.raises(ConflictError, match="changed while it was being taken over"):
            pond.drain()
        assert pond.read("theirs").num_rows == 1


def test_sql_of_one_without_definitions_names_the_holder(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as first, millpond.open(tmp_path / "p", engine="inline") as second:
        first.drain()
        for change in (
            lambda: second.sql("CREATE TABLE x (a int)"),
            lambda: second.function("plus_one", lambda n: n + 1, returns=int, arguments=[int]),
        ):
            with pytest.raises(ConflictError, match="another Pond object of this process"):
                change()

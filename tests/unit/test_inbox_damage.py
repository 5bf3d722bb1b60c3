"""Entries of the inbox that are lost, damaged or make no sense, through the public API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError, InvalidError
from millpond.pond import Pond
from millpond.state import inbox
from millpond.state.manifest import history

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def opened(path: Path) -> Pond:
    return millpond.open(path, engine="inline", durable=False, lease_ms=400)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A pond with a table `t` and three entries that nobody executed, numbers 1 to 3."""
    with opened(tmp_path / "p") as pond:
        pond.sql("CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t VALUES (0, 'a'); FLUSH")
    with opened(tmp_path / "p") as pond:
        for k in (1, 2, 3):
            pond.sql("INSERT INTO t VALUES (?, 'b')", params=[k])
    return tmp_path / "p"


def entry(path: Path, number: int) -> Path:
    return path / inbox.entry_name(number)


def first_waiting(path: Path) -> int:
    with opened(path) as pond:
        return int(pond.head().positions["inbox"])


def refusals(pond: Pond) -> list[str]:
    """What the history says about commands that were refused."""
    manifests = (history.read_manifest(pond.store, epoch.epoch) for epoch in pond.epochs(None))
    return [str(m.metrics["refused"]) for m in manifests if "refused" in m.metrics]


CALLS: dict[str, Callable[[Pond], object]] = {
    "drain": lambda pond: pond.drain(),
    "flush": lambda pond: pond.flush(),
    "sql": lambda pond: pond.sql("FLUSH"),
    "insert": lambda pond: pond.sql("INSERT INTO t VALUES (9, 'x')"),
    "jobs": lambda pond: pond.sql("SHOW JOBS"),
    "rescale": lambda pond: pond.rescale(2),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_entry_is_named_by_readers_and_writers(path: Path, call: str, which: int) -> None:
    lost = first_waiting(path) + which
    entry(path, lost).unlink()
    with opened(path) as pond, pytest.raises(DataError, match=f"inbox entry {lost} is missing"):
        CALLS[call](pond)


def test_what_stands_before_a_lost_entry_is_executed_and_a_restored_one_lets_the_rest_run(path: Path) -> None:
    lost = first_waiting(path) + 1
    kept = entry(path, lost).read_bytes()
    entry(path, lost).unlink()
    with opened(path) as pond:
        with pytest.raises(DataError, match=f"inbox entry {lost} is missing"):
            pond.drain()
        assert sorted(pond.read("t")["k"].to_pylist()) == [0, 1]
        entry(path, lost).write_bytes(kept)
        pond.drain()
        assert sorted(pond.read("t")["k"].to_pylist()) == [0, 1, 2, 3]


def test_a_lost_entry_can_be_given_up(path: Path) -> None:
    lost = first_waiting(path) + 1
    entry(path, lost).unlink()
    with opened(path) as pond:
        with pytest.raises(DataError, match=f"inbox entry {lost} is missing") as caught:
            pond.drain()
        assert '{"kind": "skip", "args": {}}' in (caught.value.hint or "")
        entry(path, lost).write_text('{"kind": "skip", "args": {}}')
        pond.drain()
        assert sorted(pond.read("t")["k"].to_pylist()) == [0, 1, 3]
        assert refusals(pond) == [f"inbox {lost}: skip refused: no such command"]


def test_an_entry_that_this_process_wrote_last_is_missed_too(path: Path) -> None:
    """No later entry shows the gap, but whoever wrote it knows its number."""
    with opened(path) as pond:
        pond.drain()
        number = pond.insert("t", [{"k": 7, "v": "x"}])
        entry(path, number).unlink()
        with pytest.raises(DataError, match=f"inbox entry {number} is missing"):
            pond.flush()


@pytest.mark.parametrize("call", ["drain", "flush", "jobs"])
@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda raw: b"", lambda raw: raw[: len(raw) // 2]]
)
def test_a_damaged_entry_is_a_data_error(path: Path, call: str, damage: Callable[[bytes], bytes]) -> None:
    number = first_waiting(path)
    entry(path, number).write_bytes(damage(entry(path, number).read_bytes()))
    with opened(path) as pond, pytest.raises(DataError, match=f"inbox entry {number} cannot be read"):
        CALLS[call](pond)


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


GOOD = pa.table(
    {"k": [5], "v": ["x"], "_w": pa.array([1], pa.int64())}, schema=SCHEMA.append(pa.field("_w", pa.int64()))
)
MALFORMED: dict[str, tuple[str, dict[str, object], bytes, str]] = {
    "cut stream": ("rows", {"table": "t", "rows": 1}, stream(GOOD)[:-60], "its rows cannot be read"),
    "row count": ("rows", {"table": "t", "rows": 2}, stream(GOOD), "it says that it has 2 rows, and has 1"),
    "row text": ("rows", {"table": "t", "rows": "1"}, stream(GOOD), "it says that it has '1' rows"),
    "weight": (
        "rows",
        {"table": "t", "rows": 1},
        stream(GOOD.set_column(2, "_w", pa.array([5], pa.int64()))),
        "neither 1 nor -1",
    ),
    "columns": ("rows", {"table": "t", "rows": 1}, stream(GOOD.drop_columns(["v"])), "other columns"),
    "table": ("rows", {"table": ["t"], "rows": 1}, stream(GOOD), "the pond has no table"),
    "sql nothing": ("sql", {}, b"", "no change that this version knows"),
    "sql types": (
        "sql",
        {"table": "t", "name": "t", "verb": "update", "sql": None, "reads": 3},
        b"",
        "no change that this version knows",
    ),
    "sql text": (
        "sql",
        {"table": "t", "name": "t", "verb": "update", "sql": "update ((", "reads": []},
        b"",
        "update ((",
    ),
    "sql keys": (
        "sql",
        {"table": "t", "name": "t", "verb": "update", "sql": "update t set v = 'x'", "reads": [], "keys": 7},
        b"",
        "update t set",
    ),
    "unknown": ("dance", {}, b"", "dance refused: no such command"),
    "savepoint": ("savepoint", {"name": 7}, b"", "no savepoint can be named 7"),
    "unhashable": ("drop_savepoint", {"name": ["s"]}, b"", "no savepoint can be named"),
    "change": (
        "change",
        {"catalog": "catalog/nothing"},
        b"",
        "change refused: the catalog cannot be read; catalog/nothing is missing",
    ),
    "path": ("change", {"catalog": "../x"}, b"", "change refused"),
    "rollback": ("rollback", {"epoch": "x"}, b"", "rollback refused"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_entry_is_refused_with_its_reason_and_the_pond_goes_on(path: Path, name: str) -> None:
    kind, args, payload, reason = MALFORMED[name]
    with opened(path) as pond:
        inbox.append(pond.store, kind, args, payload)
        pond.sql("INSERT INTO t VALUES (4, 'after')")
        pond.drain()
        assert sorted(pond.read("t")["k"].to_pylist()) == [0, 1, 2, 3, 4]
        told = [row["reason"] for row in pond.errors().to_pylist()]
        told += refusals(pond)
        assert len(told) == 1, told
        assert reason in told[0]


def test_an_entry_of_odd_types_is_refused(path: Path) -> None:
    with opened(path) as pond:
        number = inbox.append(pond.store, "dance", {})
        entry(path, number).write_bytes(b'{"kind": 3, "args": []}\n')
        pond.sql("INSERT INTO t VALUES (4, 'after')")
        pond.drain()
        assert pond.read("t").num_rows == 5


def test_a_rollback_to_an_epoch_whose_plan_is_damaged_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as pond:
        pond.sql("CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t VALUES (0, 'a'); FLUSH")
        epoch, old = pond.epoch, pond.head().catalog
        pond.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
        assert old is not None and old != pond.head().catalog
    (tmp_path / "p" / old).unlink()
    with opened(tmp_path / "p") as pond:
        inbox.append(pond.store, "rollback", {"epoch": epoch}, start=int(pond.head().positions["inbox"]))
        pond.sql("INSERT INTO t VALUES (4, 'after'); FLUSH")
        assert pond.read("t").num_rows == 2
        told = refusals(pond)
        assert len(told) == 1 and f"{old} is missing" in told[0]


def test_invalid_errors_stay_invalid(path: Path) -> None:
    with opened(path) as pond, pytest.raises(InvalidError):
        pond.sql("INSERT INTO nothing VALUES (1)")

"""Modes, guarantees and limits of sinks, as a running pond keeps them (law 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sinks.delivery import Delivery, Part, RefusedRow, SinkBinding
from millpond.sources.memory import MemorySource
from tests.waiting import until

SCHEMA = {"k": str, "n": int}


@dataclass
class Recorded:
    """What came; it outlives the sink."""

    deliveries: list[Delivery] = field(default_factory=list)
    opened: list[SinkBinding] = field(default_factory=list)
    closed: int = 0
    fails: int = 0  # so many deliveries fail
    refuses: tuple[str, ...] = ()  # keys

    def rows(self) -> list[list[dict[str, Any]]]:
        return [d.rows.to_pylist() for d in self.deliveries]


RECORDS: dict[str, Recorded] = {}


@dataclass(frozen=True)
class RecordingSink:
    name: str
    guarantee: ClassVar[Any] = "exactly_once"
    modes: ClassVar[Any] = ("changelog", "append", "upsert", "changes", "complete")

    def open(self, binding: SinkBinding) -> RecordingWriter:
        RECORDS[self.name].opened.append(binding)
        return RecordingWriter(RECORDS[self.name])


class RecordingWriter:
    def __init__(self, record: Recorded) -> None:
        self.record = record

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        if self.record.fails:
            self.record.fails -= 1
            raise UnavailableError("the target is away")
        self.record.deliveries.append(delivery)
        keys = delivery.rows["k"].to_pylist()
        return [delivery.refused(n, "no") for n, k in enumerate(keys) if k in self.record.refuses]

    def close(self) -> None:
        self.record.closed += 1


@dataclass(frozen=True)
class TwoStepSink:
    """Of the full form."""

    name: str
    guarantee: ClassVar[Any] = "exactly_once"
    modes: ClassVar[Any] = ("append",)

    def open(self, binding: SinkBinding) -> TwoStepPublisher:
        return TwoStepPublisher(RECORDS[self.name])

    def prepare(self, part: Part) -> Any:
        return {"number": part.number, "first": part.first, "keys": part.rows["k"].to_pylist()}


class TwoStepPublisher:
    def __init__(self, record: Recorded) -> None:
        self.record = record
        self.published: list[Any] = []

    def has(self, delivery: Delivery) -> bool:
        return False

    def publish(self, delivery: Delivery, prepared: Sequence[Any]) -> None:
        self.record.deliveries.append(delivery)
        self.record.refuses += tuple(k for one in prepared for k in one["keys"])


@pytest.fixture
def record() -> Iterator[Recorded]:
    RECORDS["out"] = Recorded()
    yield RECORDS["out"]
    del RECORDS["out"]


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder, engine="inline", durable=False, checks=True, **options)


def totals(pond: Pond) -> Any:
    return pond.table("t", SCHEMA).key_by("k").aggregate(n="sum(n)").view("totals")


def test_a_changelog_has_operations_epochs_and_numbers(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"))
        first = _fed(pond, ("a", 1), ("b", 1))
        second = _fed(pond, ("a", 4), ("c", 1))
    assert [[(r["k"], r["n"], r["_op"], r["_epoch"], r["_n"]) for r in rows] for rows in record.rows()] == [
        [(*row, "insert", first, n) for n, row in enumerate(_first_order(record, 0))],
        [
            ("a", 1, "update_before", second, 0),
            ("a", 5, "update_after", second, 1),
            ("c", 1, "insert", second, 2),
        ],
    ]
    assert [b.key for b in record.opened] == [("k",)]
    assert record.opened[0].guarantee == "exactly_once"
    assert record.closed == 1
    assert [*record.deliveries[1].identities()] == [f"{pond.head().pond}:{second}:{n}" for n in range(3)]


def _first_order(record: Recorded, at: int) -> list[tuple[str, int]]:
    return [(r["k"], r["n"]) for r in record.rows()[at]]


def _fed(pond: Pond, *rows: tuple[str, int]) -> int:
    pond.insert("t", [{"k": k, "n": n} for k, n in rows])
    pond.drain()
    return max(e.epoch for e in pond.epochs() if e.rows)


def test_upserts_have_one_row_per_key(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        table = pond.table("t", SCHEMA, key="k")
        table.view("shown").sink("out", RecordingSink("out"), mode="upsert")
        _fed(pond, ("a", 1), ("b", 1))
        pond.sql("UPDATE t SET n = 7 WHERE k = 'a'; DELETE FROM t WHERE k = 'b'")
        pond.drain()
    put = {r["k"]: r["n"] for rows in record.rows() for r in rows if r["_op"] == "upsert"}
    deleted = [r["k"] for rows in record.rows() for r in rows if r["_op"] == "delete"]
    assert put["a"] == 7 and deleted == ["b"]


def test_complete_has_all_rows(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), mode="complete")
        _fed(pond, ("a", 1))
        _fed(pond, ("b", 2))
    shown = [sorted((r["k"], r["n"]) for r in rows) for rows in record.rows()]
    assert shown == [[("a", 1)], [("a", 1), ("b", 2)]]


def test_what_cannot_be_given_is_refused_at_definition(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        view = totals(pond)
        with pytest.raises(InvalidError, match="cannot deliver exactly_once") as caught:
            view.sink("c", CallbackSink(print), guarantee="exactly_once")
        assert "at_least_once" in str(caught.value)
        with pytest.raises(InvalidError, match="its view retracts rows"):
            view.sink("c", RecordingSink("out"), mode="append")
        with pytest.raises(InvalidError, match="has no mode 'upsert'"):
            view.sink("c", TwoStepSink("out"), mode="upsert")
        with pytest.raises(InvalidError, match="not unique by n"):
            view.sink("c", RecordingSink("out"), mode="upsert", key="n")
        with pytest.raises(InvalidError, match="no mode is 'upserts'"):
            view.sink("c", RecordingSink("out"), mode="upserts")
        bag = view.select("n").view("bag")
        with pytest.raises(InvalidError, match="has no key"):
            bag.sink("c", RecordingSink("out"), mode="upsert")


def test_epochs_are_gathered_and_a_repeated_delivery_has_the_same_end(
    tmp_path: Path, record: Recorded
) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), every="1h")
        record.fails = 1
        with pytest.raises(UnavailableError):  # the group ends here, and its end is committed
            _fed(pond, ("a", 1))
        until = pond.head().gathered["out"]
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), every="1h")
        pond.insert("t", [{"k": "a", "n": 5}])
        pond.drain()
    assert record.deliveries[0].epoch == until
    first, second = record.rows()
    assert [(r["k"], r["n"], r["_op"]) for r in first] == [("a", 1, "insert")]
    assert [(r["k"], r["n"], r["_op"]) for r in second] == [
        ("a", 1, "update_before"),
        ("a", 6, "update_after"),
    ]


def test_a_running_pond_gathers_until_the_time_has_passed(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path, poll_ms=2) as pond:
        totals(pond).sink("out", RecordingSink("out"), every="1h", mode="upsert")
        pond.drain()
        pond.start()
        for n in range(4):
            pond.insert("t", [{"k": "a", "n": n}])
            pond.flush()
        assert sum(len(rows) for rows in record.rows()) <= 1  # the first group begins at once
        pond.stop()
        pond.drain()
    assert record.rows()[-1] == [{"k": "a", "n": 6, "_op": "upsert"}]
    assert len(record.deliveries) <= 2


def test_at_most_once_moves_the_cursor_first_and_counts_what_is_lost(
    tmp_path: Path, record: Recorded
) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), guarantee="at_most_once")
        record.fails = 1
        with pytest.raises(UnavailableError):
            _fed(pond, ("a", 1))
        _fed(pond, ("b", 1))
        assert pond.head().counts["lost/out"] == 1
    assert [[r["k"] for r in rows] for rows in record.rows()] == [["b"]]


def test_refused_rows_become_error_rows_with_the_cursor(tmp_path: Path, record: Recorded) -> None:
    record.refuses = ("b",)
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), mode="upsert")
        epoch = _fed(pond, ("a", 1), ("b", 1))
        pond.drain()
        (row,) = pond.errors().to_pylist()
        assert (row["step"], row["reason"], row["weight"]) == ("out", "no", 1)
        assert '"k": "b"' in row["row"]
        assert pond.head().cursors["out"] >= epoch


def test_without_a_snapshot_only_changes_come(tmp_path: Path, record: Recorded) -> None:
    RECORDS["all"] = everything = Recorded()
    with opened(tmp_path) as pond:
        view = totals(pond)
        _fed(pond, ("a", 1))
        with pond.changing():
            view.sink("out", RecordingSink("out"), snapshot=False)
            view.sink("all", RecordingSink("all"))
        pond.drain()
        _fed(pond, ("b", 1))
    assert [[r["k"] for r in rows] for rows in record.rows()] == [["b"]]
    assert [[r["k"] for r in rows] for rows in everything.rows()] == [["a"], ["b"]]


def test_a_sink_that_is_too_far_behind_is_paused(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), behind_max=3)
        record.fails = 1000
        for n in range(6):
            with pytest.raises(UnavailableError) if n < 3 else _any():
                _fed(pond, ("a", n))
        assert [s.state for s in pond.status.sinks] == ["paused"]
        record.fails = 0
        pond.attach_sink("out", replay=True)
        pond.drain()
    assert record.rows()[-1][-1]["n"] == 15


class _any:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        return kind is UnavailableError


def test_a_sink_that_is_too_far_behind_holds_input_back(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), behind_max=2, when_behind="hold")
        record.fails = 1000
        for _ in range(6):
            pond.insert("t", [{"k": "a", "n": 1}])
            with pytest.raises(UnavailableError):
                pond.drain()
        head = pond.head()
        assert head.epoch - head.cursors.get("out", -1) <= 4
        assert pond.read("totals")["n"].to_pylist() != [6]
        record.fails = 0
        pond.drain()
        assert pond.read("totals")["n"].to_pylist() == [6]
    assert record.rows()[-1][-1]["n"] == 6


def test_a_sink_that_holds_input_back_can_be_detached(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        totals(pond).sink("out", RecordingSink("out"), behind_max=2, when_behind="hold")
        record.fails = 1000
        for _ in range(6):
            pond.insert("t", [{"k": "a", "n": 1}])
            with pytest.raises(UnavailableError):
                pond.drain()
        assert pond.read("totals")["n"].to_pylist() != [6]
        pond.detach_sink("out")
        assert pond.head().detached.keys() == {"out"}
        pond.drain()
        assert pond.read("totals")["n"].to_pylist() == [6]


def test_the_full_form_prepares_and_publishes(tmp_path: Path, record: Recorded) -> None:
    with opened(tmp_path) as pond:
        source = MemorySource(SCHEMA)
        pond.stream("t", source).view("shown").sink("out", TwoStepSink("out"), mode="append")
        for rows in ([{"k": "a", "n": 1}, {"k": "b", "n": 2}], [{"k": "c", "n": 3}]):
            source.push(*rows)
            pond.drain()
    assert sorted(record.refuses) == ["a", "b", "c"]


def test_an_epoch_with_refused_rows_and_a_lost_epoch_can_be_replayed(
    tmp_path: Path, record: Recorded
) -> None:
    RECORDS["lossy"] = lossy = Recorded(fails=1)
    record.refuses = ("b",)
    with opened(tmp_path, poll_ms=2) as pond:
        view = totals(pond)
        view.sink("out", RecordingSink("out"), mode="changes")
        view.sink("lossy", RecordingSink("lossy"), guarantee="at_most_once")
        pond.start()
        for n in range(8):
            pond.insert("t", [{"k": "b", "n": n}])  # epochs go on while rows are refused
            pond.flush()
        until(lambda: pond.errors().num_rows > 0 and len(lossy.deliveries) > 0)
        pond.stop()
        counts = pond.head().counts
        assert counts["errors/out"] == sum(pond.errors()["weight"].to_pylist())
        head = pond.head()
        for epoch in range(max(1, head.floor), head.epoch + 1):
            assert not _odd(pond, epoch), epoch


def _odd(pond: Pond, epoch: int) -> list[Any]:
    try:
        found = pond.replay(epoch)
    except InvalidError:  # no level was run
        return []
    return [] if found.same else [found]

"""Checks that every sink must pass, also a user's own: law 7 as a suite.

A test gives a `SinkTarget`, which makes the sink and reads the target with an independent client:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_sink(check: str, tmp_path: Path) -> None:
        run_check(check, MyTarget(tmp_path))

A crash is simulated by an exception between two lines of the sink's own module; after it the writer is
abandoned, and another coordinator delivers the epoch again.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import MillpondError
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION, SinkMode, guarantee_of, modes_of
from millpond.sinks.delivery import Delivery, EpochDelta, RefusedRow, SinkBinding
from millpond.sinks.row_changes import AFTER, INSERT
from millpond.sinks.writing import SinkWriters

POND, SINK = "c0ffee", "checked"
KEY = ("k",)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
ROWS_BIG = 5_000
CRASHES_MAX = 25  # places of crashes that are tried for each epoch

Row = dict[str, Any]
View = Counter[tuple[Any, ...]]


class SinkTarget(Protocol):
    """What a test of a sink provides; optional attributes are listed in `docs/connectors/README.md`."""

    def sink(self) -> Any:
        """The sink under test; every call gives one that writes to the same target."""

    def read(self) -> Sequence[Mapping[str, Any]]:
        """The rows that a client of the target sees now, with the columns that the sink writes."""


class SimulatedCrash(BaseException):
    """The process died here."""


@dataclass
class Feed:
    """Random changes of a view with the columns k, s and n, epoch by epoch."""

    mode: SinkMode
    seed: int = 0
    schema: pa.Schema = SCHEMA
    epoch: int = 0
    rows: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._next = 0

    def following(self, changes: int = 5) -> EpochDelta:
        """The next epoch."""
        self.epoch += self._rng.choice([1, 1, 2])  # epochs without changes are not delivered
        before = {k: dict(row) for k, row in self.rows.items()}
        for _ in range(changes):
            kind = self._rng.random()
            if self.mode == "append" or not self.rows or kind < 0.5:
                self.rows[self._next] = self._row(self._next)
                self._next += 1
            elif kind < 0.8:
                key = self._rng.choice(sorted(self.rows))
                self.rows[key] = self._row(key)
            else:
                del self.rows[self._rng.choice(sorted(self.rows))]
        return EpochDelta(self.epoch, self.delta(before))

    def _row(self, key: int) -> Row:
        text = self._rng.choice([None, "", "a", "b'\"\\\t\n,", "漢字", "x" * 50])
        return {"k": key, "s": text, "n": self._rng.choice([None, -(2**63), 0, 7])}

    def delta(self, before: Mapping[int, Row]) -> pa.Table:
        changed = [k for k in {**before, **self.rows} if before.get(k) != self.rows.get(k)]
        rows = [{**before[k], deltas.WEIGHT: -1} for k in changed if k in before]
        rows += [{**self.rows[k], deltas.WEIGHT: 1} for k in changed if k in self.rows]
        schema = self.schema.append(pa.field(deltas.WEIGHT, pa.int64()))
        return deltas.consolidate(pa.Table.from_pylist(rows, schema=schema))

    @property
    def view(self) -> View:
        return Counter(_plain(row, self.schema.names) for row in self.rows.values())


@dataclass
class Deliverer:
    """Delivers to a sink as the engine does."""

    target: SinkTarget
    mode: SinkMode
    token: int = 1
    schema: pa.Schema = SCHEMA

    def __post_init__(self) -> None:
        self.sink = self.target.sink()
        self._writers = SinkWriters()

    def delivery(self, *parts: EpochDelta, after: int | None = None) -> Delivery:
        key = KEY if self.mode in ("upsert", "changelog") else ()
        guarantee = guarantee_of(self.sink)
        binding = SinkBinding(POND, SINK, self.token, self.mode, guarantee, key, self.schema)
        first = parts[0].epoch if parts else 1
        return Delivery(
            binding, parts[-1].epoch if parts else 1, first - 1 if after is None else after, parts
        )

    def give(self, *parts: EpochDelta, all_rows: pa.Table | None = None) -> Sequence[RefusedRow]:
        made = self.delivery(*parts)
        if self.mode == "complete":
            made = Delivery(made.binding, made.epoch, made.after, made.parts, all_rows)
        return self._writers.write(self.sink, made)

    def successor(self) -> Deliverer:
        """Another coordinator that takes over; this one may still be alive."""
        return Deliverer(self.target, self.mode, self.token + 1, self.schema)

    def close(self) -> None:
        self._writers.close_all()


def shown(mode: SinkMode, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> View:
    """The view that the rows of a target stand for; raises if a change is there twice."""
    found: View = Counter()
    if mode == "changelog":
        ids = Counter((row[EPOCH], row[NUMBER]) for row in rows)
        twice = [one for one, count in ids.items() if count > 1]
        assert not twice, f"these changes (epoch, number) are there twice: {twice[:5]}"
        for row in rows:
            found[_plain(row, names)] += 1 if row[OPERATION] in (INSERT, AFTER) else -1
    else:
        for row in rows:
            found[_plain(row, names)] += int(row[deltas.WEIGHT]) if mode == "changes" else 1
    assert all(count >= 0 for count in found.values()), "more was retracted than was added"
    return Counter({row: count for row, count in found.items() if count})


def run_check(name: str, target: SinkTarget) -> None:
    """Run one check in each mode of the sink; `target.modes` can name fewer."""
    for mode in getattr(target, "modes", None) or modes_of(target.sink()):
        reset = getattr(target, "reset", None)
        if reset is not None:
            reset()
        CHECKS[name](target, mode)
        if reset is None:
            return  # the target cannot be emptied: only the first mode is checked


def _compare(target: SinkTarget, mode: SinkMode, feed: Feed) -> None:
    found = shown(mode, target.read(), feed.schema.names)
    missing, extra = feed.view - found, found - feed.view
    assert not missing, f"rows are missing at epoch {feed.epoch}: {_few(missing)}"
    assert not extra, f"rows are there too often at epoch {feed.epoch}: {_few(extra)}"


def _give(deliverer: Deliverer, feed: Feed, *parts: EpochDelta) -> Sequence[RefusedRow]:
    rows = pa.Table.from_pylist(list(feed.rows.values()), schema=feed.schema)
    return deliverer.give(*parts, all_rows=rows)


def _adds_up(target: SinkTarget, mode: SinkMode) -> None:
    """Inserts, updates and deletes, and epochs that were gathered, give the view."""
    feed, deliverer = Feed(mode), Deliverer(target, mode)
    for _ in range(4):
        _give(deliverer, feed, feed.following())
        _compare(target, mode, feed)
    _give(deliverer, feed, feed.following(), feed.following(), feed.following())
    _compare(target, mode, feed)
    deliverer.close()


def _repeats(target: SinkTarget, mode: SinkMode) -> None:
    """A delivery that comes again, to the same or another coordinator, also an old one, changes nothing."""
    feed, deliverer, done = Feed(mode, 1), Deliverer(target, mode), []
    for _ in range(3):
        done.append(feed.following())
        for _ in range(2):
            _give(deliverer, feed, done[-1])
        _compare(target, mode, feed)
        deliverer.close()
        deliverer = deliverer.successor()
        _give(deliverer, feed, done[-1])
        _compare(target, mode, feed)
    deliverer.close()
    deliverer = deliverer.successor()
    for part in done:
        _give(deliverer, feed, part)
        _compare(target, mode, feed)
    deliverer.close()


def _crashes(target: SinkTarget, mode: SinkMode) -> None:
    """After a crash between any two lines of the sink, the next coordinator completes the epoch."""
    feed, deliverer = Feed(mode, 2), Deliverer(target, mode)
    _give(deliverer, feed, feed.following())
    rng, at = random.Random(3), 1
    for _ in range(CRASHES_MAX):
        part = feed.following()
        died = _dies(deliverer, at, lambda deliverer=deliverer, part=part: _give(deliverer, feed, part))  # type: ignore[misc]
        deliverer = deliverer.successor()
        _give(deliverer, feed, part)
        _compare(target, mode, feed)
        if not died:
            break
        at += rng.randint(1, 4)
    deliverer.close()


def _zombie(target: SinkTarget, mode: SinkMode) -> None:
    """A coordinator that was replaced and does not know it changes nothing any more."""
    feed, old = Feed(mode, 4), Deliverer(target, mode)
    first = feed.following()
    _give(old, feed, first)
    new = old.successor()
    second = feed.following()
    _give(new, feed, second)
    for part in (second, first):
        _may_fail(lambda part=part: _give(old, feed, part))  # type: ignore[misc]
        _compare(target, mode, feed)
    third = feed.following()
    _may_fail(lambda: _give(old, feed, third))  # the same epoch at the same time
    _give(new, feed, third)
    _compare(target, mode, feed)
    old.close()
    new.close()


def _whole_epochs(target: SinkTarget, mode: SinkMode) -> None:
    """A reader never sees a part of an epoch, whatever the sink has done so far."""
    if not getattr(target, "whole", True):
        return
    feed, deliverer = Feed(mode, 5), Deliverer(target, mode)
    _give(deliverer, feed, feed.following(10))
    for _ in range(2):
        before, part = feed.view, feed.following(10)
        after = feed.view

        def look(before: View = before, after: View = after) -> None:
            seen = shown(mode, target.read(), feed.schema.names)
            assert seen in (before, after), "a reader sees a part of an epoch"

        _traced(deliverer, look, lambda part=part: _give(deliverer, feed, part))  # type: ignore[misc]
        _compare(target, mode, feed)
    deliverer.close()


def _empty_epochs(target: SinkTarget, mode: SinkMode) -> None:
    """A delivery without rows, first or later, is no error and changes nothing."""
    feed, deliverer = Feed(mode, 6), Deliverer(target, mode)
    _give(deliverer, feed)
    _give(deliverer, feed, feed.following())
    _give(deliverer, feed, EpochDelta(feed.epoch + 1, feed.delta(feed.rows)))
    _compare(target, mode, feed)
    deliverer.close()


def _big_epochs(target: SinkTarget, mode: SinkMode) -> None:
    feed, deliverer = Feed(mode, 7), Deliverer(target, mode)
    _give(deliverer, feed, feed.following(ROWS_BIG))
    _give(deliverer, feed, feed.following(ROWS_BIG // 4))
    _compare(target, mode, feed)
    deliverer.close()


def _every_type(target: SinkTarget, mode: SinkMode) -> None:
    """All types arrive, NULL as NULL; `target.same(expected, found)` may compare values more loosely."""
    rows = [every_type_row(0), every_type_row(1), dict.fromkeys(TYPES.names) | {"k": 2}]
    schema = TYPES.append(pa.field(deltas.WEIGHT, pa.int64()))
    delta = deltas.consolidate(
        pa.Table.from_pylist([{**row, deltas.WEIGHT: 1} for row in rows], schema=schema)
    )
    deliverer = Deliverer(target, mode, schema=TYPES)
    deliverer.give(EpochDelta(1, delta), all_rows=pa.Table.from_pylist(rows, schema=TYPES))
    found = sorted(target.read(), key=lambda row: int(row["k"]))
    same = getattr(target, "same", lambda expected, got: expected == got)
    assert len(found) == len(rows)
    for expected, got in zip(pa.Table.from_pylist(rows, schema=TYPES).to_pylist(), found, strict=True):
        for name, value in expected.items():
            assert (value is None) == (got[name] is None), f"{name}: {value!r} became {got[name]!r}"
            assert value is None or same(value, got[name]), f"{name}: {value!r} became {got[name]!r}"
    deliverer.close()


def _refused_rows(target: SinkTarget, mode: SinkMode) -> None:
    """A row that the target refuses is returned, also when the delivery is repeated; all others arrive."""
    poison = getattr(target, "poison", None)  # changes a row into one that the target refuses
    if poison is None:
        return
    feed, deliverer = Feed(mode, 8), Deliverer(target, mode)
    _give(deliverer, feed, feed.following())
    before = {k: dict(row) for k, row in feed.rows.items()}
    bad, good = poison({"k": 901, "s": "bad", "n": 1}), {"k": 902, "s": "good", "n": 1}
    feed.rows |= {901: bad, 902: good}
    feed.epoch += 1
    part = EpochDelta(feed.epoch, feed.delta(before))
    for again in (False, True):
        refused = _give(deliverer, feed, part)
        assert len(refused) == 1, f"{len(refused)} rows were refused instead of 1 (repeated: {again})"
        assert '"k": 901' in refused[0].row
        assert refused[0].reason
    del feed.rows[901]
    _compare(target, mode, feed)
    deliverer.close()


def _rollback(target: SinkTarget, mode: SinkMode) -> None:
    """A rollback is an epoch that takes changes back."""
    if mode == "append":
        return
    feed, deliverer = Feed(mode, 9), Deliverer(target, mode)
    _give(deliverer, feed, feed.following())
    old = {k: dict(row) for k, row in feed.rows.items()}
    for _ in range(2):
        _give(deliverer, feed, feed.following())
    before, feed.rows = feed.rows, old
    feed.epoch += 1
    _give(deliverer, feed, EpochDelta(feed.epoch, feed.delta(before)))
    _compare(target, mode, feed)
    deliverer.close()


CHECKS: dict[str, Callable[[SinkTarget, SinkMode], None]] = {
    "adds up": _adds_up,
    "repeats": _repeats,
    "crashes": _crashes,
    "zombie": _zombie,
    "whole epochs": _whole_epochs,
    "empty epochs": _empty_epochs,
    "big epochs": _big_epochs,
    "every type": _every_type,
    "refused rows": _refused_rows,
    "rollback": _rollback,
}

TYPES = pa.schema(
    [
        ("k", pa.int64()),
        ("bool", pa.bool_()),
        ("int", pa.int32()),
        ("float", pa.float64()),
        ("decimal", pa.decimal128(20, 4)),
        ("text", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("timestamp", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int64())),
        ("struct", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)


def every_type_row(key: int) -> Row:
    """A row with a value of every type."""
    at = datetime.datetime(2026, 2, 3, 4, 5, 6, 789)
    return {
        "k": key,
        "bool": key % 2 == 0,
        "int": -(2**31),
        "float": [1.5, float("-inf")][key % 2],
        "decimal": decimal.Decimal("-1234567890.1200"),
        "text": "a\n'\"\\,\t漢",
        "binary": b"\x00\xff",
        "date": at.date(),
        "time": at.time(),
        "timestamp": at,
        "instant": at.replace(tzinfo=datetime.UTC),
        "list": [1, None, 3],
        "struct": {"a": 1, "b": None},
    }


def _dies(deliverer: Deliverer, at: int, call: Callable[[], object]) -> bool:
    """Run a call that dies before the given line of the sink's module; returns whether it did."""
    left = at

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise SimulatedCrash

    try:
        _traced(deliverer, die, call)
    except SimulatedCrash:
        return True
    return False


def _traced(deliverer: Deliverer, act: Callable[[], object], call: Callable[[], object]) -> None:
    """Run a call, and `act` before every line of the sink's module."""
    files = {inspect.getsourcefile(type(deliverer.sink))}

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            act()  # itself not traced
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def _may_fail(call: Callable[[], object]) -> None:
    with contextlib.suppress(MillpondError, OSError):
        call()


def _plain(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _few(view: View) -> str:
    return ", ".join(str(row) for row in list(view)[:3])

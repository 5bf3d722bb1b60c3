"""Checks that a source keeps the promises of `sources.source.Source`.

A test describes the system behind a source by a `SourceCase`, and runs every function of `CHECKS`, each on a
new case:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_source(check, tmp_path):
        check(MyCase(tmp_path))

Law: a check fails with AssertionError and names what differs.  Checks of something that a case cannot do (bad
input, new partitions) raise `NotApplicable`, which pytest shows as skipped.
"""

from __future__ import annotations

import json
import random
import time
import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.control.admission import admit
from millpond.delta import WEIGHT
from millpond.errors import UnavailableError
from millpond.operators.source_traits import KeepsHistory, RestoresSplits
from millpond.pond import Pond
from millpond.settings import make_settings
from millpond.sources.file_format import ERROR
from millpond.sources.source import BOUND, Poll, Source, Split
from millpond.state.store.memory_store import MemoryStore
from millpond.testing.dying_store import Died, DyingStore

NotApplicable = unittest.SkipTest
Rows = Counter[str]  # rows as text, by how often they come
_BYTES_MAX = 1 << 30
_ROUNDS_MAX = 1_000  # polls until a source must have given everything
_PATIENCE_S = 30.0  # a source may be unavailable for this long, as it may be in a pond


class SourceCase:
    """The system behind a source, in one test.  Subclasses implement `open` and `add`."""

    def open(self) -> Source:
        """A new source object, as another process would make it."""
        raise NotImplementedError

    def add(self, rows: int) -> None:
        """Write this many more rows to the system."""
        raise NotImplementedError

    def expected(self) -> Iterable[Mapping[str, Any]] | None:
        """All rows that were added, if they are known; otherwise runs are only compared with each other."""
        return None

    def add_bad(self) -> int:
        """Write input that cannot be read; returns how many error rows it becomes."""
        raise NotApplicable("this source has no bad input")

    def add_partition(self) -> None:
        """Add a partition, with at least one row."""
        raise NotApplicable("this source has no partitions that come and go")

    def close(self) -> None:
        """Called at the end of every check."""


def replay_returns_the_same_rows(case: SourceCase) -> None:
    """A split that is read again, by another process or with fewer columns, has the same rows in order."""
    case.add(30)
    source, other = case.open(), case.open()
    seen = _Progress(source)
    read = 0
    for split in seen.splits(7):
        first = _rows(source, split, source.schema.names)
        again = split
        if isinstance(other, RestoresSplits):
            again = other.again(json.loads(json.dumps(dict(split.what))))
        assert _plain(first) == _plain(_rows(other, again, other.schema.names)), (
            f"another read differs: {split}"
        )
        for name in source.schema.names:
            one_column = _rows(source, split, [name])
            assert _plain(one_column) == _plain(first, [name]), (
                f"column {name!r} differs when it is read alone"
            )
        read += sum(t.num_rows for t in first)
    assert read >= 30, f"{read} rows were read, at least 30 were added"


def polls_can_be_repeated(case: SourceCase) -> None:
    """A poll that nobody committed is asked again, and gives the same rows, even if more came in between."""
    case.add(20)
    source = case.open()
    first = _all(source, _poll(source, None, _empty(source), 1_000).splits)
    case.add(5)
    for again in (source, case.open()):
        rows = _all(again, _poll(again, None, _empty(again), 1_000).splits)
        missing = Counter(first) - Counter(rows)
        assert not missing, f"a second poll from the same position lacks rows: {_some(missing)}"


def positions_only_rise(case: SourceCase) -> None:
    """A position is JSON, is another one after every admission with rows, and never comes back."""
    case.add(40)
    source = case.open()
    seen = _Progress(source)
    positions: list[str] = [json.dumps(None)]
    for _ in range(_ROUNDS_MAX):
        taken = seen.step(5)
        if not taken:
            break
        position = json.dumps(seen.position, sort_keys=True)
        assert json.loads(position) == seen.position, "a position must be a JSON value"
        if sum(split.rows for split in taken):
            assert position not in positions, f"position {position} came before"
        positions.append(position)
    assert len(positions) > 1, "nothing was admitted"
    _same(seen.rows, case)


def schemas_are_checked(case: SourceCase) -> None:
    """Every table that is read has the declared columns in the declared types."""
    case.add(10)
    source = case.open()
    wanted = {f.name: f.type for f in source.schema}
    for split in _Progress(source).splits(100):
        for table in _rows(source, split, source.schema.names):
            given = {f.name: f.type for f in table.schema if f.name != WEIGHT}
            assert given == wanted, f"columns are {given}, and {wanted} are declared"
            if source.append_only:
                assert WEIGHT not in table.column_names, "an append-only source has no weights"


def bad_input_becomes_error_rows(case: SourceCase) -> None:
    """Input that cannot be read is not lost and stops nothing: it has a reason, and other rows are read."""
    case.add(3)
    wanted = case.add_bad()
    case.add(3)
    seen = _Progress(case.open())
    seen.drain(100)
    assert len(seen.errors) == wanted, f"{wanted} error rows expected, got {seen.errors}"
    assert all(seen.errors), "an error row has a reason"
    _same(seen.rows, case)


def partitions_come_and_go(case: SourceCase) -> None:
    """A partition that appears later is read from its beginning."""
    case.add(5)
    seen = _Progress(case.open())
    seen.drain(100)
    before = sum(seen.rows.values())
    case.add_partition()
    case.add(5)
    give_up = time.monotonic() + _PATIENCE_S
    seen.drain(100)
    while sum(seen.rows.values()) <= before + 5 and time.monotonic() < give_up:
        time.sleep(0.05)  # a cluster may need a moment until it knows the new partition
        seen.drain(100)
    assert sum(seen.rows.values()) > before + 5, "rows of the new partition are missing"
    _same(seen.rows, case)


def an_idle_source_is_quiet(case: SourceCase) -> None:
    """Without input a source offers no rows and its position stays; input that comes later is found."""
    source = case.open()
    seen = _Progress(source)
    seen.drain(100)
    case.add(4)
    seen.drain(100)
    for _ in range(3):
        before = seen.position
        assert not any(s.rows for s in seen.step(100)), "an idle source offers rows"
        assert seen.position == before, f"the position moved from {before} to {seen.position}"
    case.add(4)
    seen.drain(100)
    assert sum(seen.rows.values()) >= 8
    _same(seen.rows, case)


def history_has_what_was_admitted(case: SourceCase) -> None:
    """A step that is added later reads exactly what was admitted, and nothing that came since."""
    case.add(25)
    source = case.open()
    if not isinstance(source, KeepsHistory):
        raise NotApplicable("this source keeps no history")
    seen = _Progress(source)
    for _ in range(2):
        seen.step(7)
    case.add(3)
    rows = Counter(_all(source, source.history(seen.position, seen.seen, 6)))
    assert rows == seen.rows, f"history differs: {_difference(rows, seen.rows)}"


def a_crash_at_any_step(case: SourceCase) -> None:
    """A process that dies between two calls loses no row and reads none twice."""
    chance = random.Random(7)
    case.add(60)
    committed = _Progress(case.open())
    for number in range(16):
        working = committed.copy(case.open() if chance.random() < 0.5 else committed.source)
        if chance.random() < 0.3:
            case.add(1)
        stop_after = number % 4  # after the poll, the reads, the advance; or not at all
        working.step(chance.choice([3, 7, 20]), stop_after=stop_after if stop_after < 3 else None)
        if stop_after == 3:
            committed = working
    committed.drain(100)
    _same(committed.rows, case)


def a_pond_counts_every_row_once(case: SourceCase) -> None:
    """A pond that is killed before random commits shows every row once after its restart."""
    chance = random.Random(3)
    below = MemoryStore()
    died = 0
    case.add(20)
    for number in range(8):
        store = DyingStore(below)
        settings = make_settings(checks=True, durable=False, lease_ms=1, epoch_rows_max=7, sink_close_ms=1)
        pond = Pond(
            store, engine="inline", parallelism=1 if number == 0 else None, settings=settings, take_over=True
        )
        try:
            pond.stream("source", case.open()).view("rows")
            store.armed_after = None if number == 7 else chance.randrange(1, 4)
            pond.drain()
            if number == 7:
                shown = Counter(_text(row) for row in pond.read("rows").to_pylist())
        except Died:
            died += 1
        finally:
            store.armed = False
            pond.close()
        case.add(chance.randrange(4) if number < 6 else 0)
    assert died, "no commit was killed"
    _same(shown, case)


CHECKS: tuple[Callable[[SourceCase], None], ...] = (
    replay_returns_the_same_rows,
    polls_can_be_repeated,
    positions_only_rise,
    schemas_are_checked,
    bad_input_becomes_error_rows,
    partitions_come_and_go,
    an_idle_source_is_quiet,
    history_has_what_was_admitted,
    a_crash_at_any_step,
    a_pond_counts_every_row_once,
)


def check_source(make: Callable[[], SourceCase]) -> list[str]:
    """Run all checks, each on a new case; returns the names of those that do not apply."""
    skipped = []
    for check in CHECKS:
        case = make()
        try:
            check(case)
        except NotApplicable:
            skipped.append(check.__name__)
        finally:
            case.close()
    return skipped


# -- inside --------------------------------------------------------------------------------------


class _Progress:
    """What a pond would have committed of a source: its position, its own table, the rows that were read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.position: Any = None
        self.seen = _empty(source)
        self.rows: Rows = Counter()
        self.errors: list[str] = []

    def copy(self, source: Source) -> _Progress:
        made = _Progress(source)
        made.position = json.loads(json.dumps(self.position))
        made.seen, made.rows, made.errors = self.seen, Counter(self.rows), list(self.errors)
        return made

    def step(self, max_rows: int, stop_after: int | None = None) -> Sequence[Split]:
        """Poll, read and advance; `stop_after` ends it before the last of these, as a crash would."""
        poll = _poll(self.source, self.position, self.seen, max_rows)
        taken = admit({"source": poll.splits}, max_rows, _BYTES_MAX).get("source", [])
        if stop_after == 0 or not (taken or poll.rejects):
            return taken
        for split in taken:
            for table in self.source.read(split, self.source.schema.names):
                if ERROR in table.column_names:
                    self.errors += table[ERROR].to_pylist()
                elif BOUND not in table.column_names:
                    self.rows.update(_texts(table))
        if stop_after == 1:
            return taken
        advance = self.source.advance(self.position, taken, poll.rejects)
        self.errors += [reason for _, reason in poll.rejects]
        if stop_after is not None:
            return taken
        self.position = advance.position
        if advance.seen is not None:
            before = [] if self.seen is None else [self.seen]
            self.seen = pa.concat_tables([*before, advance.seen])
        return taken

    def splits(self, max_rows: int) -> Iterator[Split]:
        """All splits, each before it is admitted."""
        for _ in range(_ROUNDS_MAX):
            poll = _poll(self.source, self.position, self.seen, max_rows)
            taken = admit({"source": poll.splits}, max_rows, _BYTES_MAX).get("source", [])
            if not taken:
                return
            yield from taken
            self._commit(taken, poll)

    def _commit(self, taken: Sequence[Split], poll: Poll) -> None:
        advance = self.source.advance(self.position, taken, poll.rejects)
        self.position = advance.position
        if advance.seen is not None:
            before = [] if self.seen is None else [self.seen]
            self.seen = pa.concat_tables([*before, advance.seen])

    def drain(self, max_rows: int) -> None:
        for _ in range(_ROUNDS_MAX):
            if not self.step(max_rows):
                return
        raise AssertionError(f"the source offers splits without end, the last position is {self.position}")


def _poll(source: Source, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
    """Poll a source, and again while it is unavailable."""
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return source.poll(position, seen, max_rows)
        except UnavailableError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


def _empty(source: Source) -> pa.Table | None:
    spec = source.table("source")
    return None if spec is None else spec.schema.empty_table()


def _rows(source: Source, split: Split, columns: Sequence[str]) -> list[pa.Table]:
    found = source.read(split, columns)
    return [t for t in found if ERROR not in t.column_names and BOUND not in t.column_names]


def _plain(tables: Sequence[pa.Table], columns: Sequence[str] | None = None) -> list[Any]:
    weighted = any(WEIGHT in t.column_names for t in tables)
    keep = None if columns is None else [*columns, *([WEIGHT] if weighted else [])]
    return [row for t in tables for row in (t if keep is None else t.select(keep)).to_pylist()]


def _all(source: Source, splits: Iterable[Split]) -> list[str]:
    return [t for s in splits for table in _rows(source, s, source.schema.names) for t in _texts(table)]


def _texts(table: pa.Table) -> list[str]:
    return [_text(row) for row in table.to_pylist()]


def _text(row: Mapping[str, Any]) -> str:
    return repr(sorted(row.items()))


def _same(rows: Rows, case: SourceCase) -> None:
    """Compare what was read with what was added."""
    expected = case.expected()
    if expected is not None:
        wanted = Counter(_text(row) for row in expected)
        assert rows == wanted, _difference(rows, wanted)


def _difference(found: Rows, wanted: Rows) -> str:
    return f"too few: {_some(wanted - found)}; too many: {_some(found - wanted)}"


def _some(rows: Rows) -> list[str]:
    return sorted(rows.elements())[:5]

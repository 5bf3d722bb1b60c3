"""A pond that is fed, rescaled, restarted, compacted and rolled back by a seed, and checked at every epoch."""

from __future__ import annotations

import contextlib
import datetime
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import millpond
from millpond.pond import Pond
from millpond.sources.memory import Crash, InjectedCrash, MemorySource, Pause, rows
from tests.oracle.model import Model
from tests.oracle.pipeline import ERRORS, VIEWS, A, E, ViewCase, build
from tests.unit.operators.harness import Rows, assert_same_rows, row_counts

START = datetime.datetime(2024, 3, 1)


def assert_close(got: Rows, want: Rows, got_name: str, want_name: str) -> None:
    """The same rows, floats to nine digits: a batch query adds them in some order, and rounds as it goes."""
    pairs = zip(*(sorted(rows_.elements(), key=_without_floats) for rows_ in (got, want)), strict=False)
    near = all(
        a == b
        or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
        for one, two in pairs
        for a, b in zip(one, two, strict=True)
    )
    if not near or got.total() != want.total():
        assert_same_rows(got, want, got_name, want_name)


def _without_floats(row: tuple[Any, ...]) -> tuple[list[str], list[float]]:
    return [repr(v) for v in row if not isinstance(v, float)], [v for v in row if isinstance(v, float)]


class AtOnce(Executor):
    """Delivery, compaction and collection done when they are asked for: a seed plays one history only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class World:
    """See the module's text."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        cases: Sequence[ViewCase] | None = None,
        engine: Any = "inline",
        turn: int = 0,
        compact: bool = True,
        threads: bool = False,
        **options: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.engine = engine
        self.turn = turn  # another parallelism from the same seed
        self.options = options
        self.compact = compact
        self.threads = threads  # real ones: then a seed may play many histories
        some = self.rng.sample(VIEWS, self.rng.randint(6, 12))
        self.cases = some if cases is None else list(cases)
        self.settings: dict[str, Any] = {
            "durable": False,
            "checks": True,
            "fan_in": self.rng.choice([2, 3, 6]),
            "compact": self.rng.random() < 0.8 and compact,
            "epoch_rows_max": self.rng.choice([5, 12, 1000]),
            "retain_epochs": self.rng.choice([1000, 1000, 4]),
            "collect_every": self.rng.choice([1, 3, 50]),
            "compaction_unit_bytes": self.rng.choice([256 << 20, 2000]),
        }
        # Runs of a few rows would all be of one size; told apart, some merges begin above the oldest run.
        self._tiers = mock.patch(
            "millpond.state.runs.compaction.TIER_BYTES", self.rng.choice([256, 1024, 64 << 10])
        )
        self._tiers.start()
        self.a = MemorySource(A, append_only=False)
        self.e = MemorySource(E)
        self.alive: list[dict[str, Any]] = []  # rows of a, as pushed
        self.clock_s = 0
        self.model = Model()
        self.accounted = self.checked = -1
        self.seen: dict[tuple[str, int], Rows] = {}
        self.savepoints = self.forks = 0
        self.pond: Pond = self._open(self._width())

    def _open(self, parallelism: int | None) -> Pond:
        pond = millpond.open(
            self.folder,
            engine=self.engine,
            parallelism=parallelism,
            on_epoch=self._committed,
            **self.settings,
            **self.options,
        )
        build(pond, self.a, self.e, self.cases)
        if not self.threads:
            with mock.patch("millpond.engine.coordinator.runner.ThreadPoolExecutor", AtOnce):
                pond._execution.boot()
        return pond

    def _committed(self, manifest: Any) -> None:
        if manifest.epoch > self.accounted:
            self.model.commit(manifest)
            self.accounted = manifest.epoch

    def close(self) -> None:
        self.pond.close()
        self.model.close()
        self._tiers.stop()

    # -- what happens -------------------------------------------------------------------

    def step(self) -> None:
        """Some input and one disturbance, then an epoch or more."""
        for _ in range(self.rng.randint(0, 3)):
            self.rng.choice(
                [self._push_a, self._push_a, self._push_e, self._push_e, self._change_t, self._change_m]
            )()
        if self.rng.random() < 0.6:
            self.rng.choice(
                [
                    self._rescale,
                    self._restart,
                    self._compact,
                    self._roll_back,
                    self._name,
                    self._pause,
                    self._crash,
                    self._fork,
                ]
            )()
        self.pond.drain()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()
        self.check_history()

    def _push_a(self) -> None:
        rng, found = self.rng, []
        for _ in range(rng.randint(1, 8)):
            dice = rng.random()
            if dice < 0.55 or not self.alive:
                row = self._row_a()
                self.alive.append(row)
                found.append({**row, "_w": 1})
            elif dice < 0.65:
                row = rng.choice(self.alive)
                self.alive.append(row)
                found.append({**row, "_w": 1})
            elif dice < 0.85:
                found.append({**self.alive.pop(rng.randrange(len(self.alive))), "_w": -1})
            elif dice < 0.95:  # an update
                at = rng.randrange(len(self.alive))
                found.append({**self.alive[at], "_w": -1})
                self.alive[at] = {**self.alive[at], "x": rng.choice([None, rng.randint(-5, 9)])}
                found.append({**self.alive[at], "_w": 1})
            else:  # a retraction of a row that may not be there
                found.append({**self._row_a(), "_w": -1})
        rng.shuffle(found)
        item = rows(A, found)
        self.a.push(item)
        self.model.items["a"].append(item)

    def _row_a(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "k": rng.choice([None, 0, 1, 2, 3, rng.randint(0, 30)]),
            "s": rng.choice([None, "", "a", "ab", "é", "a longer string than twelve bytes"]),
            "x": rng.choice([None, rng.randint(-5, 9)]),
            "f": rng.choice([None, 0.0, -0.0, 0.25, -1.5, 8.0, 1024.125]),
            "d": rng.choice([None, Decimal("0.10"), Decimal("-3.25"), Decimal("7.00")]),
            "p": rng.choice([None, "1", "5", "12", "oops", "7"]),
        }

    def _push_e(self) -> None:
        rng = self.rng
        found = []
        for _ in range(rng.randint(1, 8)):
            self.clock_s += rng.choice([0, 0, 1, 3])
            behind = rng.choice([0, 0, 1, 4, 6, 9, 25])
            at = START + datetime.timedelta(
                seconds=self.clock_s - behind, milliseconds=rng.choice([0, 0, 500])
            )
            found.append(
                {
                    "ts": None if rng.random() < 0.04 else at,
                    "k": rng.choice([None, 0, 1, 2, 3, rng.randint(0, 30)]),
                    "v": rng.choice([None, rng.randint(-3, 6)]),
                    "u": rng.choice([None, "x", "y", "zz"]),
                }
            )
        item = rows(E, found)
        self.e.push(item)
        self.model.items["e"].append(item)

    def _change_t(self) -> None:
        rng = self.rng
        given = [
            (k, rng.choice(["p", "q", None]), rng.choice([None, Decimal("1.25"), Decimal("2.00")]))
            for k in (rng.randint(0, 4) for _ in range(rng.randint(1, 5)))
        ]
        self._change("t", rng.choice([1, 1, -1]), given)

    def _change_m(self) -> None:
        rng = self.rng
        given = [(rng.choice([None, 0, 1, 2]), rng.choice(["x", "y"])) for _ in range(rng.randint(1, 5))]
        self._change("m", rng.choice([1, 1, -1]), given)

    def _change(self, table: str, weight: int, given: list[tuple[Any, ...]]) -> None:
        names = ("k", "name", "rate") if table == "t" else ("k", "tag")
        dicts = [dict(zip(names, row, strict=True)) for row in given]
        number = self.pond.insert(table, dicts) if weight > 0 else self.pond.delete(table, dicts)
        self.model.entries[number] = (table, weight, given)

    def _rescale(self) -> None:
        if self.accounted >= 0:
            self.pond.rescale(self._width())

    def _width(self) -> int:
        return (self.rng.randint(1, 7) + self.turn - 1) % 7 + 1

    def _restart(self) -> None:
        if self.accounted >= 0:
            self.pond.close()
            self.pond = self._open(self.rng.choice([None, self._width()]))

    def _compact(self) -> None:
        if self.compact:
            self.pond.compact()

    def _name(self) -> None:
        if self.accounted >= 0:
            self.savepoints += 1
            self.pond.savepoint(f"point-{self.savepoints}")

    def _pause(self) -> None:
        self.e.push(Pause(1))
        self.model.items["e"].append(E.empty_table())

    def _crash(self) -> None:
        """The process dies when it gets to the next item, and another goes on."""
        self.a.push(Crash())
        self.model.items["a"].append(A.empty_table())
        with contextlib.suppress(InjectedCrash):
            self.pond.drain()
        self._restart()

    def _fork(self) -> None:
        """Go on in a fork of some epoch; the old pond stays where it is."""
        if self.accounted < 0:
            return
        target = self.rng.choice(self._kept())
        self.forks += 1
        folder = self.folder.with_name(f"{self.folder.name}-{self.forks}")
        assert self.pond.fork(folder, epoch=target) == target
        self.pond.close()
        self.folder = folder
        self.model.fork(target)
        self.accounted, self.checked, self.seen = 0, -1, {}
        self.pond = self._open(self.rng.choice([None, self._width()]))

    def _kept(self) -> list[int]:
        head = self.pond.head()
        return [*range(head.floor, head.epoch + 1), *head.savepoints.values()]

    def _roll_back(self) -> None:
        if self.accounted < 2:
            return
        self.pond.rollback(self.rng.choice(self._kept()))
        # Items of the abandoned future are read again, so what lives in `a` is what was pushed.

    # -- what must hold -------------------------------------------------------------------

    def check(self) -> None:
        """Every epoch since the last check."""
        head = self.pond.head()
        assert self.accounted == head.epoch, "on_epoch was not told of every epoch"
        for epoch in range(max(self.checked + 1, head.floor), head.epoch + 1):
            moved = self.model.accounts[epoch] is not self.model.accounts.get(epoch - 1)
            some = self.cases if moved else self.rng.sample(self.cases, 2)
            for case in self.cases:
                if case in some or (case.name, epoch - 1) not in self.seen:
                    self.check_view(case, epoch)
                else:
                    self.seen[case.name, epoch] = self.seen[case.name, epoch - 1]
            if moved:
                self.check_apart(epoch)
        self.checked = head.epoch

    def check_view(self, case: ViewCase, epoch: int) -> None:
        got = self.pond.read(case.name, epoch=epoch)
        want = self.model.ask(epoch, case.sql)
        assert got.column_names == want.column_names, case.name
        found = row_counts(got)
        where = f"view {case.name!r} at epoch {epoch}"
        assert_close(found, row_counts(want), where, "the batch query")
        self.seen[case.name, epoch] = found

    def check_apart(self, epoch: int) -> None:
        """Late rows and error rows: all of them, and no others."""
        account = self.model.accounts[epoch]
        late = row_counts(self.pond.late("e.watermark", epoch=epoch))
        assert_same_rows(late, account.late, f"late rows at epoch {epoch}", "the model")
        found: Counter[str] = Counter()
        for error in self.pond.errors(epoch=epoch).to_pylist():
            found[error["step"]] += error["weight"]
        want = account.refused.copy()
        for case in self.cases:
            if case.name in ERRORS:
                step, sql = ERRORS[case.name]
                want[step] += self.model.ask(epoch, sql).column(0)[0].as_py()
        assert found == Counter({step: n for step, n in want.items() if n}), f"errors at epoch {epoch}"

    def check_history(self) -> None:
        """Old epochs read as they did then; differences, changes and lookups agree with reads."""
        head = self.pond.head()
        for case in self.cases:
            kept = [e for e in range(head.floor, head.epoch + 1)]
            for epoch in self.rng.sample(kept, min(5, len(kept))):
                again = row_counts(self.pond.read(case.name, epoch=epoch))
                assert_same_rows(
                    again, self.seen[case.name, epoch], f"{case.name!r} at epoch {epoch} again", "then"
                )
            for _ in range(2):
                self.check_diff(case, self.rng.choice(kept), self.rng.choice(kept))
            for name, epoch in head.savepoints.items():
                if (case.name, epoch) not in self.seen:  # it was below the floor before it could be looked at
                    self.check_view(case, epoch)
                again = row_counts(self.pond.read(case.name, epoch=name))
                assert_same_rows(
                    again, self.seen[case.name, epoch], f"{case.name!r} at savepoint {name}", "then"
                )
            self.check_changes(case, head.floor, head.epoch)
            self.check_lookup(case, self.rng.choice(kept))

    def check_diff(self, case: ViewCase, e1: int, e2: int) -> None:
        want = self.seen[case.name, e2].copy()
        want.subtract(self.seen[case.name, e1])
        got = row_counts(self.pond.diff(case.name, e1, e2))
        assert_same_rows(got, _alive(want), f"diff of {case.name!r} from {e1} to {e2}", "read - read")

    def check_changes(self, case: ViewCase, since: int, last: int) -> None:
        total = self.seen[case.name, since].copy()
        told = {delta.epoch: delta.table for delta in self.pond.changes(case.name, since)}
        assert all(since < epoch <= last for epoch in told)
        for epoch in range(since + 1, last + 1):
            if epoch in told:
                change = row_counts(told[epoch])
                assert change, f"changes of {case.name!r} tell of epoch {epoch}, which changed nothing"
                total.update(change)
            assert_same_rows(
                _alive(total), self.seen[case.name, epoch], f"changes of {case.name!r} up to {epoch}", "read"
            )
        (whole,) = list(self.pond.changes(case.name))
        assert_same_rows(row_counts(whole.table), self.seen[case.name, last], "changes from nothing", "read")

    def check_lookup(self, case: ViewCase, epoch: int) -> None:
        rows_ = self.pond.read(case.name, epoch=epoch)
        key = self._lookup_key(case)
        if not key or not rows_.num_rows:
            return
        some = rows_.slice(self.rng.randrange(rows_.num_rows), 1).select(key)
        found = self.pond.lookup(case.name, some.to_pylist()[0], epoch=epoch)
        wanted = row_counts(some)
        mask = [row in wanted for row in _rows(rows_.select(key))]
        assert_same_rows(
            row_counts(found), row_counts(rows_.filter(pa.array(mask))), f"lookup in {case.name!r}", "read"
        )

    def _lookup_key(self, case: ViewCase) -> list[str]:
        plan = self.pond.plan
        view = plan.views[case.name]
        spec = next(t for t in plan.nodes[view.step].binding.tables if t.name == view.table)
        return list(spec.key)


def _alive(total: Rows) -> Rows:
    return Counter({row: weight for row, weight in total.items() if weight})


def _rows(table: pa.Table) -> list[Any]:
    from tests.unit.operators.harness import plain

    return [tuple(plain(v) for v in row.values()) for row in table.to_pylist()]

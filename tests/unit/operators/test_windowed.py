"""AssignWindows, MergeWindows, Triggered, TriggeredSessions, EmitPanes: any order, any parallelism (laws 1, 3 and 8)."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millpond.kernels.bounds import Bound
from millpond.kernels.window_assigners import Gap, Sliding, Tumbling, WindowAssigner
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.merge_windows import MergeWindows
from millpond.operators.operator import Shape
from millpond.operators.panes import FIRING, KIND, LATE, PANE_FIELDS, ROWS
from millpond.operators.triggered import Triggered
from millpond.operators.triggered_sessions import TriggeredSessions
from millpond.operators.window import END, START
from millpond.plan import codec
from millpond.triggers import Trigger, after_count, after_watermark, every, never, repeatedly
from tests.sampling import first
from tests.unit.operators.harness import OperatorRun

SECOND = 1_000_000
MARK = "mark"
EPOCH = datetime.datetime(1970, 1, 1)
TIME = Bound("ts", ((MARK, 0),), SECOND)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
WINDOWED = pa.schema([*SCHEMA, pa.field(START, pa.timestamp("us")), pa.field(END, pa.timestamp("us"))])
TRIGGERS = (
    after_watermark(early=after_count(2), late=after_count(1)),
    repeatedly(after_count(3)),
    after_count(2),
    every("2s"),
    never(),
)


def at(second: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=second)


def batch(rng: random.Random, now: int, count: int = 8) -> pa.Table:
    rows = [
        {"k": rng.choice(["a", "b", None]), "ts": at(now + rng.randrange(-8, 4)), "n": rng.randrange(3)}
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def windowed(assigner: WindowAssigner, rows: pa.Table, bound: int | None, after_us: int = 1) -> pa.Table:
    """Rows with their windows, without those whose window is closed."""
    run = OperatorRun(
        AssignWindows("ts", assigner, TIME, after_us), [Shape(SCHEMA, append_only=True)], parallelism=1
    )
    if bound is not None:
        run.epoch(None, watermark={MARK: bound * SECOND})
    return run.epoch(rows)


@pytest.mark.parametrize("late", [False, True])
def test_every_pair_of_row_and_window_is_in_time_or_late(late: bool) -> None:
    """Windows of 6 seconds every 4, which take rows for 2 seconds after their end."""
    operator = AssignWindows("ts", Sliding(6 * SECOND, 4 * SECOND), TIME, 2 * SECOND + 1, late)
    assert codec.loads(codec.dumps(operator)) == operator
    run = OperatorRun(operator, [Shape(SCHEMA, append_only=True)])
    rng = random.Random(1)
    run.epoch(batch(rng, 20), watermark={MARK: 18 * SECOND})
    early = run.output.num_rows
    assert (early == 0) == late
    out = run.epoch(batch(rng, 20, 30), watermark={MARK: 30 * SECOND})
    ends = {(end - EPOCH).total_seconds() for end in out.column(END).to_pylist()}
    assert ends
    assert all((end + 2 < 18) == late for end in ends)


@pytest.mark.parametrize(("after_us", "time"), [(0, END), (1, END), (2, None), (2 * SECOND + 1, None)])
def test_the_end_of_a_window_is_the_time_of_what_follows(after_us: int, time: str | None) -> None:
    """Unless windows take rows behind the watermark: then rows would come behind their own time."""
    given = AssignWindows("ts", Tumbling(SECOND), TIME, after_us).bind(
        "s", (Shape(SCHEMA, append_only=True),)
    )
    assert (given.shape.time, given.shape.watermark) == (time, time and MARK)


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_merged_windows_follow_inserts_and_deletes(seed: int) -> None:
    shape = Shape(WINDOWED, append_only=False)
    run = OperatorRun(MergeWindows(("k",)), [shape])
    rng = random.Random(seed)
    for epoch in range(6):
        rows = windowed(Gap(3 * SECOND), batch(rng, 4 * epoch), None)
        held = run.inputs[0]
        if held.num_rows:
            some = held.slice(rng.randrange(held.num_rows), 1)
            gone = some.set_column(some.column_names.index("_w"), "_w", pa.array([-1]))
            rows = pa.concat_tables([rows.select(gone.column_names), gone])
        run.epoch(rows, parallelism=rng.randrange(1, 6))
        if epoch == 3:
            run.compact()
        run.check_against(
            """select k, ts, n, min(ts) over (partition by k, s) window_start,
                 max(ts) over (partition by k, s) + interval 3 second window_end
               from (select *, sum(gap) over (partition by k order by ts range unbounded preceding) s
                 from (select *, case when ts - lag(ts) over (partition by k order by ts) < interval 3 second
                   then 0 else 1 end gap from input0))"""
        )


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("discards", [False, True])
def test_every_row_is_released_once_or_late(trigger: Trigger, merges: bool, discards: bool) -> None:
    assigner = Gap(3 * SECOND) if merges else Tumbling(5 * SECOND)
    until = Bound(END, ((MARK, 0 if merges else 1),), assigner.width_us, assigner.on_grid)
    kind = TriggeredSessions if merges else Triggered
    operator = kind(("k",), trigger, TIME, until, discards)
    assert codec.loads(codec.dumps(operator)) == operator
    run = OperatorRun(operator, [Shape(WINDOWED, append_only=True, bounds=(until,))])
    rng, bound = random.Random(5), None
    fed: Counter[Any] = Counter()
    for epoch in range(6):
        now = 3 * epoch
        rows = windowed(assigner, batch(rng, now), bound)
        fed.update(_plain(rows))
        bound = now - 4
        run.epoch(rows, parallelism=rng.randrange(1, 6), watermark={MARK: bound * SECOND})
        if epoch == 2:
            run.compact()
    run.idle(watermark={MARK: 1_000 * SECOND}, now_us=1_000 * SECOND)
    run.idle(watermark={MARK: 2_000 * SECOND}, now_us=2_000 * SECOND)
    released = _plain(run.output, ROWS, LATE)
    assert released == fed
    assert not [ref for ref in run.refs if "/rows" in ref.table or "/windows" in ref.table]
    firings = [r for r in run.output.to_pylist() if r[KIND] == FIRING]
    assert firings
    if not merges:
        numbers: dict[Any, list[int]] = {}
        for firing in firings:
            numbers.setdefault((firing["k"], firing[START]), []).append(firing["pane"])
        assert all(sorted(found) == list(range(len(found))) for found in numbers.values())


def _plain(rows: pa.Table, *kinds: int) -> Counter[Any]:
    """Rows by their own columns; sessions may have moved them to other windows."""
    found: Counter[Any] = Counter()
    for row in rows.to_pylist():
        if not kinds or row[KIND] in kinds:
            found[row["k"], row["ts"], row["n"]] += row["_w"]
    return found


def test_panes_have_the_newest_contents() -> None:
    key = ("k", START, END)
    own = [WINDOWED.field(name) for name in key]
    firing = Shape(pa.schema([*own, *PANE_FIELDS]), append_only=True)
    contents = Shape(pa.schema([*own, pa.field("total", pa.int64())]), append_only=False, key=key)
    run = OperatorRun(EmitPanes(key, False, True, True), [firing, contents])

    def fires(k: str | None, pane: int) -> dict[str, Any]:
        return {"k": k, START: at(0), END: at(5), "pane": pane, "pane_timing": "early", "pane_last": False}

    def holds(k: str | None, total: int, w: int = 1) -> dict[str, Any]:
        return {"k": k, START: at(0), END: at(5), "total": total, "_w": w}

    weighted = contents.schema.append(pa.field("_w", pa.int64()))
    run.epoch(
        pa.Table.from_pylist([fires("a", 0), fires(None, 0)], firing.schema),
        pa.Table.from_pylist([holds("a", 1), holds(None, 2)], weighted),
    )
    out = run.epoch(
        pa.Table.from_pylist([fires("a", 1), fires("a", 2)], firing.schema),
        pa.Table.from_pylist([holds("a", 1, -1), holds("a", 5)], weighted),
        parallelism=5,
    )
    got = sorted((r["total"], r["pane"], r["_w"]) for r in out.to_pylist())
    assert got == [(1, 0, -1), (5, 2, 1)]
    out = run.epoch(pa.Table.from_pylist([fires(None, 1)], firing.schema), None)
    assert (2, 1, 1) in [(r["total"], r["pane"], r["_w"]) for r in out.to_pylist()]

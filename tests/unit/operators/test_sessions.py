"""SessionWindow, SessionAggregate and EmitOnClose: rows on time, in any order, and what is over leaves (laws 1, 3 and 5)."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.bounds import Bound
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.operator import Shape
from millpond.operators.session import SessionWindow
from millpond.operators.session_aggregate import SessionAggregate
from millpond.plan import codec
from tests.sampling import first
from tests.unit.operators.harness import OperatorRun

SECOND = 1_000_000
MARK = "mark"
EPOCH = datetime.datetime(1970, 1, 1)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("n", pa.int64())])
TIMED = Shape(SCHEMA, append_only=True, bounds=(Bound("ts", ((MARK, 0),), SECOND),))
SESSIONS = """select *, min(ts) over (partition by k, s) window_start, max(ts) over (partition by k, s)
    + interval 3 second window_end
  from (select *, sum(gap) over (partition by k order by ts range unbounded preceding) s
    from (select *, case when ts - lag(ts) over (partition by k order by ts) <= interval 3 second then 0 else 1 end gap
      from input0))"""
AGGS = (Agg("rows", "count"), Agg("total", "sum", "n"), Agg("low", "min", "x"), Agg("mean", "avg", "x"))


def batch(rng: random.Random, now: int, bound: int | None, count: int = 12) -> pa.Table:
    """Rows around now, none of them late."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        at = now + rng.randrange(-6, 3)
        if bound is None or at >= bound:
            x = rng.choice([None, 0.5, 0.25, -0.0, 2.0])
            when = EPOCH + datetime.timedelta(seconds=at)
            rows.append({"k": rng.choice(["a", "b", None]), "ts": when, "x": x, "n": rng.randrange(9)})
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize("seed", first(1, range(3)))
@pytest.mark.parametrize("kind", ["rows", "aggregates"])
def test_sessions_are_those_of_the_batch_query(seed: int, kind: str) -> None:
    session: Any = SessionWindow(("k",), "ts", 3 * SECOND)
    query = f"select k, ts, x, n, window_start, window_end from ({SESSIONS})"
    if kind == "aggregates":
        session = SessionAggregate(("k",), "ts", 3 * SECOND, AGGS)
        query = f"""select k, window_start, window_end, count(*) rows, sum(n)::bigint total, min(x) low, avg(x) mean
          from ({SESSIONS}) group by k, window_start, window_end"""
    assert codec.loads(codec.dumps(session)) == session
    run = OperatorRun(session, [TIMED])
    rng, bound, now = random.Random(seed), None, 0
    for _ in range(8):
        now += rng.choice([0, 1, 3, 8])
        rows = batch(rng, now, bound)
        bound = now - 4
        run.epoch(rows, parallelism=rng.randrange(1, 6), watermark={MARK: bound * SECOND})
        run.check_against(query)
    run.idle(watermark={MARK: 10_000 * SECOND})
    assert not run.refs, "nothing is kept of sessions that are over"
    run.check_against(query)


def test_sessions_of_all_rows() -> None:
    """Without a key; the batch query has one as well, the same for all."""
    run = OperatorRun(SessionAggregate((), "ts", 3 * SECOND, AGGS[:2]), [TIMED])
    rng = random.Random(3)
    for epoch in range(4):
        rows = batch(rng, 5 * epoch, None if epoch == 0 else 5 * epoch - 9, 5)
        run.epoch(rows, parallelism=epoch + 1, watermark={MARK: (5 * epoch - 4) * SECOND})
        one = SESSIONS.replace("input0", "(select * replace ('all' as k) from input0)")
        run.check_against(
            f"select window_start, window_end, count(*) rows, sum(n)::bigint total from ({one}) group by 1, 2"
        )


def test_sessions_need_a_watermark() -> None:
    for operator in (SessionWindow(("k",), "ts", 1), SessionAggregate(("k",), "ts", 1, AGGS)):
        with pytest.raises(InvalidError, match="watermark"):
            operator.bind("s", (Shape(SCHEMA, append_only=True),))


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("append_only", [True, False])
def test_held_rows_come_when_their_time_is_over(grid: bool, append_only: bool) -> None:
    """On a grid what ends at the watermark is over, else what ends before it; each row comes once."""
    until = Bound("ts", ((MARK, 0), ("other", SECOND)), 2 * SECOND, grid, "open", "w")
    run = OperatorRun(EmitOnClose(("k",), until), [Shape(SCHEMA, append_only, bounds=(until,))])
    rng, limit = random.Random(7), -10
    run.epoch(
        pa.Table.from_pylist([{"ts": EPOCH - datetime.timedelta(seconds=12)}], SCHEMA),
        watermark={MARK: -10 * SECOND},
    )
    run.check_against("select * from input0 where false")  # nothing is over while a watermark is unknown
    for epoch in range(10):
        rows = batch(rng, limit + 9, limit + 1, 6)
        if grid:
            even = [at.second % 2 == 0 for at in rows.column("ts").to_pylist()]
            rows = rows.filter(pa.array(even))
        if not append_only and epoch % 2:
            rows = rows.append_column("_w", pa.array([2] * rows.num_rows, pa.int64()))
        limit += rng.choice([0, 1, 3])
        run.epoch(
            rows,
            parallelism=rng.randrange(1, 6),
            watermark={MARK: limit * SECOND, "other": (limit + 1 + epoch % 3) * SECOND},
        )
        sign = "<=" if grid else "<"
        run.check_against(f"select * from input0 where epoch_us(ts) {sign} {limit * SECOND}")
    run.idle(watermark={MARK: 1000 * SECOND, "other": 1001 * SECOND})
    run.check_against("select * from input0")
    assert not run.refs

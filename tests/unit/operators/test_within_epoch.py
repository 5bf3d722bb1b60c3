"""WithinEpoch: an operator over the rows of one epoch alone, placed by columns that the operator need not read."""

from __future__ import annotations

import pyarrow as pa

from millpond.kernels.aggregate_feeds import Agg, AggregateFeed
from millpond.operators.aggregate import Aggregate
from millpond.operators.operator import Shape
from millpond.operators.within_epoch import WithinEpoch
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("pane", pa.int64()), ("n", pa.int64()), ("unread", pa.int64())])
PER_PANE = Aggregate(("k", "pane"), (Agg("total", "sum", "n"),), (AggregateFeed("rows", (0,)),))


def test_it_keeps_nothing_of_an_epoch() -> None:
    operator = WithinEpoch(PER_PANE, ("k",))
    assert codec.loads(codec.dumps(operator)) == operator
    run = OperatorRun(operator, [Shape(SCHEMA, append_only=True)])
    run.epoch(rows(SCHEMA, "+ 1 0 5 0", "+ 1 0 2 0", "+ 2 0 9 0"))
    out = run.epoch(rows(SCHEMA, "+ 1 1 3 0"), parallelism=5)
    assert row_counts(out) == {(1, 1, 3): 1}
    assert row_counts(run.output) == {(1, 0, 7): 1, (2, 0, 9): 1, (1, 1, 3): 1}
    assert not run.refs


def test_it_asks_for_the_columns_by_which_rows_are_placed() -> None:
    operator = WithinEpoch(Aggregate(("pane",), PER_PANE.aggs, PER_PANE.feeds), ("k",))
    binding = operator.bind("step", (Shape(SCHEMA, append_only=True),))
    assert operator.requires(binding, frozenset({"total"})) == (frozenset({"k", "pane", "n"}),)
    run = OperatorRun(operator, [Shape(SCHEMA, append_only=True)], needed={"total"})
    run.epoch(rows(SCHEMA, "+ 1 7 5 0", "+ 1 7 2 0"))
    assert row_counts(run.output.select(["total", "_w"])) == {(7,): 1}

"""The operator protocol and the types that operators exchange with the engine.

An operator is a frozen dataclass.  `bind` runs once and declares what the operator
needs and returns: the placement of its inputs, its state tables, the shape of its
output.  `apply` runs one step of one epoch for one hash range:

    deltas in + state at epoch e-1  ->  delta out + state changes

It reads no clock, logs nothing, catches nothing and does not check its
neighbours: the wrappers in `engine.task.checks` do.  An operator is *canonical*
if its output is a function of the input multiset, bit for bit.  Otherwise it
*remembers*: it retracts the rows that its own output table contains (law 3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa

from millpond.kernels.bounds import Bound
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

Kind = Literal["here", "hash", "broadcast"]


@dataclass(frozen=True)
class Placement:
    """Where the rows of one input must be before the operator reads them.

    `here`: in any task.  `hash`: all rows of a key in one task; with an empty key,
    all rows in the one task that owns the global group.  `broadcast`: every task
    reads every row.
    """

    kind: Kind
    key: tuple[str, ...] = ()


HERE = Placement("here")
BROADCAST = Placement("broadcast")


def by_key(*columns: str) -> Placement:
    return Placement("hash", tuple(columns))


@dataclass(frozen=True)
class Shape:
    """What is known about a stream of deltas before any row is seen."""

    schema: pa.Schema  # the user's columns, without _w and _h
    append_only: bool  # no weight is ever negative
    key: tuple[str, ...] | None = None  # at most one row per key, if known
    time: str | None = None  # event-time column, bounded by `watermark`
    watermark: str | None = None  # the step whose watermark bounds `time`
    bounds: tuple[Bound, ...] = ()  # columns whose later values cannot fall behind a limit


@dataclass(frozen=True)
class Wake:
    """A table bucketed by processing time whose earliest bucket makes an epoch due, with or without input.

    An epoch that runs because of it drops that bucket, or at least changes it.

    >>> Wake("remind/due", width_us=1000, after=1).due(41, now_us=42_000)
    True
    """

    table: str
    width_us: int  # of a bucket
    after: int  # a bucket is due this many widths after its start

    def due(self, bucket: int, now_us: int) -> bool:
        return now_us >= (bucket + self.after) * self.width_us


@dataclass(frozen=True)
class Binding:
    """An operator bound to its inputs: everything the engine needs."""

    shape: Shape
    placements: tuple[Placement, ...]
    tables: tuple[TableSpec, ...] = ()
    view: str | None = None  # the table that *is* the output, if there is one
    placed_by: tuple[str, ...] | None = None  # key by which the output rows are placed, if known
    wire: pa.Schema | None = None  # schema after `prepare`, if it is fixed and differs from the input
    extra: Any = None  # other frozen data that `bind` computed for `apply`
    wakes: tuple[Wake, ...] = ()  # tables that make an epoch due by the clock


class Context(Protocol):
    """What an operator may read while it applies a step."""

    step: str
    epoch: int
    now_us: int
    task: int
    h_min: int
    h_max: int
    output_is_read: bool  # does any step, view or sink read the output, or is only the state table needed?
    backfilling: bool  # is this a backfill, which computes the state of new steps?
    vectorize_user_code: bool  # may user code be called for many keys in one call?

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Collection[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        """Return a state table of this step at epoch e-1.

        `everywhere` lifts the hash range; `buckets` and `below_bucket` skip the runs of other times.
        """

    def watermark_before(self, step: str) -> int | None:
        """The watermark (microseconds) that epoch e-1 committed; rows before it are late."""

    def watermark(self, step: str) -> int | None:
        """The watermark after this epoch's rows; known from level 1 on."""

    def watermark_at(self, step: str, share: float) -> int | None:
        """The watermark if only this share of the rows must have come, by the delays that the step learnt.

        It is never below `watermark(step)`, and equal to it if the step learns no delays.
        """


@dataclass(frozen=True)
class Change:
    """Rows for one state table: in a *latest* table `_w` is 1 (put) or 0 (tombstone), in *weights* a sum."""

    table: str
    rows: pa.Table
    presorted: bool = False


@dataclass(frozen=True)
class StepResult:
    out: pa.Table | None = None
    changes: tuple[Change, ...] = ()
    errors: pa.Table | None = None  # columns: row (text), reason (text), _w
    drops: tuple[tuple[str, int], ...] = ()  # (table, bucket): drop the buckets below it
    counts: Mapping[str, int] = field(default_factory=dict)  # e.g. {"late": 3}
    needs_full_rows: bool = False  # discard this result: the epoch must run again with full rows
    seen: pa.Table | None = None  # of a watermark: the rows by which it moves, if not those of `out`
    reached: pa.Table | None = None  # of a watermark: rows that only say which time was reached


NOTHING = StepResult()

Inputs = tuple[pa.Table | None, ...]


class Operator(Protocol):
    """What every operator implements; optional capabilities are in `operators.traits`.

    Implementations are frozen dataclasses, stored under the tags of `plan.tags`.
    """

    canonical: ClassVar[bool]

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding: ...

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """The columns of each input that are required to compute the `needed` output columns.

        `_o` stands for the origin of the rows; it is available if every step up to the sources carries it.
        """

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult: ...


Kernel = Callable[[pa.Table], pa.Table]
Weights = np.ndarray[Any, np.dtype[np.int64]]

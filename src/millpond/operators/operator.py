"""What an operator is.

An operator is a frozen dataclass.  `bind` declares, once, what it needs and
gives: where its inputs must be placed, which state tables it keeps, the shape
of its output.  `apply` does one step of one epoch for one hash range:

    deltas in + state at epoch e-1  ->  delta out + state changes

It reads no clock, logs nothing, catches nothing and does not check its
neighbours: the wrappers in `engine.checks` do.  An operator is *canonical*
when its output is a function of the input multiset, bit for bit; otherwise it
*remembers*, and retracts what its own output table holds (law 3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa

from millpond.operators.bounds import Bound
from millpond.state.table import Table
from millpond.state.table_spec import TableSpec

Kind = Literal["here", "hash", "broadcast"]


@dataclass(frozen=True)
class Placement:
    """Where the rows of one input must be before the operator may see them.

    `here`: wherever they are.  `hash`: all rows of a key in one task; an empty
    key is the single kind, everything in the one task that owns the global
    group.  `broadcast`: every task sees every row.
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
    bounds: tuple[Bound, ...] = ()  # columns whose later values are known not to fall behind


@dataclass(frozen=True)
class Wake:
    """A table bucketed by processing time whose earliest bucket makes an epoch due, with or without input.

    An epoch that is run for it drops that bucket, or at least changes it.

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
    """An operator made concrete for its inputs: everything the engine needs."""

    shape: Shape
    placements: tuple[Placement, ...]
    tables: tuple[TableSpec, ...] = ()
    view: str | None = None  # the table that *is* the output, if one is
    placed_by: tuple[str, ...] | None = None  # key by which the output rows lie, if known
    wire: pa.Schema | None = None  # schema after `prepare`, where it is fixed and differs from the input
    extra: Any = None  # what else `bind` worked out for `apply`: frozen data
    wakes: tuple[Wake, ...] = ()  # tables whose time comes by the clock


class Context(Protocol):
    """What an operator may ask while it does its step."""

    step: str
    epoch: int
    now_us: int
    task: int
    h_min: int
    h_max: int
    wanted: bool  # does anybody read the output delta, or is the state table all that is needed?

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Collection[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        """A state table of this step at epoch e-1.

        `everywhere` lifts the hash range; `buckets` and `below_bucket` leave out the runs of other times.
        """

    def watermark_before(self, step: str) -> int | None:
        """The bound (microseconds) as committed by epoch e-1; rows before it are late."""

    def watermark(self, step: str) -> int | None:
        """The bound after this epoch's rows; known from level 1 on."""


@dataclass(frozen=True)
class Change:
    """Rows for one state table: for *latest* `_w` is 1 (put) or 0 (tombstone), for *weights* a sum."""

    table: str
    rows: pa.Table
    presorted: bool = False


@dataclass(frozen=True)
class Result:
    out: pa.Table | None = None
    changes: tuple[Change, ...] = ()
    errors: pa.Table | None = None  # columns: row (text), reason (text), _w
    drops: tuple[tuple[str, int], ...] = ()  # (table, bucket): buckets below it are over
    counts: Mapping[str, int] = field(default_factory=dict)  # e.g. {"late": 3}
    whole: bool = False  # nothing of this: the epoch must be run again, with whole rows


NOTHING = Result()

Inputs = tuple[pa.Table | None, ...]


class Operator(Protocol):
    """See the module's text.  Implementations are frozen dataclasses registered by class name.

    A linear operator that gives each row the origin `_o` of the row it was made of says
    ``carries_origin = True``, and asks its inputs for `_o` when it is needed.  No other is ever asked for
    it, and nobody gets it who did not ask.

    A linear operator that neither reads state nor waits for time says ``by_piece = True``: what it gives for
    a batch is what it gives for parts of it, put together.

    An operator with all its inputs in one task may say ``alone = True``: its tables lie anywhere, and it
    reads and writes them whole.
    """

    canonical: ClassVar[bool]

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding: ...

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """The columns of each input that are needed to give the `needed` output columns.

        With `_o` the origin of the rows, which comes if every step up to the sources carries it.
        """

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result: ...


@dataclass(frozen=True)
class Ready:
    """A step that knows its other inputs, and takes the rows of its first as they come."""

    result: Result  # of the others alone
    take: Callable[[pa.Table], Result]


class TakesPieces(Protocol):
    """An operator that needs its other inputs whole, and may get its first piece by piece: where all others
    are known to begin with, it is as good as ``by_piece``."""

    def ready(self, ctx: Context, binding: Binding, sides: Inputs) -> Ready:
        """`apply` in two halves: what the other inputs come to, and what is done with rows of the first."""


class Prepares(Protocol):
    """An operator that can shrink its input on the sender's side of the exchange."""

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """Rows as `apply` wants them, with `_h`; sorted by it where that is cheap."""


class Thins(Prepares, Protocol):
    """One that can leave out rows before all of them are there: those that `prepare` would leave out of any
    batch which they are part of."""

    def thin(self, binding: Binding, index: int, part: pa.Table) -> pa.Table: ...


class Shrinks(Prepares, Protocol):
    """One that can prepare a sender's rows part by part, as they come.

    Law: what `united` makes of what `shrunk` made of the parts means what `prepare` makes of all of them.
    """

    def shrinks(self, binding: Binding, index: int, part: pa.Table) -> bool:
        """Is it worth it, to judge by a first part?"""

    def shrunk(self, binding: Binding, index: int, part: pa.Table) -> pa.Table: ...

    def united(self, binding: Binding, index: int, parts: pa.Table) -> pa.Table: ...


class PassesOn(Protocol):
    """An operator that passes columns on, or sends them, without a look at them: they may be encoded."""

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        """The columns of an input whose values it reads in the task that gives them.

        Beyond an exchange it sees plain values.  One that names columns anew says by `passes` what it gives
        for which; others give all under their names.
        """


class KeepsWhole(Protocol):
    """An operator that requires whole rows, but for some rows alone: others need only what `suffices`."""

    def suffices(self, binding: Binding, needed: frozenset[str]) -> frozenset[str]:
        """The columns of its one input that are enough as long as no row `wants_whole`."""

    def wants_whole(self, delta: pa.Table, bound: int | None) -> bool:
        """Must it see these rows whole, by the columns that suffice and the watermark of the epoch before?"""


class ShowsRows(Protocol):
    """An operator that needs some columns only to show the rows on which user code failed.

    It can do without them until then, and asks for an epoch with whole rows by `Result.whole`.
    """

    def reads(self, binding: Binding) -> frozenset[str] | None:
        """The columns of its first input that it cannot do without; None if it may be any."""


class Wakes(Protocol):
    """An operator with work to do when time passes, even without input."""

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        """Is something to fire or drop: earliest bucket by table, watermark bound by step, time of the epoch?

        Watermarks rise by rows, so an epoch is there to fire in; what waits for the clock alone needs a
        `Wake` in the binding, or nobody runs an epoch for it.
        """


class Ends(Protocol):
    """An operator that drops buckets of its tables when watermarks pass them."""

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        """Which tables, each with the bound behind which its buckets are dropped."""


ERROR_SCHEMA = pa.schema([("row", pa.string()), ("reason", pa.string()), ("_w", pa.int64())])

Kernel = Callable[[pa.Table], pa.Table]
Weights = np.ndarray[Any, np.dtype[np.int64]]

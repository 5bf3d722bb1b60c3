"""Optional capabilities of operators.

Every operator implements `operators.operator.Operator`.  Each further capability that
the engine, the planner or SQL can use is a class in this file.  An operator with the
capability inherits from the class, and callers check with `isinstance`.

Law: there is no other way to have a capability.  No caller looks for a method by name, so
a misspelt one is an error (an abstract method is missing, or
`tests/unit/operators/test_traits.py` finds a public name that no trait declares).  It
never silently means that state is stored for ever.

A class without methods is a promise about how the operator behaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.bounds import Bound
from millpond.kernels.watermark_strategies import Strategy
from millpond.operators.operator import Binding, Context, Inputs, StepResult

# -- how it receives rows -----------------------------------------------------------------


class CarriesOrigin:
    """A linear operator that copies the origin `_o` of each input row to the rows made from it.

    It requires `_o` of its inputs when a later step needs it.  No other operator is asked for `_o`.
    """


class AppliesByBatch:
    """A linear operator that neither reads state nor waits for time.

    Law: its output for some rows is the concatenation of its outputs for any batches of them.
    """


class StreamsFirstInput(ABC):
    """An operator that needs its other inputs complete, but can read its first input batch by batch.

    If all other inputs are known at the start of an epoch, it is equivalent to `AppliesByBatch`.
    """

    @abstractmethod
    def ready(self, ctx: Context, binding: Binding, sides: Inputs) -> Ready:
        """Run the first half of `apply`: read the other inputs, and return how to process the first."""


@dataclass(frozen=True)
class Ready:
    """A step that has read its other inputs and now accepts batches of its first."""

    result: StepResult  # of the other inputs
    take: Callable[[pa.Table], StepResult]


class UsesHashOrder:
    """An operator that is faster on rows that arrive with `_h` and sorted by it."""


class RunsInOneTask:
    """An operator that receives all its inputs in one task.

    Its tables may have rows of any hash, and it reads and writes all of them.
    """


# -- what it does on the sender's side of an exchange ----------------------------------------


class PreparesInput(ABC):
    """An operator that can shrink its input before it is sent."""

    @abstractmethod
    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """Rows in the form that `apply` expects, with `_h`; sorted by it where that is cheap."""


class DropsUnneededRows(PreparesInput):
    """An operator that can drop rows before the sender has seen all of its rows."""

    @abstractmethod
    def thin(self, binding: Binding, index: int, part: pa.Table) -> pa.Table:
        """The batch without the rows that `prepare` would drop from any input that contains them."""


class PreAggregatesByBatch(PreparesInput):
    """An operator that can prepare a sender's rows batch by batch.

    Law: `united` of the outputs of `shrunk` is equivalent to `prepare` of all rows.
    """

    @abstractmethod
    def shrinks(self, binding: Binding, index: int, part: pa.Table) -> bool:
        """Whether pre-aggregation pays off, judged by the first batch."""

    @abstractmethod
    def shrunk(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """One batch, pre-aggregated."""

    @abstractmethod
    def united(self, binding: Binding, index: int, parts: pa.Table) -> pa.Table:
        """The concatenated outputs of `shrunk`, in the form that `prepare` returns."""


# -- which columns it reads ------------------------------------------------------------------


class NamesColumnsRead(ABC):
    """An operator that passes on or sends some columns without reading them: they may be encoded."""

    @abstractmethod
    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        """The columns of an input whose values it reads in the task that produces them.

        Behind an exchange it sees plain values.
        """


class RenamesColumns(NamesColumnsRead):
    """An operator that passes on columns under other names."""

    @abstractmethod
    def passes(self, binding: Binding) -> dict[str, str]:
        """By output name: the input column that it passes on unchanged."""


class MayNeedFullRows(ABC):
    """An operator that requires full rows, but only if the input contains certain rows.

    For all others the columns of `suffices` are enough.
    """

    @abstractmethod
    def suffices(self, binding: Binding, needed: frozenset[str]) -> frozenset[str]:
        """The columns of its one input that are enough while `requires_full_rows` is false."""

    @abstractmethod
    def requires_full_rows(self, delta: pa.Table, bound: int | None) -> bool:
        """Whether it needs full rows, judged by the columns that suffice and the last epoch's watermark."""


class ShowsFailedRows(ABC):
    """An operator that needs some columns only to show the rows on which user code failed.

    It works without them until then, and then requests the epoch again (`StepResult.needs_full_rows`).
    """

    @abstractmethod
    def reads(self, binding: Binding) -> frozenset[str] | None:
        """The columns of its first input that it always needs; None if it may need any."""


# -- time ------------------------------------------------------------------------------------


class SetsWatermark(ABC):
    """An operator whose rows move a watermark, by a strategy."""

    time: str  # the column with the times
    delay_us: int
    idle_us: int | None  # a partition without rows for so long no longer holds the watermark back
    drift_us: int | None  # partitions that are further ahead of the slowest one are not read
    learns: bool  # does it keep the delays of rows, whatever the strategy?
    follows: Bound | None  # the watermark that it takes over from the rows before
    heartbeats: Bound | None  # the watermark of a stream that says how far the sources of this one have come

    @property
    @abstractmethod
    def rule(self) -> Strategy:
        """How the times of rows become a watermark."""

    @abstractmethod
    def times(self, delta: pa.Table) -> npt.NDArray[np.int64]:
        """The event times of these rows in microseconds, in order, of those that have one."""

    @abstractmethod
    def observe(self, delta: pa.Table) -> int | None:
        """The highest event time of these rows in microseconds, if any has one."""


class FiresByTime(ABC):
    """An operator with work to do when time passes, even without input."""

    @abstractmethod
    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        """Whether it must run now: by earliest bucket of each table, watermark of each step, epoch time.

        Watermarks rise because rows arrive, so there is an epoch to run in.  Work that waits for the clock
        also needs a `Wake` in the binding, or no epoch runs for it.
        """


class EndsState(FiresByTime):
    """An operator that drops buckets of its tables when watermarks pass them."""

    @abstractmethod
    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        """The tables, each with the bound behind which its buckets are dropped."""


class ExpiresBehindBound(EndsState):
    """`EndsState` for operators with a field `expires`.

    Law: their tables have buckets by the bound's column (`bucketed_by`), and the first table has a row for
    every row of the others.  The epoch in which the limit passes a bucket drops it, with or without input
    (laws 1 and 5).
    """

    expires: Bound | None

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return self.expires is not None and self.expires.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.expires is None else tuple((t.name, self.expires) for t in binding.tables)

    def ended(self, ctx: Context, binding: Binding) -> tuple[tuple[str, int], ...]:
        """The buckets that this epoch drops."""
        return () if self.expires is None else self.expires.drops(ctx.watermark, *binding.tables)


class DependsOnArrival:
    """An operator whose output depends on when rows arrive, and so cannot be recomputed."""


# -- changes of the program ------------------------------------------------------------------


class EvolvesState(ABC):
    """An operator whose state can change shape when the code changes."""

    @abstractmethod
    def meaning(self) -> Any:
        """What must stay the same for the state to remain valid; compared by value."""

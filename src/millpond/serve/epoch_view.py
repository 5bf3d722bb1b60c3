"""A moment: a pond as of one epoch, read-only.

The epoch is pinned when the moment is opened, and every read renews the pin.  So the epoch stays readable and
unchanged (law 6) until `close`, whatever the pond does meanwhile.
"""

from __future__ import annotations

import contextlib
import datetime
from typing import Any, Literal

import pyarrow as pa

from millpond.plan.explain import explain_text, mermaid
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.serve.reader import Reader
from millpond.serve.state_inspection import StateInfo
from millpond.serve.view_reader import ViewReader
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot


class Moment:
    """A pond as of one epoch, read-only; created by `pond.at(epoch)`.

    The examples of its methods begin with these lines:

    >>> import millpond
    >>> pond = millpond.open("memory://", engine="inline")
    >>> orders = pond.table("orders", {"who": str, "n": int})
    >>> totals = orders.key_by("who").aggregate(total="sum(n)").view("totals")
    >>> _ = pond.insert("orders", {"who": "ann", "n": 5})
    >>> moment = pond.at(pond.drain())
    """

    def __init__(self, reader: Reader, epoch: int | str | None) -> None:
        self._reader = reader
        self._stack = contextlib.ExitStack()
        snapshot: Snapshot = self._stack.enter_context(reader.pinned(epoch))
        self.manifest: Manifest = snapshot.manifest

    def __enter__(self) -> Moment:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Moment(epoch {self.epoch})"

    def close(self) -> None:
        """Release the epoch, which can then be collected when it is old.

        >>> moment.close()
        """
        self._stack.close()

    @property
    def epoch(self) -> int:
        """The number of the epoch.

        >>> moment.epoch
        1
        """
        return self.manifest.epoch

    @property
    def now(self) -> datetime.datetime:
        """The time of the epoch, in UTC.

        >>> moment.now.tzname()
        'UTC'
        """
        return utc(self.manifest.now_us)

    @property
    def plan(self) -> Plan:
        """The plan of the epoch.

        >>> list(moment.plan.views)
        ['orders', 'totals']
        """
        return self._reader.plan_of(self.manifest)

    def views(self) -> list[str]:
        """The names of all views, sorted.

        >>> moment.views()
        ['orders', 'totals']
        """
        return sorted(self.plan.views)

    def view(self, name: str) -> ViewReader:
        """A view as of this epoch, to be read as Arrow, pandas, Polars or Spark.

        >>> moment.view("totals").arrow().to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return ViewReader(self._reader, name, self.epoch)

    def read(self, view: str) -> pa.Table:
        """All rows of a view.

        >>> _ = pond.delete("orders", {"who": "ann", "n": 5})
        >>> _ = pond.drain()
        >>> moment.read("totals").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return self._reader.read(view, epoch=self.epoch)

    def lookup(self, view: str, key: Any) -> pa.Table:
        """The rows of one key, or of a list of keys.

        >>> moment.lookup("totals", "ann").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return self._reader.lookup(view, key, epoch=self.epoch)

    def states(self) -> list[StateInfo]:
        """The state tables of all steps: step, state, an upper bound of the rows, bytes.

        >>> [(info.step, info.state) for info in moment.states()]
        [('orders.rows', 'rows'), ('orders.rows.by-who', 'groups')]
        """
        return self._reader.states(epoch=self.epoch)

    def state(self, step: str, name: str, *, unpickle: bool = False) -> pa.Table:
        """The rows of a state; untyped state is returned as pickles, or with `unpickle` as text.

        >>> moment.state("orders.rows", "rows").num_rows
        1
        """
        return self._reader.state(step, name, epoch=self.epoch, unpickle=unpickle)

    def state_rows(self, step: str, name: str) -> list[dict[str, Any]]:
        """The rows of a state as Python objects; this unpickles untyped state.

        >>> len(moment.state_rows("orders.rows", "rows"))
        1
        """
        return self._reader.state_rows(step, name, epoch=self.epoch)

    def errors(self, view: str | None = None) -> pa.Table:
        """Rows that could not be processed up to this epoch, with the reason.

        >>> moment.errors().num_rows
        0
        """
        return self._reader.errors(view, epoch=self.epoch)

    def late(self, step: str) -> pa.Table:
        """The late rows that a watermark step stores.

        >>> from millpond.sources.memory import MemorySource
        >>> with pond.changing():
        ...     clicks = pond.stream("clicks", MemorySource({"at": datetime.datetime}), event_time="at")
        ...     _ = clicks.aggregate(n="count(*)").view("counted")
        >>> pond.at().late("clicks.watermark").num_rows
        0
        """
        return self._reader.late(step, epoch=self.epoch)

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """The plan that the epoch was run with, as text or as a Mermaid diagram.

        >>> print(moment.explain("mermaid").splitlines()[0])
        flowchart LR
        """
        plan = self.plan
        if format == "mermaid":
            return mermaid(plan, cut(plan))
        return explain_text(plan, cut(plan), self.manifest.stopped_sinks)


def utc(us: int) -> datetime.datetime:
    """
    >>> utc(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)

"""A moment: a pond as it was at one epoch, to be read and nothing else.

The epoch is pinned when the moment is opened and renewed by every read, so it
stays what it is whatever the pond does meanwhile (law 6), until `close`.
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
from millpond.serve.states import StateInfo
from millpond.state.manifest import Manifest
from millpond.state.snapshot import Snapshot


class Moment:
    """See the module's text; made by `pond.at(epoch)`."""

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
        """Let the epoch go; it may then be collected once it is old."""
        self._stack.close()

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def now(self) -> datetime.datetime:
        """The time of the epoch, in UTC."""
        return utc(self.manifest.now_us)

    @property
    def plan(self) -> Plan:
        return self._reader.plan_of(self.manifest)

    def views(self) -> list[str]:
        return sorted(self.plan.views)

    def read(self, view: str) -> pa.Table:
        """All rows of a view."""
        return self._reader.read(view, epoch=self.epoch)

    def lookup(self, view: str, key: Any) -> pa.Table:
        """The rows of one key, or of a list of keys."""
        return self._reader.lookup(view, key, epoch=self.epoch)

    def states(self) -> list[StateInfo]:
        """The state tables of all steps: step, state, at most so many rows, bytes."""
        return self._reader.states(epoch=self.epoch)

    def state(self, step: str, name: str, *, unpickle: bool = False) -> pa.Table:
        """The rows of a state; of untyped state the pickles, or with `unpickle` what they show as text."""
        return self._reader.state(step, name, epoch=self.epoch, unpickle=unpickle)

    def state_rows(self, step: str, name: str) -> list[dict[str, Any]]:
        """The rows of a state as Python objects; this unpickles untyped state."""
        return self._reader.state_rows(step, name, epoch=self.epoch)

    def errors(self, view: str | None = None) -> pa.Table:
        """Rows that could not be processed until then, with the reason."""
        return self._reader.errors(view, epoch=self.epoch)

    def late(self, step: str) -> pa.Table:
        """Rows that had come after their time."""
        return self._reader.late(step, epoch=self.epoch)

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """The plan that the epoch was run with."""
        plan = self.plan
        if format == "mermaid":
            return mermaid(plan, cut(plan))
        return explain_text(plan, cut(plan), self.manifest.detached)


def utc(us: int) -> datetime.datetime:
    """
    >>> utc(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)

"""The protocol of sinks.

A sink receives the changes of a view epoch by epoch, each after its commit.
After a crash between a delivery and the commit of the sink's cursor, the epoch is delivered again with the
same
rows; an epoch is never skipped.
A delivery that fails is retried and does not delay other sinks.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import pyarrow as pa


class Sink(Protocol):
    """Frozen data, stored with the plan; it runs in its own thread in the driver.

    A sink with a true attribute `append_only` cannot retract rows: a rollback to before an epoch that it has
    received is refused unless forced, and a forced one delivers no rows with a negative weight.
    """

    exactly_once: ClassVar[bool]  # or at least once, if false

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        """Take the changes of one epoch: the view's columns and the weight `_w`; done when it returns."""

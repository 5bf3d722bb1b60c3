"""What a sink is.

The changes of a view arrive epoch by epoch, each after its commit.  A crash
between delivery and the commit of the sink's cursor means that an epoch is
delivered again, with the same rows; an epoch is never left out.  A sink that
fails is tried again and holds back nobody else.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import pyarrow as pa


class Sink(Protocol):
    """Frozen data, stored with the plan; it runs in the driver, in a thread of its own.

    One that has an attribute `append_only` that is true cannot take rows back: a rollback behind what it was
    shown is refused unless forced, and a forced one shows it no rows with a negative weight.
    """

    exactly_once: ClassVar[bool]  # does the target show each epoch once, or at least once?

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        """Take the changes of one epoch: the view's columns and the weight `_w`; done when it returns."""

"""The protocols of sinks.

A sink receives the changes of a view after the commits that made them, in order.
A sink is frozen data, stored with the plan.
The engine opens it in a thread of its own, so a slow sink delays no other sink and no epoch.

Law 7: the same delivery (pond, sink, epoch) always has the same rows.
After a crash between a delivery and the commit of the sink's cursor it comes again; none is skipped.
So a target that stores the epoch with the rows, in one act, shows each epoch exactly once.

There are two forms of sinks.

- **Simple**: `write` receives the rows of a delivery, in the driver.
- **Full**: `prepare` writes parts of a delivery where nobody can see them, several at once, and returns what
  it wrote; then one call of `publish` makes all of them visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from millpond.plan.sink_settings import Guarantee, SinkMode
from millpond.sinks.delivery import Delivery, Part, RefusedRow, SinkBinding

Prepared = Any  # what `prepare` wrote, as JSON: names, sizes, statistics


class Sink(Protocol):
    """A target of changes.

    A sink without a connection needs no `open`: it can have `write` itself.
    """

    guarantee: Guarantee  # the strongest one that the sink can give
    modes: tuple[SinkMode, ...]  # the first one is the default

    def open(self, binding: SinkBinding) -> Writer:
        """Connect, check or create the target, and keep out coordinators with a smaller token.

        Called before the first delivery, and again after an error, or when the view has other columns.
        """


class Writer(Protocol):
    """An open sink; all calls come from one thread.  An optional `close()` releases what it holds."""

    def write(self, delivery: Delivery) -> Sequence[RefusedRow] | None:
        """Store the rows of one delivery; done when it returns.

        If the target already has the epoch `delivery.epoch` of this pond and sink, nothing is stored.
        Returns the rows that the target refused, which become error rows of the pond; if the epoch was
        already there, those that it refused then, as far as the target remembers them.
        Any exception means that the delivery is repeated later, after a growing pause.
        """


@runtime_checkable
class PreparingSink(Protocol):
    """A sink of the full form; `open` returns a `Publisher`.

    Parts are prepared in threads of the driver, or by the engine's workers if there are many.  So `prepare`
    is called on a copy of the sink, with nothing but its arguments.
    """

    guarantee: Guarantee
    modes: tuple[SinkMode, ...]

    def open(self, binding: SinkBinding) -> Publisher:
        """As for `Sink`."""

    def prepare(self, part: Part) -> Prepared:
        """Write rows where nobody can see them, under names that are never used again.

        Called at least once for each part; what is prepared and never published is garbage.
        """


class Publisher(Protocol):
    """An open sink of the full form.  An optional `close()` releases what it holds."""

    def has(self, delivery: Delivery) -> bool:
        """Does the target already have this epoch?  Then nothing is prepared."""

    def publish(self, delivery: Delivery, prepared: Sequence[Prepared]) -> Sequence[RefusedRow] | None:
        """Make all parts visible in one act; nothing if the target already has the epoch.

        `prepared` is in the order of the parts.
        """

"""Sinks that cannot take rows back, and what a rollback means for them.

Law: a rollback that would take back rows of such a sink is refused before it happens, unless it is forced.  A
forced one leaves the target as it is: the rows that were shown stay there, the rollback itself shows the sink
only rows that it has not seen, and what the sources give again is appended again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.view_changes import PlanOf, read_by, sink_difference
from millpond.errors import InvalidError
from millpond.plan.codec import Unloaded
from millpond.state.snapshot import Snapshot


def is_append_only(sink: Any) -> bool:
    return not isinstance(sink, Unloaded) and bool(getattr(sink, "append_only", False))


def behind_what_was_shown(head: Snapshot, target: Snapshot, plan_of: PlanOf) -> list[str]:
    """The attached append-only sinks from which going back to `target` would take rows."""
    sinks = plan_of(head.manifest).sinks
    growing = [n for n, s in sinks.items() if n not in head.manifest.detached and is_append_only(s.sink)]
    found = []
    for name in growing:
        if read_by(plan_of(target.manifest), name) is None:
            continue  # it goes with the program of today
        delta = sink_difference(head, target, name, plan_of)
        if delta is not None and bool((deltas.weights(delta) < 0).any()):
            found.append(name)
    return found


def refusal(sinks: list[str], epoch: int) -> InvalidError:
    """Why the rollback is refused."""
    names = ", ".join(repr(name) for name in sinks)
    some = f"sink {names} is append-only" if len(sinks) == 1 else f"sinks {names} are append-only"
    return InvalidError(
        f"epoch {epoch} is behind what {names} has written",
        detail=f"{some}: rows of later epochs cannot be taken back",
        hint="force it (force=True, --force) to leave these rows in the target; what the sources give again "
        "is then appended again",
        epoch=epoch,
    )


def shown_only(delta: pa.Table) -> pa.Table:
    """What a rollback shows a sink that cannot take rows back."""
    return delta.filter(pa.array(deltas.weights(delta) > 0))

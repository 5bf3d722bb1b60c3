"""Append-only sinks, which cannot retract rows, and how a rollback treats them.

Law: a rollback that would retract rows of such a sink is refused, unless it is forced.  A forced one does not
change the target: rows that were delivered stay there, the rollback itself delivers only new rows, and rows
that the sources send again are appended again.
"""

from __future__ import annotations

import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.plan.codec import Unloaded
from millpond.plan.nodes import SinkNode
from millpond.plan.sink_settings import modes_of
from millpond.plan.view_changes import PlanOf, sink_difference, sink_table
from millpond.state.manifest.snapshot import Snapshot


def is_append_only(node: SinkNode) -> bool:
    if node.settings.mode is not None:
        return node.settings.mode == "append"
    return not isinstance(node.sink, Unloaded) and modes_of(node.sink)[0] == "append"


def sinks_that_would_retract(head: Snapshot, target: Snapshot, plan_of: PlanOf) -> list[str]:
    """The attached append-only sinks of which a rollback to `target` would retract rows."""
    sinks = plan_of(head.manifest).sinks
    growing = [n for n, s in sinks.items() if n not in head.manifest.detached and is_append_only(s)]
    retracting = []
    for name in growing:
        if sink_table(plan_of(target.manifest), name) is None:
            continue  # the rollback drops it with the program of the head
        delta = sink_difference(head, target, name, plan_of)
        if delta is not None and bool((deltas.weights(delta) < 0).any()):
            retracting.append(name)
    return retracting


def refusal(sinks: list[str], epoch: int) -> InvalidError:
    """The error for a refused rollback."""
    names = ", ".join(repr(name) for name in sinks)
    some = f"sink {names} is append-only" if len(sinks) == 1 else f"sinks {names} are append-only"
    return InvalidError(
        f"epoch {epoch} is older than what {names} has written",
        detail=f"{some}: rows of later epochs cannot be retracted",
        hint="force it (force=True, --force) to leave these rows in the target; what the sources give again "
        "is then appended again",
        epoch=epoch,
    )


def insertions_only(delta: pa.Table) -> pa.Table:
    """What a forced rollback delivers to an append-only sink."""
    return delta.filter(pa.array(deltas.weights(delta) > 0))

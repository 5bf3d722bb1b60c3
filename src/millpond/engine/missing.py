"""What it means when a file that the chain needs is not there.

A file of a kept epoch is never deleted.  So it was lost, and trying again is no
help; or another coordinator has taken over, gone on and collected it.
"""

from __future__ import annotations

from millpond.errors import ConflictError, DataError, MillpondError, UnavailableError
from millpond.state import history
from millpond.state.manifest import Manifest
from millpond.state.store import MissingError, Store


def told_missing(store: Store, base: Manifest | None, error: MissingError) -> MillpondError:
    """The error to raise for a file that epoch `base`, the newest that is known, needs."""
    try:
        head = history.read_head(store)
        head = None if head is None else history.newer_head(store, head)
    except UnavailableError:
        return error  # the storage does not answer: nothing is known
    except DataError as damaged:
        return damaged
    told: MillpondError
    if base is not None and head is not None and head.token > base.token:
        told = ConflictError(
            f"another coordinator committed epoch {head.epoch}",
            detail=f"its token is {head.token}, ours is {base.token}; {error.message}",
            hint="only one process may write a pond; stop one of them, or open with standby=True",
            epoch=head.epoch,
        )
    else:
        epoch = None if base is None else base.epoch
        told = DataError(
            "a file of the pond is missing" if epoch is None else f"a file of epoch {epoch} is missing",
            detail=error.message,
            hint="restore it from a backup, or roll back to an epoch without it",
            epoch=epoch,
        )
    told.__cause__ = error
    return told

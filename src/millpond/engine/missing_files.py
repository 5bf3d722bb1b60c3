"""Explains why a file that the chain needs is missing.

A file of a retained epoch is never deleted.  So either the file was lost, and a
retry does not help; or another coordinator took over, continued and collected it.
"""

from __future__ import annotations

from millpond.errors import ConflictError, DataError, MillpondError, UnavailableError
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import MissingError, Store


def missing_file_error(store: Store, base: Manifest | None, error: MissingError) -> MillpondError:
    """The error to raise for a missing file that epoch `base`, the newest known one, needs."""
    try:
        head = history.read_head(store)
        head = None if head is None else history.newer_head(store, head)
    except UnavailableError:
        return error  # storage is unavailable, so the cause is unknown
    except DataError as damaged:
        return damaged
    known_error: MillpondError
    if base is not None and head is not None and head.token > base.token:
        known_error = ConflictError(
            f"another coordinator committed epoch {head.epoch}",
            detail=f"its token is {head.token}, ours is {base.token}; {error.message}",
            hint="only one process may write a pond; stop one of them, or open with standby=True",
            epoch=head.epoch,
        )
    else:
        epoch = None if base is None else base.epoch
        known_error = DataError(
            "a file of the pond is missing" if epoch is None else f"a file of epoch {epoch} is missing",
            detail=error.message,
            hint="restore it from a backup, or roll back to an epoch without it",
            epoch=epoch,
        )
    known_error.__cause__ = error
    return known_error

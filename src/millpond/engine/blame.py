"""Whose fault it was: errors that no code foresaw, told with the step in which they happened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from millpond.errors import InternalError, MillpondError


@contextlib.contextmanager
def blamed(step: str, epoch: int) -> Iterator[None]:
    """What no code foresaw is told with the step in which it happened."""
    try:
        yield
    except (MillpondError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(
            f"step {step!r} failed",
            detail=f"{type(error).__name__}: {error}",
            hint="if the step reads a source of your own, look there; else it is a bug in millpond",
            step=step,
            epoch=epoch,
        ) from error

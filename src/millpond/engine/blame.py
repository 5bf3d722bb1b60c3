"""Wraps unexpected exceptions with the name of the step that raised them.

What user code raises on a row never comes here, as operators make error rows of it.  What does is a bug, or
code of a user's outside of rows, such as a source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from millpond.engine import breadcrumb
from millpond.errors import InternalError, InvalidError, MillpondError
from millpond.operators.user_code import ENDINGS, is_interrupt
from millpond.sources.memory import InjectedCrash


@contextlib.contextmanager
def blamed(step: str, epoch: int) -> Iterator[None]:
    """Run a step, or a part of one."""
    breadcrumb.leave(step, epoch)
    try:
        yield
    except (MillpondError, OSError, MemoryError, InjectedCrash):
        raise
    except Exception as error:
        raise InternalError(
            f"step {step!r} failed",
            detail=f"{type(error).__name__}: {error}",
            hint="if the step reads a source of your own, look there; else it is a bug in millpond",
            step=step,
            epoch=epoch,
        ) from error
    except ENDINGS as error:  # sys.exit() in a source must not end the process
        if is_interrupt(error):
            raise
        raise InvalidError(
            f"step {step!r} tried to end the process",
            detail=f"{type(error).__name__}: {error}",
            hint="raise an exception instead",
            step=step,
            epoch=epoch,
        ) from error
    finally:
        breadcrumb.clear()

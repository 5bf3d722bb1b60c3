"""Wraps unexpected exceptions with the name of the step that raised them.

Exceptions of user code on a row never get here, as operators turn them into error rows.  What does is a bug,
or user code that does not run per row, such as a source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from millpond.engine.spark import breadcrumb
from millpond.errors import InternalError, InvalidError, MillpondError
from millpond.kernels.user_code import ENDINGS, is_interrupt
from millpond.sources.memory import InjectedCrash


@contextlib.contextmanager
def naming_step(step: str, epoch: int) -> Iterator[None]:
    """Run a step, or a section of one."""
    breadcrumb.leave(step, epoch)
    try:
        yield
    except InvalidError as error:  # of a user's function or setting, by code that does not know the step
        if error.step is None:
            error.step, error.epoch = step, epoch
        raise
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

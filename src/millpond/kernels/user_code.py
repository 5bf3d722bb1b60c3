"""Runs a user's Python: reports where it failed, and checks what it returned.

Law: an exception of a user's function is reported with the step and the user's own
line, never retried blindly and never lost (law 9).
"""

from __future__ import annotations

import dis
import os
import signal
import threading
import traceback
from bdb import BdbQuit
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa

from millpond.errors import InvalidError, MillpondError


class TooLong(BaseException):
    """Raised inside user code; a BaseException, so that its `except Exception` does not catch it."""


# Not caused by the function: the run has to stop, whatever the rows are.
FATAL = (MillpondError, MemoryError, BdbQuit, TooLong)  # BdbQuit: the user quit the debugger
ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)  # raised by code that wants to exit
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_RAISE = dis.opmap["RAISE_VARARGS"]


def is_row_fault(error: BaseException) -> bool:
    """Whether user code failed on a row, so that the other rows can be processed.

    True for sys.exit() and `raise KeyboardInterrupt` in user code.  False for an interrupt of the process:
    Ctrl-C, or an exception of a signal handler, stops the run even if it arrives while user code is running.
    """
    if isinstance(error, FATAL):
        return False
    if isinstance(error, Exception):
        return True
    return not is_interrupt(error) and (isinstance(error, ENDINGS) or not _came_from_below(error))


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal raised this, and not the code that was running.

    Python runs signal handlers in the main thread only.  Its own handler of SIGINT has no frame: the
    traceback ends where the code was interrupted, which is never at a `raise`.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = _handlers()
    last, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in handlers:
            return True
        last, step = step, step.tb_next
    if not isinstance(error, KeyboardInterrupt):
        return False
    return last is None or last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE


def _came_from_below(error: BaseException) -> bool:
    """Whether user code only passed this exception on, from a state that it read."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    theirs = next((n for n, file in enumerate(files) if not file.startswith(_OURS)), len(files))
    return any(file.startswith(_OURS) for file in files[theirs:])


def _handlers() -> set[Any]:
    """The code of the signal handlers that are written in Python."""
    found = (_unwrapped(signal.getsignal(number)) for number in signal.valid_signals())
    return {code for handler in found if (code := getattr(handler, "__code__", None)) is not None}


def error_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The innermost line of the user's own file that was running, as file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(_unwrapped(function), "__code__", None)
    mine = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    # Without a frame of the function (a builtin, a wrong call), report its definition.
    if mine:
        return f"{os.path.basename(mine[-1].filename)}:{mine[-1].lineno}"
    if code is not None:
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return name_of(function)


def error_text(error: BaseException, function: Callable[..., Any]) -> str:
    """The exception and its place on one line."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{said} ({error_line(error, function)})"


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(_unwrapped(function), "__qualname__", type(function).__name__))


def _unwrapped(function: Any) -> Any:
    """Unwrap functools.partial, decorators and bound or callable objects."""
    while True:
        inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    if not hasattr(function, "__code__") and hasattr(type(function), "__call__"):  # noqa: B004
        method = type(function).__call__
        return method if hasattr(method, "__code__") else function
    return function


def conformed(found: Any, schema: pa.Schema, function: Callable[..., Any], step: str, epoch: int) -> pa.Table:
    """A function's result as a table of the declared schema, or an InvalidError that says what differs."""
    name = name_of(function)
    if isinstance(found, pa.RecordBatch):
        found = pa.Table.from_batches([found])
    if not isinstance(found, pa.Table):
        _refuse(
            f"{name} must return an Arrow table",
            f"it returned {type(found).__name__}",
            "return pa.table(...)",
            step,
            epoch,
        )
    if sorted(found.column_names) != sorted(schema.names):
        _refuse(
            f"{name} returned other columns than declared",
            f"returned {', '.join(found.column_names) or 'none'}; declared {', '.join(schema.names)}",
            "return exactly the declared columns, or declare what is returned",
            step,
            epoch,
        )
    found = found.select(schema.names)
    for field in schema:
        got = found.schema.field(field.name).type
        if got != field.type:
            _refuse(
                f"{name} returned another type than declared",
                f"column {field.name!r} is {got}, declared {field.type}",
                "cast the column before returning it, or declare its type",
                step,
                epoch,
            )
    return pa.table(found.columns, schema=schema)


def _refuse(message: str, detail: str, hint: str, step: str, epoch: int) -> NoReturn:
    raise InvalidError(message, detail=detail, hint=hint, step=step, epoch=epoch)

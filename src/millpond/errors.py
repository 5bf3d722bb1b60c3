"""Errors, classified by what the reader must do.

Every error that a user can see is one of five kinds.  The text is one lower-case line; `detail` says what was
found (with both numbers that disagree), and `hint` says what to do next.  The command line and every server
show the same fields.  Secrets in addresses and settings are masked in every text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from millpond.masking import masked


class MillpondError(Exception):
    """The base of all errors that Millpond raises deliberately.

    >>> print(InvalidError("parallelism must be at least 1", detail="got -2",
    ...                    hint="pass a whole number from 1 to 32768"))
    parallelism must be at least 1
      detail: got -2
      hint: pass a whole number from 1 to 32768
    """

    # the text that `detail` shows, and the position in it
    place: tuple[str, tuple[int, int] | None] | None = None
    is_of_binder = False  # does it say in DuckDB's words what cannot be bound in a rewritten text?

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        step: str | None = None,
        epoch: int | None = None,
    ) -> None:
        super().__init__(masked(message))
        self.message = masked(message)
        self.detail = None if detail is None else masked(detail)
        self.hint = None if hint is None else masked(hint)
        self.step = step
        self.epoch = epoch

    def __str__(self) -> str:
        lines = [self.message]
        where = []
        if self.step is not None:
            where.append(f"step {self.step!r}")
        if self.epoch is not None:
            where.append(f"epoch {self.epoch}")
        if where:
            lines.append("  where: " + ", ".join(where))
        if self.detail is not None:
            lines.append(f"  detail: {self.detail}")
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def fields(self) -> dict[str, Any]:
        """The fields as data, for JSON output."""
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "step": self.step,
            "epoch": self.epoch,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.detail, self.hint, self.step, self.epoch)


def _rebuild(
    kind: type[MillpondError],
    message: str,
    detail: str | None,
    hint: str | None,
    step: str | None,
    epoch: int | None,
) -> MillpondError:
    return kind(message, detail=detail, hint=hint, step=step, epoch=epoch)


def nearest(name: object, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A hint with the closest of some names.

    >>> nearest("by_ctiy", ["by_city", "total"])
    "did you mean 'by_city'?"
    """
    matches = difflib.get_close_matches(str(name), list(known), 1)
    return f"did you mean {matches[0]!r}?" if matches else otherwise


class InvalidError(MillpondError):
    """The query, the code or the call is wrong: fix it."""


class ConflictError(MillpondError):
    """Another writer won: read again and decide."""


class HeldError(ConflictError):
    """Another process, or another Pond object, runs the pond: trying again does not help."""


class UnavailableError(MillpondError):
    """An external system is unavailable: retry."""


class DataError(MillpondError):
    """Stored data is wrong: stop, keep the files, restore."""


class InternalError(MillpondError):
    """An invariant of Millpond is broken: our bug."""

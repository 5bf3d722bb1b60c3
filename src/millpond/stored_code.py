"""Represents stored user code as bytes until it is about to run.

Law: reading a pond runs no code that it contains.  Loading a pickle can run any code, and so can importing a
module whose name is found in a file.  So a plan that was read contains `Stored` instead of user code, which
cannot be called.  `load` unpickles the code once its guard agrees: see `state.trust`.

Code that this process itself has pickled is trusted, whatever file it comes from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from millpond.errors import InternalError

# Raises InvalidError unless stored code may run; the argument is the name of the code.
Guard = Callable[[str], None]

_own: set[bytes] = set()


def anything(name: str) -> None:
    """The guard that allows everything, for processes that must run the code, such as Spark workers."""


class Stored:
    """A user's object as stored in the catalog; equal to another one with the same bytes."""

    __slots__ = ("_guard", "_made", "_make", "name", "raw")

    def __init__(self, raw: Any, name: str, make: Callable[[], Any], guard: Guard) -> None:
        self.raw = raw  # as JSON
        self.name = name  # its name for users
        self._make = make
        self._guard = guard
        self._made: list[Any] = []

    def load(self) -> Any:
        """Load the code.  This can run stored code, so the guard is called first."""
        if not self._made:
            if not is_own(self.raw):
                self._guard(self.name)
            self._made.append(self._make())
        return self._made[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(_digest(self.raw))

    def __repr__(self) -> str:
        return f"<stored {self.name}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise InternalError("stored code was called before it was loaded", detail=self.name)


def loaded(value: Any) -> Any:
    """Code that can run; stored code is loaded."""
    return value.load() if isinstance(value, Stored) else value


def note_own(raw: Any) -> None:
    """Record that this process pickled these bytes itself."""
    _own.add(_digest(raw))


def is_own(raw: Any) -> bool:
    return _digest(raw) in _own


def _digest(raw: Any) -> bytes:
    text = json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).digest()

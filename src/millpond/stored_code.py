"""User code that a pond stores: bytes, until it is about to run.

Law: reading a pond runs nothing of what is in it.  A pickle can run anything when
it is loaded, and so can a module that is imported by a name found in a file; so a
plan that was read holds `Stored` in the place of user code, which nothing can call.
`load` makes the code of it, once its guard agrees: see `pond.trust`.

Code that this process has pickled itself is its own, whatever file it comes from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from millpond.errors import InternalError

# Raises InvalidError unless stored code may run; gets what the code is called.
Guard = Callable[[str], None]

_own: set[bytes] = set()


def anything(name: str) -> None:
    """The guard of a process that was told to run the code, such as a worker of Spark."""


class Stored:
    """Something of a user's as the catalog holds it; equal to another of the same bytes."""

    __slots__ = ("_guard", "_made", "_make", "name", "raw")

    def __init__(self, raw: Any, name: str, make: Callable[[], Any], guard: Guard) -> None:
        self.raw = raw  # as JSON
        self.name = name  # what people call it
        self._make = make
        self._guard = guard
        self._made: list[Any] = []

    def load(self) -> Any:
        """The code itself.  This runs what is stored, so the guard is asked first."""
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
    """Code that can run; stored code is loaded for it."""
    return value.load() if isinstance(value, Stored) else value


def note_own(raw: Any) -> None:
    """This process has made these bytes of an object of its own."""
    _own.add(_digest(raw))


def is_own(raw: Any) -> bool:
    return _digest(raw) in _own


def _digest(raw: Any) -> bytes:
    text = json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).digest()

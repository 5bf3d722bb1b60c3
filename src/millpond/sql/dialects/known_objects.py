"""What the translation of a statement asks about the objects of a pond."""

from __future__ import annotations

from typing import Protocol


class KnownObjects(Protocol):
    """The objects of a pond by name, in any case."""

    def kind(self, name: str) -> str | None:
        """`table`, `source`, `view`, `materialized view` or another; None if there is none."""
        ...

    def has_windows(self, name: str) -> bool:
        """Is this a plain view whose query reads windows?"""
        ...

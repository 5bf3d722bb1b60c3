"""A relation in the making: a step of the plan, and which of its columns stand where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millpond.sql.expressions import Column


@dataclass(frozen=True)
class Relation:
    step: str
    columns: tuple[Column, ...]
    stamped: tuple[str, ...] = ()  # columns that hold when a row came: each view that reads one adds it

    def pick(self, places: Sequence[int]) -> Relation:
        return Relation(self.step, tuple(self.columns[p] for p in places))

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]


def fresh_names(wanted: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names that may stand beside each other: not hidden, told apart without regard to case.

    >>> fresh_names(["a", "A", "", "_x"])
    ['a', 'A_2', 'column', 'x']
    """
    used = {name.lower() for name in taken}
    found = []
    for name in wanted:
        base = name.lstrip("_") or "column"
        free, number = base, 2
        while free.lower() in used:
            free = f"{base}_{number}"
            number += 1
        used.add(free.lower())
        found.append(free)
    return found

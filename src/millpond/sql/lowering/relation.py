"""A relation under construction: a step of the plan, and the position of its columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from millpond.sql.lowering.expressions import StepColumn


@dataclass(frozen=True)
class Relation:
    step: str
    columns: tuple[StepColumn, ...]
    stamped: tuple[str, ...] = ()  # processing-time columns, which each view that reads one adds for itself

    def pick(self, places: Sequence[int]) -> Relation:
        return Relation(self.step, tuple(self.columns[p] for p in places))

    def reading(self, places: Collection[int] | None) -> Relation:
        """The same rows; columns that nobody reads are given as another one."""
        if places is None or not self.columns:
            return self
        other = self.columns[min(places, default=0)]
        columns = tuple(c if n in places else other for n, c in enumerate(self.columns))
        return Relation(self.step, columns)

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]


def fresh_names(wanted: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return names for the columns of one step: not hidden, and unique regardless of case.

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

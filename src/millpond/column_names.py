"""Checks the names of output columns, and makes them distinct."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.errors import InvalidError


def check_names(names: list[str], step: str) -> None:
    """Refuse output columns that would hide each other or Millpond's own columns."""
    for name in names:
        if not name or name.startswith("_"):
            raise InvalidError(
                f"a column cannot be called {name!r}",
                hint="names that begin with an underscore are hidden columns; choose another",
                step=step,
            )
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidError(
            f"column {twice!r} is there twice",
            detail=f"columns are {', '.join(names)}",
            hint="give one of them another name",
            step=step,
        )


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names of columns, numbered where one is used twice.

    >>> distinct_names(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    found: list[str] = []
    for name in names:
        free, number = name, 2
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found.append(free)
    return found

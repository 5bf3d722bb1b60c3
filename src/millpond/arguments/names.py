"""Checks the names of views, streams, tables, steps and columns.

Law: a name works everywhere, or it is refused where it is defined, with the name as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.errors import InvalidError

LENGTH_MAX = 255

# Internal columns next to those of users: weights, hashes, order, and what steps add.
HIDDEN = frozenset(
    (
        *("_w", "_h", "_o", "__seq", "_bound", "_error", "_row", "_only", "_gone", "_n", "_state", "_value"),
        *("_seen", "_at", "_since", "_until", "_i", "_key"),
        *("__bucket", "__matched", "__spread", "__returned", "__place"),
    )
)


def check_name(what: str, name: Any, *, taken: Iterable[str] = (), step: str | None = None) -> str:
    """Return the name if a view, a stream, a table or a step can have it.

    `taken` are other names of the kind: SQL does not distinguish names that differ only in case.

    >>> check_name("a view", "by_city")
    'by_city'
    """
    if not isinstance(name, str):
        raise InvalidError(
            f"the name of {what} must be text", detail=f"got {type(name).__name__} {_short(name)}"
        )
    why = _why_not(name)
    if why is not None:
        raise InvalidError(
            f"{_short(name)} cannot be the name of {what}",
            detail=why,
            hint="use letters, digits, dots and dashes; do not begin with '_'",
            step=step,
        )
    for other in taken:
        if other != name and other.lower() == name.lower():
            raise InvalidError(
                f"{name!r} cannot be the name of {what}: there is {other!r}",
                detail="SQL does not distinguish names that differ only in case",
                hint="choose another name",
            )
    return name


def _why_not(name: str) -> str | None:
    if not name.strip():
        return "the name is empty"
    if len(name) > LENGTH_MAX:
        return f"it has {len(name)} characters, and {LENGTH_MAX} are allowed"
    if name.startswith("_"):
        return "names that begin with '_' belong to Millpond"
    if name == "inbox":
        return "'inbox' is the pond's own"
    odd = next((c for c in name if c in "/!" or not c.isprintable()), None)
    return None if odd is None else f"it contains {odd!r}"


def check_columns(names: Iterable[str], whose: str) -> None:
    """Refuse columns that would hide each other, or Millpond's own."""
    known: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidError(f"a column of {whose} has no name", hint="give every column a name")
        if name.lower() in HIDDEN:
            raise InvalidError(
                f"column {name!r} of {whose} cannot have this name",
                detail="Millpond has a hidden column of this name",
                hint="choose another name",
            )
        if (other := known.get(name.lower())) is not None:
            same = other == name
            raise InvalidError(
                f"column {name!r} of {whose} is there twice"
                if same
                else f"columns {other!r} and {name!r} of {whose} differ only in case",
                detail=None if same else "SQL does not distinguish such columns",
                hint="give one of them another name",
            )
        known[name.lower()] = name


def safe(text: str) -> str:
    """Text for use in a generated step id.

    >>> safe("by-a/b")
    'by-a-b'
    """
    return "".join("-" if c in "/!" or not c.isprintable() else c for c in text)


def _short(name: Any) -> str:
    text = repr(name)
    return text if len(text) <= 60 else f"{text[:57]}..."

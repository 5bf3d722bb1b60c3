"""What SQL knows of a plan beyond its steps: names, logical types, and the text of definitions.

Stored with the plan, so that every process knows the same tables and views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ObjectKind = Literal["table", "source", "view", "materialized view", "sink", "index", "function", "late rows"]


@dataclass(frozen=True)
class SqlColumn:
    name: str
    type: str  # DuckDB's logical type, as text
    default: str | None = None  # expressions, as text
    generated: str | None = None
    required: bool = False
    stored: str | None = None  # what rows call it, where that is another name

    @property
    def held(self) -> str:
        """The column of the rows: a name that never comes to mean another one."""
        return self.name if self.stored is None else self.stored


@dataclass(frozen=True)
class SqlObject:
    """A name in SQL.  `step` gives its rows in the plan; a plain view has none, its text is its meaning."""

    kind: ObjectKind
    name: str
    columns: tuple[SqlColumn, ...] = ()
    key: tuple[str, ...] = ()
    text: str = ""  # a view's query, as DuckDB reads it
    step: str | None = None
    scan: str | None = None  # of a table: where its rows come in
    uses: tuple[str, ...] = ()  # names that the definition reads
    append_only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold what is not to be shown
    said: str = field(default="", repr=False)  # the statement as it was written


def dependants(objects: Mapping[str, SqlObject], names: Iterable[str]) -> tuple[str, ...]:
    """All that is built on some names, directly or not, in the order of definition.

    >>> made = {n: SqlObject("view", n, uses=u) for n, u in {"a": (), "b": ("a",), "c": ("b",)}.items()}
    >>> dependants(made, ["a"])
    ('b', 'c')
    """
    found = set(names)
    asked = frozenset(found)
    while more := {o.name for o in objects.values() if o.name not in found and found & set(o.uses)}:
        found |= more
    return tuple(name for name in objects if name in found - asked)


def in_order(objects: Mapping[str, SqlObject]) -> dict[str, SqlObject]:
    """Each object behind those that it uses, otherwise as they were.

    >>> made = {n: SqlObject("view", n, uses=u) for n, u in {"b": ("a",), "c": (), "a": ()}.items()}
    >>> list(in_order(made))
    ['a', 'b', 'c']
    """
    found: dict[str, SqlObject] = {}

    def take(name: str) -> None:
        if name in objects and name not in found:
            for used in objects[name].uses:
                take(used)
            found[name] = objects[name]

    for name in objects:
        take(name)
    return found

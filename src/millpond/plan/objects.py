"""SQL objects: the names, logical types and definition texts that SQL needs besides the steps of a plan.

They are stored with the plan, so every process knows the same tables and views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ObjectKind = Literal[
    "table", "source", "view", "materialized view", "sink", "index", "function", "late rows", "schema"
]


@dataclass(frozen=True)
class SqlIdentity:
    """Numbers that the pond assigns, in the order of the inbox; `sequence` is the table with the last one."""

    always: bool  # GENERATED ALWAYS: no statement gives the number itself
    sequence: str
    start: int = 1
    increment: int = 1


@dataclass(frozen=True)
class SqlConstraint:
    """A rule that every row of a table keeps: a condition, or columns that no two rows have in common."""

    name: str
    check: str | None = None  # a condition over the columns, as text
    unique: tuple[str, ...] = ()  # columns; the index with the name of the constraint finds their rows


@dataclass(frozen=True)
class SqlColumn:
    name: str
    type: str  # DuckDB's logical type, as text
    default: str | None = None  # expressions, as text
    generated: str | None = None
    required: bool = False
    stored: str | None = None  # its name in the stored rows, if that differs
    identity: SqlIdentity | None = None
    declared: str | None = None  # what its type asks of values: "varchar(4)", "char(4)", "name", "jsonb"

    @property
    def stored_name(self) -> str:
        """The column in the stored rows: a name that is never reused for another column."""
        return self.name if self.stored is None else self.stored


@dataclass(frozen=True)
class SqlObject:
    """A name in SQL.  `step` produces its rows; a plain view has no step, its text defines it."""

    kind: ObjectKind
    name: str
    columns: tuple[SqlColumn, ...] = ()
    key: tuple[str, ...] = ()
    text: str = ""  # a view's query, in DuckDB's dialect
    step: str | None = None
    scan: str | None = None  # of a table: the step that reads its rows
    uses: tuple[str, ...] = ()  # names that the definition reads
    append_only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may contain secrets
    said: str = field(default="", repr=False)  # the statement as the user wrote it
    constraints: tuple[SqlConstraint, ...] = ()

    @property
    def is_checked(self) -> bool:
        """Must its rows be checked or numbered, one entry of the inbox after the other?"""
        return bool(self.constraints) or any(c.identity is not None for c in self.columns)


SCHEMA_PREFIX = "_schema."  # what a schema is stored under: no name of a user begins with "_"


def schema_object(name: str, said: str) -> SqlObject:
    """A schema; the names of its objects begin with its own and a dot (decision 39)."""
    return SqlObject("schema", SCHEMA_PREFIX + name, said=said)


def schemas_of(objects: Mapping[str, SqlObject]) -> dict[str, str]:
    """The schemas among the objects of a plan, by their names in lower case.

    >>> schemas_of({o.name: o for o in [schema_object("Sales", "")]})
    {'sales': 'Sales'}
    """
    names = [n.removeprefix(SCHEMA_PREFIX) for n, o in objects.items() if o.kind == "schema"]
    return {name.lower(): name for name in names}


UNIQUE_INDEX = "unique_index"  # an option of the index that CREATE UNIQUE INDEX made: DROP INDEX drops it
SEQUENCE_OF = "sequence_of"  # an option of the table that holds the last number of an identity column


def is_owned(one: SqlObject) -> bool:
    """Does an object belong to a table, so that it is dropped with it?"""
    return one.kind == "index" or SEQUENCE_OF in one.options


def dependants(objects: Mapping[str, SqlObject], names: Iterable[str]) -> tuple[str, ...]:
    """All objects that are built on some names, directly or not, in the order of definition.

    >>> made = {n: SqlObject("view", n, uses=u) for n, u in {"a": (), "b": ("a",), "c": ("b",)}.items()}
    >>> dependants(made, ["a"])
    ('b', 'c')
    """
    dependent = set(names)
    asked = frozenset(dependent)
    while more := {o.name for o in objects.values() if o.name not in dependent and dependent & set(o.uses)}:
        dependent |= more
    return tuple(name for name in objects if name in dependent - asked)


def in_order(objects: Mapping[str, SqlObject]) -> dict[str, SqlObject]:
    """The objects in an order in which each comes after those that it uses.

    >>> made = {n: SqlObject("view", n, uses=u) for n, u in {"b": ("a",), "c": (), "a": ()}.items()}
    >>> list(in_order(made))
    ['a', 'b', 'c']
    """
    ordered: dict[str, SqlObject] = {}

    def take(name: str) -> None:
        if name in objects and name not in ordered:
            for used in objects[name].uses:
                take(used)
            ordered[name] = objects[name]

    for name in objects:
        take(name)
    return ordered

"""What a statement gave, and the statements and portals that a client has named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.server.client_session import AllowedRead
from millpond.server.pgwire.messages import FieldInfo, row_description
from millpond.server.pgwire.single_row import SingleRowEncoder
from millpond.server.point_reads import PointRow
from millpond.sql.pg_catalog.pg_types import column_type
from millpond.sql.reads.point_plan import PointPlan
from millpond.sql.result import Result
from millpond.sql.text.parse import SqlFragment


@dataclass
class Outcome:
    """The result of one statement; `columns` is None if it gives no rows."""

    tag: str
    columns: list[tuple[str, str]] | None = None  # names and logical types
    table: pa.Table | None = None
    stream: Result | None = None  # a subscription: its rows come as epochs are committed
    notices: list[str] = field(default_factory=list)
    reports: list[tuple[str, str]] = field(default_factory=list)  # settings that the client must be told

    @property
    def types(self) -> list[str]:
        return [kind for _, kind in self.columns or ()]


def of_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], tag: str) -> Outcome:
    """A result of texts."""
    arrays = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(columns))]
    table = pa.Table.from_arrays(arrays, names=[f"c{n}" for n in range(len(columns))])
    return Outcome(tag, [(name, "VARCHAR") for name in columns], table)


def fields_of(columns: Sequence[tuple[str, str]], formats: Sequence[int]) -> list[FieldInfo]:
    """The columns as a RowDescription shows them."""
    found = []
    for (name, kind), form in zip(columns, expanded(formats, len(columns)), strict=True):
        shown = column_type(kind)
        found.append(FieldInfo(name, shown.oid, shown.size, shown.modifier, form))
    return found


def expanded(formats: Sequence[int], count: int) -> list[int]:
    """One format for each column: none means text, one is for all.

    >>> expanded((), 2), expanded((1,), 2)
    ([0, 0], [1, 1])
    """
    if not formats:
        return [0] * count
    return [formats[0]] * count if len(formats) == 1 else list(formats)


def oids(types: Sequence[str], declared: Sequence[int]) -> tuple[int, ...]:
    """What the client declared, else what was inferred."""
    given = [*declared, *[0] * (len(types) - len(declared))]
    return tuple(
        oid if oid not in (0, 705) else column_type(kind).oid
        for oid, kind in zip(given, [*types, *["VARCHAR"] * (len(given) - len(types))], strict=True)
    )


@dataclass(frozen=True)
class StatementShape:
    """The types of a statement's parameters, and its columns; None if it gives no rows."""

    params: tuple[int, ...]
    columns: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True)
class PointForm:
    """A prepared read of one key: its plan, and the types of its parameters."""

    plan: PointPlan
    shape: StatementShape | None  # as it was described to the client
    types: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """Does it still have the columns that were described to the client?"""
        return self.shape is None or [kind for _, kind in self.shape.columns or ()] == list(self.plan.types)


@dataclass
class PgStatement:
    """A statement that a client has parsed; `fragment` is None for an empty query."""

    fragment: SqlFragment | None
    declared: tuple[int, ...]
    shape: StatementShape | None = None
    text: str = ""
    parse: bytes = b""  # the message that made it
    read: AllowedRead | None = None  # if it reads one key
    described: dict[tuple[int, ...], bytes] = field(default_factory=dict)  # RowDescription by formats
    encoders: dict[tuple[int, ...], SingleRowEncoder] = field(default_factory=dict)
    _form: PointForm | None = None

    def point_form(self) -> PointForm | None:
        """How the statement reads one key, if it does, with the columns that were described to the client."""
        plan = None if self.read is None else self.read.planned.plan
        if plan is None:
            return None
        known = self._form
        if known is None or known.plan is not plan or known.shape is not self.shape:
            known = PointForm(plan, self.shape, oids(plan.parameter_types, self.declared))
            self._form = known if known.fits else None
        return self._form

    def row_description(self, columns: Sequence[tuple[str, str]], formats: tuple[int, ...]) -> bytes:
        """The RowDescription of a statement whose columns are known."""
        if formats not in self.described:
            self.described[formats] = row_description(fields_of(columns, formats))
        return self.described[formats]

    def encoder(self, plan: PointPlan, formats: tuple[int, ...]) -> SingleRowEncoder:
        if formats not in self.encoders:
            self.encoders[formats] = SingleRowEncoder(plan.types, expanded(formats, len(plan.types)))
        return self.encoders[formats]


@dataclass
class PgPortal:
    """A statement with its parameters; it runs when it is first described or executed."""

    statement: PgStatement
    params: list[Any]
    formats: tuple[int, ...]
    outcome: Outcome | None = None
    row: PointRow | None = None  # instead of an outcome, if the statement reads one key
    at: int = 0  # rows that were sent
    done: bool = False


@dataclass
class PgCursor:
    """A result that FETCH reads piece by piece."""

    columns: list[tuple[str, str]]
    table: pa.Table | None
    subscription: Any = None  # a SubscriptionPump
    at: int = 0
    held: bool = False
    binary: bool = False
    scrolls: bool = True  # may it go back?

"""Expressions of a bound plan: frozen nodes with their logical type and their place in the text.

Every name, overload and cast is resolved: a reference is the position of a column of the input.
Law: two expressions are equal if and only if they compute the same, wherever they are in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Self

Position = tuple[int, int]  # (first byte, length in bytes) in the text of the query


@dataclass(frozen=True, kw_only=True)
class BoundExpression:
    """An expression; `type` is its logical type as text, `alias` the name that the query gives it."""

    type: str
    alias: str = field(default="", compare=False)
    at: Position | None = field(default=None, compare=False)

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return ()

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        """Return the expression with other children, in the order of `children`."""
        assert not children
        return self

    @property
    def called(self) -> str:
        """What errors call the expression."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Reference(BoundExpression):
    index: int


@dataclass(frozen=True)
class MonthsDaysMicros:
    """The value of an INTERVAL, whose parts SQL keeps separate."""

    months: int
    days: int
    micros: int


@dataclass(frozen=True)
class Constant(BoundExpression):
    """A value; `kind` is its type without parameters, and `value` depends on it.

    Dates are days since 1970 and times units since then, as DuckDB stores them.
    A nested value is a tuple of constants, and `fields` names those of a STRUCT.
    """

    kind: str
    value: bool | int | float | str | Decimal | MonthsDaysMicros | tuple[Constant, ...] | None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class CurrentTime(BoundExpression):
    """now(): the time of the epoch; or proctime(): the time at which a row came, stored in the row."""

    stamp: bool


@dataclass(frozen=True)
class Cast(BoundExpression):
    argument: BoundExpression
    attempt: bool = False  # TRY_CAST

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return (self.argument,)

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        (argument,) = children
        return replace(self, argument=argument)


@dataclass(frozen=True)
class Comparison(BoundExpression):
    how: str  # as in SQL: =, <, IS NOT DISTINCT FROM, …
    left: BoundExpression
    right: BoundExpression

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return (self.left, self.right)

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        left, right = children
        return replace(self, left=left, right=right)


@dataclass(frozen=True)
class BoundFunction(BoundExpression):
    """A call of a scalar function; the last arguments may have names."""

    name: str
    arguments: tuple[BoundExpression, ...]
    named: tuple[str, ...] = ()
    has_initial: bool = False  # is the argument after a lambda its initial value?

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return self.arguments

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        return replace(self, arguments=tuple(children))

    @property
    def called(self) -> str:
        return self.name


@dataclass(frozen=True)
class BoundOperator(BoundExpression):
    """IN, NOT, IS NULL, COALESCE and others, by the binder's name."""

    kind: str
    arguments: tuple[BoundExpression, ...]

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return self.arguments

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        return replace(self, arguments=tuple(children))

    @property
    def called(self) -> str:
        return self.kind.lower()


@dataclass(frozen=True)
class Conjunction(BoundExpression):
    word: str  # AND or OR
    parts: tuple[BoundExpression, ...]

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return self.parts

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        return replace(self, parts=tuple(children))


@dataclass(frozen=True)
class BoundCase(BoundExpression):
    checks: tuple[tuple[BoundExpression, BoundExpression], ...]  # WHEN, THEN
    otherwise: BoundExpression

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return (*(part for check in self.checks for part in check), self.otherwise)

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        *checks, otherwise = children
        return replace(self, checks=tuple(zip(checks[::2], checks[1::2], strict=True)), otherwise=otherwise)


@dataclass(frozen=True)
class Lambda(BoundExpression):
    """A lambda: references in its body count its parameters, the last one at 0, then captured values.

    The captured values are further arguments of the function that takes the lambda, so it has no children.
    """

    parameters: int
    body: BoundExpression


@dataclass(frozen=True)
class UnnestedList(BoundExpression):
    """The elements of a list, one a row; `type` is theirs."""

    list: BoundExpression

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        return (self.list,)

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        (found,) = children
        return replace(self, list=found)


@dataclass(frozen=True)
class SortItem:
    expression: BoundExpression
    descending: bool
    nulls_first: bool

    @property
    def direction(self) -> str:
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True)
class AggregateCall(BoundExpression):
    name: str
    arguments: tuple[BoundExpression, ...]
    distinct: bool = False
    filter: BoundExpression | None = None
    orders: tuple[SortItem, ...] = ()
    quantiles: tuple[float, ...] = ()
    row: BoundExpression | None = None  # of a function over the list of a group's rows: one element
    list_type: str = ""  # the type of that list

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        given = () if self.filter is None else (self.filter,)
        return (*self.arguments, *given, *(o.expression for o in self.orders))

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        parts = iter(children)
        arguments = tuple(next(parts) for _ in self.arguments)
        given = None if self.filter is None else next(parts)
        orders = tuple(replace(o, expression=next(parts)) for o in self.orders)
        return replace(self, arguments=arguments, filter=given, orders=orders)

    @property
    def called(self) -> str:
        return self.name


@dataclass(frozen=True)
class FrameEdge:
    """Where a frame begins or ends, by the binder's name, and the offset of a counted edge."""

    word: str
    offset: BoundExpression | None = None


@dataclass(frozen=True)
class WindowCall(BoundExpression):
    """A call of OVER; `kind` is the binder's name, and `name` that of an aggregate."""

    kind: str
    name: str
    arguments: tuple[BoundExpression, ...]  # with the offset and the default of LAG and LEAD
    partitions: tuple[BoundExpression, ...]
    orders: tuple[SortItem, ...]
    own_orders: tuple[SortItem, ...]  # ORDER BY among the arguments
    filter: BoundExpression | None
    start: FrameEdge
    end: FrameEdge
    exclude: str
    distinct: bool = False
    ignores_nulls: bool = False

    @property
    def children(self) -> tuple[BoundExpression, ...]:
        single = (self.filter, self.start.offset, self.end.offset)
        ordered = (o.expression for o in (*self.orders, *self.own_orders))
        return (*self.arguments, *self.partitions, *ordered, *(s for s in single if s is not None))

    def with_children(self, children: Sequence[BoundExpression]) -> Self:
        parts = iter(children)
        return replace(
            self,
            arguments=tuple(next(parts) for _ in self.arguments),
            partitions=tuple(next(parts) for _ in self.partitions),
            orders=tuple(replace(o, expression=next(parts)) for o in self.orders),
            own_orders=tuple(replace(o, expression=next(parts)) for o in self.own_orders),
            filter=None if self.filter is None else next(parts),
            start=self.start if self.start.offset is None else replace(self.start, offset=next(parts)),
            end=self.end if self.end.offset is None else replace(self.end, offset=next(parts)),
        )

    @property
    def called(self) -> str:
        return self.name or self.kind.lower()


# -- functions of expressions -------------------------------------------------------------------------


def references(node: BoundExpression) -> Iterator[int]:
    """Yield the positions of the columns that an expression reads."""
    if isinstance(node, Reference):
        yield node.index
    for child in node.children:
        yield from references(child)


def columns_read(nodes: Sequence[BoundExpression]) -> frozenset[int]:
    return frozenset(place for node in nodes for place in references(node))


def shifted(node: BoundExpression, by: int) -> BoundExpression:
    """Return the expression with every column position reduced by `by`."""
    return _at_places(node, lambda place: place - by)


def moved(node: BoundExpression, places: Mapping[int, int]) -> BoundExpression:
    """Return the expression with each column position replaced by its entry in `places`."""
    return _at_places(node, places.__getitem__)


def _at_places(node: BoundExpression, place: Callable[[int], int]) -> BoundExpression:
    if isinstance(node, Reference):
        return replace(node, index=place(node.index))
    return mapped(node, lambda child: _at_places(child, place))


def mapped(node: BoundExpression, change: Callable[[BoundExpression], BoundExpression]) -> BoundExpression:
    """Return the expression with `change` applied to each of its children."""
    return node.with_children([change(child) for child in node.children])


def conjuncts(nodes: Sequence[BoundExpression]) -> Iterator[BoundExpression]:
    """Yield the conditions that must all hold, with nested ANDs flattened."""
    for node in nodes:
        if isinstance(node, Conjunction) and node.word == "AND":
            yield from conjuncts(node.parts)
        else:
            yield node

"""Relations of a bound plan: frozen nodes, each with its inputs and the number of its columns.

The binder makes the first group; the passes (`sql/passes/`) replace some of them with nodes of the second.
Law: a node says all that its rule needs, so that lowering looks at no other node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundExpression,
    Constant,
    Position,
    SortItem,
    UnnestedList,
    WindowCall,
    columns_read,
    references,
)
from millpond.sql.text.time_windows import MARK as WINDOW_MARK

JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "MARK", "SINGLE"]
Pair = tuple[BoundExpression, BoundExpression, str]  # left expression, right expression, comparison


@dataclass(frozen=True, kw_only=True)
class BoundRelation:
    """A node; `read` are the columns that nodes above it read, None if all of them."""

    INPUTS: ClassVar[tuple[str, ...]] = ()  # the fields with inputs, left before right

    read: frozenset[int] | None = None

    @property
    def inputs(self) -> tuple[BoundRelation, ...]:
        found: list[BoundRelation] = []
        for name in self.INPUTS:
            value = getattr(self, name)
            found += value if isinstance(value, tuple) else (value,)
        return tuple(found)

    def with_inputs(self, inputs: Sequence[BoundRelation]) -> Self:
        """Return the node with other inputs, in the order of `inputs`."""
        waiting = iter(inputs)
        changed: dict[str, object] = {}
        for name in self.INPUTS:
            value = getattr(self, name)
            changed[name] = tuple(next(waiting) for _ in value) if isinstance(value, tuple) else next(waiting)
        return replace(self, **changed) if changed else self  # type: ignore[arg-type]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        """The expressions of the node over the columns of its inputs."""
        return ()

    @property
    def width(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _OneInput(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("input",)

    input: BoundRelation

    @property
    def width(self) -> int:
        return self.input.width


# -- rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundGet(BoundRelation):
    """Columns of a table, source or view; a position beyond its columns is only counted, never read."""

    table: str
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class BoundTableFunction(BoundRelation):
    """A function of constants in FROM, such as generate_series."""

    name: str
    parameters: tuple[Constant, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class BoundValues(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("input",)

    input: BoundRelation
    rows: tuple[tuple[BoundExpression, ...], ...]
    types: tuple[str, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return tuple(e for row in self.rows for e in row)

    @property
    def width(self) -> int:
        return len(self.types)


@dataclass(frozen=True)
class BoundOneRow(BoundRelation):
    """One row without values, the input of `select 1`; the binder counts it as a column."""

    @property
    def width(self) -> int:
        return 1


@dataclass(frozen=True)
class BoundEmpty(BoundRelation):
    types: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.types)


# -- of one relation -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BoundProject(_OneInput):
    outputs: tuple[BoundExpression, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.outputs

    @property
    def width(self) -> int:
        return len(self.outputs)


@dataclass(frozen=True, kw_only=True)
class BoundFilter(_OneInput):
    """Rows for which all conditions hold; `shown` are the columns that it passes on, () if all."""

    conditions: tuple[BoundExpression, ...]
    shown: tuple[int, ...] = ()

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.conditions

    @property
    def width(self) -> int:
        return len(self.shown) or self.input.width


@dataclass(frozen=True, kw_only=True)
class BoundAggregate(_OneInput):
    """Groups, then aggregates, then GROUPING(…) of these groups; `sets` are positions of groups."""

    groups: tuple[BoundExpression, ...]
    calls: tuple[AggregateCall, ...]
    sets: tuple[tuple[int, ...], ...] = ()
    groupings: tuple[tuple[int, ...], ...] = ()

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return (*self.groups, *self.calls)

    @property
    def width(self) -> int:
        return len(self.groups) + len(self.calls) + len(self.groupings)


@dataclass(frozen=True, kw_only=True)
class BoundWindow(_OneInput):
    """The columns of the input, then calls of OVER."""

    calls: tuple[WindowCall, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.calls

    @property
    def width(self) -> int:
        return self.input.width + len(self.calls)


@dataclass(frozen=True, kw_only=True)
class BoundUnnest(_OneInput):
    """The columns of the input, once for each element of its longest list, then the elements."""

    lists: tuple[UnnestedList, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.lists

    @property
    def width(self) -> int:
        return self.input.width + len(self.lists)


@dataclass(frozen=True, kw_only=True)
class BoundListFunction(_OneInput):
    """A function in FROM that returns a row for each element of a list: unnest, range, generate_series.

    Its arguments are the first columns of its input, of these types; `passed` are the columns that it
    passes on behind its own.
    """

    name: str
    argument_types: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[int, ...]
    passed: tuple[int, ...]
    ordinality: int | None  # the place of the column that counts the rows

    @property
    def width(self) -> int:
        return len(self.columns) + len(self.passed)


@dataclass(frozen=True, kw_only=True)
class BoundOrder(_OneInput):
    orders: tuple[SortItem, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return tuple(o.expression for o in self.orders)


@dataclass(frozen=True, kw_only=True)
class BoundLimit(_OneInput):
    rows: int | None
    offset: int


@dataclass(frozen=True, kw_only=True)
class BoundDistinct(_OneInput):
    """DISTINCT; with targets, DISTINCT ON: the first row of each by these orders."""

    targets: tuple[BoundExpression, ...] | None = None
    orders: tuple[SortItem, ...] = ()

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return (*(self.targets or ()), *(o.expression for o in self.orders))


# -- of several relations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinCondition:
    """A comparison of a left with a right expression; without a right side, a condition over both sides."""

    how: str
    left: BoundExpression
    right: BoundExpression | None


@dataclass(frozen=True, kw_only=True)
class BoundJoin(BoundRelation):
    """A join by conditions, and by one more over the columns of both sides.

    `left_shown` and `right_shown` are the columns that it passes on, () if all.
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")

    left: BoundRelation
    right: BoundRelation
    kind: JoinKind
    conditions: tuple[JoinCondition, ...] = ()
    condition: BoundExpression | None = None
    left_shown: tuple[int, ...] = ()
    right_shown: tuple[int, ...] = ()

    @property
    def pairs(self) -> list[Pair]:
        """The comparisons of both sides."""
        return [(c.left, c.right, c.how) for c in self.conditions if c.right is not None]

    @property
    def rest(self) -> list[BoundExpression]:
        """The conditions over the columns of both sides, those of the left first."""
        found = [c.left for c in self.conditions if c.right is None]
        return found if self.condition is None else [*found, self.condition]

    @property
    def places(self) -> list[int]:
        """The columns that it passes on, as positions among those of both sides."""
        width = self.left.width
        left = self.left_shown or range(width)
        if self.kind in ("SEMI", "ANTI", "MARK"):
            return list(left)
        return [*left, *(width + n for n in self.right_shown or range(self.right.width))]

    @property
    def sides_read(self) -> tuple[frozenset[int] | None, frozenset[int] | None]:
        """The columns of each side that the nodes above and the conditions read; None if all."""
        if self.read is None:
            return None, None
        width, places = self.left.width, self.places
        read = {places[n] for n in self.read if n < len(places)}
        for left, right, _ in self.pairs:
            read |= {*references(left), *(width + n for n in references(right))}
        read |= columns_read(self.rest)
        return frozenset(n for n in read if n < width), frozenset(n - width for n in read if n >= width)

    @property
    def width(self) -> int:
        return len(self.places) + (self.kind == "MARK")


@dataclass(frozen=True, kw_only=True)
class BoundAsofJoin(BoundJoin):
    """Each row of the left with the last row of the right that is not after it."""


@dataclass(frozen=True, kw_only=True)
class BoundMarkJoin(BoundJoin):
    """IN and EXISTS: a mark behind the columns of the left; `decided` is the only mark that is kept."""

    decided: bool | None = None


@dataclass(frozen=True, kw_only=True)
class BoundCrossProduct(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")

    left: BoundRelation
    right: BoundRelation

    @property
    def width(self) -> int:
        return self.left.width + self.right.width


@dataclass(frozen=True, kw_only=True)
class BoundSetOperation(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("parts",)

    word: Literal["UNION", "EXCEPT", "INTERSECT"]
    parts: tuple[BoundRelation, ...]
    all: bool

    @property
    def width(self) -> int:
        return self.parts[0].width


# -- common table expressions ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BoundCte(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("definition", "query")

    index: int
    definition: BoundRelation
    query: BoundRelation

    @property
    def width(self) -> int:
        return self.query.width


@dataclass(frozen=True)
class BoundCteReference(BoundRelation):
    index: int
    names: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.types)


@dataclass(frozen=True, kw_only=True)
class BoundRecursiveCte(BoundRelation):
    INPUTS: ClassVar[tuple[str, ...]] = ("first", "more")

    index: int
    first: BoundRelation
    more: BoundRelation
    all: bool
    using_key: bool

    @property
    def width(self) -> int:
        return self.first.width


# -- what passes make ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BoundPick(_OneInput):
    """Some columns of a relation in some order; this needs no step."""

    places: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.places)


@dataclass(frozen=True, kw_only=True)
class BoundTimeWindow(_OneInput):
    """TUMBLE, HOP, CUMULATE, CALENDAR or SESSION: columns of the input, and marks that describe windows."""

    outputs: tuple[BoundExpression, ...]

    @property
    def marks(self) -> dict[str, BoundExpression]:
        return {e.alias: e for e in self.outputs if e.alias.startswith(WINDOW_MARK)}

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.outputs

    @property
    def width(self) -> int:
        return len(self.outputs)


@dataclass(frozen=True, kw_only=True)
class BoundAsOfNow(_OneInput):
    """A table FOR SYSTEM_TIME AS OF PROCTIME(), which only a join can read; `at` is the clause."""

    at: Position | None


@dataclass(frozen=True, kw_only=True)
class BoundLookupJoin(BoundJoin):
    """Each row of the left with the right as it is when the row comes; kept if it has no partner."""


@dataclass(frozen=True, kw_only=True)
class BoundTopN(_OneInput):
    """The first rows by these orders after `offset`; without orders, by all columns."""

    orders: tuple[SortItem, ...]
    rows: int | None
    offset: int

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return tuple(o.expression for o in self.orders)


@dataclass(frozen=True, kw_only=True)
class BoundFirstRanks(_OneInput):
    """The columns of the input and its rank, of rows whose rank is at most `last`."""

    call: WindowCall
    last: int
    ties: bool  # do equal rows share a rank?

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return (self.call,)

    @property
    def width(self) -> int:
        return self.input.width + 1


@dataclass(frozen=True, kw_only=True)
class BoundProduct(BoundRelation):
    """Relations joined by conditions over the columns of all of them, in the order of the text.

    The parts whose numbers are in `as_of_now` are joined last, as they are when a row of the others comes.
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("parts",)

    parts: tuple[BoundRelation, ...]
    conditions: tuple[BoundExpression, ...]
    as_of_now: tuple[int, ...] = ()

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        return self.conditions

    @property
    def starts(self) -> list[int]:
        """The position of the first column of each part."""
        widths = [part.width for part in self.parts]
        return [sum(widths[:n]) for n in range(len(widths))]

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)


@dataclass(frozen=True)
class PairOfParts:
    """A join of what holds the part `left` with what holds the part `right`, by conditions on both."""

    left: int
    right: int
    pairs: tuple[Pair, ...]
    others: tuple[BoundExpression, ...]

    @property
    def read(self) -> frozenset[int]:
        return columns_read([*self.others, *(side for pair in self.pairs for side in pair[:2])])


@dataclass(frozen=True, kw_only=True)
class BoundInnerJoins(BoundProduct):
    """A product with the order of its joins; `conditions` are those that are left."""

    joins: tuple[PairOfParts, ...]

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        made = ((*(s for p in j.pairs for s in p[:2]), *j.others) for j in self.joins)
        return (*(e for one in made for e in one), *self.conditions)


# -- functions of relations ------------------------------------------------------------------------------


def nodes_of(relation: BoundRelation) -> Iterator[BoundRelation]:
    """Yield a node and everything below it."""
    yield relation
    for below in relation.inputs:
        yield from nodes_of(below)


def rebuilt(relation: BoundRelation, change: Callable[[BoundRelation], BoundRelation]) -> BoundRelation:
    """Return the relation with `change` applied to every node, inputs before their readers."""
    inputs = relation.inputs
    below = [rebuilt(one, change) for one in inputs]
    same = all(new is old for new, old in zip(below, inputs, strict=True))
    return change(relation if same else relation.with_inputs(below))

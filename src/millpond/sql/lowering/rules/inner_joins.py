"""Inner joins of several relations, in the order that `passes/order_joins.py` chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.sql.bound.expressions import columns_read, moved
from millpond.sql.bound.relations import BoundInnerJoins, PairOfParts
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.conditions import kept
from millpond.sql.lowering.steps.joins import joined
from millpond.sql.lowering.steps.lookup_join import looked_up


@dataclass(frozen=True)
class _JoinedParts:
    """Relations joined so far; `places` maps columns of the product to positions in the relation."""

    relation: Relation
    places: Mapping[int, int]

    def reading(self, read: frozenset[int]) -> _JoinedParts:
        """Keep only the columns that are read later."""
        places = sorted(p for c, p in self.places.items() if c in read)
        moved_to = {p: n for n, p in enumerate(places)}
        kept_places = {c: moved_to[p] for c, p in self.places.items() if c in read}
        return _JoinedParts(self.relation.pick(places), kept_places)


def lower(low: Lowering, node: BoundInnerJoins) -> Relation:
    wanted = frozenset(range(node.width)) if node.read is None else node.read
    read = _read_after(node, wanted)
    groups = {}
    for number, (part, first) in enumerate(zip(node.parts, node.starts, strict=True)):
        places = {first + n: n for n in range(part.width)}
        groups[number] = _JoinedParts(low.lower(part), places)
    groups = {number: group.reading(read[0]) for number, group in groups.items()}
    for join, later in zip(node.joins, read[1:], strict=True):
        by_row = join.right in node.as_of_now
        both = _both(low, groups[join.left], groups.pop(join.right), join, by_row)
        groups[join.left] = both.reading(later)
    (whole,) = groups.values()
    found = kept(low, whole.relation, [moved(c, whole.places) for c in node.conditions])
    nothing = found.columns[0] if found.columns else StepColumn(low.shape(found).schema.names[0], "BOOLEAN")
    shown = (found.columns[whole.places[n]] if n in whole.places else nothing for n in range(node.width))
    return Relation(found.step, tuple(shown))


def _read_after(node: BoundInnerJoins, wanted: frozenset[int]) -> list[frozenset[int]]:
    """Return the columns that are read after 0, 1, … of the joins."""
    found = [wanted | columns_read(node.conditions)]
    for join in reversed(node.joins):
        found.insert(0, found[0] | join.read)
    return found


def _both(
    low: Lowering, one: _JoinedParts, two: _JoinedParts, join: PairOfParts, by_row: bool
) -> _JoinedParts:
    width = len(one.relation.columns)
    places = {**one.places, **{c: width + p for c, p in two.places.items()}}
    pairs = [(moved(a, one.places), moved(b, two.places), how) for a, b, how in join.pairs]
    others = [moved(c, places) for c in join.others]
    if by_row:
        found = looked_up(low, one.relation, two.relation, pairs, others, "inner")
    else:
        found = joined(low, one.relation, two.relation, pairs, others, "inner")
    return _JoinedParts(found, places)

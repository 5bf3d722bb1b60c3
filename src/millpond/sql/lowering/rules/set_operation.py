"""UNION ALL, EXCEPT and INTERSECT; DISTINCT above a union is a separate step."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.filter import Filter
from millpond.operators.union import Union
from millpond.operators.unnest import Unnest
from millpond.sql.binding.types import quoted
from millpond.sql.bound.relations import BoundSetOperation
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps.normalized import normalized


def lower(low: Lowering, node: BoundSetOperation) -> Relation:
    if node.word == "UNION" and node.all and node.read is not None:
        return _narrow_union(low, node, sorted(node.read) or [0])
    sides = [low.lower(part) for part in node.parts]
    names = fresh_names(c.name for c in sides[0].columns)
    if node.word == "UNION":
        parts = [low.exact(side if node.all else normalized(low, side), names) for side in sides]
        step = low.add(Union(), tuple(p.step for p in parts), "union")
        if not node.all:  # a WITH RECURSIVE that does not refer to itself
            low.keyed((c.type for c in parts[0].columns), "UNION")
            step = low.add(Distinct(tuple(names)), (step,), "distinct")
        return Relation(step, parts[0].columns)
    low.keyed((c.type for c in sides[0].columns), "EXCEPT and INTERSECT")
    return _counted(low, node, [normalized(low, side) for side in sides], names)


def _narrow_union(low: Lowering, node: BoundSetOperation, read: Sequence[int]) -> Relation:
    """Union only the columns that are read; another column takes the position of each unread one."""
    sides = [low.lower(part) for part in node.parts]
    width = len(sides[0].columns)
    picked = [side.pick(read) for side in sides]
    names = fresh_names(c.name for c in picked[0].columns)
    parts = [low.exact(side, names) for side in picked]
    step = low.add(Union(), tuple(p.step for p in parts), "union")
    at = dict(zip(read, parts[0].columns, strict=True))
    return Relation(step, tuple(at.get(n, parts[0].columns[0]) for n in range(width)))


def _counted(low: Lowering, node: BoundSetOperation, sides: list[Relation], names: list[str]) -> Relation:
    """Count each row on both sides, and derive from the counts how often the result has it."""
    left, right = fresh_names(["left", "right"], names)
    parts = []
    for number, side in enumerate(sides):
        wanted = [(n, quoted(c.name), c.type) for n, c in zip(names, side.columns, strict=True)]
        flags = [("1", "NULL::INTEGER"), ("NULL::INTEGER", "1")][number]
        wanted += [(left, flags[0], "INTEGER"), (right, flags[1], "INTEGER")]
        parts.append(low.compute(side, wanted, "side"))
    both = low.add(Union(), tuple(p.step for p in parts), "union")
    aggs = (Agg(left, "count", left), Agg(right, "count", right))
    feeds = feeds_for(aggs, low.builder.shape(both).append_only)
    counted = low.add(Aggregate(tuple(names), aggs, feeds), (both,), "counted")
    a, b = quoted(left), quoted(right)
    if node.word == "EXCEPT":
        kept = f"{a} > {b}" if node.all else f"{a} > 0 AND {b} = 0"
        times = f"{a} - {b}"
    else:
        kept = f"{a} > 0 AND {b} > 0"
        times = f"least({a}, {b})"
    step = low.add(Filter(kept), (counted,), "kept")
    if node.all:
        copy = fresh_names(["copy"], [*names, left, right])[0]
        step = low.add(Unnest(((copy, f"range({times})"),)), (step,), "copies")
    columns = parts[0].columns[: len(names)]
    return low.exact(Relation(step, columns))

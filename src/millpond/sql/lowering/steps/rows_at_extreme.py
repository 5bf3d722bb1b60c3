"""Rows joined to the greatest (or least) value of their own group become a ranking with ties.

    SELECT t.* FROM t JOIN (SELECT k, max(x) AS x FROM t GROUP BY k) AS m ON t.k = m.k AND t.x = m.x

returns the rows with rank() = 1 by x within k.  With a join, every row is shuffled and waits for the answer;
with a ranking, tasks send only rows that can lead, and the state is the leading rows.

The rule applies to an inner join by equalities alone, over exactly the groups and the single min or max of
an aggregate of the same rows as the other side: both sides read the same step, through maps that only rename
columns.  NULL equals nothing in a join, so leading rows with NULL in the value or the group are filtered
out.  The rule is used only for append-only input: a ranking of rows that can be retracted must store all of
them, with the rows of a group in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.aggregate import Aggregate
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, Reference
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.time_bounds import hold_windows_of

Pair = tuple[BoundExpression, BoundExpression, str]  # left expression, right expression, comparison


def lower(low: Lowering, left: Relation, right: Relation, pairs: Sequence[Pair]) -> Relation | None:
    """Lower an inner join by these pairs alone, if one side is the extreme of the other's groups."""
    if not all(how == "=" for _, _, how in pairs):
        return None
    ours = [left.columns[a.index].name for a, _, _ in pairs if isinstance(a, Reference)]
    theirs = [right.columns[b.index].name for _, b, _ in pairs if isinstance(b, Reference)]
    if not len(ours) == len(theirs) == len(pairs):
        return None
    types = [a.type for a, _, _ in pairs]
    width = len(left.columns)
    names = fresh_names([*left.names, *right.names])
    first = _best(low, left, right, dict(zip(theirs, ours, strict=True)), types, len(pairs))
    if first is not None:
        same = dict(zip(theirs, ours, strict=True))
        shown = [*left.names, *(same[name] for name in right.names)]
    else:
        first = _best(low, right, left, dict(zip(ours, theirs, strict=True)), types, len(pairs))
        if first is None:
            return None
        same = dict(zip(ours, theirs, strict=True))
        shown = [*(same[name] for name in left.names), *right.names]
    kinds = [column.type for column in (*left.columns, *right.columns)]
    assert len(names) == len(shown) == width + len(right.columns)
    wanted = [(n, quoted(held), kind) for n, held, kind in zip(names, shown, kinds, strict=True)]
    return low.compute(first, wanted, "best")


def _best(
    low: Lowering, rows: Relation, best: Relation, same: dict[str, str], types: Sequence[str], pairs: int
) -> Relation | None:
    """Return the rows that lead their groups, if `best` computes the extreme; `same` renames its columns."""
    step, named = _through_names(low, best.step, best.names)
    operator = low.builder.plan.nodes[step].operator
    if not isinstance(operator, Aggregate) or operator.spread is not None or not operator.key:
        return None
    if len(operator.aggs) != 1 or operator.aggs[0].function not in ("min", "max"):
        return None
    (agg,) = operator.aggs
    assert agg.argument is not None
    if not low.builder.shape(rows.step).append_only:
        return None
    asked = {named[name]: same[name] for name in best.names if name in same}
    if len(same) != pairs or set(named.values()) != {*operator.key, agg.name} or len(asked) != pairs:
        return None
    if set(asked) != {*operator.key, agg.name} or len(set(same.values())) != pairs:
        return None
    read = [*operator.key, agg.argument]
    below, held = _through_names(low, low.builder.plan.nodes[step].inputs[0], read)
    base, mine = _through_names(low, rows.step, list(asked.values()))
    wanted = {asked[key]: held[key] for key in operator.key} | {asked[agg.name]: held[agg.argument]}
    if below != base or mine != wanted:
        return None
    low.keyed(types, "an equality of a join", normalized=False)
    key, by = tuple(asked[k] for k in operator.key), asked[agg.name]
    ranking = TopN(key, (Order(by, descending=agg.function == "max"),), 1, with_ties=True)
    rows = low.exact(rows)  # a ranking stores complete rows
    found = low.add(ranking, (rows.step,), "leading", early=operator.closes is not None)
    if operator.closes is not None:  # rows that led only while the window was open are not shown
        found = hold_windows_of(low, found, key)
    given = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in (*key, by))
    return Relation(low.add(Filter(given), (found,), "given"), rows.columns)


def _through_names(low: Lowering, step: str, columns: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Skip maps that only rename columns; return the step below and the names of the columns there."""
    found = {name: name for name in columns}
    while True:
        node = low.builder.plan.nodes[step]
        if not isinstance(node.operator, Map) or node.operator.functions:
            return step, found
        held = {quoted(name): name for name in low.builder.shape(node.inputs[0]).schema.names}
        named = dict(node.operator.columns)
        if not all(sql in held for sql in named.values()):
            return step, found
        found = {name: held[named[inner]] for name, inner in found.items()}
        step = node.inputs[0]

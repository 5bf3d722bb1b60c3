"""x IN (…) and EXISTS: the rows of the left with a mark that says whether they have a partner.

The mark can be NULL (unknown).  If a condition tests only the mark, only the rows that satisfy it are
computed (`passes/decide_marks.py`).  The mark follows the columns of the left that the node shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.filter import Filter
from millpond.operators.join import Join
from millpond.operators.union import Union
from millpond.sql.binding.types import quoted
from millpond.sql.bound.relations import BoundMarkJoin
from millpond.sql.bound.words import SAME
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps.joins import Pair, joined, keyed


def lower(low: Lowering, node: BoundMarkJoin) -> Relation:
    left = low.lower(node.left)
    right = low.lower(node.right)
    left = low.narrowed(left, node.sides_read[0])
    width = len(left.columns)
    shown = node.left_shown or range(width)
    # columns that are not read share a name, and get others below
    mark = fresh_names(["mark"], fresh_names(left.names))[0]
    parts = []
    if node.decided is not False:
        yes = joined(low, left, right, node.pairs, (), "semi")
        parts.append(_with_mark(low, yes, left, mark, "true"))
    if node.decided is not True:
        no = joined(low, left, right, node.pairs, (), "anti")
        parts.append(_unmatched(low, no, left, right, node.pairs, mark))
    step = parts[0].step if len(parts) == 1 else low.add(Union(), tuple(p.step for p in parts), "marked")
    found = Relation(step, (*parts[0].columns[:width], StepColumn(mark, "BOOLEAN"))).pick([*shown, width])
    if node.decided is False:
        found = Relation(low.add(Filter(f"NOT {quoted(mark)}"), (found.step,), "where"), found.columns)
    return found


def _with_mark(low: Lowering, rows: Relation, like: Relation, mark: str, value: str) -> Relation:
    names = fresh_names(like.names)
    wanted = [(n, quoted(c.name), c.type) for n, c in zip(names, rows.columns, strict=True)]
    return low.compute(rows, [*wanted, (mark, value, "BOOLEAN")], "mark")


def _unmatched(
    low: Lowering, rows: Relation, left: Relation, right: Relation, pairs: Sequence[Pair], mark: str
) -> Relation:
    """Mark rows without a partner: false, or NULL if a NULL on either side might have been the partner."""
    asked = [p for p in pairs if p[2] != SAME]
    if not asked:
        return _with_mark(low, rows, left, mark, "false")
    if len(asked) > 1 or asked[0][2] != "=":
        return _perhaps(low, rows, left, right, pairs, mark)
    within = [p for p in pairs if p[2] == SAME]
    (ours, theirs, _) = asked[0]
    held, on = keyed(low, right, [(p[1], p[2]) for p in within])
    value = fresh_names(["value"], [*on, *right.names])[0]
    wanted = [(n, quoted(n), "") for n in on] + [(value, render(theirs, right.columns), theirs.type)]
    narrow = low.compute(held, wanted, "values")
    aggs = (Agg("rows_in", "count"), Agg("given_in", "count", value))
    on_names = [c.name for c in narrow.columns[: len(on)]]
    shape = low.builder.shape(narrow.step)
    if shape.schema.names[-1] != value:
        aggs = (Agg("rows_in", "count"), Agg("given_in", "count", narrow.columns[-1].name))
    facts = low.add(
        Aggregate(tuple(on_names), aggs, feeds_for(aggs, shape.append_only)), (narrow.step,), "facts"
    )
    ours_held, ours_on = keyed(low, rows, [(p[0], p[2]) for p in within])
    names = fresh_names([*rows.names, "rows_in", "given_in"])
    columns = [(n, 0, c.name) for n, c in zip(names, rows.columns, strict=False)]
    columns += [(names[-2], 1, "rows_in"), (names[-1], 1, "given_in")]
    known = low.add(
        Join(tuple(ours_on), tuple(on_names), "left", tuple(columns)), (ours_held.step, facts), "known"
    )
    out = [StepColumn(n, c.type) for n, c in zip(names, rows.columns, strict=False)]
    n, given = quoted(names[-2]), quoted(names[-1])
    unknown = f"{render(ours, out)} IS NULL OR {given} < {n}"
    value_sql = f"CASE WHEN {n} IS NULL OR {n} = 0 THEN false WHEN {unknown} THEN NULL ELSE false END"
    return _with_mark(low, Relation(known, tuple(out)), left, mark, value_sql)


def _perhaps(
    low: Lowering, rows: Relation, left: Relation, right: Relation, pairs: Sequence[Pair], mark: str
) -> Relation:
    """Mark rows NULL if, for some row of the right, every comparison is true or NULL; else false."""
    within = [p for p in pairs if p[2] == SAME]
    asked = [p for p in pairs if p[2] != SAME]
    width = len(rows.columns)
    parts = []
    for kind, value in (("semi", "NULL"), ("anti", "false")):
        left_held, left_on = keyed(low, rows, [(p[0], p[2]) for p in within])
        right_held, right_on = keyed(low, right, [(p[1], p[2]) for p in within])
        names = fresh_names([*rows.names, *right.names])
        columns = [(n, 0, c.name) for n, c in zip(names[:width], rows.columns, strict=True)]
        columns += [(n, 1, c.name) for n, c in zip(names[width:], right.columns, strict=True)]
        out = [StepColumn(n, c.type) for n, c in zip(names, (*rows.columns, *right.columns), strict=True)]
        text = " AND ".join(
            f"(({render(a, out[:width])} {how} {render(b, out[width:])}) IS NOT FALSE)" for a, b, how in asked
        )
        operator = Join(tuple(left_on), tuple(right_on), kind, tuple(columns), text)  # type: ignore[arg-type]
        step = low.add(operator, (left_held.step, right_held.step), "perhaps")
        parts.append(_with_mark(low, Relation(step, tuple(out[:width])), left, mark, f"{value}::BOOLEAN"))
    step = low.add(Union(), tuple(p.step for p in parts), "marked")
    return Relation(step, parts[0].columns)

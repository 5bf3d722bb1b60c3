"""FOR SYSTEM_TIME AS OF PROCTIME(): joins each row with a table's contents at the time the row arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from millpond.operators.insertions import Insertions
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.lookup_memory import LookupMemory
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps.joins import Pair, keyed, keys


def looked_up(
    low: Lowering,
    left: Relation,
    right: Relation,
    pairs: Sequence[Pair],
    rest: Sequence[BoundExpression],
    kind: Literal["inner", "left"],
) -> Relation:
    """Join each row of the left with the right as it is when the row comes.

    Where the left retracts rows, a step behind the join remembers what each of them was joined with.
    """
    shape = low.shape(left)
    came = left
    remembered: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    if not shape.append_only:
        key = shape.key or tuple(shape.schema.names)
        shown = {c.name: c for c in left.columns}
        columns = tuple(dict.fromkeys([*key, *shown]))
        remembered = key, columns
        step = low.add(Insertions(key, columns), (left.step,), "came")
        came = Relation(step, (*left.columns, *(StepColumn(n, "") for n in columns if n not in shown)))
    equal, uneven = keys(came, right, pairs)
    if equal:
        left_held, left_on = keyed(low, came, [(p[0], p[2]) for p in equal])
        right_held, right_on = keyed(low, right, [(p[1], p[2]) for p in equal])
    else:
        (left_held, left_on), (right_held, right_on) = _one_key(low, came), _one_key(low, right)
    width = len(left.columns)
    own = {c.name: c.name for c in came.columns}
    right_names = fresh_names([c.name for c in right.columns], own)
    columns_of = [
        *((n, 0, n) for n in own),
        *((n, 1, c.name) for n, c in zip(right_names, right.columns, strict=True)),
    ]
    out = (*left.columns, *(StepColumn(n, c.type) for n, c in zip(right_names, right.columns, strict=True)))
    conditions = [f"({render(a, out[:width])} {how} {render(b, out[width:])})" for a, b, how in uneven]
    conditions += [render(c, out) for c in rest]
    if not columns_of:
        columns_of = [(fresh_names(["nothing"])[0], 0, low.shape(left).schema.names[0])]
    inputs = (left_held.step, right_held.step)
    operator = LookupJoin(
        tuple(left_on), tuple(right_on), kind, tuple(columns_of), " AND ".join(conditions) or None, low.name
    )
    step = low.add(low.own(operator, inputs), inputs, "lookup")
    if remembered is not None:
        step = low.add(LookupMemory(*remembered), (left.step, step), "memory")
    return Relation(step, out)


def _one_key(low: Lowering, side: Relation) -> tuple[Relation, list[str]]:
    """A relation with a column that is the same in all rows, for a join without an equality."""
    own = {c.name: c for c in side.columns}
    (name,) = fresh_names(["all_rows"], own)
    wanted = [*((n, quoted(n), c.type) for n, c in own.items()), (name, "1", "INTEGER")]
    return Relation(low.compute(side, wanted, "keys").step, side.columns), [name]

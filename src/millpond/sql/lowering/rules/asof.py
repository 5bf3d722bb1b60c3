"""ASOF joins: match each row on the left with the last row on the right that is not after it.

Rows of both sides with the same key are stored together and joined again when one of
them changes.  Among rows on the right with the same time, the first by all columns is
taken, so the same rows always give the same result (law 3).  RIGHT and FULL joins also
show the rows on the right that were not taken, including the other rows of such a tie.
"""

from __future__ import annotations

from millpond.operators.per_key import PerKey
from millpond.operators.union import Union
from millpond.sql.binding.types import quoted
from millpond.sql.bound.relations import BoundAsofJoin
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.refusal import NotSupported

_WORDS = {"INNER": "", "LEFT": "LEFT ", "RIGHT": "", "FULL": "LEFT "}
_ALL_RIGHT = ("RIGHT", "FULL")  # joins that show all rows on the right


def lower(low: Lowering, node: BoundAsofJoin) -> Relation:
    left, right = (low.narrowed(low.lower(c), s) for c, s in zip(node.inputs, node.sides_read, strict=True))
    keys = [pair for pair in node.pairs if pair[2] == "="]
    times = [pair for pair in node.pairs if pair[2] in (">", ">=", "<", "<=")]
    if node.kind not in _WORDS or len(times) != 1 or len(keys) + 1 != len(node.conditions):
        raise NotSupported(
            "this ASOF join is not supported in a materialized view",
            hint="write ASOF [LEFT | RIGHT | FULL] JOIN with equalities and one comparison",
        )
    (time,) = times
    names = [f"key_{n}" for n in range(len(keys))]
    parts = []
    for number, (side, which) in enumerate(((left, "left"), (right, "right"))):
        wanted = [("side", str(number), "INTEGER")]
        for name, pair in zip([*names, "at_time"], [*keys, time], strict=True):
            own = pair[1] if number else pair[0]
            wanted.append((name, render(own, side.columns), own.type))
        for of, columns in enumerate((left.columns, right.columns)):
            for n, column in enumerate(columns):
                text = quoted(column.name) if of == number else f"CAST(NULL AS {column.type})"
                wanted.append((f"{'lr'[of]}{n}", text, column.type))
        parts.append(low.compute(side, wanted, which))
    both = low.add(Union(), tuple(p.step for p in parts), "sides")
    ours = [f"l{n}" for n in range(len(left.columns))]
    theirs = [f"r{n}" for n in range(len(right.columns))]
    # Keys are compared by a number: DuckDB 2.0 fails when it joins by lists a second time.
    numbers = ["key_number"] if names else []
    given = " and ".join(f"{n} is not null" for n in names)
    which = f"case when {given} then dense_rank() over (order by {', '.join(names)}) end"
    told = f"select *, {which} as key_number from input" if names else "select * from input"
    on = [f"l.{n} = r.{n}" for n in numbers]
    on.append(f"l.at_time {time[2]} r.at_time")
    unique = ", ".join([*numbers, "at_time"])
    order = ", ".join([unique, *theirs])
    width = ", ".join([*(f"l.{n}" for n in ours), *(f"r.{n}" for n in theirs)])
    every = f"select *, row_number() over (order by {order}) as place from numbered where side = 1"
    first = f"select distinct on ({unique}) * from every order by {unique}, place"
    on_them = f"l ASOF {_WORDS[node.kind]}JOIN ({first}) r ON {' AND '.join(on)}"
    joined = f"select {width}, r.place from (select * from numbered where side = 0) {on_them}"
    tables = f"numbered as ({told}), every as ({every}), joined as ({joined})"
    sql = f"with {tables} select * exclude (place) from joined"
    if node.kind in _ALL_RIGHT:  # the left columns are NULL in unmatched rows of the right
        alone = "place not in (select place from joined where place is not null)"
        sql += f" union all select {', '.join([*ours, *theirs])} from every where {alone}"
    step = low.add(PerKey(tuple(names), sql=sql), (both,), "asof")
    shown_columns = [StepColumn(n, c.type) for n, c in zip(ours, left.columns, strict=True)]
    shown_columns += [StepColumn(n, c.type) for n, c in zip(theirs, right.columns, strict=True)]
    return Relation(step, tuple(shown_columns)).pick(node.places)

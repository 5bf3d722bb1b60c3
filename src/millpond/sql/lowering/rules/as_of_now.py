"""FOR SYSTEM_TIME AS OF PROCTIME(): joins each row with a table's contents at the time the row arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn

from millpond.operators.insertions import Insertions
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.lookup_memory import LookupMemory
from millpond.sql.binding.types import Json, quoted
from millpond.sql.lowering.expressions import StepColumn, comparison, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import join
from millpond.sql.refusal import NotSupported, position_of
from millpond.sql.text.as_of_now import MARK

TextRange = tuple[int, int]  # (first byte, length in bytes)


def is_marked(node: Json) -> bool:
    """Is this node a table as of now, perhaps with conditions on it?"""
    while node["type"] == "LOGICAL_FILTER":
        node = node["children"][0]
    return node["type"] == "LOGICAL_PROJECTION" and has_mark(node["children"][0])


def has_mark(node: Json) -> bool:
    """Is this the marked projection that replaces the clause in the text?"""
    return node["type"] == "LOGICAL_PROJECTION" and any(e.get("alias") == MARK for e in node["expressions"])


def allow(low: Lowering, node: Json) -> None:
    """Allow a table as of now on the right of a left join."""
    if node["join_type"] == "LEFT" and is_marked(node["children"][1]):
        opened(low, node["children"][1])


def opened(low: Lowering, node: Json) -> None:
    """Allow a marked node to be lowered; the caller joins it."""
    while node["type"] == "LOGICAL_FILTER":
        node = node["children"][0]
    low.as_of_now.add(id(node["children"][0]))


def check(low: Lowering, node: Json) -> None:
    """Refuse a table as of now that is not read by such a join."""
    if has_mark(node) and id(node) not in low.as_of_now:
        refuse(_position_of_mark(low, node))


def position(low: Lowering, node: Json) -> TextRange | None:
    """Return the position of a marked node's mark in the text."""
    while node["type"] == "LOGICAL_FILTER":
        node = node["children"][0]
    return _position_of_mark(low, node["children"][0])


def _position_of_mark(low: Lowering, node: Json) -> TextRange | None:
    if low.position_of(MARK) is None:  # the mark is in the text of a view: its position refers to that text
        return None
    return next(position_of(e) for e in node["expressions"] if e.get("alias") == MARK)


def refuse(at: TextRange | None) -> NoReturn:
    raise NotSupported(
        "FOR SYSTEM_TIME AS OF PROCTIME() is for the right side of JOIN and LEFT JOIN",
        at=at,
        hint="write orders JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON orders.k = r.k",
    )


def joined(
    low: Lowering,
    left: Relation,
    right: Relation,
    pairs: Sequence[join.Pair],
    rest: Sequence[Json],
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
    equal, uneven = join.keys(came, right, pairs)
    if equal:
        left_held, left_on = join.keyed(low, came, [(p[0], p[2]) for p in equal])
        right_held, right_on = join.keyed(low, right, [(p[1], p[2]) for p in equal])
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
    conditions = [
        f"({render(a, out[:width])} {comparison(how)} {render(b, out[width:])})" for a, b, how in uneven
    ]
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

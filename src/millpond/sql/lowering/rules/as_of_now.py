"""FOR SYSTEM_TIME AS OF PROCTIME(): joins each row with a table's contents at the time the row arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn

from millpond.operators.lookup_join import LookupJoin
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import StepColumn, comparison, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import join
from millpond.sql.refusal import NotSupported, place_of
from millpond.sql.text.as_of_now import MARK

Place = tuple[int, int]  # (first byte, length in bytes)


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
        refuse(_place_of_mark(low, node))


def place(low: Lowering, node: Json) -> Place | None:
    """Return the position of a marked node's mark in the text."""
    while node["type"] == "LOGICAL_FILTER":
        node = node["children"][0]
    return _place_of_mark(low, node["children"][0])


def _place_of_mark(low: Lowering, node: Json) -> Place | None:
    if low.place_of(MARK) is None:  # the mark is in the text of a view: its position refers to that text
        return None
    return next(place_of(e) for e in node["expressions"] if e.get("alias") == MARK)


def refuse(at: Place | None) -> NoReturn:
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
    at: Place | None,
) -> Relation:
    """Join each row of the left, which must be append-only, with the right as it is at that time."""
    if not low.shape(left).append_only:
        raise NotSupported(
            "rows that can be changed or deleted have no one time at which they came",
            at=at,
            hint="the left side must be a source, an APPEND ONLY table, or made of such; or use a plain join",
        )
    equal, uneven = join.keys(left, right, pairs)
    if not equal:
        raise NotSupported(
            "a join with a table as of PROCTIME() needs an equality",
            at=at,
            hint="write ON orders.k = r.k AND …",
        )
    left_held, left_on = join.keyed(low, left, [(p[0], p[2]) for p in equal])
    right_held, right_on = join.keyed(low, right, [(p[1], p[2]) for p in equal])
    width = len(left.columns)
    sides = [(0, c) for c in left.columns] + [(1, c) for c in right.columns]
    names = fresh_names(c.name for _, c in sides)
    columns = tuple((n, side, c.name) for n, (side, c) in zip(names, sides, strict=True))
    out = tuple(StepColumn(n, c.type) for n, (_, c) in zip(names, sides, strict=True))
    conditions = [
        f"({render(a, out[:width])} {comparison(how)} {render(b, out[width:])})" for a, b, how in uneven
    ]
    conditions += [render(c, out) for c in rest]
    if not columns:
        columns = ((fresh_names(["nothing"])[0], 0, low.shape(left).schema.names[0]),)
    inputs = (left_held.step, right_held.step)
    operator = LookupJoin(
        tuple(left_on), tuple(right_on), kind, columns, " AND ".join(conditions) or None, low.name
    )
    return Relation(low.add(low.own(operator, inputs), inputs, "lookup"), out)

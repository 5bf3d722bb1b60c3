"""Computes lateral rows in place, without a join, where they depend on one row only.

DuckDB binds `FROM t, f(t.x)` as a join of t with the result of f for the *distinct*
values of x.  Where f consists only of projections, conditions and unnesting, it can be
computed on each row directly: there is no state, and the cost is that of the change (law 5).

    join(outer, S(distinct(outer)))  on the distinct columns   =   S(outer), outer passed along
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import moved
from millpond.sql.text.time_windows import MARK

_LISTS = ("unnest", "range", "generate_series")


@dataclass(frozen=True)
class _Distinct:
    """A common table expression with the distinct values of some columns of another one."""

    outer: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class _Made:
    """A node rewritten to read the outer rows instead of the distinct values."""

    node: Json
    place: tuple[int, ...]  # the position in `node` of each column of the old node
    outer: tuple[int, ...]  # the positions in `node` of the columns of the outer rows
    kinds: tuple[Json, ...]  # types of the old node's columns
    of: tuple[int | None, ...]  # for each old column, which of the distinct columns it is, or None

    @property
    def width(self) -> int:
        return max((*self.place, *self.outer), default=-1) + 1


def without_joins(node: Json, known: Mapping[int, _Distinct] | None = None) -> Json:
    """Return the plan with lateral rows computed in place where possible."""
    known = known or {}
    if node["type"] == "LOGICAL_MATERIALIZED_CTE":
        found = _distinct(node["children"][0])
        if found is not None:
            known = {**known, int(node["table_index"]): found}
    kids = [without_joins(child, known) for child in node.get("children") or []]
    node = {**node, "children": kids}
    if node["type"] == "LOGICAL_COMPARISON_JOIN" and _keeps_rows(node):
        return _joined(node, known) or node
    return node


def _keeps_rows(node: Json) -> bool:
    """Does the join return, for each row, exactly what is computed from that row?

    An outer join does so if each row has exactly one partner.
    """
    if node["join_type"] == "INNER":
        return True
    below = node["children"][1]
    while below["type"] == "LOGICAL_PROJECTION":
        below = below["children"][0]
    return node["join_type"] in ("LEFT", "SINGLE") and below["type"] == "LOGICAL_CTE_REF"


def _distinct(node: Json) -> _Distinct | None:
    if node["type"] != "LOGICAL_AGGREGATE_AND_GROUP_BY" or node["expressions"]:
        return None
    (child,) = node["children"]
    groups = node["groups"]
    sets = node.get("grouping_sets") or []
    plain = all(g["expression_class"] == "BOUND_REF" for g in groups) and len(sets) <= 1
    if child["type"] != "LOGICAL_CTE_REF" or not groups or not plain:
        return None
    return _Distinct(int(child["cte_index"]), tuple(int(g["index"]) for g in groups))


def _joined(node: Json, known: Mapping[int, _Distinct]) -> Json | None:
    left, right = node["children"]
    if left["type"] != "LOGICAL_CTE_REF" or node.get("condition"):
        return None
    made = _over(right, left, known)
    if made is None:
        return None
    column_of = _end(right, known)
    met = set()
    for condition in node["conditions"]:
        one, other = condition["left"], condition["right"]
        refs = other is not None and one["expression_class"] == other["expression_class"] == "BOUND_REF"
        if not refs or condition["comparison"] != "COMPARE_NOT_DISTINCT_FROM":
            return None
        which = made.of[int(other["index"])]
        if which is None or column_of.columns[which] != int(one["index"]):
            return None
        met.add(which)
    if met != set(range(len(column_of.columns))):
        return None
    kinds = left["chunk_types"]
    shown = [_ref(made.outer[n], kinds[n]) for n in node.get("left_projection_map") or range(len(kinds))]
    picked = node.get("right_projection_map") or range(len(made.place))
    shown += [_ref(made.place[n], made.kinds[n]) for n in picked]
    return _projection(node, shown, made.node)


def _end(node: Json, known: Mapping[int, _Distinct]) -> _Distinct:
    """Return the distinct values that a chain of nodes reads."""
    while node["children"]:
        node = node["children"][0]
    return known[int(node["cte_index"])]


def _over(node: Json, outer: Json, known: Mapping[int, _Distinct]) -> _Made | None:
    """Rewrite a chain of nodes to read the outer rows; None if it needs more than one row at a time."""
    if node["type"] == "LOGICAL_CTE_REF":
        found = known.get(int(node["cte_index"]))
        if found is None or found.outer != int(outer["cte_index"]):
            return None
        kinds = outer["chunk_types"]
        return _Made(
            outer,
            found.columns,
            tuple(range(len(kinds))),
            tuple(kinds[c] for c in found.columns),
            tuple(range(len(found.columns))),
        )
    if len(node["children"]) != 1:
        return None
    below = _over(node["children"][0], outer, known)
    if below is None:
        return None
    match node["type"]:
        case "LOGICAL_FILTER" if not node.get("projection_map"):
            conditions = [_moved(e, below) for e in node["expressions"]]
            made = {**node, "children": [below.node], "expressions": conditions}
            return _Made(made, below.place, below.outer, below.kinds, below.of)
        case "LOGICAL_UNNEST":
            return _unnested(node, below)
        case "LOGICAL_PROJECTION":
            return _projected(node, below, outer)
        case "LOGICAL_GET" if node["qname"]["path"][-1] in _LISTS:
            return _listed(node, below, outer)
    return None


def _unnested(node: Json, below: _Made) -> _Made:
    lists = [_moved(e, below) for e in node["expressions"]]
    made = {**node, "children": [below.node], "expressions": lists}
    fresh = tuple(below.width + n for n in range(len(lists)))
    kinds = tuple(e["return_type"] for e in node["expressions"])
    nothing = (None,) * len(lists)
    return _Made(made, below.place + fresh, below.outer, below.kinds + kinds, below.of + nothing)


def _projected(node: Json, below: _Made, outer: Json) -> _Made | None:
    expressions = node["expressions"]
    if any(str(e.get("alias")).startswith(MARK) for e in expressions):
        return None
    passed = _passed(below, outer)
    made = _projection(node, [*passed, *(_moved(e, below) for e in expressions)], below.node)
    width = len(passed)
    return _Made(
        made,
        tuple(width + n for n in range(len(expressions))),
        tuple(range(width)),
        tuple(_kind(e) for e in expressions),
        tuple(
            below.of[int(e["index"])] if e["expression_class"] == "BOUND_REF" else None for e in expressions
        ),
    )


def _listed(node: Json, below: _Made, outer: Json) -> _Made | None:
    """Rewrite a function in FROM.

    Its arguments are the first columns of its input; `projected_input` lists the columns that it passes on.
    """
    if below.node["type"] != "LOGICAL_PROJECTION" or below.node is outer:
        return None
    expressions = below.node["expressions"]
    own = [expressions[p] for p in below.place]
    passed = [expressions[p] for p in below.outer]
    child = {**below.node, "expressions": [*own, *passed]}
    taken = [int(n) for n in node.get("projected_input") or []]
    given = [int(c["index"]) for c in node["column_indexes"]]
    made = {
        **node,
        "children": [child],
        "projected_input": [*taken, *range(len(own), len(own) + len(passed))],
    }
    width = len(given) + len(taken)
    kinds = [node["returned_types"][n] for n in given] + [below.kinds[n] for n in taken]
    return _Made(
        made,
        tuple(range(width)),
        tuple(range(width, width + len(passed))),
        tuple(kinds),
        (None,) * len(given) + tuple(below.of[n] for n in taken),
    )


def _passed(below: _Made, outer: Json) -> list[Json]:
    return [_ref(p, kind) for p, kind in zip(below.outer, outer["chunk_types"], strict=True)]


def _moved(expression: Json, below: _Made) -> Json:
    return moved(expression, dict(enumerate(below.place)))


def _projection(like: Json, expressions: Sequence[Json], child: Json) -> Json:
    return {
        "type": "LOGICAL_PROJECTION",
        "table_index": like.get("table_index"),
        "expressions": list(expressions),
        "children": [child],
    }


def _ref(place: int, kind: Json) -> Json:
    return {
        "expression_class": "BOUND_REF", "type": "BOUND_REF", "alias": "", "index": place,
        "return_type": kind,
    }  # fmt: skip


def _kind(node: Json) -> Json:
    if node["expression_class"] == "BOUND_CONSTANT":
        kind: Json = node["value"]["type"]
        return kind
    if node["expression_class"] == "BOUND_CONJUNCTION":
        return {"id": "BOOLEAN", "type_info": None}
    found: Json = node["return_type"]
    return found

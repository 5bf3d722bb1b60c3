"""Reads the JSON of DuckDB's `json_serialize_plan` into typed nodes.

This is the only place that knows the JSON.  A node that is not known is refused with its place in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from millpond.sql.binding.types import Json, type_text
from millpond.sql.bound.expression_reader import at_of, read_constant, read_expression, read_orders
from millpond.sql.bound.expressions import AggregateCall, BoundExpression, UnnestedList, WindowCall
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundAsofJoin,
    BoundCrossProduct,
    BoundCte,
    BoundCteReference,
    BoundDistinct,
    BoundEmpty,
    BoundFilter,
    BoundGet,
    BoundJoin,
    BoundLimit,
    BoundListFunction,
    BoundMarkJoin,
    BoundOneRow,
    BoundOrder,
    BoundProject,
    BoundRecursiveCte,
    BoundRelation,
    BoundSetOperation,
    BoundTableFunction,
    BoundUnnest,
    BoundValues,
    BoundWindow,
    JoinCondition,
    JoinKind,
)
from millpond.sql.bound.words import COMPARISONS
from millpond.sql.refusal import NotSupported, refuse

_LISTS = ("unnest", "range", "generate_series")  # functions that return one row per element


def read_plan(node: Json) -> BoundRelation:
    """Read a bound plan."""
    reader = _READERS.get(node["type"])
    if reader is None:
        refuse(
            str(node["type"]).removeprefix("LOGICAL_").lower(),
            "is not supported in a materialized view",
            at_of(node),
        )
    return reader(node)


def _input(node: Json) -> BoundRelation:
    (found,) = node["children"]
    return read_plan(found)


def _all(nodes: Sequence[Json]) -> tuple[BoundExpression, ...]:
    return tuple(read_expression(n) for n in nodes)


def _places(value: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(int(n) for n in value or ())


def _types(kinds: Sequence[Json]) -> tuple[str, ...]:
    return tuple(type_text(kind) for kind in kinds)


def _get(node: Json) -> BoundRelation:
    data = node.get("function_data")
    table = data.get("table") if isinstance(data, dict) else None
    columns = tuple(int(c["index"]) for c in node["column_indexes"])
    if table is not None:
        return BoundGet(str(table), columns)
    name, names, types = str(node["qname"]["path"][-1]), tuple(node["names"]), _types(node["returned_types"])
    if not node["children"] and node.get("parameters"):
        given = tuple(read_constant(p) for p in node["parameters"])
        return BoundTableFunction(name, given, names, types, columns)
    if node["children"] and name in _LISTS:
        counted = node.get("source_ordinality") == "WITH_ORDINALITY"
        return BoundListFunction(
            input=_input(node),
            name=name,
            argument_types=_types(node["input_table_types"]),
            names=names,
            types=types,
            columns=columns,
            passed=_places(node.get("projected_input")),
            ordinality=int(node["ordinality_idx"]) if counted else None,
        )
    refuse(name, "is a function that reads rows, and is not supported here", at_of(node))


def _project(node: Json) -> BoundRelation:
    return BoundProject(input=_input(node), outputs=_all(node["expressions"]))


def _filter(node: Json) -> BoundRelation:
    shown = _places(node.get("projection_map"))
    return BoundFilter(input=_input(node), conditions=_all(node["expressions"]), shown=shown)


def _aggregate(node: Json) -> BoundRelation:
    return BoundAggregate(
        input=_input(node),
        groups=_all(node["groups"]),
        calls=cast(tuple[AggregateCall, ...], _all(node["expressions"])),
        sets=tuple(tuple(sorted(s)) for s in node.get("grouping_sets") or ()),
        groupings=tuple(_places(g) for g in node.get("grouping_functions") or ()),
    )


def _join(node: Json) -> BoundRelation:
    left, right = node["children"]
    kind = "FULL" if node["join_type"] == "OUTER" else node["join_type"]
    if kind not in ("INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "MARK", "SINGLE"):
        refuse(f"a join of kind {kind.lower()}", "is not supported", at_of(node))
    made = BoundMarkJoin if kind == "MARK" else BoundJoin
    made = BoundAsofJoin if node["type"] == "LOGICAL_ASOF_JOIN" else made
    return made(
        left=read_plan(left),
        right=read_plan(right),
        kind=cast(JoinKind, kind),
        conditions=tuple(_condition(c) for c in node.get("conditions") or ()),
        condition=read_expression(node["condition"]) if node.get("condition") else None,
        left_shown=_places(node.get("left_projection_map")),
        right_shown=_places(node.get("right_projection_map")),
    )


def _condition(node: Json) -> JoinCondition:
    right = None if node["right"] is None else read_expression(node["right"])
    return JoinCondition(COMPARISONS.get(node["comparison"], ""), read_expression(node["left"]), right)


def _cross_product(node: Json) -> BoundRelation:
    left, right = node["children"]
    return BoundCrossProduct(left=read_plan(left), right=read_plan(right))


def _window(node: Json) -> BoundRelation:
    return BoundWindow(input=_input(node), calls=cast(tuple[WindowCall, ...], _all(node["expressions"])))


def _unnest(node: Json) -> BoundRelation:
    return BoundUnnest(input=_input(node), lists=cast(tuple[UnnestedList, ...], _all(node["expressions"])))


def _order(node: Json) -> BoundRelation:
    return BoundOrder(input=_input(node), orders=read_orders(node["orders"]))


def _limit(node: Json) -> BoundRelation:
    rows, offset = _number(node["limit_val"], "LIMIT"), _number(node["offset_val"], "OFFSET")
    return BoundLimit(input=_input(node), rows=rows, offset=offset or 0)


def _number(value: Json, what: str) -> int | None:
    if value["type"] == "UNSET":
        return None
    if value["type"] != "CONSTANT_VALUE":
        raise NotSupported(f"{what} in a materialized view must be a number", hint="write it as a constant")
    return int(value["constant_integer"])


def _distinct(node: Json) -> BoundRelation:
    if node["distinct_type"] == "DISTINCT":
        return BoundDistinct(input=_input(node))
    orders = (node.get("order_by") or {}).get("orders") or ()
    targets = _all(node["distinct_targets"])
    return BoundDistinct(input=_input(node), targets=targets, orders=read_orders(orders))


def _set_operation(node: Json) -> BoundRelation:
    word = node["type"].removeprefix("LOGICAL_")
    parts = tuple(read_plan(child) for child in node["children"])
    return BoundSetOperation(word=word, parts=parts, all=node.get("setop_all", word == "UNION"))


def _cte(node: Json) -> BoundRelation:
    definition, query = (read_plan(child) for child in node["children"])
    return BoundCte(index=int(node["table_index"]), definition=definition, query=query)


def _recursive_cte(node: Json) -> BoundRelation:
    first, more = (read_plan(child) for child in node["children"])
    return BoundRecursiveCte(
        index=int(node["table_index"]),
        first=first,
        more=more,
        all=bool(node["union_all"]),
        using_key=bool(node.get("key_targets") or node.get("ref_recurring")),
    )


def _cte_reference(node: Json) -> BoundRelation:
    return BoundCteReference(
        int(node["cte_index"]), tuple(node["bound_columns"]), _types(node["chunk_types"])
    )


def _values(node: Json) -> BoundRelation:
    rows = tuple(_all(row) for row in node["expressions"])
    return BoundValues(_input(node), rows, _types(node["expr_types"]))


def _one_row(node: Json) -> BoundRelation:
    return BoundOneRow()


def _empty(node: Json) -> BoundRelation:
    return BoundEmpty(_types(node["return_types"]))


_READERS: dict[str, Callable[[Json], BoundRelation]] = {
    "LOGICAL_GET": _get,
    "LOGICAL_PROJECTION": _project,
    "LOGICAL_FILTER": _filter,
    "LOGICAL_AGGREGATE_AND_GROUP_BY": _aggregate,
    "LOGICAL_COMPARISON_JOIN": _join,
    "LOGICAL_ANY_JOIN": _join,
    "LOGICAL_ASOF_JOIN": _join,
    "LOGICAL_CROSS_PRODUCT": _cross_product,
    "LOGICAL_DISTINCT": _distinct,
    "LOGICAL_UNION": _set_operation,
    "LOGICAL_EXCEPT": _set_operation,
    "LOGICAL_INTERSECT": _set_operation,
    "LOGICAL_ORDER_BY": _order,
    "LOGICAL_LIMIT": _limit,
    "LOGICAL_WINDOW": _window,
    "LOGICAL_MATERIALIZED_CTE": _cte,
    "LOGICAL_RECURSIVE_CTE": _recursive_cte,
    "LOGICAL_CTE_REF": _cte_reference,
    "LOGICAL_EXPRESSION_GET": _values,
    "LOGICAL_DUMMY_SCAN": _one_row,
    "LOGICAL_EMPTY_RESULT": _empty,
    "LOGICAL_UNNEST": _unnest,
}

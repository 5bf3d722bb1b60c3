"""Reads the JSON of bound expressions into typed nodes.

Names of functions pass through: what a function means is the matter of whoever renders it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from millpond.sql.binding.types import Json, type_text
from millpond.sql.bound.clock import CLOCK, STAMP
from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundCase,
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Cast,
    Comparison,
    Conjunction,
    Constant,
    CurrentTime,
    FrameEdge,
    Lambda,
    MonthsDaysMicros,
    Position,
    Reference,
    SortItem,
    UnnestedList,
    WindowCall,
)
from millpond.sql.bound.reduction import applied, without_dead_branches
from millpond.sql.bound.words import COMPARISONS
from millpond.sql.refusal import refuse

_NOWHERE = 2**64 - 1


def at_of(node: Json) -> Position | None:
    """Where a node stands in the text, if that is known."""
    start = node.get("query_location", _NOWHERE)
    return None if start == _NOWHERE else (int(start), int(node.get("query_location_length") or 1))


def read_expression(node: Json) -> BoundExpression:
    reader = _READERS.get(node["expression_class"])
    if reader is None:
        refuse(_called(node), "is not supported in a materialized view", at_of(node))
    return reader(node)


def read_orders(items: Sequence[Json]) -> tuple[SortItem, ...]:
    return tuple(
        SortItem(
            read_expression(item["expression"]),
            item["type"] == "DESCENDING",
            item["null_order"] == "NULLS FIRST",
        )
        for item in items
    )


def _called(node: Json) -> str:
    path = (node.get("qname") or {}).get("path")
    return str(path[-1] if path else node.get("type") or node["expression_class"]).lower()


def _name(node: Json) -> str:
    return str((node.get("qname") or {"path": [""]})["path"][-1])


def _said(node: Json) -> dict[str, Any]:
    """The name and the place that the query gives an expression, and its type."""
    return {"type": type_text(node["return_type"]), "alias": node.get("alias") or "", "at": at_of(node)}


def _all(nodes: Sequence[Json] | None) -> tuple[BoundExpression, ...]:
    return tuple(read_expression(n) for n in nodes or ())


def _maybe(node: Json | None) -> BoundExpression | None:
    return read_expression(node) if node else None


def _reference(node: Json) -> BoundExpression:
    return Reference(int(node["index"]), **_said(node))


def _column(node: Json) -> BoundExpression:
    """Read a reference below a function in FROM: there is one input, so the position is enough."""
    return Reference(int(node["binding"]["column_index"]), **_said(node))


def _constant(node: Json) -> BoundExpression:
    return read_constant(node["value"], node.get("alias") or "", at_of(node))


def _conjunction(node: Json) -> BoundExpression:
    word = "AND" if node["type"] == "CONJUNCTION_AND" else "OR"
    return Conjunction(
        word, _all(node["children"]), type="BOOLEAN", alias=node.get("alias") or "", at=at_of(node)
    )


def _case(node: Json) -> BoundExpression:
    checks = tuple(
        (read_expression(c["when_expr"]), read_expression(c["then_expr"])) for c in node["case_checks"]
    )
    return without_dead_branches(BoundCase(checks, read_expression(node["else_expr"]), **_said(node)))


def _operator(node: Json) -> BoundExpression:
    return BoundOperator(str(node["type"]), _all(node["children"]), **_said(node))


def _function(node: Json) -> BoundExpression:
    name, said, arguments = _name(node), _said(node), _all(node["children"])
    data = node.get("function_data")
    data = data if isinstance(data, dict) else {}
    if node["type"] == "OPERATOR_CAST" or name == "__cast":
        (argument,) = arguments
        if isinstance(argument, Constant) and argument.value in (CLOCK, STAMP):
            return CurrentTime(argument.value == STAMP, **said)
        return Cast(argument, bool(data.get("try_cast")), **said)
    if node["type"] in COMPARISONS:
        left, right = arguments
        return Comparison(COMPARISONS[node["type"]], left, right, **said)
    named = tuple(node.get("named_arguments") or ())
    return applied(BoundFunction(name, arguments, named, bool(data.get("has_initial")), **said))


def _lambda(node: Json) -> BoundExpression:
    body = read_expression(node["lambda_expr"])
    return Lambda(int(node["parameter_count"]), body, type=body.type, at=at_of(node))


def _unnest(node: Json) -> BoundExpression:
    return UnnestedList(read_expression(node["child"]), **_said(node))


def _aggregate(node: Json) -> BoundExpression:
    data = node.get("function_data")
    return AggregateCall(
        _name(node),
        _all(node["children"]),
        node.get("aggregate_type") == "DISTINCT",
        _maybe(node.get("filter")),
        read_orders((node.get("order_bys") or {}).get("orders") or ()),
        tuple((data.get("quantiles") or ()) if isinstance(data, dict) else ()),
        **_said(node),
    )


def _window(node: Json) -> BoundExpression:
    extra = [node[name] for name in ("offset_expr", "default_expr") if node.get(name)]
    return WindowCall(
        str(node["type"]),
        _name(node),
        (*_all(node["children"]), *_all(extra)),
        _all(node.get("partitions")),
        read_orders(node.get("orders") or ()),
        read_orders(node.get("arg_orders") or ()),
        _maybe(node.get("filters")),
        FrameEdge(str(node["start"]), _maybe(node.get("start_expr"))),
        FrameEdge(str(node["end"]), _maybe(node.get("end_expr"))),
        str(node["exclude_clause"]),
        bool(node.get("distinct")),
        bool(node.get("ignore_nulls")),
        **_said(node),
    )


_READERS: dict[str, Callable[[Json], BoundExpression]] = {
    "BOUND_REF": _reference,
    "BOUND_COLUMN_REF": _column,
    "BOUND_CONSTANT": _constant,
    "BOUND_CONJUNCTION": _conjunction,
    "BOUND_CASE": _case,
    "BOUND_OPERATOR": _operator,
    "BOUND_FUNCTION": _function,
    "BOUND_LAMBDA": _lambda,
    "BOUND_UNNEST": _unnest,
    "BOUND_AGGREGATE": _aggregate,
    "BOUND_WINDOW": _window,
}


# -- constants -------------------------------------------------------------------------------------------


def read_constant(node: Json, alias: str = "", at: Position | None = None) -> Constant:
    """Read a value with its type.

    >>> read_constant({"type": {"id": "INTEGER", "type_info": None}, "is_null": False, "value": 7}).value
    7
    """
    kind = node["type"]
    name, info = str(kind["id"]), kind.get("type_info") or {}
    value: Any = None if node["is_null"] else node["value"]
    fields: tuple[str, ...] = ()
    if value is None:
        pass
    elif name in ("HUGEINT", "UHUGEINT"):
        value = _wide(value)
    elif name == "DECIMAL":
        value = Decimal(f"{_wide(value)}e-{info['scale']}")
    elif name in ("DOUBLE", "FLOAT"):
        value = float(value)
    elif name == "INTERVAL":
        value = MonthsDaysMicros(int(value["months"]), int(value["days"]), int(value["micros"]))
    elif name in ("LIST", "ARRAY", "MAP"):
        value = tuple(_inner(c, info["child_type"]) for c in value["children"])
    elif name in ("STRUCT", "TUPLE"):
        parts = info["child_types"]
        fields = tuple(part["first"] for part in parts)
        value = tuple(_inner(c, p["second"]) for c, p in zip(value["children"], parts, strict=True))
    elif not isinstance(value, str | int | float):
        value = str(value)
    return Constant(name, value, fields, type=type_text(kind), alias=alias, at=at)


def _inner(node: Json, kind: Json) -> Constant:
    """Read an element of a nested constant, whose type is stored in the outer constant."""
    return read_constant({"type": kind, "value": None, **node})


def _wide(value: Any) -> int:
    if isinstance(value, dict):
        return (int(value["upper"]) << 64) + int(value["lower"])
    return int(value)

"""Aggregates that DuckDB lacks or means otherwise.

Parts of a node are shared, not copied: they are rewritten in their turn.
A macro cannot take DISTINCT, ORDER BY, FILTER or OVER, so the aggregate stays one of DuckDB's, and a function
of the library is called over its result: `json_agg(x ORDER BY y)` is `__pg.json_agg(list(x ORDER BY y))`.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.tree_parts import become, builtin, called, expression

Rewrite = Callable[[list[Tree]], list[Tree]]


def _json(arguments: list[Tree]) -> list[Tree]:
    return [called("json_row", arguments[0])]


# name -> the aggregate that DuckDB runs, what its arguments become, and the function over its result
_OVER_LISTS: dict[str, tuple[str, Rewrite | None, str]] = {
    "json_agg": ("list", _json, "json_agg"),
    "jsonb_agg": ("list", _json, "jsonb_agg"),
    "every": ("bool_and", None, ""),
}
_PAIRS = ("json_object_agg", "jsonb_object_agg")
# name -> a function that gives sums and means PostgreSQL's types, and the aggregates whose results it reads
_NUMBERS = {
    "sum": ("sum_of", ("sum",)),
    "avg": ("avg_of", ("sum", "count")),
    "mean": ("avg_of", ("sum", "count")),
}
_SPREADS = ("var_pop", "stddev_pop")  # over a frame PostgreSQL gives 0 for one infinity, too
_SORTED_WHEN_DISTINCT = ("array_agg", "string_agg")  # PostgreSQL finds different values by sorting
_LINES = ("corr", "regr_slope", "regr_intercept", "regr_r2")
_ENDS = {"first_value": "first", "last_value": "last"}  # of RisingWave: aggregates with ORDER BY


def aggregated(name: str, node: Tree) -> bool:
    """Rewrite a call of an aggregate, with or without OVER, in place; was it one of these?"""
    arguments = [a["expression"] for a in node["arguments"]]
    if name in _PAIRS and len(arguments) == 2:
        key, value = {**node, "alias": ""}, {**node, "alias": ""}
        _renamed(key, "list", [called("output", arguments[0])])
        _renamed(value, "list", [called("json_text", arguments[1])])
        become(node, called(name, key, value))
        return True
    if name in _NUMBERS and len(arguments) == 1:
        over, parts = _NUMBERS[name]
        made = [{**node, "alias": ""} for _ in parts]
        # `summed` writes its argument many times; DuckDB would plan a subquery in it as often, and not end.
        plain = any(part.get("class") == "SUBQUERY" for part in nodes(arguments))
        for part, run in zip(made, parts, strict=True):
            wrapped = run == "sum" and not plain
            _renamed(part, run, [called("summed", *arguments)] if wrapped else arguments, own=True)
        become(node, called(over, *made, _witness(node, arguments[0])))
        return True
    if name in _SPREADS and len(arguments) == 1 and node["class"] == "FUNCTION":
        spread, endless = {**node, "alias": ""}, {**node, "alias": ""}
        _renamed(spread, name, arguments, own=True)
        counted = expression("CASE WHEN NOT isfinite(CAST(x AS DOUBLE)) THEN CAST(x AS DOUBLE) END")
        isfinite = counted["case_checks"][0]["when_expr"]["children"][0]
        for cast in (isfinite["arguments"][0]["expression"], counted["case_checks"][0]["then_expr"]):
            cast["child"] = arguments[0]
        _renamed(endless, "count", [counted], own=True)
        become(node, called("pop_of", spread, endless))
        return True
    if name in _LINES and len(arguments) == 2:
        line, endless = {**node, "alias": ""}, {**node, "alias": ""}
        _renamed(line, name, arguments, own=True)
        counted = expression(
            "CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN"
            " CASE WHEN NOT (system.main.isfinite(CAST(x AS DOUBLE))"
            " AND system.main.isfinite(CAST(y AS DOUBLE))) THEN 1 END END"
        )
        _renamed(endless, "count", [_with_operands(counted, *arguments)], own=True)
        become(node, called("fitted_line", line, endless))
        return True
    if name in _ENDS and node["class"] == "FUNCTION":
        _renamed(node, _ENDS[name], arguments)
        return True
    if name in ("json_agg", "jsonb_agg") and node.get("distinct") and not node["order_bys"]["orders"]:
        inner = {**node, "alias": ""}
        _renamed(inner, "list", arguments)
        inner["order_bys"] = _in_order_of(arguments[0])
        become(node, called(f"{name}_distinct", inner))
        return True
    if name in _SORTED_WHEN_DISTINCT and node["class"] == "FUNCTION" and node["distinct"]:
        if node["order_bys"]["orders"] or not arguments:
            return False
        node["order_bys"] = _in_order_of(arguments[0])
        return False  # the rest of the call stays
    if name not in _OVER_LISTS:
        return False
    run, rewrite, over = _OVER_LISTS[name]
    inner = {**node} if over else node
    _renamed(inner, run, rewrite(arguments) if rewrite is not None else arguments)
    if over:
        inner["alias"] = ""
        become(node, called(over, inner))
    return True


def _in_order_of(argument: Tree) -> Tree:
    order: Tree = expression("list(x ORDER BY x NULLS LAST)")["order_bys"]
    order["orders"][0]["expression"] = argument
    return order


def _with_operands(node: Tree, x: Tree, y: Tree) -> Tree:
    """An expression over columns x and y, over these expressions instead."""
    for part in list(nodes(node)):
        names = part.get("column_names")
        if names in (["x"], ["y"]):
            become(part, {**(x if names == ["x"] else y), "alias": ""})
    return node


def _witness(node: Tree, argument: Tree) -> Tree:
    """An expression of the argument's type where the aggregate stands; its value is not read."""
    if node["class"] == "WINDOW":
        return {**argument, "alias": ""}
    return builtin("system.main.any_value", argument)


def _renamed(node: Tree, name: str, arguments: list[Tree], own: bool = False) -> None:
    again = own or name == node["function_name"].lower()
    path = ["system", "main", name] if again else [name]  # not to be found again
    node.update(function_name=name, schema="main" if path[1:] else "", catalog="system" if path[1:] else "")
    node["qualified_name"] = {"path": path}
    node["arguments"] = [{"name": "", "expression": a} for a in arguments]

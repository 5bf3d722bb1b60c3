"""Comparisons with the elements of an array: `x = ANY (array)` and `x < ALL (array)`.

DuckDB's parser makes `x = ANY (SELECT unnest(array))` of them, which takes a NULL array for an empty one.
Here they are computed from the array itself: NULL for a NULL array, and no join in a view.
"""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.tree_parts import become, called, expression

_ELEMENT = "__element"  # no column has this name
_GENERATED = (1 << 64) - 1  # the place of what is not in the text


def rewritten_array_comparison(node: Tree) -> bool:
    """Change a comparison with an array in place; was it one?  `ALL` is a negated `ANY` by now."""
    array = _array(node)
    if array is None:
        return False
    if array.get("class") == "CONSTANT" and (array.get("literal") or {}).get("kind") == "STRING":
        beside = expression("ARRAY[a]")
        beside["children"] = [node["child"]]
        array = called("array_beside", array, beside)
    if any(inner.get("class") == "SUBQUERY" for inner in (*nodes(node["child"]), *nodes(array))):
        made = expression("CASE WHEN a IS NULL THEN NULL ELSE b END")
        kept = dict(node)
        made["case_checks"][0]["when_expr"]["children"] = [array]
        made["else_expr"] = kept
    elif node["comparison_type"] == "COMPARE_EQUAL" and _listed(array):
        made = expression("a IN (b)")
        made["children"] = [node["child"], *array["children"]]
    else:
        compared = expression(f"a = {_ELEMENT}")
        compared.update(type=node["comparison_type"], left=node["child"])
        each = expression(f"system.main.list_transform(b, lambda {_ELEMENT}: a)")
        each["arguments"][0]["expression"] = array
        each["arguments"][1]["expression"]["expr"] = compared
        made = called("any_true", each)
    become(node, made)
    return True


def _array(node: Tree) -> Tree | None:
    """The array that a node compares with; None if it does not."""
    if node.get("class") != "SUBQUERY" or node["subquery_type"] != "ANY":
        return None
    query = node["subquery"]["node"]
    if query["type"] != "SELECT_NODE" or len(query["select_list"]) != 1:
        return None
    call = query["select_list"][0]
    if call.get("function_name") != "unnest" or call["query_location"] != _GENERATED:
        return None
    found: Tree = call["arguments"][0]["expression"]
    return found


def _listed(array: Tree) -> bool:
    return array.get("type") == "ARRAY_CONSTRUCTOR" and bool(array["children"])

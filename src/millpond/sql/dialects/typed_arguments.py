"""Computes aggregates and window functions in a query of their own, where a dialect's function takes them.

DuckDB chooses among the overloads of a macro by the types of its arguments, but does not know the types of
aggregates, window functions and UNNEST at that time, and would take any overload.  So

    SELECT k, __pg."/"(sum(a), count(*)) FROM t GROUP BY k

becomes

    SELECT k, __pg."/"(__a0, __a1) FROM (SELECT k, sum(a) AS __a0, count(*) AS __a1 FROM t GROUP BY k)

Law: the outer query has the same columns, order, limit and rows.  Everything that holds no such call is
computed inside, where all names of the query are known.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from millpond.errors import InvalidError
from millpond.sql.dialects.constant_groups import replace_constant_groups
from millpond.sql.dialects.library import is_typed
from millpond.sql.dialects.parse_tree import Tree, in_query, nodes, parsed
from millpond.sql.text.duckdb_parser import parser

_PREFIX = "__a"
_SUMS = ("sum_of", "avg_of")
_NOWHERE = {"query_location": (1 << 64) - 1, "query_location_length": 0}
_STAR: Tree = {
    "class": "STAR",
    "type": "STAR",
    "alias": "",
    **_NOWHERE,
    "relation_name": "",
    "replace_list": [],
    "columns": False,
    "expr": None,
    "qualified_exclude_list": [],
    "rename_list": [],
}


def hoist_arguments(tree: Tree) -> bool:
    """Rewrite every SELECT of a tree where needed; was one?"""
    changed = False
    found = list(nodes(tree))
    everywhere = {name for node in found if node.get("type") in _FROM for name in _from_names(node)}
    for node in reversed(found):  # the inner ones first: the outer ones copy them
        if node.get("type") == "SUBQUERY" and "subquery" in node and "column_name_alias" in node:
            changed |= _values_as_selects(node["subquery"])
            for select in _selects(node["subquery"]["node"]):
                changed |= _with_outer_columns(select)
                changed |= _beside_outer_columns(select, everywhere)
        elif node.get("type") == "TABLE_FUNCTION":
            changed |= _with_computed_arguments(node)
    for node in reversed(list(nodes(tree))):
        if node.get("type") != "SELECT_NODE":
            continue
        changed |= replace_constant_groups(node)
        while _hoisted(node):
            changed = True
    return changed


@cache
def _aggregates() -> frozenset[str]:
    """The names of DuckDB's aggregates."""
    sql = "select distinct function_name from duckdb_functions() where function_type = 'aggregate'"
    return frozenset(str(name) for (name,) in parser().execute(sql).fetchall())


def is_aggregate(node: Tree) -> bool:
    """Is a node the call of an aggregate, not of a window function?"""
    return node.get("class") == "FUNCTION" and node["function_name"].lower() in _aggregates()


def _is_untyped(node: Tree) -> bool:
    """Is this an expression whose type DuckDB does not know when it chooses an overload?"""
    if node.get("class") == "WINDOW" or is_aggregate(node):
        return True
    return node.get("class") == "FUNCTION" and node["function_name"].lower() == "unnest"


def _is_typed_call(node: Tree) -> bool:
    if node.get("class") != "FUNCTION":
        return False
    path: list[str] = node["qualified_name"]["path"]
    return len(path) > 1 and is_typed(path[0], path[-1])


def _with_outer_columns(select: Tree) -> bool:
    """Give a lateral SELECT without FROM the columns of the outer query as columns of its own.

    DuckDB fails to bind a macro with typed parameters over columns of an outer query of FROM:
    `LATERAL (SELECT __pg."/"(t.a, 2))` becomes
    `LATERAL (SELECT __pg."/"(__o0, 2) FROM (SELECT t.a AS __o0))`.
    """
    if select.get("type") != "SELECT_NODE" or (select.get("from_table") or {}).get("type") != "EMPTY":
        return False
    if not _fails_over_outer_columns(select["select_list"]):
        return False
    for item in select["select_list"]:
        if item.get("class") == "COLUMN_REF" and not item["alias"]:
            item["alias"] = item["column_names"][-1]
    return _read_outer_columns(select)


def _values_as_selects(query: Tree) -> bool:
    """Write VALUES with typed calls over columns as SELECTs without FROM, which can be given outer columns.

    `LATERAL (VALUES (__pg."/"(t.a, 2)), (1))` becomes `LATERAL (SELECT __pg."/"(t.a, 2) UNION ALL SELECT 1)`.
    """
    select = query["node"]
    rows = (select.get("from_table") or {}).get("values")
    if rows is None or select["where_clause"] is not None or select["modifiers"]:
        return False
    items = [one for row in rows for one in row]
    reads = any(node.get("class") == "COLUMN_REF" for one in items for node in in_query(one))
    if [one["class"] for one in select["select_list"]] != ["STAR"] or not reads:
        return False
    if not _fails_over_outer_columns(items):
        return False
    names = select["from_table"].get("column_name_alias") or select["from_table"]["expected_names"]
    union = _select_of("SELECT 1 UNION ALL SELECT 2")
    found: list[Tree] = []
    for row in rows:
        shown = names or [f"col{n}" for n in range(len(row))]
        made = _select_of("SELECT 1")
        made["select_list"] = [{**one, "alias": name} for one, name in zip(row, shown, strict=True)]
        found.append(made)
    query["node"] = found[0] if len(found) == 1 else {**union, "children": found}
    return True


def _selects(query: Tree) -> Iterator[Tree]:
    """The query, or the parts of a UNION and the like."""
    if query.get("type") == "SET_OPERATION_NODE":
        for part in query["children"] or (query["left"], query["right"]):
            yield from _selects(part)
    else:
        yield query


_FROM = ("BASE_TABLE", "SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST")


def _from_names(item: Tree) -> set[str]:
    """The names under which FROM gives relations."""
    if item.get("type") == "JOIN":
        return _from_names(item["left"]) | _from_names(item["right"])
    name = item.get("alias") or item.get("table_name") or item.get("function", {}).get("function_name") or ""
    return {name.lower()}


def _beside_outer_columns(select: Tree, everywhere: set[str]) -> bool:
    """Give a lateral SELECT the outer columns that its functions take as a relation, for the same reason.

    `LATERAL (SELECT y.b FROM y WHERE y.b = __pg."/"(x.a, 2))` becomes
    `LATERAL (SELECT y.b FROM y, (SELECT x.a AS __o0) AS __outer WHERE y.b = __pg."/"(__outer.__o0, 2))`.
    """
    if select.get("type") != "SELECT_NODE" or (select.get("from_table") or {}).get("type") == "EMPTY":
        return False
    orders = [order["expression"] for m in select["modifiers"] for order in m.get("orders", ())]
    expressions = [e for e in (*select["select_list"], select["where_clause"], *orders) if e is not None]
    inside = [node for e in expressions for node in in_query(e)]
    grouped = select["group_expressions"] or any(map(is_aggregate, inside))
    if grouped or any(node.get("class") in ("LAMBDA", "STAR") for node in inside):
        return False
    outer = everywhere - _from_names(select["from_table"])
    columns: list[Tree] = []
    for node in [node for call in inside if _is_typed_call(call) for node in in_query(call)]:
        names: list[str] = node["column_names"] if node.get("class") == "COLUMN_REF" else []
        if len(names) == 2 and names[0].lower() in outer:
            name = f"__o{len(columns)}"
            columns.append({**copy.deepcopy(node), "alias": name})
            node["column_names"] = ["__outer", name]
    if not columns:
        return False
    made = _select_of("SELECT 1 FROM a, b")["from_table"]
    given = {**_select_of("SELECT 1"), "select_list": columns}
    made.update(left=select["from_table"], right={**_subquery(given), "alias": "__outer"})
    select["from_table"] = made
    return True


def _with_computed_arguments(function: Tree) -> bool:
    """Compute the arguments of a function in FROM beside it, for the same reason.

    `generate_series(1, __pg."/"(t.a, 2)) AS g` becomes
    `(SELECT g.* FROM (SELECT __pg."/"(__o0, 2) AS __a0 FROM (SELECT t.a AS __o0)) AS __computed,
    generate_series(1, __computed.__a0) AS g) AS g`.
    """
    call = function["function"]
    affected = [a for a in call["arguments"] if _fails_over_outer_columns([a["expression"]])]
    if not affected or not any(
        n.get("class") == "COLUMN_REF" for a in affected for n in in_query(a["expression"])
    ):
        return False
    shown = function["alias"] or call["function_name"]
    inner = _select_of("SELECT 1")
    inner["select_list"] = []
    for place, argument in enumerate(affected):
        name = f"{_PREFIX}{place}"
        inner["select_list"].append({**argument["expression"], "alias": name})
        argument["expression"] = {**_column(name), "column_names": ["__computed", name]}
    _read_outer_columns(inner)
    outer = _select_of(f'SELECT "{shown}".* FROM a AS __computed, b AS "{shown}"')
    outer["from_table"]["left"] = _subquery(inner)
    outer["from_table"]["right"] = {**copy.deepcopy(function), "alias": shown}
    made = {**_subquery(outer), "alias": shown}
    function.clear()
    function.update(made)
    return True


def _fails_over_outer_columns(expressions: list[Tree]) -> bool:
    inside = [node for e in expressions for node in in_query(e)]
    return any(map(_is_typed_call, inside)) and not any(node.get("class") == "LAMBDA" for node in inside)


def _read_outer_columns(select: Tree) -> bool:
    """Let a SELECT without FROM read the outer columns from a query of its own; are there any?"""
    columns: list[Tree] = []
    for node in [node for e in select["select_list"] for node in in_query(e)]:
        if node.get("class") == "COLUMN_REF":
            name = f"__o{len(columns)}"
            columns.append({**copy.deepcopy(node), "alias": name})
            node["column_names"] = [name]
    if not columns:
        return False
    inner = {**copy.deepcopy(select), "select_list": columns, "modifiers": [], "where_clause": None}
    select["from_table"] = _subquery(inner)
    return True


def _select_of(text: str) -> Tree:
    tree = parsed(text)
    assert tree is not None, text
    found: Tree = tree["statements"][0]["node"]
    return found


def _is_affected(node: Tree) -> bool:
    """Is this the call of a function with typed overloads, with such an argument?

    A window function over such calls of aggregates is, too: their text would be copied again and again.
    """
    if node.get("class") == "WINDOW":
        return any(map(_is_sum, in_query(node)))
    if node.get("class") != "FUNCTION" or is_aggregate(node):
        return False
    if not _is_typed_call(node):
        return False
    return any(_is_untyped(inner) for argument in node["arguments"] for inner in in_query(argument))


def _is_sum(node: Tree) -> bool:
    """Is this a sum or a mean of PostgreSQL over an aggregate?"""
    if node.get("class") != "FUNCTION" or node["qualified_name"]["path"][-1] not in _SUMS:
        return False
    return len(node["qualified_name"]["path"]) > 1 and is_aggregate(node["arguments"][0]["expression"])


def _expressions(select: Tree) -> Iterator[Tree]:
    """The expressions of a SELECT that are computed after its groups."""
    yield from select["select_list"]
    yield from (e for e in (select["having"], select["qualify"]) if e is not None)
    for modifier in select["modifiers"]:
        yield from (order["expression"] for order in modifier.get("orders", ()))
        yield from modifier.get("distinct_on_targets") or ()


def _hoisted(select: Tree) -> bool:
    if not any(_is_affected(node) for e in _expressions(select) for node in in_query(e)):
        return False
    outer = _Outer(select)
    inner = copy.deepcopy(
        {k: select[k] for k in ("from_table", "where_clause", "group_expressions", "group_sets", "sample")}
    )
    inner |= {
        "type": "SELECT_NODE",
        "modifiers": [],
        "cte_map": {"map": []},
        "aggregate_handling": select["aggregate_handling"],
        "having": None if outer.moves_having else select["having"],
        "qualify": None,
    }
    qualify = select["qualify"]
    if qualify is not None and not outer.is_outside(qualify):
        inner["qualify"], qualify = qualify, None
    listed = outer.listed()
    having = outer.rewritten(select["having"]) if outer.moves_having else None
    qualify = None if qualify is None else outer.rewritten(qualify)
    outer.order()
    for expression in inner["group_expressions"]:
        literal = expression.get("literal") or {}
        if literal.get("kind") == "INTEGER" and int(literal["text"]) - 1 in outer.moved:
            literal["text"] = str(outer.moved[int(literal["text"]) - 1] + 1)
    inner["select_list"] = outer.inner
    select |= {
        "select_list": listed,
        "from_table": _subquery(inner),
        "where_clause": having,
        "group_expressions": [],
        "group_sets": [],
        "aggregate_handling": "STANDARD_HANDLING",
        "having": None,
        "qualify": qualify,
        "sample": None,
    }
    return True


class _Outer:
    """The outer query while it is written, and the columns that the inner one computes for it."""

    def __init__(self, select: Tree) -> None:
        self.select = select
        self.inner: list[Tree] = []
        self.moved: dict[int, int] = {}  # the place of a column -> its place in the inner query
        self._made: dict[str, Tree] = {}
        self._excluded: list[str] = []  # the names of the inner query that * does not show
        having = select["having"]
        self.moves_having = having is not None and any(_is_affected(n) for n in in_query(having))

    def is_outside(self, expression: Tree) -> bool:
        """Must an expression be computed by the outer query?"""
        for node in in_query(expression):
            if _is_affected(node) or (self.moves_having and node.get("class") == "WINDOW"):
                return True
        return False

    def listed(self) -> list[Tree]:
        stars = [n for n, item in enumerate(self.select["select_list"]) if item["class"] == "STAR"]
        if stars and stars != list(range(stars[0], stars[-1] + 1)):
            raise InvalidError(
                "* must not stand twice in a query that computes with aggregates or window functions",
                hint="list the columns",
            )
        names = [item["alias"] for item in self.select["select_list"]]
        found: list[Tree] = []
        for place, item in enumerate(self.select["select_list"]):
            if item["class"] == "STAR":
                self.inner.append(item)
                if place == stars[0]:
                    found.append(_STAR | {"exclude_list": self._excluded})
            elif self.is_outside(item):
                found.append(self.rewritten(item))
            else:
                shown = item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")
                own = item["alias"] if not stars and names.count(item["alias"]) == 1 else ""
                self.moved[place] = len(self.inner)
                self._made[_key(item)] = column = self._computed(item, own)
                found.append(column | {"alias": shown})
        return found

    def order(self) -> None:
        """Rewrite ORDER BY and DISTINCT ON; those that name a column of the query or its place stay."""
        given = {item["alias"].lower() for item in self.select["select_list"] if item["alias"]}
        given |= {
            item["column_names"][-1].lower()
            for item in self.select["select_list"]
            if item["class"] == "COLUMN_REF" and not item["alias"]
        }

        def settled(expression: Tree) -> Tree:
            names = expression.get("column_names")
            if expression["class"] in ("CONSTANT", "STAR"):  # ORDER BY ALL is a star: all that is listed
                return expression
            if names and len(names) == 1 and names[0].lower() in given:
                return expression
            return self.rewritten(expression)

        for modifier in self.select["modifiers"]:
            for order in modifier.get("orders", ()):
                order["expression"] = settled(order["expression"])
            if modifier.get("distinct_on_targets"):
                modifier["distinct_on_targets"] = [settled(e) for e in modifier["distinct_on_targets"]]

    def rewritten(self, expression: Tree) -> Tree:
        """An expression of the outer query: what holds no affected call comes from the inner one."""
        if expression["class"] == "CONSTANT":
            return expression
        if not self.is_outside(expression):
            column = self._made.get(_key(expression))
            if column is None:
                column = self._made[_key(expression)] = self._computed(expression)
            return column | {"alias": expression["alias"]}
        return _mapped(expression, self.rewritten)

    def _computed(self, expression: Tree, name: str = "") -> Tree:
        """Let the inner query compute an expression; returns the column that has it."""
        name = name or f"{_PREFIX}{len(self.inner)}"
        self.inner.append(copy.deepcopy(expression) | {"alias": name})
        self._excluded.append(name)
        return _column(name)


def _mapped(expression: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """A copy of an expression with its direct parts changed."""

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "class" in value and value["class"] != "TYPE":
            return change(value)
        return {k: walk(v) for k, v in value.items()}

    return {k: walk(v) for k, v in expression.items()}


def _key(expression: Tree) -> str:
    """What an expression says, without its place in the text and its name."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if not k.startswith("query_location")}
        return [plain(v) for v in value] if isinstance(value, list) else value

    return repr(plain(expression | {"alias": ""}))


def _column(name: str) -> Tree:
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        **_NOWHERE,
        "column_names": [name],
    }


def _subquery(select: Tree) -> Tree:
    return {
        "type": "SUBQUERY",
        "alias": "__computed",
        "sample": None,
        **_NOWHERE,
        "subquery": {"node": select, "named_param_map": []},
        "column_name_alias": [],
    }

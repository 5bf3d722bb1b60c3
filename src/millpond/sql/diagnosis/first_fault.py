"""Finds the part of a query that cannot be bound: the innermost one, and the first in PostgreSQL's order.

Law: the parts of the part are right, so that it is wrong itself, and their types are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from millpond.sql.diagnosis.mismatches import are_mixed
from millpond.sql.diagnosis.type_probe import Facts, TypeProbe, exchanged, one, only, replaced
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import expression

BOOLEANS = ("BOOLEAN", '"NULL"', "STRING_LITERAL", "UNKNOWN")


@dataclass(frozen=True)
class WrongPart:
    """An expression that the binder refuses, or whose type a clause does not take."""

    node: Tree
    operands: tuple[Tree, ...]  # its parts
    types: tuple[str, ...]  # of its parts, or its own if a clause does not take it
    facts: Facts  # what the binder says
    clause: str = ""  # WHERE, HAVING and others, if the clause is what does not take it


# Does PostgreSQL refuse an expression over operands of these types, which the binder takes?
Mismatch = Callable[[Tree, tuple[Tree, ...], tuple[str, ...]], bool]
OPERANDS_MAX = 300


class FirstFault:
    """Looks for what the binder refuses; with `mismatch`, in what it takes, for what PostgreSQL refuses."""

    def __init__(self, probe: TypeProbe, mismatch: Mismatch | None = None) -> None:
        self.probe = probe
        self.mismatch = mismatch

    def _is_right(self) -> bool:
        """Is there nothing to look for in the query as it is now?"""
        return self.mismatch is None and self.probe.problem() is None

    def query(self, node: Tree) -> WrongPart | None:
        """The first wrong part of a query, which may stand inside of others."""
        found = self._common_tables(node)
        if found is not None:
            return found
        if node["type"] == "SET_OPERATION_NODE":
            return self._set_operation(node, node["children"])
        if node["type"] == "RECURSIVE_CTE_NODE":
            return None
        return self._select(node) if node["type"] == "SELECT_NODE" else None

    def _common_tables(self, node: Tree) -> WrongPart | None:
        for common in (node.get("cte_map") or {}).get("map", ()):
            query = common["value"]["query_node"]
            body: Tree = query.get("node", query)
            read = expression(f"(SELECT 1 FROM {_quoted(common['key'])})")["subquery"]["node"]
            with exchanged(node, {**read, "cte_map": node["cte_map"]}):
                if self._is_right():
                    continue
                is_recursive = body["type"] == "RECURSIVE_CTE_NODE"
                found = self._recursive(body) if is_recursive else self.query(body)
                if found is not None:
                    return found
        return None

    def _recursive(self, body: Tree) -> WrongPart | None:
        """The first query alone, then the second, which reads what the first gives."""
        with exchanged(body, body["left"]):
            if not self._is_right() and (found := self.query(body)) is not None:
                return found
        return self.query(body["right"])

    def _set_operation(self, node: Tree, children: list[Tree]) -> WrongPart | None:
        for child in children:
            known = list((node.get("cte_map") or {}).get("map", ()))
            own = list((child.get("cte_map") or {}).get("map", ()))
            with exchanged(node, {**child, "cte_map": {"map": [*known, *own]}}):
                if self._is_right():
                    continue
                found = self.query(node) if not known else self._without_common_tables(node)
                if found is not None:
                    return found
        return self._mixed_columns(node, children)

    def _mixed_columns(self, node: Tree, children: list[Tree]) -> WrongPart | None:
        """Columns of a set operation whose types have none in common, if all are listed."""
        listed: list[list[Tree]] = [child.get("select_list") or [] for child in children]
        widths = {len(one) for one in listed}
        if len(widths) != 1 or any(item["class"] == "STAR" for one in listed for item in one):
            return None
        known: list[list[str]] = []
        for child in children:
            with exchanged(node, {**child, "cte_map": node["cte_map"]}):
                types = self.probe.types(node, node["select_list"])
            if not isinstance(types, list):
                return None
            known.append(types)
        word = str(node["setop_type"])
        for place in range(widths.pop()):
            operands = tuple(one[place] for one in listed)
            types_there = tuple(one[place] for one in known)
            mixed: Tree = {"class": "OPERATOR", "type": MIXED, "word": word}
            if are_mixed(types_there, operands):
                return WrongPart(mixed, operands, types_there, {})
        return None

    def _without_common_tables(self, node: Tree) -> WrongPart | None:
        """The wrong part of a query whose common tables were looked at before."""
        if node["type"] == "SET_OPERATION_NODE":
            return self._set_operation(node, node["children"])
        return self._select(node) if node["type"] == "SELECT_NODE" else None

    def _select(self, select: Tree) -> WrongPart | None:
        with only(select, one()):
            facts = self.probe.problem()
            if facts is not None or self.mismatch is not None:
                found = self._relation(select, select["from_table"], facts or {})
                if found is not None or facts is not None:
                    return found
        aliases = {item["alias"].lower() for item in select["select_list"] if item.get("alias")}
        for item in select["select_list"]:
            found = self._expression(select, item)
            if found is not None:
                return found
        for clause, key in (("WHERE", "where_clause"), ("HAVING", "having"), ("QUALIFY", "qualify")):
            if select.get(key):
                found = self._condition(select, select[key], clause)
                if found is not None:
                    return found
        for one_of in _ordered(select):
            names = one_of.get("column_names")
            if names and len(names) == 1 and names[0].lower() in aliases:
                continue
            found = self._expression(select, one_of)
            if found is not None:
                return found
        return None

    # -- relations ----------------------------------------------------------------------

    def _relation(self, select: Tree, relation: Tree, facts: Facts) -> WrongPart | None:
        kind = relation["type"]
        if kind == "JOIN":
            return self._join(select, relation, facts)
        if kind == "SUBQUERY":
            return self.query(relation["subquery"]["node"])
        if kind == "EXPRESSION_LIST":
            with replaced(select, {"from_table": expression("(SELECT 1)")["subquery"]["node"]["from_table"]}):
                for row in relation["values"]:
                    for value in row:
                        found = self._expression(select, value)
                        if found is not None:
                            return found
                return self._mixed_rows(select, relation["values"])
        if kind == "TABLE_FUNCTION":
            return self._called_in_from(select, relation, facts)
        return None

    def _mixed_rows(self, select: Tree, rows: list[list[Tree]]) -> WrongPart | None:
        if len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > OPERANDS_MAX:
            return None
        for operands in zip(*rows, strict=True):
            types = self.probe.types(select, operands)
            if isinstance(types, list) and are_mixed(tuple(types), operands):
                mixed: Tree = {"class": "OPERATOR", "type": MIXED, "word": "VALUES"}
                return WrongPart(mixed, operands, tuple(types), {})
        return None

    def _join(self, select: Tree, join: Tree, facts: Facts) -> WrongPart | None:
        condition = join.get("condition")
        with ExitStack() as stack:
            if condition:
                stack.enter_context(replaced(join, {"condition": expression("true")}))
            problem = self.probe.problem() if condition else facts
            if problem is not None or self.mismatch is not None:
                for side in ("left", "right"):
                    found = self._relation(select, join[side], problem or {})
                    if found is not None:
                        return found
            if problem is not None or not condition:
                return None
            return self._condition(select, condition, "JOIN/ON")

    def _called_in_from(self, select: Tree, relation: Tree, facts: Facts) -> WrongPart | None:
        call = relation["function"]
        operands = tuple(a["expression"] for a in call.get("arguments", ()))
        stand_in = expression("(SELECT * FROM (SELECT 1) AS s)")["subquery"]["node"]["from_table"]
        stand_in["alias"] = relation.get("alias") or "s"
        with exchanged(relation, stand_in):
            if self.probe.problem() is not None:
                return None  # it is another relation
            for operand in operands:
                found = self._expression(select, operand)
                if found is not None:
                    return found
            types = self.probe.types(select, operands)
        if not isinstance(types, list) or not facts:
            return None
        placed = {**call, "query_location": relation["query_location"]}
        return WrongPart(placed, operands, tuple(types), facts)

    # -- expressions --------------------------------------------------------------------

    def _condition(self, select: Tree, node: Tree, clause: str) -> WrongPart | None:
        found = self._expression(select, node)
        if found is not None:
            return found
        return self.not_boolean(select, node, clause)

    def not_boolean(self, select: Tree, node: Tree, clause: str) -> WrongPart | None:
        types = self.probe.types(select, [node])
        if isinstance(types, list) and types and types[0] not in BOOLEANS:
            return WrongPart(node, (), (types[0],), {}, clause)
        return None

    def _expression(self, select: Tree, node: Tree) -> WrongPart | None:
        """The wrong part of an expression, or the whole of it; None if it is right."""
        if node["class"] == "STAR":
            return None
        types = self.probe.types(select, [node])
        if isinstance(types, list):
            return None if self.mismatch is None else self._mismatched(select, node)
        if self.mismatch is not None:
            return None
        with only(select, node):
            for kind, part in parts(node):
                found = self.query(part) if kind == "query" else self._expression(select, part)
                if found is not None:
                    return found
        for place, part in conditions(node):
            found = self.not_boolean(select, part, place)
            if found is not None:
                return found
        listed = tuple(operands_of(node))
        known = self.probe.types(select, listed)
        return WrongPart(node, listed, tuple(known) if isinstance(known, list) else (), types)

    def _mismatched(self, select: Tree, node: Tree) -> WrongPart | None:
        """The first part of an expression that PostgreSQL refuses; each comes after its own parts."""
        assert self.mismatch is not None
        listed = list(_inside(node))
        queries = [part for kind, part in listed if kind == "query"]
        known = [(part, tuple(operands_of(part))) for kind, part in listed if kind == "expression"]
        asked = [operand for _, operands in known for operand in operands]
        if len(asked) > OPERANDS_MAX:
            return None
        types = self.probe.types(select, asked)
        if isinstance(types, list) and len(types) == len(asked):
            at = 0
            for part, operands in known:
                own = tuple(types[at : at + len(operands)])
                at += len(operands)
                if operands and self.mismatch(part, operands, own):
                    return WrongPart(part, operands, own, {})
        with only(select, node):
            return next((found for query in queries if (found := self.query(query)) is not None), None)


_ORDERED_SETS = (
    "quantile_cont",
    "quantile_disc",
    "percentile_cont",
    "percentile_disc",
    "mode",
)  # whose values come after WITHIN GROUP
MIXED = "MIXED_COLUMN"  # of VALUES or a set operation: no kind of DuckDB's


def _inside(node: Tree) -> Iterator[tuple[str, Tree]]:
    """All parts of an expression, each behind those inside it, and the whole; queries are not entered."""
    for kind, part in parts(node):
        if kind == "query":
            yield kind, part
        else:
            yield from _inside(part)
    yield "expression", node


def _ordered(select: Tree) -> Iterator[Tree]:
    """The expressions of ORDER BY, GROUP BY, DISTINCT ON and LIMIT, without places in the list."""
    listed: list[Tree] = []
    for modifier in select.get("modifiers", ()):
        listed += [order["expression"] for order in modifier.get("orders", ())]
    listed += select.get("group_expressions") or []
    for modifier in select.get("modifiers", ()):
        listed += modifier.get("distinct_on_targets") or []
        listed += [modifier[key] for key in ("limit", "offset") if modifier.get(key)]
    yield from (one for one in listed if one["class"] not in ("CONSTANT", "STAR"))


def conditions(node: Tree) -> Iterator[tuple[str, Tree]]:
    """The parts of an expression that are conditions, each with the words before it."""
    kind = node["class"]
    if kind == "CONJUNCTION":
        word = "AND" if node["type"] == "CONJUNCTION_AND" else "OR"
        for child in node["children"]:
            yield word, child
    elif node["type"] == "OPERATOR_NOT":
        yield "NOT", node["children"][0]
    elif kind == "CASE":
        for check in node["case_checks"]:
            yield "CASE/WHEN", check["when_expr"]
    elif node.get("filter"):
        yield "FILTER", node["filter"]


def operands_of(node: Tree) -> Iterator[Tree]:
    """The parts whose types decide what an expression is."""
    kind = node["class"]
    if kind in ("FUNCTION", "WINDOW"):
        for argument in node.get("arguments") or ():
            yield argument["expression"]
        if str(node["function_name"]).lower() in _ORDERED_SETS:
            for order in (node.get("order_bys") or {}).get("orders", ()):
                yield order["expression"]
    elif kind == "COMPARISON":
        yield from (node["left"], node["right"])
    elif kind == "BETWEEN":
        yield from (node["input"], node["lower"], node["upper"])
    elif kind == "CASE":
        if node.get("else_expr"):
            yield node["else_expr"]
        yield from (check["then_expr"] for check in node["case_checks"])
    elif kind == "CAST":
        yield node["child"]
    elif kind == "SUBQUERY":
        if node.get("child"):
            yield node["child"]
            if (array := compared_array(node)) is not None:
                yield array
    elif kind in ("OPERATOR", "CONJUNCTION"):
        yield from node["children"]


def compared_array(node: Tree) -> Tree | None:
    """The array of `x = ANY (array)`, of which DuckDB's parser makes a query."""
    query = node["subquery"]["node"]
    if query["type"] != "SELECT_NODE" or len(query["select_list"]) != 1:
        return None
    call = query["select_list"][0]
    if call.get("function_name") != "unnest" or call["query_location"] < 1 << 63:
        return None
    found: Tree = call["arguments"][0]["expression"]
    return found


def parts(node: Tree) -> Iterator[tuple[str, Tree]]:
    """The expressions and queries directly inside of an expression, in their order."""
    if node["class"] == "LAMBDA":
        return
    if node["class"] == "SUBQUERY":
        if node.get("child"):
            yield "expression", node["child"]
        array = compared_array(node)
        yield ("query", node["subquery"]["node"]) if array is None else ("expression", array)
        return
    if node["class"] == "CASE":
        for check in node["case_checks"]:
            yield "expression", check["when_expr"]
            yield "expression", check["then_expr"]
        if node.get("else_expr"):
            yield "expression", node["else_expr"]
        return
    waiting: list[object] = [value for key, value in node.items() if key not in ("class", "type_expr")]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, list):
            waiting[:0] = value
        elif isinstance(value, dict):
            if value.get("class") not in (None, "TYPE"):
                yield "expression", value
            elif "class" not in value:
                waiting[:0] = list(value.values())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

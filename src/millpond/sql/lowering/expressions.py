"""Renders bound expressions as SQL text over named columns.

DuckDB's binder has already resolved every name, overload and cast, so only eight
classes of nodes remain.  The text has the same meaning wherever it runs: a reference
is cast back to its logical type where the state stores another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from millpond.sql.binding.types import Json, quoted, restored, type_text
from millpond.sql.lowering.literals import literal
from millpond.sql.refusal import NotSupported, position_of, refuse

_INFIX = frozenset(
    [
        *("+", "-", "*", "/", "//", "%", "**", "^", "||", "&", "|", "<<", ">>", "->>", "->"),
        *("~~", "!~~", "~~*", "!~~*", "~~~", "=", "<>", "!=", "<", "<=", ">", ">="),
        *("IS NOT DISTINCT FROM", "IS DISTINCT FROM", "@>", "<@", "&&", "^@", "<->", "<=>", "<#>"),
    ]
)
_PREFIX = frozenset(["-", "+", "~", "@"])
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
}

CLOCK = "now() cannot stand here: a materialized view compares it with columns in WHERE, and nothing else"
STAMP = "proctime() cannot stand here: a materialized view selects it, and compares it with columns in WHERE"
CLOCK_HINT = "write WHERE ts > now() - INTERVAL '1 hour'; proctime() is the time at which a row came"


@dataclass(frozen=True)
class StepColumn:
    """A column of a step under construction: its name in the step and its logical type."""

    name: str
    type: str

    @property
    def sql(self) -> str:
        return f"CAST({quoted(self.name)} AS {self.type})" if restored(self.type) else quoted(self.name)


@dataclass(frozen=True)
class _Parameter:
    """An expression that replaces a column reference inside a lambda."""

    sql: str


def comparison(name: str) -> str:
    return _COMPARISONS[name]


def type_of(node: Json) -> str:
    if node["expression_class"] == "BOUND_CONSTANT":
        return type_text(node["value"]["type"])
    if node["expression_class"] == "BOUND_CONJUNCTION":
        return "BOOLEAN"
    return type_text(node["return_type"])


def references(node: Json) -> Iterator[int]:
    """Yield the positions of the columns that an expression reads."""
    if node["expression_class"] == "BOUND_REF":
        yield int(node["index"])
    for child in children(node):
        yield from references(child)


def children(node: Json) -> Iterator[Json]:
    yield from node.get("children") or ()
    for check in node.get("case_checks") or ():
        yield check["when_expr"]
        yield check["then_expr"]
    for name in ("else_expr", "child"):
        if node.get(name):
            yield node[name]


def shifted(node: Json, by: int) -> Json:
    """Return the expression with every column position reduced by `by`."""
    return _changed(node, lambda place: place - by)


def moved(node: Json, places: Mapping[int, int]) -> Json:
    """Return the expression with each column position replaced by its entry in `places`."""
    return _changed(node, places.__getitem__)


def _changed(node: Json, place: Callable[[int], int]) -> Json:
    if node["expression_class"] == "BOUND_REF":
        return {**node, "index": place(int(node["index"]))}
    return mapped(node, lambda child: _changed(child, place))


def mapped(node: Json, change: Callable[[Json], Json]) -> Json:
    """Return the expression with `change` applied to each of its children."""
    found = dict(node)
    if node.get("children"):
        found["children"] = [change(c) for c in node["children"]]
    if node.get("case_checks"):
        found["case_checks"] = [{k: change(v) for k, v in check.items()} for check in node["case_checks"]]
    for name in ("else_expr", "child"):
        if node.get(name):
            found[name] = change(node[name])
    return found


def is_clock(node: Json) -> bool:
    """Is this now() as marked by the binder (`binding/now.py`), or a cast of it?"""
    if node["expression_class"] != "BOUND_FUNCTION" or not is_cast(node):
        return False
    (inner,) = node["children"]
    if inner["expression_class"] == "BOUND_CONSTANT":
        return bool(inner["value"].get("value") in (CLOCK, STAMP))
    return is_clock(inner)


def is_stamp(node: Json) -> bool:
    """Is this proctime(), the processing time that is stored in the row?"""
    if not is_clock(node):
        return False
    (inner,) = node["children"]
    return inner["expression_class"] == "BOUND_CONSTANT" and bool(inner["value"].get("value") == STAMP)


def reads_stamp(node: Json) -> bool:
    return is_stamp(node) or any(reads_stamp(child) for child in children(node))


def with_stamp(node: Json, place: int) -> Json:
    """Return the expression with proctime() replaced by a reference to a column."""
    if is_stamp(node):
        return {**node, "expression_class": "BOUND_REF", "type": "BOUND_REF", "index": place, "children": []}
    return mapped(node, lambda child: with_stamp(child, place))


def reads_clock(node: Json) -> bool:
    return is_clock(node) or any(reads_clock(child) for child in children(node))


def refuse_clock(node: Json) -> NoReturn:
    """Refuse now() or proctime() where it cannot be turned into a valid interval."""
    if is_stamp(node):
        raise NotSupported(
            "proctime() can only be selected, be the time of a window, or be compared with columns in WHERE",
            at=position_of(node),
            hint="put it into the rows first: FROM (SELECT *, proctime() AS p FROM …)",
        )
    raise NotSupported(
        "now() can only be compared with columns, in conditions that must all hold",
        at=position_of(node),
        hint=CLOCK_HINT,
    )


def is_cast(node: Json) -> bool:
    return bool(node["type"] == "OPERATOR_CAST" or node["qname"]["path"][-1] == "__cast")


def direction(order: Json) -> str:
    """Return the direction of an ORDER BY item, such as DESC NULLS LAST."""
    return f"{'DESC' if order['type'] == 'DESCENDING' else 'ASC'} {order['null_order']}"


def conjuncts(nodes: Sequence[Json]) -> Iterator[Json]:
    """Yield the conditions that must all hold, with nested ANDs flattened."""
    for node in nodes:
        if node["expression_class"] == "BOUND_CONJUNCTION" and node["type"] == "CONJUNCTION_AND":
            yield from conjuncts(node["children"])
        else:
            yield node


def render(node: Json, columns: Sequence[StepColumn | _Parameter]) -> str:
    """Render an expression over these columns as SQL text."""
    match node["expression_class"]:
        case "BOUND_REF":
            return columns[int(node["index"])].sql
        case "BOUND_CONSTANT":
            return literal(node["value"])
        case "BOUND_CONJUNCTION":
            word = " AND " if node["type"] == "CONJUNCTION_AND" else " OR "
            return f"({word.join(render(c, columns) for c in node['children'])})"
        case "BOUND_CASE":
            checks = " ".join(
                f"WHEN {render(c['when_expr'], columns)} THEN {render(c['then_expr'], columns)}"
                for c in node["case_checks"]
            )
            return f"CASE {checks} ELSE {render(node['else_expr'], columns)} END"
        case "BOUND_OPERATOR":
            return _operator(node, [render(c, columns) for c in node["children"]])
        case "BOUND_FUNCTION":
            if is_clock(node):
                refuse_clock(node)
            for place, child in enumerate(node["children"]):
                if child["expression_class"] == "BOUND_LAMBDA":
                    return _with_lambda(node, columns, place)
            return _function(node, [render(c, columns) for c in node["children"]])
    refuse(node, "is not supported in a materialized view")


def _operator(node: Json, parts: list[str]) -> str:
    match node["type"]:
        case "COMPARE_IN":
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        case "COMPARE_NOT_IN":
            return f"({parts[0]} NOT IN ({', '.join(parts[1:])}))"
        case "OPERATOR_NOT":
            return f"(NOT {parts[0]})"
        case "OPERATOR_IS_NULL":
            return f"({parts[0]} IS NULL)"
        case "OPERATOR_IS_NOT_NULL":
            return f"({parts[0]} IS NOT NULL)"
        case "OPERATOR_COALESCE":
            return f"COALESCE({', '.join(parts)})"
        case "OPERATOR_TRY":
            return f"TRY({parts[0]})"
    refuse(node, "is not supported in a materialized view")


def _function(node: Json, parts: list[str]) -> str:
    if is_cast(node):
        word = "TRY_CAST" if (node.get("function_data") or {}).get("try_cast") else "CAST"
        return f"{word}({parts[0]} AS {type_text(node['return_type'])})"
    text, kind = _call(node, parts), type_text(node["return_type"])
    # The binder has already cast the arguments, so binding the text again would widen the result: 1 - b
    # would get one digit more than the plan says.
    return f"CAST({text} AS {kind})" if kind.startswith("DECIMAL") else text


def _call(node: Json, parts: list[str]) -> str:
    name = node["qname"]["path"][-1]
    if node["type"] in _COMPARISONS:
        return f"({parts[0]} {_COMPARISONS[node['type']]} {parts[1]})"
    if name in _INFIX and len(parts) == 2:
        return f"({parts[0]} {name} {parts[1]})"
    if name in _PREFIX and len(parts) == 1:
        return f"({name}{parts[0]})" if name != "@" else f"abs({parts[0]})"
    if name == "!__postfix":
        return f"factorial({parts[0]})"
    named = node.get("named_arguments") or []
    if named:
        plain = len(parts) - len(named)
        parts = parts[:plain] + [f"{quoted(n)} := {p}" for n, p in zip(named, parts[plain:], strict=True)]
    if name == "struct_extract" and len(parts) == 2:
        return f"struct_extract({parts[0]}, {parts[1]})"
    return f"{quoted(name)}({', '.join(parts)})"


def _with_lambda(node: Json, columns: Sequence[StepColumn | _Parameter], place: int) -> str:
    """Render a function of a list and a lambda; captured values follow as extra arguments.

    Inside the lambda, column positions start with its parameters, the last one at 0; captured values
    follow them.
    """
    kids = node["children"]
    maker = kids[place]
    initial = 1 if (node.get("function_data") or {}).get("has_initial") else 0
    if node["qname"]["path"][-1] == "invoke":
        initial = int(maker["parameter_count"])
    around = [_Parameter(render(c, columns)) for c in kids[place + 1 + initial :]]
    depth = sum(isinstance(c, _Parameter) for c in columns)
    names = [f"p{depth}_{n}" for n in range(int(maker["parameter_count"]))]
    inside = [*(_Parameter(n) for n in reversed(names)), *around]
    given = [render(c, columns) for c in kids[:place]]
    given.append(f"lambda {', '.join(names)}: {render(maker['lambda_expr'], inside)}")
    given += [render(c, columns) for c in kids[place + 1 : place + 1 + initial]]
    return f"{quoted(node['qname']['path'][-1])}({', '.join(given)})"

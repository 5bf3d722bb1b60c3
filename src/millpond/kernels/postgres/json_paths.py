"""Evaluates SQL/JSON paths over documents: jsonb_path_query and its relatives.

Law: in lax mode an array stands for its elements where a member or a single value is asked for, and a
structural error is an empty result; in strict mode it is an error.  A predicate is true, false or unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millpond.kernels.postgres.json_path_syntax import Node, parsed_path
from millpond.kernels.postgres.json_text import jsonb_text, read_json
from millpond.kernels.postgres.patterns import flags_of, pattern
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.text_output import float_text

_PREDICATES = frozenset(
    ["and", "or", "not", "exists", "==", "!=", "<", "<=", ">", ">=", "starts", "like", "unknown"]
)
_NUMBER = (int, Decimal)


class PathError(ValueError):
    """A structural error, or a value of a wrong type: silent calls ignore it."""


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBER) and not isinstance(value, bool)


class _Path:
    def __init__(self, text: str, document: Any, variables: dict[str, Any]) -> None:
        self.strict, self.tree = parsed_path(text)
        self.document, self.variables = document, variables

    def items(self) -> list[Any]:
        return self._items(self.tree, self.document, None)

    # -- sequences ---------------------------------------------------------------------------------

    def _items(self, node: Node, current: Any, last: int | None) -> list[Any]:
        kind = node[0]
        if kind in _PREDICATES:
            return [self._holds(node, current, last)]
        if kind == "root":
            return [self.document]
        if kind == "current":
            return [current]
        if kind == "value":
            return [node[1]]
        if kind == "last":
            if last is None:
                raise PathError("LAST is allowed only in array subscripts")
            return [last]
        if kind == "variable":
            if node[1] not in self.variables:
                raise ValueError(f'could not find jsonpath variable "{node[1]}"')
            return [self.variables[node[1]]]
        if kind == "unary":
            return [self._signed(node[1], v) for v in self._unwrapped(self._items(node[2], current, last))]
        if kind in ("+", "-", "*", "/", "%"):
            return [self._computed(kind, node, current, last)]
        return self._steps(kind, node, self._items(node[1], current, last))

    def _steps(self, kind: str, node: Node, found: list[Any]) -> list[Any]:
        steps: dict[str, Callable[[Node, list[Any]], list[Any]]] = {
            "key": self._key,
            "every": self._every,
            "deep": self._deep,
            "subscript": self._subscript,
            "filter": self._filter,
            "method": self._method,
        }
        return steps[kind](node, found)

    def _unwrapped(self, found: list[Any]) -> list[Any]:
        if self.strict:
            return found
        return [v for one in found for v in (one if isinstance(one, list) else [one])]

    def _key(self, node: Node, found: list[Any]) -> list[Any]:
        made = []
        for value in self._unwrapped(found):
            if isinstance(value, dict) and node[2] in value:
                made.append(value[node[2]])
            elif self.strict:
                if isinstance(value, dict):
                    raise PathError(f'JSON object does not contain key "{node[2]}"')
                raise PathError("jsonpath member accessor can only be applied to an object")
        return made

    def _every(self, node: Node, found: list[Any]) -> list[Any]:
        made: list[Any] = []
        for value in self._unwrapped(found):
            if isinstance(value, dict):
                made += value.values()
            elif self.strict:
                raise PathError("jsonpath wildcard member accessor can only be applied to an object")
        return made

    def _deep(self, node: Node, found: list[Any]) -> list[Any]:
        first, last = node[2]
        made: list[Any] = []

        def walk(value: Any, level: int) -> None:
            if level >= first:
                made.append(value)
            if last is None or level < last:
                for inner in (
                    value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
                ):
                    walk(inner, level + 1)

        for value in found:
            walk(value, 0)
        return made

    def _subscript(self, node: Node, found: list[Any]) -> list[Any]:
        made: list[Any] = []
        for value in found:
            if not isinstance(value, list):
                if self.strict:
                    what = "wildcard array accessor" if not node[2] else "array accessor"
                    raise PathError(f"jsonpath {what} can only be applied to an array")
                value = [value]
            if not node[2]:
                made += value
                continue
            for low, high in node[2]:
                start = self._array_index(low, value)
                end = start if high is None else self._array_index(high, value)
                if self.strict and (start < 0 or end >= len(value) or start > end):
                    raise PathError("jsonpath array subscript is out of bounds")
                made += value[max(start, 0) : max(end + 1, 0)]
        return made

    def _array_index(self, node: Node, value: list[Any]) -> int:
        found = self._items(node, self.document, len(value) - 1)
        if len(found) != 1 or not _is_number(found[0]):
            raise PathError("jsonpath array subscript is not a single numeric value")
        return int(found[0])

    def _filter(self, node: Node, found: list[Any]) -> list[Any]:
        return [v for v in self._unwrapped(found) if self._holds(node[2], v, None) is True]

    # -- methods ---------------------------------------------------------------------------------

    def _method(self, node: Node, found: list[Any]) -> list[Any]:
        name = node[2]
        if name == "type":
            return [_type_name(v) for v in found]
        if name == "size":
            if self.strict and any(not isinstance(v, list) for v in found):
                raise PathError("jsonpath item method .size() can only be applied to an array")
            return [len(v) if isinstance(v, list) else 1 for v in found]
        values = self._unwrapped(found)
        if name == "keyvalue":
            return [pair for v in values for pair in self._pairs(v)]
        if name == "double":
            return [_double(v) for v in values]
        if name == "datetime":
            raise ValueError(
                "jsonpath item method .datetime() is not supported: cast the text outside of the path"
            )
        for value in values:
            if not _is_number(value):
                raise PathError(f"jsonpath item method .{name}() can only be applied to a numeric value")
        apply: dict[str, Callable[[Any], Any]] = {"abs": abs, "floor": _floor, "ceiling": _ceiling}
        return [apply[name](v) for v in values]

    def _pairs(self, value: Any) -> list[Any]:
        if not isinstance(value, dict):
            raise PathError("jsonpath item method .keyvalue() can only be applied to an object")
        return [{"id": 0, "key": k, "value": v} for k, v in value.items()]

    # -- arithmetic ---------------------------------------------------------------------------------

    def _signed(self, sign: str, value: Any) -> Any:
        if not _is_number(value):
            raise PathError(f"operand of unary jsonpath operator {sign} is not a numeric value")
        return -value if sign == "-" else value

    def _computed(self, operator: str, node: Node, current: Any, last: int | None) -> Any:
        sides = []
        for side, name in ((node[1], "left"), (node[2], "right")):
            found = self._unwrapped(self._items(side, current, last))
            if len(found) != 1 or not _is_number(found[0]):
                raise PathError(
                    f"{name} operand of jsonpath operator {operator} is not a single numeric value"
                )
            sides.append(Decimal(found[0]))
        a, b = sides
        if operator in "/%" and b == 0:
            raise PathError("division by zero")
        made = {"+": a + b, "-": a - b, "*": a * b}.get(operator)
        if made is None:
            made = a / b if operator == "/" else a % b
        return (
            int(made)
            if operator != "/" and made == made.to_integral_value() and made.as_tuple().exponent == 0
            else made
        )

    # -- predicates ---------------------------------------------------------------------------------

    def _holds(self, node: Node, current: Any, last: int | None) -> bool | None:
        kind = node[0]
        if kind not in _PREDICATES:
            found = self._items(node, current, last)
            return found[0] if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)) else None
        if kind in ("and", "or"):
            a, b = self._holds(node[1], current, last), self._holds(node[2], current, last)
            decisive = kind == "or"
            if decisive in (a, b) and (a is decisive or b is decisive):
                return decisive
            return None if None in (a, b) else not decisive
        if kind == "not":
            inner = self._holds(node[1], current, last)
            return None if inner is None else not inner
        if kind == "unknown":
            return self._holds(node[1], current, last) is None
        try:
            left = self._items(node[1], current, last)
            if kind == "exists":
                return bool(left)
            right = self._items(node[2], current, last) if kind != "like" else [node[2]]
        except PathError:
            return None
        return self._any_pair(node, self._unwrapped(left), self._unwrapped(right))

    def _any_pair(self, node: Node, left: list[Any], right: list[Any]) -> bool | None:
        """Does a pair satisfy it?  In lax mode the first one that does decides."""
        error = found = False
        for a in left:
            for b in right:
                result = _compared(node, a, b)
                if result is None:
                    if self.strict:
                        return None
                    error = True
                elif result:
                    if not self.strict:
                        return True
                    found = True
        return True if found else None if error else False


def _compared(node: Node, a: Any, b: Any) -> bool | None:
    kind = node[0]
    if kind == "starts":
        return str(a).startswith(b) if isinstance(a, str) and isinstance(b, str) else None
    if kind == "like":
        letters = "".join(c for c in node[3] if c in "ixq") + _line_flags(node[3])
        wanted = flags_of(letters, every=False)
        return pattern(b, wanted).search(a) is not None if isinstance(a, str) else None
    if _type_name(a) != _type_name(b):
        if a is None or b is None:
            return bool(kind == "!=")
        return None
    if isinstance(a, (list, dict)):
        return None
    if kind in ("==", "!="):
        return (a == b) is (kind == "==")
    if a is None:
        return kind in ("<=", ">=")
    key = str.encode if isinstance(a, str) else lambda v: v
    x, y = key(a), key(b)
    return bool({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[kind])


def _line_flags(flags: str) -> str:
    """XQuery's `s` lets the dot match a newline, which it does not otherwise; `m` matches at lines."""
    return ("w" if "m" in flags else "s") if "s" in flags else ("n" if "m" in flags else "p")


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "number"


def _double(value: Any) -> Any:
    if not isinstance(value, str) and not _is_number(value):
        raise PathError("jsonpath item method .double() can only be applied to a string or numeric value")
    if isinstance(value, int):
        return value
    try:
        return Decimal(float_text(float(value)))
    except ValueError:
        raise PathError("string argument of jsonpath item method .double() is not a valid double") from None


def _floor(value: Any) -> int:
    return (
        int(value // 1)
        if isinstance(value, int) or value >= 0 or value == value.to_integral_value()
        else int(value) - 1
    )


def _ceiling(value: Any) -> int:
    return -_floor(-value)


def _variables(text: str) -> dict[str, Any]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError('"vars" argument is not an object')
    return found


def _found(text: str, path: str, variables: str, silent: bool) -> list[Any]:
    try:
        return _Path(path, read_json(text), _variables(variables)).items()
    except PathError:
        if silent:
            return []
        raise


@row_function("pg.jsonb_path_query.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "VARCHAR[]")
def jsonb_path_query(text: str, path: str, variables: str, silent: bool) -> list[str]:
    return [jsonb_text(v) for v in _found(text, path, variables, silent)]


@row_function("pg.jsonb_path_array.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "VARCHAR")
def jsonb_path_array(text: str, path: str, variables: str, silent: bool) -> str:
    return jsonb_text(_found(text, path, variables, silent))


@row_function("pg.jsonb_path_exists.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "BOOLEAN")
def jsonb_path_exists(text: str, path: str, variables: str, silent: bool) -> bool | None:
    try:
        return bool(_Path(path, read_json(text), _variables(variables)).items())
    except PathError:
        if silent:
            return None
        raise


@row_function("pg.jsonb_path_match.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "BOOLEAN")
def jsonb_path_match(text: str, path: str, variables: str, silent: bool) -> bool | None:
    found = _found(text, path, variables, silent)
    if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
        return found[0]
    if silent:
        return None
    raise ValueError("single boolean result is expected")

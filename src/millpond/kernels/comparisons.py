"""Comparisons of integer columns with constants, and remainders by constants, computed without a query.

Law: the result equals DuckDB's result for the same SQL, including NULLs.  Nothing here can fail, so the
order in which AND and OR evaluate their operands makes no difference.

`CASE WHEN condition THEN constant END` is included: `count(*) FILTER (WHERE condition)` counts it.
Its values share one buffer for all rows, and the condition is the validity bitmap.
Remainders are used to distribute rows (`id % 100`); numpy divides many integers in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.buffers import fixed, nulls

Node = dict[str, Any]

_MIRRORED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}
_COMPARISONS = {
    "COMPARE_LESSTHAN": "less",
    "COMPARE_LESSTHANOREQUALTO": "less_equal",
    "COMPARE_GREATERTHAN": "greater",
    "COMPARE_GREATERTHANOREQUALTO": "greater_equal",
    "COMPARE_EQUAL": "equal",
    "COMPARE_NOTEQUAL": "not_equal",
}
_JUNCTIONS = {"CONJUNCTION_AND": "and_kleene", "CONJUNCTION_OR": "or_kleene"}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_DEEPEST = 20


@dataclass(frozen=True)
class Compare:
    column: str
    relation: str  # a function of Arrow
    constant: int


@dataclass(frozen=True)
class Junction:
    """A flat AND or OR of any length: plans are pickled, and pickle recurses as deep as the plan nests."""

    relation: str
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Case:
    """A constant where a condition is true, else NULL."""

    condition: Condition
    constant: int


@dataclass(frozen=True)
class Remainder:
    """An integer column modulo a positive constant; the result has the sign of the column."""

    column: str
    constant: int


Condition: TypeAlias = Compare | Junction
Plain: TypeAlias = Compare | Junction | Case | Remainder


def plain(root: Node, schema: pa.Schema, bare: Callable[[Node], str | None]) -> Plain | None:
    """Convert a parsed expression if it is of this kind; `bare` returns the column that a node names."""
    if root["class"] == "FUNCTION":
        return _remainder(root, schema, bare)
    if root["class"] != "CASE":
        return _condition(root, schema, bare, 0)
    otherwise = root["else_expr"]
    if len(root["case_checks"]) != 1 or otherwise.get("literal", {}).get("kind") != "NULL_LITERAL":
        return None
    (check,) = root["case_checks"]
    condition = _condition(check["when_expr"], schema, bare, 0)
    constant = _constant(check["then_expr"])
    return None if condition is None or constant is None else Case(condition, constant)


def computed(found: Plain, kind: pa.DataType, columns: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Compute its value for each row, chunk by chunk.

    >>> found = Case(Compare("x", "less", 5), 1)
    >>> computed(found, pa.int32(), {"x": pa.chunked_array([[4, None, 7]])}).to_pylist()
    [1, None, None]
    """
    if isinstance(found, Remainder):
        rests = [_rest(chunk, found.constant, kind) for chunk in columns[found.column].chunks]
        return pa.chunked_array(rests, kind)
    if not isinstance(found, Case):
        return _truth(found, columns)
    chunks = [_case(chunk, found.constant, kind) for chunk in _truth(found.condition, columns).chunks]
    return pa.chunked_array(chunks, kind)


def _truth(found: Condition, columns: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    if isinstance(found, Compare):
        return pc.call_function(found.relation, [columns[found.column], pa.scalar(found.constant)])
    operand = _truth(found.parts[0], columns)
    for part in found.parts[1:]:
        operand = pc.call_function(found.relation, [operand, _truth(part, columns)])
    return operand


def _rest(values: pa.Array, constant: int, kind: pa.DataType) -> pa.Array:
    whole = fixed(values, values.type.to_pandas_dtype()).astype(np.int64, copy=False)
    rest = whole // constant
    rest *= -constant
    rest += whole
    if len(whole) and whole.min() < 0:  # numpy rounds down, SQL towards zero
        rest[(whole < 0) & (rest != 0)] -= constant
    return pa.array(rest, mask=nulls(values) if values.null_count else None).cast(kind)


def _case(truth: pa.Array, constant: int, kind: pa.DataType) -> pa.Array:
    if truth.null_count or truth.offset:
        return pc.if_else(truth, pa.scalar(constant, kind), pa.scalar(None, kind))
    values = _repeated(constant, kind, 1 << max(len(truth) - 1, 0).bit_length())
    return pa.Array.from_buffers(kind, len(truth), [truth.buffers()[1], values])


@lru_cache(maxsize=16)
def _repeated(constant: int, kind: pa.DataType, length: int) -> pa.Buffer:
    return pa.repeat(pa.scalar(constant, kind), length).buffers()[1]


# ---------------------------------------------------------------- reading


def _condition(
    node: Node, schema: pa.Schema, bare: Callable[[Node], str | None], depth: int
) -> Condition | None:
    if depth > _DEEPEST:
        return None
    relation = _JUNCTIONS.get(node["type"])
    if relation is not None:
        found = []
        for child in node["children"]:
            one = _condition(child, schema, bare, depth + 1)
            if one is None:
                return None
            found.append(one)
        return Junction(relation, tuple(found))
    relation = _COMPARISONS.get(node["type"])
    if relation is None:
        return None
    left, right = node["left"], node["right"]
    column, constant = bare(left), _constant(right)
    if column is None:
        column, constant, relation = bare(right), _constant(left), _MIRRORED[relation]
    if column is None or constant is None or not _is_whole(schema.field(column).type):
        return None
    return Compare(column, relation, constant)


def _remainder(node: Node, schema: pa.Schema, bare: Callable[[Node], str | None]) -> Remainder | None:
    arguments = [argument["expression"] for argument in node["arguments"]]
    if node["function_name"] not in ("%", "mod") or len(arguments) != 2:
        return None
    column, constant = bare(arguments[0]), _constant(arguments[1])
    if column is None or not _is_whole(schema.field(column).type):
        return None
    return Remainder(column, constant) if constant is not None and constant > 0 else None


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


def _constant(node: Node) -> int | None:
    """An integer literal, possibly inside casts that do not change it."""
    if node["class"] == "CAST":
        bits = _BITS.get(str(node["type_expr"].get("type_name", "")).upper())
        value = None if bits is None or node["try_cast"] else _constant(node["child"])
        return None if value is None or bits is None or not _fits(value, bits) else value
    literal = node.get("literal") if node["class"] == "CONSTANT" else None
    if literal is None or literal["kind"] != "INTEGER":
        return None
    value = int(literal["text"])
    return value if _fits(value, 64) else None


def _fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)

"""Asks the binder for the types of expressions, wherever in a query they stand.

DuckDB tells the types of the arguments when it refuses a call.  So an expression is put into a call that is
always refused, of a function without parameters: if the binder refuses that call, the expression is right and
its type is known; any other answer is about the expression itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from millpond.sql.dialects.parse_tree import Tree, printed
from millpond.sql.dialects.postgres.tree_parts import builtin, expression

Facts = Mapping[str, Any]  # what DuckDB says about an error
_REFUSED = "pi"  # takes no arguments
_EMPTIED: Tree = {
    "where_clause": None,
    "group_expressions": [],
    "group_sets": [],
    "having": None,
    "qualify": None,
    "modifiers": [],
}
PROBES_MAX = 400


@dataclass
class TooManyProbes(Exception):
    """The statement is so long that nobody waits for an explanation."""


class TypeProbe:
    """One query, whose tree is changed for each question and restored after it."""

    def __init__(self, tree: Tree, problem: Callable[[str], Facts | None]) -> None:
        self.tree = tree
        self._problem = problem
        self._asked = 0

    def problem(self) -> Facts | None:
        """What the binder says about the query as it is now; None if it is right."""
        self._asked += 1
        if self._asked > PROBES_MAX:
            raise TooManyProbes
        return self._problem(printed(self.tree))

    def types(self, select: Tree, expressions: Sequence[Tree]) -> list[str] | Facts:
        """DuckDB's types of expressions over the relations of a SELECT, or what is wrong with one of them."""
        if not expressions:
            return []
        call = builtin(f"system.main.{_REFUSED}", *expressions)
        with only(select, call):
            facts = self.problem()
        if facts is None:
            return {}
        if facts.get("name") == _REFUSED and facts.get("error_subtype") == "NO_MATCHING_FUNCTION":
            return split_types(str(facts["call"])[len(_REFUSED) + 1 : -1])
        return facts


@contextmanager
def only(select: Tree, *expressions: Tree) -> Iterator[None]:
    """Let a SELECT compute these expressions and nothing else."""
    with replaced(select, {**copy.deepcopy(_EMPTIED), "select_list": list(expressions)}):
        yield


@contextmanager
def replaced(node: Tree, parts: Tree) -> Iterator[None]:
    """Change parts of a node."""
    before = dict(node)
    node.update(parts)
    try:
        yield
    finally:
        node.clear()
        node.update(before)


@contextmanager
def exchanged(node: Tree, other: Tree) -> Iterator[None]:
    """Let a node be another one."""
    before, made = dict(node), dict(other)
    node.clear()
    node.update(made)
    try:
        yield
    finally:
        node.clear()
        node.update(before)


def one() -> Tree:
    """A constant."""
    return expression("1")


def split_types(listed: str) -> list[str]:
    """The types in a list of them.

    >>> split_types("INTEGER, DECIMAL(10,2), STRUCT(a INTEGER, b VARCHAR)[]")
    ['INTEGER', 'DECIMAL(10,2)', 'STRUCT(a INTEGER, b VARCHAR)[]']
    """
    found, depth, start = [], 0, 0
    for place, sign in enumerate(listed):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            found.append(listed[start:place].strip())
            start = place + 1
    last = listed[start:].strip()
    return [*found, last] if last else found

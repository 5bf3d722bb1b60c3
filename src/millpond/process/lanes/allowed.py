"""Decides from bytecode which user code can run in lanes.

Law: code that is allowed only reads columns, constants and states, calculates,
compares, branches forward, sets states and returns one row.  A discarded call
has no side effects, so code may be tried, and tried again for some of the lanes.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from functools import lru_cache
from types import CodeType
from typing import Any

from millpond.process.bytecode_facts import Doubt, instructions, plain_code, uses
from millpond.process.function import Code, Process

PLAIN = (bool, int, float, str)  # exactly these: a subclass may override operators
_CALLED = {"abs", "max", "min"}
_INSTRUCTIONS = {
    *("BINARY_OP", "BUILD_CONST_KEY_MAP", "BUILD_MAP", "BUILD_TUPLE", "CACHE", "CALL", "COMPARE_OP"),
    *("CONTAINS_OP", "COPY", "JUMP_FORWARD", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "LOAD_ATTR"),
    *("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
    *("LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_SMALL_INT", "NOP", "NOT_TAKEN"),
    *("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE"),
    *("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"),
    *("POP_JUMP_IF_TRUE", "POP_TOP", "PRECALL", "PUSH_NULL", "RESUME", "RETURN_CONST", "RETURN_VALUE"),
    *("STORE_ATTR", "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "SWAP", "TO_BOOL"),
    *("UNARY_NEGATIVE", "UNARY_NOT"),
}
_OPERATORS = {"+", "-", "*", "/", "//", "%", "+=", "-=", "*=", "/=", "//=", "%="}


def allowed(code: Code) -> bool:
    """
    >>> allowed(Code(lambda row: (row.price * 2,), ()))
    True
    >>> allowed(Code(lambda row: print(row.price), ()))
    False
    """
    is_class = isinstance(code.target, Process)
    function = type(code.target).on_row if is_class else code.target
    states = frozenset(attribute for attribute, _ in code.states)
    try:
        inner = plain_code(function, 1 + is_class)
        names, variables = _names(inner, is_class)
    except Doubt:
        return False
    if is_class and "__getattribute__" in {
        name for kind in type(code.target).__mro__[:-1] for name in vars(kind)
    }:
        return False
    if is_class and not all(name in states or _is_constant(code.target, name) for name in names):
        return False
    return all(_is_known(function.__globals__, name) for name in variables)


@lru_cache(maxsize=256)
def _names(inner: CodeType, is_class: bool) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes of `self` and the global variables that are read; raises Doubt for anything else."""
    if inner.co_exceptiontable or inner.co_cellvars or inner.co_freevars:
        raise Doubt
    if inner.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Doubt
    body = instructions(inner)
    if not all(_is_allowed(one, body[at - 1]) for at, one in enumerate(body)):
        raise Doubt
    mine: set[str] = set()
    if is_class:
        mine = {body[at].argval for at in uses(inner, body, inner.co_varnames[0], "LOAD_ATTR")}
    return frozenset(mine), frozenset(one.argval for one in body if one.opname == "LOAD_GLOBAL")


def _is_allowed(one: dis.Instruction, before: dis.Instruction) -> bool:
    if one.opname == "IS_OP":
        return before.opname == "LOAD_CONST" and before.argval is None
    if one.opname == "BINARY_OP":
        return one.argrepr in _OPERATORS
    if one.opname == "STORE_ATTR":
        return bool(one.argval == "value")
    return one.opname in _INSTRUCTIONS


def _is_constant(target: Any, name: str) -> bool:
    """Is this attribute a plain value that can be read without running code?"""
    return type(inspect.getattr_static(target, name, None)) in PLAIN


def _is_known(variables: dict[str, Any], name: str) -> bool:
    if name in variables:
        return type(variables[name]) in PLAIN
    return name in _CALLED and hasattr(builtins, name)

"""Infers from bytecode what user code does with its rows and states.

Law: an answer holds for every call of the code.  Where the instructions leave a
doubt (a row or a state is passed on, stored, or used in a way not known here)
the answer is the cautious one: any column may be read, any value may be set.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from millpond.process.function import Code, Process
from millpond.stored_code import Stored

Instructions = list[dis.Instruction]

_LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "YIELD_VALUE")
# Code that calls one of these may inspect a function's variables other than by its instructions.
_LOOKS = {"breakpoint", "currentframe", "dir", "eval", "exec", "_getframe", "locals", "set_trace", "vars"}

_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}


class Doubt(Exception):
    """The instructions do not allow a conclusion."""


def columns_read(code: Code, columns: Collection[str]) -> frozenset[str] | None:
    """The columns of a row that `on_row` can read; None if it may read any.

    >>> columns_read(Code(lambda row: row.price * 2, ()), ["price", "card"])
    frozenset({'price'})
    >>> columns_read(Code(lambda row: print(row), ()), ["price", "card"]) is None
    True
    """
    if isinstance(code.target, Stored):
        return None
    is_class = isinstance(code.target, Process)
    function = type(code.target).on_row if is_class else code.target
    try:
        read = _attributes_read(plain_code(function, 1 + is_class), int(is_class))
    except Doubt:
        return None
    return read if read <= set(columns) else None


@lru_cache(maxsize=256)
def _attributes_read(inner: CodeType, parameter: int) -> frozenset[str]:
    body = instructions(inner)
    read = uses(inner, body, inner.co_varnames[parameter], "LOAD_ATTR")
    return frozenset(body[at].argval for at in read)


def never_emptied(code: Code) -> frozenset[str]:
    """The states (by name) that user code only reads and sets as `.value`, and never sets to None.

    The values it sets are results of operators and constants, which cannot be None.

    >>> def count(row, n):
    ...     n.value += 1
    >>> never_emptied(Code(count, (("n", "n"),)))
    frozenset({'n'})
    """
    states = [attribute for attribute, _ in code.states]
    try:
        if isinstance(code.target, Process):
            odd = frozenset().union(
                *(_odd_attributes(plain_code(each, 1), tuple(states)) for each in _methods(type(code.target)))
            )
        else:
            odd = _odd_parameters(plain_code(code.target, 1), tuple(states))
    except Doubt:
        return frozenset()
    return frozenset(name for attribute, name in code.states if attribute not in odd)


def always_set(code: Code) -> frozenset[str]:
    """The states that every complete call of `on_row` sets: it sets them before anything that may branch.

    >>> def count(row, n, m):
    ...     n.value += 1
    ...     if n.value > 3:
    ...         m.value = 0
    >>> always_set(Code(count, (("n", "n"), ("m", "m"))))
    frozenset({'n'})
    """
    is_class = isinstance(code.target, Process)
    function = type(code.target).on_row if is_class else code.target
    try:
        names = _set_at_first(plain_code(function, 1 + is_class), is_class)
    except Doubt:
        return frozenset()
    return frozenset(name for attribute, name in code.states if attribute in names)


@lru_cache(maxsize=256)
def _set_at_first(inner: CodeType, is_class: bool) -> frozenset[str]:
    if inner.co_exceptiontable:  # setting a state may fail, and the code may catch the failure
        raise Doubt
    names = set()
    added: str | None = None  # for x.value += …: the name of x
    body = instructions(inner)
    for at, one in enumerate(body[:-2]):
        if one.is_jump_target or one.opcode in _JUMPS or one.opname in _ENDS:
            break
        loaded, (then, after) = _loaded(inner, body, at, is_class), body[at + 1 : at + 3]
        if loaded is not None and then.opname == "STORE_ATTR" and then.argval == "value":
            names.add(loaded)
        elif then.opname == "COPY":
            added = loaded if after.opname == "LOAD_ATTR" and after.argval == "value" else None
        elif then.opname == "SWAP" and after.opname == "STORE_ATTR" and added is not None:
            names.add(added)
            added = None
    return frozenset(names)


def _loaded(inner: CodeType, body: Instructions, at: int, is_class: bool) -> str | None:
    """The parameter or the attribute of `self` that this instruction loaded."""
    one, before = body[at], body[max(0, at - 1)]
    if not is_class:
        return str(one.argval) if one.opname in _LOADS else None
    mine = before.opname in _LOADS and before.argval == inner.co_varnames[0]
    return str(one.argval) if one.opname == "LOAD_ATTR" and mine else None


def _methods(kind: type) -> Iterator[Any]:
    """All functions that receive an object of this class as `self`."""
    for cls in kind.__mro__[: kind.__mro__.index(Process)]:
        for name, value in vars(cls).items():
            if isinstance(value, FunctionType):
                yield value
            elif hasattr(type(value), "__get__") and name not in ("__dict__", "__weakref__"):
                raise Doubt  # a property, a class method or another descriptor may reach it


@lru_cache(maxsize=256)
def _odd_attributes(inner: CodeType, states: tuple[str, ...]) -> frozenset[str]:
    """The states among the attributes of `self` that a method uses in any other way."""
    body = instructions(inner)
    odd = set()
    for at in uses(inner, body, inner.co_varnames[0], "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
        name = body[at].argval
        if name.startswith("__"):
            raise Doubt
        if name in states and not _reads_or_sets(body, at + 1, at - 2):
            odd.add(name)
    return frozenset(odd)


@lru_cache(maxsize=256)
def _odd_parameters(inner: CodeType, states: tuple[str, ...]) -> frozenset[str]:
    """The states among the parameters of a function that it uses in any other way."""
    body = instructions(inner)
    if not {*states} <= {*inner.co_varnames[: inner.co_argcount + inner.co_kwonlyargcount]}:
        raise Doubt
    return frozenset(name for name in states if not _is_plain(inner, body, name))


def _is_plain(inner: CodeType, body: Instructions, state: str) -> bool:
    try:
        attribute_uses = list(uses(inner, body, state, "LOAD_ATTR", "STORE_ATTR", "COPY"))
    except Doubt:
        return False
    return all(_reads_or_sets(body, at, at - 2) for at in attribute_uses)


def _reads_or_sets(body: Instructions, at: int, before: int) -> bool:
    """Is the state, loaded between `before` and `at`, read as `.value`, or set to what cannot be None?

    An assignment is <new value>, <the state>, STORE_ATTR; `.value += …` is <the state>, COPY, LOAD_ATTR, …,
    BINARY_OP, SWAP, STORE_ATTR, and no other use of a state begins like that.
    """
    one = body[at + 1] if body[at].opname == "COPY" else body[at]
    if one.argval != "value" or body[at].is_jump_target or one.opname not in ("LOAD_ATTR", "STORE_ATTR"):
        return False
    if one.opname == "LOAD_ATTR":
        return True
    if any(each.is_jump_target for each in body[before + 1 : at]):
        return False  # a branch may choose between several values
    code = body[before]
    return code.opname == "BINARY_OP" or (code.opname == "LOAD_CONST" and code.argval is not None)


def plain_code(function: Any, parameters: int) -> CodeType:
    """The code of a function that takes at least this many positional parameters."""
    if sys.gettrace() is not None or not isinstance(function, FunctionType):
        raise Doubt
    inner = function.__code__
    if hasattr(function, "__wrapped__") or inner.co_argcount < parameters or _LOOKS & {*inner.co_names}:
        raise Doubt
    return inner


def instructions(inner: CodeType) -> Instructions:
    """The instructions of code; Python 3.13's loads and stores of two variables are split into two."""
    listed = []
    for one in dis.get_instructions(inner):
        if one.opname in _PAIRS:
            first, second = _PAIRS[one.opname]
            listed.append(one._replace(opname=first, opcode=dis.opmap[first], argval=one.argval[0]))
            one = one._replace(opname=second, opcode=dis.opmap[second], argval=one.argval[1], label=None)  # type: ignore[call-arg]
        if one.opname != "EXTENDED_ARG":
            listed.append(one)
    return listed


def uses(inner: CodeType, body: Instructions, variable: str, *allowed: str) -> Iterator[int]:
    """The instruction after each load of a variable; raises Doubt unless each is one of `allowed`."""
    if variable in inner.co_cellvars:
        raise Doubt
    for at, one in enumerate(body):
        named = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if one.opcode not in dis.haslocal or variable not in named:
            continue
        behind = body[at + 1]
        if one.opname not in _LOADS or behind.opname not in allowed or behind.is_jump_target:
            raise Doubt
        yield at + 1

"""Finds the user code in the steps of a plan."""

from __future__ import annotations

import functools
import os
from dataclasses import fields, is_dataclass, replace
from types import CodeType, FunctionType, MethodType
from typing import Any

import millpond
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.stored_code import loaded

OURS = os.path.dirname(millpond.__file__) + os.sep


def user_codes(plan: Plan) -> set[CodeType]:
    """The code objects of all functions and methods that users passed to the steps of a plan."""
    codes: set[CodeType] = set()
    for node in plan.nodes.values():
        if not isinstance(node.operator, Scan):
            _gather(node.operator, codes, set())
    return codes


def _gather(value: Any, codes: set[CodeType], met: set[int]) -> None:
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, functools.partial):
        _gather(value.func, codes, met)
    elif isinstance(value, MethodType):
        _gather(value.__func__, codes, met)
        _gather(value.__self__, codes, met)
    elif isinstance(value, FunctionType):
        if not value.__code__.co_filename.startswith((OURS, "<string>")):  # the latter by dataclasses
            codes.add(value.__code__)
        if hasattr(value, "__wrapped__"):
            _gather(value.__wrapped__, codes, met)
    elif isinstance(value, tuple | list):
        for item in value:
            _gather(item, codes, met)
    elif not isinstance(value, type):
        for cls in type(value).__mro__:
            theirs = cls.__module__.partition(".")[0] not in ("builtins", "millpond")
            for part in vars(cls).values() if theirs else ():
                if isinstance(part, FunctionType):
                    _gather(part, codes, met)
        if is_dataclass(value):
            for field in fields(value):
                _gather(getattr(value, field.name, None), codes, met)


def with_operators(plan: Plan) -> Plan:
    """The plan with user-defined operators loaded; only they know their own meaning."""
    nodes = {step: replace(node, operator=loaded(node.operator)) for step, node in plan.nodes.items()}
    return replace(plan, nodes=nodes)

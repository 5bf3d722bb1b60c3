"""Cases and seeds of a parametrized test that are too many for a normal run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases for `parametrize`; those after the first `count` run only with `make slow`."""
    return [case if n < count else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]


def seeds(few: int, begin: int, count: int, variable: str) -> list[Any]:
    """Return `count` seeds; those after the first `few` run only with `make slow`, or if the variable is set."""
    found = range(begin, begin + count)
    return list(found) if variable in os.environ else first(few, found)

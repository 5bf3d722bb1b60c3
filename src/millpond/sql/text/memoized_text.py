"""Caches results of functions of short texts, because the same statements run again and again.

Only for functions that depend on the text alone.  Errors are not cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SHORT = 4096  # characters; longer texts rarely repeat, and use much memory
KEPT = 512


def of_short_texts(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Cache the results of a function for short texts.

    >>> asked = []
    >>> @of_short_texts
    ... def size(text):
    ...     asked.append(text)
    ...     return len(text)
    >>> size("abc"), size("abc"), asked
    (3, 3, ['abc'])
    """
    kept = lru_cache(maxsize=KEPT)(function)

    @wraps(function)
    def call(text: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if len(text) > SHORT:
            return function(text, *args, **kwargs)
        return kept(text, *args, **kwargs)  # type: ignore[arg-type]

    return call

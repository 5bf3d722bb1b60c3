"""What a function makes of a short text is remembered: statements are asked again and again.

Only for functions of the text alone.  A text that is refused is looked at anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SHORT = 4096  # characters; longer ones are rarely asked twice, and heavy to keep
KEPT = 512


def of_short_texts(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """
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

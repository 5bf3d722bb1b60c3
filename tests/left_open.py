"""Closes the ponds that a test leaves open.

Law: after a test no thread of its ponds runs on beside the tests that follow.  Ponds that were opened before it,
by fixtures with a wider scope, stay open.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_opened: weakref.WeakSet[Any] = weakref.WeakSet()  # the ponds that the innermost block has opened


@contextmanager
def closed_at_the_end() -> Iterator[None]:
    """Close all ponds that are opened in a block and still open at its end."""
    global _opened
    api = sys.modules.get("millpond.pond.api")
    if api is not None and not hasattr(api.Pond, "noted_by_tests"):
        _note_ponds(api.Pond)
    outer, _opened = _opened, weakref.WeakSet()
    try:
        yield
    finally:
        left, _opened = _opened, outer
        for pond in list(left):
            pond._close(raises=False)  # the test has seen the errors that it is about


def _note_ponds(cls: Any) -> None:
    """Note every pond that is opened from now on."""
    begin = cls.__init__

    @functools.wraps(begin)
    def noted(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        _opened.add(self)

    cls.__init__ = noted
    cls.noted_by_tests = True

"""Unpickles objects that an older version of Millpond pickled.

A pickle names the classes and functions it needs by module.  Users' code and state may name some of
Millpond's own: the base class of a process step, a row, a timer.  When one of these moves, its old address is
added to `MOVED`, so that stored ponds stay readable.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

# (module, name) when it was pickled: current (module, name).
MOVED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("millpond.operators.flat_map", "Row"): ("millpond.kernels.python_rows", "Row"),
    ("millpond.operators.flat_map", "_row_again"): ("millpond.kernels.python_rows", "_row_again"),
    ("millpond.pond.face", "Pond"): ("millpond.pond.api", "Pond"),
    ("millpond.pond.face", "open"): ("millpond.pond.api", "open"),
    ("millpond.pond.face", "restore"): ("millpond.pond.api", "restore"),
}


# Packages that moved with everything in them.
MOVED_PACKAGES: Mapping[str, str] = {"millpond.operators.process.": "millpond.process."}


def today(module: str, name: str) -> tuple[str, str]:
    """The current address of something that had this address."""
    if (module, name) in MOVED:
        return MOVED[module, name]
    for old, new in MOVED_PACKAGES.items():
        if module.startswith(old):
            return new + module.removeprefix(old), name
    return module, name


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(*today(module, name))


def loads(raw: bytes) -> Any:
    """Like `pickle.loads`, also for what has moved since.  It can run stored code: check trust first."""
    try:
        return pickle.loads(raw)
    except (ImportError, AttributeError):
        return _Unpickler(io.BytesIO(raw)).load()

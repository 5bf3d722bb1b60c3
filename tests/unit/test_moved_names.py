"""What an older version pickled is found where it is now."""

from __future__ import annotations

import importlib
import pickle

import pytest

from millpond import moved_names
from millpond.kernels.python_rows import Row, row_of, row_type
from millpond.process.spec import Adds


def renamed(raw: bytes, new: str, old: str) -> bytes:
    """A pickle as code wrote it that had `new` at `old`; protocol 0 has no lengths to correct."""
    assert new.encode() in raw
    return raw.replace(new.encode(), old.encode())


def test_a_row_that_an_older_version_stored_is_read() -> None:
    row = row_of(row_type(("k", "n")), ("a", 1))
    raw = renamed(pickle.dumps(row, 0), "millpond.kernels.python_rows", "millpond.operators.flat_map")
    with pytest.raises(AttributeError):
        pickle.loads(raw)
    found = moved_names.loads(raw)
    assert isinstance(found, Row) and found.as_dict() == {"k": "a", "n": 1}


def test_a_package_moves_with_all_it_contains() -> None:
    raw = renamed(pickle.dumps(Adds, 0), "millpond.process.spec", "millpond.operators.process.spec")
    assert moved_names.loads(raw) is Adds


def test_every_new_address_exists() -> None:
    for module, name in moved_names.MOVED.values():
        assert hasattr(importlib.import_module(module), name), (module, name)
    for package in moved_names.MOVED_PACKAGES.values():
        importlib.import_module(package.removesuffix("."))


def test_what_is_nowhere_is_still_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        moved_names.loads(b"cmillpond.never.was.here\nThing\n.")

"""Reads and names plan files: a name contains a digest of the content, which every read verifies."""

from __future__ import annotations

import hashlib
import os
import re

from millpond.errors import DataError
from millpond.state.store.store import MissingError, Store

PREFIX = "catalog/"
_DIGEST = re.compile(r"[0-9a-f]{24}\Z")


def digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def fresh_name(raw: bytes) -> str:
    """A name that no plan has had, not even an equal plan: it would be collected with the old one."""
    return f"{PREFIX}{os.urandom(8).hex()}-{digest(raw)}"


def is_named(name: str, raw: bytes) -> bool:
    """Is this the name of a plan file?"""
    return name.startswith(PREFIX) and name.endswith(digest(raw))


def is_same_plan(name: str | None, other: str | None) -> bool:
    """Do two names of the catalog stand for equal plans?

    >>> is_same_plan("catalog/0a-" + "0" * 24, "catalog/1b-" + "0" * 24), is_same_plan("catalog/1", None)
    (True, False)
    """
    if name is None or other is None or name == other:
        return name == other
    one, two = _DIGEST.search(name), _DIGEST.search(other)
    return one is not None and two is not None and one[0] == two[0]


def plan_names(store: Store) -> list[str]:
    """The names of the plans in the catalog."""
    return [name for name in store.list(PREFIX) if _DIGEST.search(name)]


def read_plan(store: Store, name: str) -> bytes:
    """Read and verify a plan; DataError if it is lost or is not what was written.

    The name of a plan that only a backfill needs is a run name that ends with the digest.
    """
    try:
        raw = store.get(name)
    except MissingError as missing:
        raise DataError(
            "the catalog cannot be read",
            detail=f"{name} is missing",
            hint="restore the file from a backup; do not delete files under catalog/",
        ) from missing
    check_plan(name, raw)
    return raw


def check_plan(name: str, raw: bytes) -> None:
    """Raise DataError unless these bytes have the digest in the name."""
    written = _DIGEST.search(name)
    if written is None and not name.startswith(PREFIX):
        return  # written by a backfill before its plans were named by their content
    if written is None or written[0] != digest(raw):
        raise DataError(
            "the catalog cannot be read",
            detail=f"{name}, {len(raw)} bytes: their digest is {digest(raw)}, not the one in the name",
            hint="the file is damaged: keep it, and restore it from a backup",
        )

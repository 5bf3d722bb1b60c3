"""Plans as files: named by a digest of their content, and verified by that name on every read."""

from __future__ import annotations

import hashlib
import os
import re

from millpond.errors import DataError
from millpond.state.store import MissingError, Store

PREFIX = "catalog/"
_DIGEST = re.compile(r"[0-9a-f]{24}\Z")


def digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def fresh_name(raw: bytes) -> str:
    """A name that no plan has had, not even an equal one: it would be collected as the old one is."""
    return f"{PREFIX}{os.urandom(8).hex()}-{digest(raw)}"


def is_named(name: str, raw: bytes) -> bool:
    """Is this the name of such a plan?"""
    return name.startswith(PREFIX) and name.endswith(digest(raw))


def plan_names(store: Store) -> list[str]:
    """The plans in the catalog."""
    return [name for name in store.list(PREFIX) if _DIGEST.search(name)]


def read_plan(store: Store, name: str) -> bytes:
    """The bytes of a plan, verified; DataError when they are lost or are not those that were written.

    Plans that only a backfill needs have their digest at the end of a run's name.
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
    """DataError unless these bytes have the digest that the name says."""
    written = _DIGEST.search(name)
    if written is None and not name.startswith(PREFIX):
        return  # of a backfill, written before its plans were named by their content
    if written is None or written[0] != digest(raw):
        raise DataError(
            "the catalog cannot be read",
            detail=f"{name}, {len(raw)} bytes: their digest is {digest(raw)}, not the one in the name",
            hint="the file is damaged: keep it, and restore it from a backup",
        )

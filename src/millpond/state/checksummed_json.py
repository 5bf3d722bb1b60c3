"""Writes and reads small JSON files that end with their own checksum.

Law: a read returns what was written.  A flipped bit in a number would still be valid JSON, so the last member
is the xxh3_64 of all bytes before it.  Pins and leases of version 1 (no member `format`) have no checksum and
are read without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import xxhash

_SEAL = b',"xxh3":"%016x"}'
SEAL_BYTES = len(_SEAL % 0)
_LIKE_A_SEAL = re.compile(rb',"xxh3":"[^"]*"\}\Z')


def sealed(data: Mapping[str, Any]) -> bytes:
    """
    >>> unsealed(sealed({"format": 2, "n": 1}))["n"]
    1
    """
    body = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()[:-1]
    return body + _SEAL % xxhash.xxh3_64_intdigest(body)


def has_seal(raw: bytes) -> bool:
    """Does a file end with the checksum of everything before it?"""
    return raw[-SEAL_BYTES:] == _SEAL % xxhash.xxh3_64_intdigest(raw[:-SEAL_BYTES])


def unsealed(raw: bytes) -> dict[str, Any]:
    """Parse and verify what `sealed` wrote; ValueError if it is damaged.  Version 1 has no checksum."""
    if not has_seal(raw) and (b'"format"' in raw or _LIKE_A_SEAL.search(raw)):
        raise ValueError("its checksum does not match its content")
    data = json.loads(raw)
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    return data

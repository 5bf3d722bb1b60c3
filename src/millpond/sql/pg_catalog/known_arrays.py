"""Rewrites array types that sqlglot cannot read."""

from __future__ import annotations

import re


def with_known_arrays(text: str) -> str:
    """sqlglot cannot read arrays of some types."""
    text = re.sub(r"::\s*(?:pg_catalog\.)?(?:oid|regclass|regtype)\s*\[\s*\]", "::bigint[]", text, flags=re.I)
    return re.sub(r"::\s*(?:pg_catalog\.)?(?:name|regproc)\s*\[\s*\]", "::text[]", text, flags=re.I)

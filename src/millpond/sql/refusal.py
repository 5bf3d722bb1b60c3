"""What SQL cannot be a materialized view, said with its place in the text."""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.errors import InvalidError

NOWHERE = 2**64 - 1


class NotSupported(InvalidError):
    """Refused while lowering; `at` is (start, length) in the text, if known."""

    def __init__(self, message: str, *, at: tuple[int, int] | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.at = at


def refuse(node: dict[str, Any], why: str, hint: str | None = None) -> NoReturn:
    path = (node.get("qname") or {}).get("path")
    name = path[-1] if path else str(node.get("type") or node.get("expression_class")).lower()
    raise NotSupported(f"{name} {why}", at=place_of(node), hint=hint or "docs/sql.md lists what is supported")


def place_of(node: dict[str, Any]) -> tuple[int, int] | None:
    """Where a node stands in the text, if that is known."""
    start = node.get("query_location", NOWHERE)
    return None if start == NOWHERE else (int(start), int(node.get("query_location_length") or 1))

"""Errors that tell PostgreSQL clients an SQLSTATE of their own."""

from __future__ import annotations

from millpond.errors import InvalidError


class PgError(InvalidError):
    """An error with an SQLSTATE of its own."""

    def __init__(
        self, state: str, message: str, *, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.state = state

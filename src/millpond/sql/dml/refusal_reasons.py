"""Why a change that was executed later is refused: in the words of the statement that the user wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.errors import InvalidError, MillpondError
from millpond.kernels.value_errors import without_libraries
from millpond.sql.text.user_errors import in_user_words


def reason_of(error: Exception) -> str:
    """The reason without the statement, which was rewritten before it failed."""
    if not isinstance(error, MillpondError):
        return without_libraries(f"{type(error).__name__}: {error}")
    if isinstance(error, InvalidError) and error.place is not None:
        in_user_words(error, "", ())
        error.detail = None
    return without_libraries(": ".join(part for part in (error.message, error.detail) if part))


def with_statement(args: Mapping[str, Any], reason: str) -> str:
    """The reason behind the statement as it was written; older entries have only what it became."""
    said = args.get("said", args.get("sql"))
    return f"{' '.join(str(said).split())}: {reason}"

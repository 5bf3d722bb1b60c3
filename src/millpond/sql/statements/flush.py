"""FLUSH: returns when all earlier changes are committed and visible in all views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.result import Result
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

FLUSH_S = 600.0


def run(session: SqlSession, words: Words) -> Result:
    words.end()
    if not session.has_epoch():
        return Result.said("FLUSH: nothing is defined yet")
    epoch = session.host.flush(timeout_s=FLUSH_S)
    return Result.said(f"FLUSH: epoch {epoch}", epoch)

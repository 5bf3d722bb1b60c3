"""FLUSH: returns when all changes before it are committed, and visible in all views."""

from __future__ import annotations

from millpond.sql.parse import Words
from millpond.sql.result import Result
from millpond.sql.session import Session

FLUSH_S = 600.0


def run(session: Session, words: Words) -> Result:
    words.end()
    if not session.has_epoch():
        return Result.said("FLUSH: nothing is defined yet")
    epoch = session.pond.flush(timeout_s=FLUSH_S)
    return Result.said(f"FLUSH: epoch {epoch}", epoch)

"""SHOW JOBS: lists background work, and entries that wait in the inbox.

The statement takes no lock, so it answers while another thread runs a backfill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.reads.running_jobs import JOBS, jobs_table
from millpond.sql.result import Result
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_TYPES = ["VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "VARCHAR", "VARCHAR"]


def run(session: SqlSession, words: Words) -> Result:
    words.end()
    return Result.of_rows(JOBS.names, _TYPES, jobs_table(session.host))

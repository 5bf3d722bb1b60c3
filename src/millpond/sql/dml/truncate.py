"""TRUNCATE: deletes all rows of some tables in one epoch; executed in order, like DELETE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.binding.types import quoted
from millpond.sql.dml.deferred_change import change_of, target
from millpond.sql.result import Result
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    words = Words(fragment, 1)
    words.take("TABLE")
    names = []
    while True:
        words.take("ONLY")
        names.append(words.name("name of the table"))
        words.take("*")
        if not words.take(","):
            break
    _ = words.take("RESTART", "IDENTITY") or words.take("CONTINUE", "IDENTITY")
    _ = words.take("CASCADE") or words.take("RESTRICT")  # no other table refers to a table
    words.end()
    tables = dict.fromkeys(target(session, name, "truncate").name for name in names)
    changes = []
    for name in tables:
        found = target(session, name, "truncate")
        changes.append(change_of(session, found, "delete", f"DELETE FROM {quoted(found.name)}", untold=True))
    session.send_changes(changes)
    return Result.said("TRUNCATE_TABLE")

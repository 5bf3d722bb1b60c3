"""TRUNCATE: deletes all rows of some tables in one epoch; executed in order, like DELETE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.binding.types import quoted
from millpond.sql.dml.assigned_numbers import identity_columns
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
    restart = words.take("RESTART", "IDENTITY")
    _ = restart or words.take("CONTINUE", "IDENTITY")
    _ = words.take("CASCADE") or words.take("RESTRICT")  # no other table refers to a table
    words.end()
    tables = dict.fromkeys(target(session, name, "truncate").name for name in names)
    changes = []
    for name in tables:
        found = target(session, name, "truncate")
        sequences = [identity.sequence for _, identity in identity_columns(found)] if restart else []
        for one in (found, *(session.catalog.get(sequence) for sequence in sequences)):
            changes.append(change_of(session, one, "delete", f"DELETE FROM {quoted(one.name)}", untold=True))
    session.send_changes(changes)
    return Result.said("TRUNCATE_TABLE")

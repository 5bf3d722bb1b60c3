"""DELETE: appended to the inbox as text and executed in order, like UPDATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.dml.deferred_change import (
    change_to_run,
    cut_returning,
    defer_change,
    dry_run,
    keys_of,
    named,
    target,
    with_current_time,
)
from millpond.sql.result import Result
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    fragment = change_to_run(session, fragment, params)
    fragment = with_current_time(session, fragment)
    words = Words(fragment, 1)
    words.need("FROM")
    found = target(session, words.name("name of the table"), "delete")
    alias = None
    if not words.over and fragment.word(words.at) not in ("WHERE", "USING", "RETURNING"):
        words.take("AS")
        alias = words.name("alias")
    catalog = session.catalog
    reads = [o for o in named(catalog, words.rest) if o.name != found.name]
    fragment, returning = cut_returning(fragment, alias or found.name)
    sql = fragment.sql
    names = dry_run(session, found, reads, "delete", sql, returning)
    keys = keys_of(catalog, found, fragment, alias)
    return defer_change(session, found, "delete", sql, reads, keys=keys, returning=returning, names=names)

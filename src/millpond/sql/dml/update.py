"""UPDATE: appended to the inbox as text and executed in order, so that no concurrent one is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.binding.functions import inlined_fragment
from millpond.sql.dml.deferred_change import (
    cut_returning,
    defer_change,
    dry_run,
    keys_of,
    named,
    target,
    with_current_time,
)
from millpond.sql.result import Result
from millpond.sql.text.parameters import Params, with_literals
from millpond.sql.text.parse import SqlFragment, Words, readable

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    fragment = inlined_fragment(with_literals(fragment, params), session.catalog.objects)
    fragment = with_current_time(session, fragment)
    words = Words(fragment, 1)
    found = target(session, words.name("name of the table"), "update")
    alias = None
    if not words.fragment.has(words.at, "SET"):
        words.take("AS")
        alias = words.name("alias")
    words.need("SET")
    catalog = session.catalog
    reads = [o for o in named(catalog, words.rest) if o.name != found.name]
    fragment, returning = cut_returning(fragment, alias or found.name)
    sql = readable(fragment)
    names = dry_run(catalog, found, reads, "update", sql, returning)
    named_in = {
        t.text.lower() for t in fragment.part(words.at, fragment.find("WHERE", start=words.at)).tokens
    }
    moves = any(k.lower() in named_in for k in found.key)
    keys = keys_of(catalog, found, fragment, alias)
    return defer_change(
        session, found, "update", sql, reads, keys=keys, moves=moves, returning=returning, names=names
    )

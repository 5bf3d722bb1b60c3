"""UPDATE: appended to the inbox as text and executed in order, so that no concurrent one is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.plan.objects import SqlObject
from millpond.sql.dml.assigned_values import with_declared
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
    found = target(session, words.name("name of the table"), "update")
    alias = None
    if not words.fragment.has(words.at, "SET"):
        words.take("AS")
        alias = words.name("alias")
    words.need("SET")
    _refuse_assigned(fragment, words.at, found)
    catalog = session.catalog
    reads = [o for o in named(catalog, words.rest) if o.name != found.name]
    fragment = with_declared(fragment, found)
    fragment, returning = cut_returning(fragment, alias or found.name)
    sql = fragment.sql
    names = dry_run(session, found, reads, "update", sql, returning)
    named_in = {
        t.text.lower() for t in fragment.part(words.at, fragment.find("WHERE", start=words.at)).tokens
    }
    moves = any(k.lower() in named_in for k in found.key)
    keys = keys_of(catalog, found, fragment, alias)
    return defer_change(
        session, found, "update", sql, reads, keys=keys, moves=moves, returning=returning, names=names
    )


def _refuse_assigned(fragment: SqlFragment, at: int, found: SqlObject) -> None:
    """Refuse to set a column whose numbers are always assigned."""
    always = {c.name.lower() for c in found.columns if c.identity is not None and c.identity.always}
    for place in range(at, len(fragment) - 1):
        name = fragment.tokens[place].text
        set_here = fragment.word(place - 1) in ("SET", ",") and fragment.word(place + 1) == "="
        if name.lower() in always and set_here:
            hint = "its numbers are assigned when rows are inserted"
            fragment.fail(f'column "{name}" can only be updated to DEFAULT', place, hint)

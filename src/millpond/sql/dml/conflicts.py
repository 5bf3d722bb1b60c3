"""ON CONFLICT DO UPDATE: no two rows of one statement may have the same key.

The second row would change the row that the first one has just inserted.  PostgreSQL
refuses such a statement, because the outcome would depend on the order of the rows; so
does Millpond.  DO NOTHING takes the first of them.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.reads.scratch import Scratch, returned
from millpond.sql.text.parse import SqlFragment, Words, tokens_of

GIVEN = "__given"  # a table for the rows of a statement


def check_given(scratch: Scratch, target: SqlObject, sql: str) -> None:
    """Refuse an INSERT … ON CONFLICT DO UPDATE whose rows share a key; its relations must be registered."""
    if not updates_on_conflict(sql):
        return
    rows = given_rows(scratch, target, sql).select(_held_key(target))
    twice = shared_key(rows)
    if twice is not None:
        raise InvalidError(
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
            detail=f"two rows of the statement have the key {shown_key(target, twice)}",
            hint=f"give one row for each key: use DISTINCT ON ({', '.join(target.key)}) or GROUP BY",
        )


def updates_on_conflict(sql: str) -> bool:
    fragment = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb")
    at = fragment.find("ON", "CONFLICT")
    return at is not None and fragment.find("DO", "UPDATE", start=at) is not None


def given_rows(scratch: Scratch, target: SqlObject, sql: str) -> pa.Table:
    """Return the rows that an INSERT gives, before any conflict; its relations must be registered."""
    fragment = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb")
    words = Words(fragment, 2)  # INSERT INTO
    words.name("name of the table")
    name = (fragment.tokens[2].start, fragment.tokens[words.at - 1].end + 1)
    given = fragment.part(0, fragment.find("ON", "CONFLICT")).rewritten([(*name, GIVEN)]).sql
    scratch.table(replace(target, name=GIVEN))
    return scratch.arrow(f"{given} RETURNING {returned(target.columns)}", shown=sql)


def _held_key(target: SqlObject) -> list[str]:
    held_by = {c.name: c.stored_name for c in target.columns}
    return [held_by[k] for k in target.key]


def shared_key(keys: pa.Table) -> tuple[object, ...] | None:
    """Return the first key that more than one row has."""
    names = keys.column_names
    for name in names:  # NULLs are never equal
        keys = keys.filter(pc.is_valid(keys[name])) if keys[name].null_count else keys
    counted = keys.group_by(names, use_threads=False).aggregate([([], "count_all")])
    found = counted.filter(pc.greater(counted["count_all"], 1)).select(names).slice(0, 1).to_pylist()
    return tuple(found[0].values()) if found else None


def shown_key(target: SqlObject, key: tuple[object, ...]) -> str:
    """Format a key as PostgreSQL does: (a, b)=(1, x)."""
    return f"({', '.join(target.key)})=({', '.join(map(str, key))})"


def same_key(target: SqlObject, key: tuple[object, ...]) -> InvalidError:
    """The error for two rows with the same primary key, in PostgreSQL's words."""
    name = f"{target.name}_pkey"
    return InvalidError(
        f'duplicate key value violates unique constraint "{name}"',
        detail=f"two rows of {target.name!r} would get the same key: {shown_key(target, key)}",
    )

"""Finds the module that runs a statement, by its first words."""

from __future__ import annotations

from millpond.errors import InvalidError
from millpond.sql.dml import delete, insert, merge, truncate, update
from millpond.sql.refusal import OTHER_VERBS
from millpond.sql.statements import (
    access_control,
    alter,
    comment,
    copy,
    create_function,
    create_index,
    create_savepoint,
    create_secret,
    create_sink,
    create_source,
    create_table,
    create_table_as,
    create_view,
    describe,
    drop,
    explain,
    flush,
    prepared,
    schema,
    select,
    session_variables,
    show,
    show_connectors,
    show_jobs,
    subscribe,
    transaction_control,
)
from millpond.sql.statements.statement import Statement, defining, reading
from millpond.sql.text.other_systems import refuse_kind
from millpond.sql.text.parse import SqlFragment, closest_name

_CREATE = {
    ("TABLE",): create_table.run,
    ("SOURCE",): create_source.run,
    ("VIEW",): create_view.run,
    ("MATERIALIZED", "VIEW"): create_view.run_materialized,
    ("SINK",): create_sink.run,
    ("INDEX",): create_index.run,
    ("FUNCTION",): create_function.run,
    ("MACRO",): create_function.run,
}
_DROP = {
    ("TABLE",): "table",
    ("SOURCE",): "source",
    ("VIEW",): "view",
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("SINK",): "sink",
    ("INDEX",): "index",
    ("FUNCTION",): "function",
    ("MACRO",): "function",
}
_OTHERS = {
    "SELECT": Statement(select.run, joins_text=True),
    "WITH": Statement(select.run, joins_text=True),
    "VALUES": Statement(select.run, joins_text=True),
    "TABLE": Statement(select.run, joins_text=True),
    "FROM": Statement(select.run, joins_text=True),
    "(": Statement(select.run, joins_text=True),
    "INSERT": Statement(insert.run, joins_text=True),
    "UPDATE": Statement(update.run, joins_text=True),
    "DELETE": Statement(delete.run, joins_text=True),
    "MERGE": Statement(merge.run, joins_text=True),
    "COPY": Statement(copy.run, joins_text=True),
    "TRUNCATE": Statement(truncate.run, joins_text=True),
    "PREPARE": Statement(prepared.prepare, independent=True),
    "EXECUTE": Statement(prepared.execute, joins_text=True, outside_lock=True),
    "DEALLOCATE": Statement(prepared.deallocate, independent=True),
    "COMMENT": defining(1, comment.run),
    "FLUSH": reading(1, flush.run, outside_lock=True),
    "SUBSCRIBE": reading(1, subscribe.run),
    "EXPLAIN": reading(1, explain.run),
    "DESCRIBE": reading(1, describe.run),
    "DESC": reading(1, describe.run),
    "SHOW": reading(1, show.run),
    "SET": reading(1, session_variables.run_set, independent=True),
    "RESET": reading(1, session_variables.run_reset, independent=True),
    **dict.fromkeys(transaction_control.VERBS, Statement(transaction_control.run, controls=True)),
}
VERBS = ("CREATE", "DROP", "ALTER", "GRANT", "REVOKE", *(v for v in _OTHERS if v.isalpha()))
# By first words; of two that fit, the longer one.  `_create` finds CREATE, which OR REPLACE may follow.
_STATEMENTS: dict[tuple[str, ...], Statement] = {
    **{(verb,): statement for verb, statement in _OTHERS.items()},
    **{("DROP", *words): defining(1 + len(words), drop.run_for(kind)) for words, kind in _DROP.items()},
    **{("DROP", kind): reading(2, access_control.drop, alone=True) for kind in access_control.KINDS},
    ("DROP", "SAVEPOINT"): reading(2, create_savepoint.run_drop, alone=True),
    ("DROP", "SECRET"): reading(2, create_secret.run_drop, alone=True),
    ("DROP", "SCHEMA"): defining(2, schema.drop),
    ("DROP", "TOKENS"): reading(2, access_control.drop_tokens, alone=True),
    ("GRANT",): reading(1, access_control.grant, alone=True),
    ("REVOKE",): reading(1, access_control.revoke, alone=True),
    ("ALTER",): defining(1, alter.run),
    **{("ALTER", kind): reading(2, access_control.alter, alone=True) for kind in access_control.KINDS},
    ("ALTER", "SCHEMA"): defining(2, schema.alter),
    ("SHOW", "CONNECTORS"): reading(2, show_connectors.run),
    ("SHOW", "GRANTS"): reading(2, access_control.show),
    ("SHOW", "SECRETS"): reading(2, create_secret.run_show),
    ("SHOW", "JOBS"): reading(2, show_jobs.run, independent=True),
}
_WORDS_MAX = max(map(len, _STATEMENTS))


def find(fragment: SqlFragment) -> Statement:
    """Return the kind of statement of a text."""
    if fragment.word(0) == "CREATE":
        return _create(fragment)
    if fragment.word(0) == "SHOW" and session_variables.is_shown(fragment):
        return reading(1, session_variables.run_show, independent=True)
    if create_table_as.is_select_into(fragment):
        return Statement(create_table_as.run_select_into, outside_lock=True, alone=True)
    words = fragment.words[:_WORDS_MAX]
    for length in range(len(words), 0, -1):
        known = _STATEMENTS.get(words[:length])
        if known is not None:
            return known
    return _unknown(fragment)


def _unknown(fragment: SqlFragment) -> Statement:
    """Refuse a text that begins like no statement."""
    first = fragment.word(0)
    if first == "DROP":
        kinds = ", ".join(" ".join(words) for words in _DROP)
        fragment.fail("DROP of what?", 1, f"one of {kinds}, SAVEPOINT or SECRET")
    if first in OTHER_VERBS:
        fragment.fail(f"{first} is not supported", 0, OTHER_VERBS[first])
    try:
        fragment.fail(
            f"no statement begins with {fragment.tokens[0].text}", 0, closest_name(first or "?", VERBS)
        )
    except InvalidError as error:
        if error.hint is None:
            error.hint = f"statements are {', '.join(VERBS)}"
        raise
    raise AssertionError


def _create(fragment: SqlFragment) -> Statement:
    replace = fragment.has(1, "OR", "REPLACE")
    at = 3 if replace else 1
    if fragment.has(1, "UNIQUE", "INDEX"):
        return defining(3, create_index.run_unique)
    refuse_kind(fragment, at)
    if fragment.has(at, "SAVEPOINT"):
        return reading(at + 1, create_savepoint.run, alone=True)
    if fragment.word(at) in access_control.KINDS and at == 1:
        return reading(2, access_control.create, alone=True)
    if fragment.has(1, "TOKEN"):
        return reading(2, access_control.create_token, alone=True)
    if fragment.has(at, "SECRET"):
        return reading(at + 1, create_secret.run(replace), alone=True)
    if fragment.has(at, "TABLE") and create_table_as.is_create_as(fragment, at + 1):
        return Statement(create_table_as.run, outside_lock=True, alone=True)
    if fragment.has(1, "SCHEMA"):
        return defining(2, schema.create)
    if fragment.has(at, "DATABASE"):
        fragment.fail("CREATE DATABASE is not supported", at, "a pond is a database: millpond.open(path)")
    for words, run in _CREATE.items():
        if fragment.has(at, *words):
            return defining(at + len(words), run(replace))
    fragment.fail(
        "CREATE of what?", at, f"one of {', '.join(' '.join(w) for w in _CREATE)}, SAVEPOINT or SECRET"
    )
    raise AssertionError

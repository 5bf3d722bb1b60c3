"""Statements of RisingWave as ours: PostgreSQL's SQL, with options, clauses and settings of RisingWave.

Queries, windows, watermarks, EMIT ON WINDOW CLOSE, temporal filters and joins as of PROCTIME() are written as
in the default dialect and mean the same; what is only RisingWave's is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from millpond.sql.binding.types import text_literal
from millpond.sql.dialects.connector_table import ConnectorTable, option_list, translated_options
from millpond.sql.dialects.known_objects import KnownObjects
from millpond.sql.dialects.risingwave.connectors import FORCED, INSTEAD, SINKS, SOURCES
from millpond.sql.text.metadata_columns import read_includes
from millpond.sql.text.options import Options, read_options
from millpond.sql.text.parse import SqlFragment, Words, statements

_NAME = "the dialect 'risingwave'"
# Settings that change how RisingWave runs, and no row.
_SETTINGS = re.compile(
    r"(streaming|rw|background|sink|source|batch|max|query|statement|enable|create|synchronize|backfill|arrangement"
    r"|visibility|rate)_\w+|application_name|search_path|client_encoding|extra_float_digits|standard_conforming_strings"
)
_UNLIKE = {
    "streaming_separate_consecutive_join": "leave it out",
}
_CLAUSES = {  # in any statement, outside of brackets and inside
    ("SESSION", "WITH", "GAP"): "write SESSION(rows, time, INTERVAL '5 minutes', key) in FROM, and GROUP BY",
    ("AS", "CHANGELOG", "FROM"): "SUBSCRIBE name shows the changes of a table or view",
}
_KEPT = "write INSERT … ON CONFLICT DO NOTHING, or APPEND ONLY, which keeps the first row of a key"
_CONFLICTS = {  # what a table of RisingWave does with a second row of a key, besides replacing the first
    "DO UPDATE IF NOT NULL": "write INSERT … ON CONFLICT (key) DO UPDATE SET c = coalesce(excluded.c, t.c)",
}
_REFUSED = {
    ("CREATE", "CONNECTION"): "put the options into the source or sink",
    ("CREATE", "SUBSCRIPTION"): "SUBSCRIBE name follows a table or view",
    ("DECLARE",): "SUBSCRIBE name follows a table or view",
    ("FETCH",): "SUBSCRIBE name follows a table or view",
    ("WAIT",): "FLUSH waits for what was sent",
    ("RECOVER",): "a pond resumes by itself",
    ("KILL",): "DROP the object",
    ("CANCEL",): "DROP the object",
}


def as_own_statements(fragments: Sequence[SqlFragment], known: KnownObjects) -> list[SqlFragment]:
    """The statements of a text in the default dialect."""
    found = []
    for one in fragments:
        text = _text(one)
        if text is None:
            continue
        found += [SqlFragment(f.text, f.tokens, f.dialect, one.sql) for f in statements(text, "postgres")]
    return found


def _text(fragment: SqlFragment) -> str | None:
    for words, hint in _REFUSED.items():
        if fragment.has(0, *words):
            fragment.fail(f"{' '.join(words)} of {_NAME} is not supported", 0, hint)
    for clause, hint in _CLAUSES.items():
        at = next((n for n in range(len(fragment)) if fragment.has(n, *clause)), None)
        if at is not None:
            fragment.fail(f"{' '.join(clause)} of {_NAME} is not supported", at, hint)
    if fragment.word(0) == "SET":
        return _set(fragment)
    if fragment.word(0) != "CREATE":
        return fragment.sql
    at = 3 if fragment.has(1, "OR", "REPLACE") else 1
    kind = fragment.word(at)
    if kind == "SECRET":
        return _secret(fragment, at)
    if kind in ("SOURCE", "TABLE"):
        return _table(fragment, at)
    if kind == "SINK":
        return _sink(fragment, at)
    if kind == "INDEX":
        by = fragment.find("DISTRIBUTED", "BY")
        return fragment.sql if by is None else fragment.part(0, by).sql
    return fragment.sql


def _set(fragment: SqlFragment) -> str | None:
    words = Words(fragment, 1)
    name = words.text().lower()
    if name in ("time", "timezone"):
        _ = words.take("ZONE")
        _ = words.take("TO") or words.take("=")
        if words.text().upper() != "UTC":
            fragment.fail("the time zone is UTC", 1, "write … AT TIME ZONE 'Europe/Berlin' in the query")
        return None
    if name == "rw_implicit_flush":
        return f"SET implicit_flush {fragment.part(2, len(fragment)).sql}"
    if name not in _UNLIKE and _SETTINGS.fullmatch(name):
        return None
    hint = _UNLIKE.get(name, "leave it out, if the rows do not depend on it")
    fragment.fail(f"SET {name} of {_NAME} is not supported", 1, hint)
    raise AssertionError


def _secret(fragment: SqlFragment, at: int) -> str:
    """CREATE SECRET name WITH (backend = 'meta') AS 'value'."""
    given = fragment.find("AS", start=at)
    if given is None:
        return fragment.sql
    words = Words(fragment, at + 1)
    _ = words.if_not_exists()
    words.name("name of the secret")
    head = fragment.part(0, words.at).sql
    words.at = given + 1
    return f"{head} WITH (value = {text_literal(words.text())})"


def _connector(options: Options, known: dict[str, ConnectorTable]) -> ConnectorTable:
    name = options["connector"]
    if name not in known:
        hint = INSTEAD.get(name) or f"one of {', '.join(known)}"
        options.parts["connector"].fail(f"connector {name!r} of {_NAME} is not supported", 0, hint)
    return known[name]


def _options(fragment: SqlFragment, start: int) -> tuple[int, int, Options] | None:
    """WITH (…): its places and its options."""
    at = fragment.find("WITH", "(", start=start)
    if at is None:
        return None
    words = Words(fragment, at + 1)
    options = read_options(words)
    return at, words.at, options


def _table(fragment: SqlFragment, at: int) -> str:
    words = Words(fragment, at + 1)
    _ = words.if_not_exists()
    words.name("name")
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        if "*" in inner.words:
            inner.fail(f"(*) of {_NAME} is not supported", 0, "write the columns")
    edits: list[tuple[int, int, str]] = []
    while not words.over and words.fragment.word(words.at) not in ("WITH", "AS"):
        start = words.at
        if words.take("ON", "CONFLICT"):
            if not (words.take("OVERWRITE") or words.take("DO", "UPDATE", "FULL")):
                kind = "DO NOTHING" if words.take("DO", "NOTHING") else fragment.word(words.at)
                if words.take("DO", "UPDATE"):
                    kind = "DO UPDATE IF NOT NULL"
                words.fail(
                    f"ON CONFLICT {kind} of a table of {_NAME} is not supported", _CONFLICTS.get(kind, _KEPT)
                )
            if words.take("WITH", "VERSION"):
                words.fail(
                    f"WITH VERSION COLUMN of {_NAME} is not supported",
                    "FORMAT UPSERT keeps the newest message",
                )
            edits.append(_cut(fragment, start, words.at))
        elif words.fragment.word(words.at) == "INCLUDE":
            _ = read_includes(words)  # the same in the default dialect
        elif words.fragment.word(words.at) == "FROM":
            words.fail(
                f"CREATE TABLE … FROM source of {_NAME} is not supported",
                "CREATE SOURCE name WITH (connector = 'postgres-cdc', tables = 'a, b', …) makes the tables",
            )
        else:
            words.at += 1
    found = _options(fragment, words.at)
    if found is not None and [name.lower() for name in found[2]] in (["appendonly"], ["append_only"]):
        start, end, options = found
        kept = "APPEND ONLY" if next(iter(options.values())).lower() == "true" else ""
        edits.append((fragment.tokens[start].start, fragment.tokens[end - 1].end + 1, kept))
    elif found is not None and "connector" in found[2] and found[2]["connector"] != "files":
        start, end, options = found
        made = translated_options(options, _connector(options, SOURCES), "risingwave")
        edits.append((fragment.tokens[start].start, fragment.tokens[end - 1].end + 1, option_list(made)))
        if options["connector"] == "posix_fs":
            edits[-1] = _as_files(fragment, start, end, made)
    return fragment.rewritten(edits).sql if edits else fragment.sql


def _as_files(fragment: SqlFragment, start: int, end: int, options: dict[str, str]) -> tuple[int, int, str]:
    """The encoding of a source of files is an option here."""
    words = Words(fragment, end)
    words.need("FORMAT", "PLAIN", "ENCODE")
    options["format"] = words.name("an encoding").lower()
    if words.fragment.word(words.at) == "(":
        more = read_options(words)
        for name, value in more.items():
            if name == "delimiter":
                options["delimiter"] = value
            elif name == "without_header":
                options["header"] = "false" if value.lower() == "true" else "true"
            else:
                more.parts[name].fail(
                    f"option {name!r} of {_NAME} is not supported", 0, "delimiter, without_header"
                )
    words.end()
    return fragment.tokens[start].start, fragment.tokens[-1].end + 1, option_list(options)


def _sink(fragment: SqlFragment, at: int) -> str:
    words = Words(fragment, at + 1)
    _ = words.if_not_exists()
    words.name("name of the sink")
    if words.fragment.word(words.at) == "INTO":
        words.fail(
            f"CREATE SINK … INTO of {_NAME} is not supported", "CREATE MATERIALIZED VIEW … AS … UNION ALL …"
        )
    found = _options(fragment, words.at)
    if found is None or "connector" not in found[2]:
        return fragment.sql
    start, end, options = found
    made = translated_options(options, _connector(options, SINKS), "risingwave")
    edits = [(fragment.tokens[start].start, fragment.tokens[end - 1].end + 1, option_list(made))]
    form = Words(fragment, end)
    if made.get("connector") == "files":
        form.need("FORMAT", "PLAIN", "ENCODE")
        made["format"] = form.name("an encoding").lower()
        edits = [(fragment.tokens[start].start, fragment.tokens[-1].end + 1, option_list(made))]
    elif made.get("connector") == "kafka" and form.take("FORMAT"):
        made.pop("mode", None)  # FORMAT says it
        made.pop("envelope", None)
        edits = [(fragment.tokens[start].start, fragment.tokens[end - 1].end + 1, option_list(made))]
        _refuse_force(fragment, end)
    return fragment.rewritten(edits).sql


def _refuse_force(fragment: SqlFragment, start: int) -> None:
    """`ENCODE JSON (force_append_only = 'true')` is refused by its name."""
    for n in range(start, len(fragment)):
        if fragment.word(n) == "FORCE_APPEND_ONLY":
            fragment.fail(f"option 'force_append_only' of {_NAME} is not supported", n, FORCED)


def _cut(fragment: SqlFragment, start: int, end: int) -> tuple[int, int, str]:
    return fragment.tokens[start].start, fragment.tokens[end - 1].end + 1, ""

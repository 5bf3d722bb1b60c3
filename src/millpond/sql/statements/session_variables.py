"""SET, SHOW and RESET of what a session has.

These are the search path, the time zone, whether changes wait for the views, and the mode of the dialect
`spark`.

    SET [SESSION | LOCAL] search_path { TO | = } schema, … | DEFAULT
    SET [SESSION | LOCAL] { TimeZone { TO | = } | TIME ZONE } { 'Europe/Berlin' | DEFAULT }
    SET [SESSION | LOCAL] implicit_flush { TO | = } { true | false | DEFAULT }
    SET spark.sql.ansi.enabled = { true | false }
    SHOW { search_path | TimeZone | TIME ZONE | implicit_flush | spark.sql.ansi.enabled | ALL }
    RESET { search_path | … | ALL }

Settings of PostgreSQL that its scripts and clients set (`SET client_encoding`, `DateStyle`, …) are accepted:
without a word if they ask for what Millpond does anyway, otherwise with a warning.  SHOW gives their values.

The time zone says what a time without a zone means, and how one with a zone is shown.
A materialized view keeps that of the session which creates it.

As in PostgreSQL, a rollback undoes SET, and the end of a transaction undoes SET LOCAL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.sql.binding.types import UTC
from millpond.sql.pg_catalog.server_settings import DEFAULTS, FIXED, QUIET, setting_named
from millpond.sql.pg_catalog.server_settings import is_default as is_as_here
from millpond.sql.result import Result
from millpond.sql.text.parse import SqlFragment, Words, closest_name
from millpond.sql.text.schema_names import PUBLIC, search_path
from millpond.sql.text.time_zones import zone_named

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

ANSI = "spark.sql.ansi.enabled"
NAMES = {
    "implicit_flush": "a change of rows returns when all views show it",
    ANSI: "in the dialect spark, what fails is an error, and not NULL",
    "search_path": "where names without a schema are looked for",
    "timezone": "the time zone of times that name none",
}
_BOOLEANS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_ALSO = {"rw_implicit_flush": "implicit_flush"}  # as RisingWave's scripts say it
_TITLES = {"timezone": "TimeZone"}  # as PostgreSQL spells it


@dataclass(frozen=True)
class SessionVariables:
    """What SET has changed in a session."""

    search_path: tuple[str, ...] = (PUBLIC,)
    shown_path: str = '"$user", public'
    implicit_flush: bool = False
    ansi: bool = True  # of the dialect `spark`
    time_zone: str = UTC

    def shown(self, name: str) -> str:
        assert name in NAMES
        if name == "implicit_flush":
            return "on" if self.implicit_flush else "off"
        if name == ANSI:
            return "true" if self.ansi else "false"
        return self.time_zone if name == "timezone" else self.shown_path


def run_set(session: SqlSession, words: Words) -> Result:
    local = words.take("LOCAL")
    _ = local or words.take("SESSION")
    if words.take("CHARACTERISTICS", "AS", "TRANSACTION") or words.take("TRANSACTION"):
        return Result.said("SET")  # every transaction is serializable
    foreign = _setting_of_postgres(words)
    if words.take("TIME", "ZONE"):
        name = "timezone"
    else:
        name = words.name("name of the setting") if foreign else _name(words)
        if not (words.take("TO") or words.take("=")):
            words.fail("= or TO should stand here")
    at = words.at
    values = [part for part in words.rest.split() if part.tokens]
    if not values:
        words.fail("a value should stand here")
    texts = [str(part.tokens[0].text) for part in values if len(part) == 1]
    if len(texts) != len(values):
        words.fail("names or texts should stand here, with commas between them")
    is_default = len(values) == 1 and values[0].word(0) == "DEFAULT"
    if foreign is not None:
        return _accepted(words, foreign, None if is_default else ", ".join(texts))
    if name == "timezone":
        if len(texts) > 1:
            words.at = at
            words.fail("a session has one time zone")
        made = replace(session.variables, time_zone=UTC if is_default else zone_named(texts[0]))
        session.set_variables(made, local=local)
    elif name in ("implicit_flush", ANSI):
        value = str(name == ANSI).lower() if is_default else texts[0].lower()
        if value not in _BOOLEANS or len(texts) > 1:
            words.at = at
            words.fail(f"{name} is true or false")
        wanted = _BOOLEANS[value]
        made = (
            replace(session.variables, ansi=wanted)
            if name == ANSI
            else replace(session.variables, implicit_flush=wanted)
        )
        session.set_variables(made, local=local)
    else:
        _change(session, name, None if is_default else texts, local=local)
    result = Result.said("SET")
    if local and session.transaction is None:
        result.warnings.append("SET LOCAL can only be used in transaction blocks")
    return result


def _accepted(words: Words, name: str, value: str | None) -> Result:
    """The answer to SET of a setting of PostgreSQL, which changes nothing here."""
    result = Result.said("SET")
    if value is None or is_as_here(name, value):
        return result
    if name in FIXED:
        words.fail(f'parameter "{name}" cannot be changed')
    if name == "statement_timeout":
        result.warnings.append(
            "statement_timeout has no effect here: pond.sql(…, select_ms_max=) limits a query"
        )
    elif name not in QUIET:
        result.warnings.append(f"the setting {name} has no effect here: it is {DEFAULTS[name]!r}")
    return result


def run_reset(session: SqlSession, words: Words) -> Result:
    if words.take("ALL"):
        names = list(NAMES)
    elif _setting_of_postgres(words) is not None:
        words.name("name of the setting")
        names = []
    else:
        names = ["timezone"] if words.take("TIME", "ZONE") else [_name(words)]
    words.end()
    if "search_path" in names:
        _change(session, "search_path", None, local=False)
    if "timezone" in names:
        session.set_variables(replace(session.variables, time_zone=UTC))
    if "implicit_flush" in names:
        session.set_variables(replace(session.variables, implicit_flush=False))
    if ANSI in names:
        session.set_variables(replace(session.variables, ansi=True))
    return Result.said("RESET")


def run_show(session: SqlSession, words: Words) -> Result:
    if words.take("ALL"):
        words.end()
        rows = [(_title(n), session.variables.shown(n), what) for n, what in sorted(NAMES.items())]
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        titles = ["name", "setting", "description"]
        return Result.of_rows(titles, ["VARCHAR"] * 3, pa.table(columns, names=titles))
    foreign = _setting_of_postgres(words)
    if foreign is not None:
        words.name("name of the setting")
        words.end()
        return Result.of_rows([foreign], ["VARCHAR"], pa.table({foreign: pa.array([DEFAULTS[foreign]])}))
    name = "timezone" if words.take("TIME", "ZONE") else _name(words)
    words.end()
    table = pa.table({_title(name): pa.array([session.variables.shown(name)], pa.string())})
    return Result.of_rows([_title(name)], ["VARCHAR"], table)


def is_shown(fragment: SqlFragment) -> bool:
    """Does SHOW name a variable of the session?"""
    return (
        fragment.word(1) == "ALL"
        or fragment.has(1, "SPARK", ".")
        or fragment.word(1).lower() in (*NAMES, *_ALSO)
        or setting_named(fragment.word(1)) is not None
        or fragment.has(1, "TIME", "ZONE")
    )


def _title(name: str) -> str:
    return _TITLES.get(name, name)


def _name(words: Words) -> str:
    at = words.at
    name = _of_spark(words) or words.name("name of the setting")
    name = _ALSO.get(name.lower(), name)
    if name.lower() not in NAMES:
        words.at = at
        near = closest_name(name, list(NAMES))
        words.fail(
            f'unrecognized configuration parameter "{name}"',
            near or f"a session has {', '.join(NAMES)}; other settings are given to millpond.open(…)",
        )
    return name.lower()


def _setting_of_postgres(words: Words) -> str | None:
    """The setting of PostgreSQL that is named next, unless a session has it itself."""
    name = words.fragment.word(words.at)
    return None if name.lower() in NAMES else setting_named(name)


def _of_spark(words: Words) -> str:
    """A name with dots, as Spark's settings have; "" if the name is none."""
    fragment, start = words.fragment, words.at
    if not fragment.has(start, "SPARK", "."):
        return ""
    while fragment.word(words.at + 1) == ".":
        words.at += 2
    words.at += 1
    name = "".join(token.text for token in fragment.tokens[start : words.at])
    return "timezone" if name.lower() == "spark.sql.session.timezone" else name


def _change(session: SqlSession, name: str, values: list[str] | None, *, local: bool) -> None:
    assert name == "search_path"
    fresh = SessionVariables()
    if values is None:
        made = replace(session.variables, search_path=fresh.search_path, shown_path=fresh.shown_path)
    else:
        shown = ", ".join(_shown(value) for value in values)
        made = replace(session.variables, search_path=search_path(values), shown_path=shown)
    session.set_variables(made, local=local)


def _shown(value: str) -> str:
    plain = value.replace("_", "a").isalnum() and value == value.lower()
    return value if plain else '"' + value.replace('"', '""') + '"'

"""PostgreSQL's functions with regular expressions."""

from __future__ import annotations

import re

from millpond.kernels.postgres.patterns import Flags, Pattern, flags_of, pattern
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.similar_to import as_regular_expression

_PLAIN = Flags()
Groups = list[str | None]


def _groups(found: re.Match[str]) -> Groups:
    return list(found.groups()) or [found[0]]


@row_function("pg.regexp_like.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN")
def regexp_like(text: str, wanted: str, flags: str) -> bool:
    if "g" in flags:
        raise ValueError('regexp_like() does not support the "global" option')
    return pattern(wanted, flags_of(flags)).search(text) is not None


@row_function("pg.similar_to.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN")
def similar_to(text: str, wanted: str, escape: str) -> bool:
    return pattern(as_regular_expression(wanted, escape), _PLAIN).search(text) is not None


@row_function("pg.regexp_substring.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def regexp_substring(text: str, wanted: str) -> str | None:
    found = pattern(wanted, _PLAIN).search(text)
    return None if found is None else _groups(found)[0]


@row_function("pg.similar_substring.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def similar_substring(text: str, wanted: str, escape: str) -> str | None:
    found = pattern(as_regular_expression(wanted, escape), _PLAIN).search(text)
    return None if found is None else _groups(found)[0]


@row_function("pg.regexp_match.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]")
def regexp_match(text: str, wanted: str, flags: str) -> Groups | None:
    if "g" in flags:
        raise ValueError('regexp_match() does not support the "global" option')
    found = pattern(wanted, flags_of(flags)).search(text)
    return None if found is None else _groups(found)


@row_function("pg.regexp_matches.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[][]")
def regexp_matches(text: str, wanted: str, flags: str) -> list[Groups]:
    chosen = flags_of(flags)
    found = pattern(wanted, _without_every(chosen))
    if chosen.every:
        return [_groups(m) for m in found.every(text)]
    first = found.search(text)
    return [] if first is None else [_groups(first)]


def _without_every(flags: Flags) -> Flags:
    return Flags(**{**flags.__dict__, "every": False})


@row_function(
    "pg.regexp_replace.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "VARCHAR"), "VARCHAR"
)
def regexp_replace(text: str, wanted: str, new: str, start: int, number: int, flags: str) -> str:
    """Replace one match (the `number`th), or all if `number` is 0; -1 asks the flags."""
    if start < 1:
        raise ValueError(f'invalid value for parameter "start": {start}')
    chosen = flags_of(flags)
    if number < 0:
        number = 0 if chosen.every else 1
    found = pattern(wanted, _without_every(chosen))
    parts, last = [], 0
    for count, match in enumerate(found.every(text, start - 1), 1):
        if number in (0, count):
            parts += [text[last : match.start()], _replacement(new, match)]
            last = match.end()
        if count == number:
            break
    return "".join(parts) + text[last:]


_REFERENCE = re.compile(r"\\(?:([1-9])|(&)|(.))?", re.DOTALL)


def _replacement(new: str, match: re.Match[str]) -> str:
    if "\\" not in new:
        return new

    def one(reference: re.Match[str]) -> str:
        if reference[1]:
            number = int(reference[1])
            return match[number] or "" if number <= match.re.groups else ""
        if reference[2]:
            return match[0]
        if reference[3] == "\\":
            return "\\"
        return reference[0]

    return _REFERENCE.sub(one, new)


@row_function("pg.regexp_split.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]")
def regexp_split(text: str, wanted: str, flags: str) -> list[str]:
    if "g" in flags:
        raise ValueError('splitting by a regular expression does not support the "global" option')
    parts, last = [], 0
    for match in pattern(wanted, flags_of(flags)).every(text):
        if match.start() == match.end() and match.start() in (last, len(text)):
            continue  # PostgreSQL ignores empty matches at the ends and next to a match
        parts.append(text[last : match.start()])
        last = match.end()
    return [*parts, text[last:]]


@row_function("pg.regexp_count.1", ("VARCHAR", "VARCHAR", "BIGINT", "VARCHAR"), "INTEGER")
def regexp_count(text: str, wanted: str, start: int, flags: str) -> int:
    found = _from(wanted, start, flags, "regexp_count")
    return sum(1 for _ in found.every(text, start - 1))


@row_function(
    "pg.regexp_instr.1",
    ("VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "BIGINT", "VARCHAR", "BIGINT"),
    "INTEGER",
)
def regexp_instr(text: str, wanted: str, start: int, number: int, end: int, flags: str, group: int) -> int:
    found = _nth(text, wanted, start, number, flags, "regexp_instr")
    if end not in (0, 1):
        raise ValueError(f'invalid value for parameter "endoption": {end}')
    if group < 0:
        raise ValueError(f'invalid value for parameter "subexpr": {group}')
    group = _group(found, group)
    if found is None or group > found.re.groups or found.start(group) < 0:
        return 0
    return (found.end(group) if end else found.start(group)) + 1


@row_function(
    "pg.regexp_substr.1", ("VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "VARCHAR", "BIGINT"), "VARCHAR"
)
def regexp_substr(text: str, wanted: str, start: int, number: int, flags: str, group: int) -> str | None:
    found = _nth(text, wanted, start, number, flags, "regexp_substr")
    if group < 0:
        raise ValueError(f'invalid value for parameter "subexpr": {group}')
    group = _group(found, group)
    return None if found is None or group > found.re.groups else found[group]


def _group(found: re.Match[str] | None, group: int) -> int:
    """The first group of an expression without groups is its match."""
    return 0 if found is not None and group == 1 and not found.re.groups else group


def _from(wanted: str, start: int, flags: str, name: str) -> Pattern:
    if start < 1:
        raise ValueError(f'invalid value for parameter "start": {start}')
    if "g" in flags:
        raise ValueError(f'{name}() does not support the "global" option')
    return pattern(wanted, flags_of(flags))


def _nth(text: str, wanted: str, start: int, number: int, flags: str, name: str) -> re.Match[str] | None:
    found = _from(wanted, start, flags, name)
    if number < 1:
        raise ValueError(f'invalid value for parameter "n": {number}')
    for count, match in enumerate(found.every(text, start - 1), 1):
        if count == number:
            return match
    return None

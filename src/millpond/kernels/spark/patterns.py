"""Regular expressions of Java, by way of Python's; what only Java has is refused."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
# Means something else in Python, or nothing.
_ONLY_JAVA = re.compile(r"\\[pPQEhHRXGkNvVux0]|&&|\[[^\]]*\[|\(\?[a-z]*[dux]|[*+?}]\+")


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Java in Python's notation."""
    if (found := _ONLY_JAVA.search(pattern.replace("\\\\", ""))) is not None:
        raise RefusedValue(f"the regular expression {pattern!r} has {found[0]!r}, which is not supported")
    text = re.sub(r"(\\\\)|\\z|\\Z|\(\?<(?![=!])", _replaced, pattern)
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise RefusedValue(f"{pattern!r} is not a regular expression: {error}") from None


def _replaced(found: re.Match[str]) -> str:
    return {"\\z": r"\Z", "\\Z": r"(?=\n?\Z)", "(?<": "(?P<"}.get(found[0], found[0])


def _group(pattern: re.Pattern[str], number: int) -> None:
    if not 0 <= number <= pattern.groups:
        raise RefusedValue(f"the regular expression {pattern.pattern!r} has no group {number}")


@by_row("spark.rlike.1", ("VARCHAR", "VARCHAR"), "BOOLEAN", pa.bool_())
def rlike(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


@by_row("spark.regexp_extract.1", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def regexp_extract(text: str, pattern: str, number: int) -> str:
    code = compiled(pattern)
    found = code.search(text)
    if found is None:
        return ""
    _group(code, number)
    return found[number] or ""


@by_row("spark.regexp_group.1", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def regexp_group(text: str, pattern: str, number: int) -> str | None:
    """A group of the first match, as Flink returns it: NULL if there is none."""
    code = compiled(pattern)
    _group(code, number)
    found = code.search(text)
    return None if found is None else found[number]


@by_row("spark.regexp_extract_all.1", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR[]", _TEXTS)
def regexp_extract_all(text: str, pattern: str, number: int) -> list[str]:
    code = compiled(pattern)
    _group(code, number)
    return [found[number] or "" for found in code.finditer(text)]


@by_row("spark.regexp_replace.1", ("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def regexp_replace(text: str, pattern: str, by: str, start: int) -> str:
    """All matches from a place on are replaced; `$1` is a group, a backslash takes the next sign as it is."""
    if start < 1:
        raise RefusedValue("the place in regexp_replace is 1 or more")
    code = compiled(pattern)
    parts = re.findall(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([^\\$]+)|(.)", by, re.DOTALL)

    def made(found: re.Match[str]) -> str:
        shown = ""
        for escaped, number, name, plain, stray in parts:
            if stray:
                raise RefusedValue(f"{stray!r} stands alone in the replacement {by!r}")
            if number or name:
                shown += _of_group(found, number or name)
            else:
                shown += escaped or plain
        return shown

    head = min(start - 1, len(text))
    return text[:head] + code.sub(made, text[head:]) if head < len(text) or not text else text


def _of_group(found: re.Match[str], said: str) -> str:
    if not said.isdecimal():
        return found[said] or ""
    groups = found.re.groups
    for width in range(len(said), 0, -1):  # Java takes as many digits as there are groups
        if int(said[:width]) <= groups:
            return (found[int(said[:width])] or "") + said[width:]
    raise RefusedValue(f"the replacement names group {said}, and the pattern has {groups}")


@by_row("spark.regexp_count.1", ("VARCHAR", "VARCHAR"), "INTEGER", pa.int32())
def regexp_count(text: str, pattern: str) -> int:
    return sum(1 for _ in compiled(pattern).finditer(text))


@by_row("spark.regexp_instr.1", ("VARCHAR", "VARCHAR"), "INTEGER", pa.int32())
def regexp_instr(text: str, pattern: str) -> int:
    found = compiled(pattern).search(text)
    return 0 if found is None else found.start() + 1


@by_row("spark.regexp_substr.1", ("VARCHAR", "VARCHAR"), "VARCHAR", _TEXT)
def regexp_substr(text: str, pattern: str) -> str | None:
    found = compiled(pattern).search(text)
    return None if found is None else found[0] or None


@by_row("spark.split.1", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR[]", _TEXTS)
def split(text: str, pattern: str, limit: int) -> list[str]:
    """The pieces between matches; a limit above 0 bounds their number, and the last has the rest."""
    if not pattern:
        pieces = list(text) if text else [""]
        return (
            pieces
            if limit <= 0 or len(pieces) <= limit
            else [*pieces[: limit - 1], "".join(pieces[limit - 1 :])]
        )
    found: list[str] = []
    at = 0
    for match in compiled(pattern).finditer(text):
        if 0 < limit <= len(found) + 1:
            break
        if match.end() == 0:
            continue  # a match of no length at the begin splits nothing
        found.append(text[at : match.start()])
        at = match.end()
    return [*found, text[at:]]

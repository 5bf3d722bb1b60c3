"""Masks secrets: passwords in addresses, and the options of a definition.

Every error text goes through `masked`, and every statement that is shown goes through
`masked_options`, so callers need not mask anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
VALUE_MIN = 4  # shorter values would mask parts of ordinary words
_values: set[str] = set()  # secrets that this process has read

# Options whose values say nothing that is to be kept: all others are masked.
_PLAIN_OPTIONS = frozenset(
    [
        *("connector", "format", "pattern", "path", "mode", "type", "table.type", "events", "rate", "seed"),
        *("brokers", "topic", "start", "client.security.protocol", "client.sasl.mechanism"),
        *("client.sasl.mechanisms", "client.group.id", "client.client.id"),
        *("guarantee", "key", "every", "snapshot", "behind.max", "when.behind", "table", "schema"),
        *("partition.by", "view", "append_only", "keep", "user", "driver", "batchsize"),
        *("batch.rows", "timeout", "tries", "refused.max"),
        *("hostname", "port", "username", "database.name", "schema.name", "table.name", "tables"),
        *(
            "slot.name",
            "publication.name",
            "if_lost",
            "message",
            "delimiter",
            "header",
            "quote",
            "null",
            "schema.location",
        ),
        *("decimal.handling.mode", "time.precision.mode"),
        *("scan.startup.mode", "properties.bootstrap.server", "properties.bootstrap.servers"),
        *("envelope", "key.fields", "key.format", "primary_key", "transaction.timeout", "partitions"),
        *("replicas", "progress.topic", "topic.pattern"),
        *("properties.security.protocol", "properties.sasl.mechanism", "schema.registry"),
    ]
)
_SECRET = (
    r"[\w.\-]*(?:password|passwd|passphrase|secret|token|credential|signature|api[_\-.]?key|access[_\-.]?key"
    r"|account[_\-.]?key|private[_\-.]?key|sasl[_.](?!mechanism)|sas[_\-.]?key)[\w.\-]*"
)
_LITERAL = r"""[eEnN]?'(?:[^']|'')*(?:'|\Z)|\$(?P<{0}>\w*)\$.*?(?:\$(?P={0})\$|\Z)"""
# user:password@ behind the scheme of an address; a user alone may be a key as well
_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]*://)[^\s/@'\"]+@", re.IGNORECASE)
_QUERY = re.compile(
    rf"(?P<key>[?&;](?:{_SECRET}|key|sig|pwd|pass|auth|user|username))=[^\s&;'\"]*", re.IGNORECASE
)
# name = 'value', "name": "value", name=value, wherever it stands
_PAIR = re.compile(
    rf"(?P<key>[\"']?\b{_SECRET}[\"']?\s*(?:=>|=|:(?=\s*(?:Some\()?[\"']))\s*(?:Some\()?)"
    rf"(?P<value>{_LITERAL.format('pair')}|\"[^\"]*\"|[^\s,;)&}}\]'\"]+)",
    re.IGNORECASE | re.DOTALL,
)
_OPENS = re.compile(r"\b(?:WITH|OPTIONS|TBLPROPERTIES|PROPERTIES)\s*\(", re.IGNORECASE)
# CREATE SECRET: everything behind the name
_SECRET_STATEMENT = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?SECRET\b(?:\s+IF\s+NOT\s+EXISTS\b)?(?:\s+(?:\"[^\"]*\"|[a-z_][\w\-]*\b))?"
    r"\s*(?P<value>[^\s;].*)?",
    re.IGNORECASE | re.DOTALL,
)
# CREATE USER … PASSWORD '…': the literal behind the word
_PASSWORD = re.compile(
    rf"\b(?:USER|ROLE)\b.*?\bPASSWORD\s+(?P<value>{_LITERAL.format('password')})", re.IGNORECASE | re.DOTALL
)
_OPTION = re.compile(
    rf"(?P<key>\"[^\"]*\"|'[^']*'|[\w.\-]+)\s*(?:=>|[=:])\s*(?P<secret>secret\s+)?"
    rf"(?P<value>{_LITERAL.format('option')}|\"[^\"]*\"|-?[^\s,()'\"]+)|(?P<alone>{_LITERAL.format('other')})",
    re.DOTALL | re.IGNORECASE,
)
_STRING_OR_BRACKET = re.compile(rf"{_LITERAL.format('inner')}|[()]", re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Is the value of an option with this name a secret?

    >>> is_secret_name("secret_access_key"), is_secret_name("s3.session-token"), is_secret_name("region")
    (True, True, False)
    """
    return re.fullmatch(_SECRET, name, re.IGNORECASE) is not None


def mask_value(secret: str) -> None:
    """Mask a secret in all texts from now on, also as a part of an address.

    >>> mask_value("s3cr t!")
    >>> masked("login failed: s3cr t!; http://x/?q=s3cr%20t%21")
    'login failed: ***; http://x/?q=***'
    """
    if len(secret) >= VALUE_MIN:
        quoted = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
        _values.update((secret, quote(secret, safe=""), quote_plus(secret), *quoted))


def masked(text: str) -> str:
    """A text without the secrets of addresses and of settings in it, and those that this process has read.

    >>> masked("cannot open s3://AKIA:hunter2@bucket/p?region=eu&secret_access_key=abc")
    'cannot open s3://***@bucket/p?region=eu&secret_access_key=***'
    >>> masked("sasl.password='hunter2', sasl.mechanism=PLAIN")
    'sasl.password=***, sasl.mechanism=PLAIN'
    """
    for value in sorted(_values, key=len, reverse=True) if _values else ():
        text = text.replace(value, MASK)
    if "://" in text:
        text = _USER.sub(rf"\g<scheme>{MASK}@", text)
        text = _QUERY.sub(rf"\g<key>={MASK}", text)
    return _PAIR.sub(lambda found: found["key"] + MASK, text)


def masked_options(sql: str) -> str:
    """A statement with the values of options masked that may be secret.

    >>> masked_options("CREATE SOURCE s WITH (connector = 'kafka', client.sasl.password = 'hunter2')")
    "CREATE SOURCE s WITH (connector = 'kafka', client.sasl.password = ***)"
    """
    return masked_at(sql, None)[0]


def masked_at(sql: str, at: tuple[int, int] | None) -> tuple[str, tuple[int, int] | None]:
    """The same, and where a place of it, given as (byte, bytes), is now."""
    text, at = _replaced(sql, _secret_values(sql), at)
    inner = masked(text)
    if inner != text:  # an address in a value that is shown
        edits = [(*found.span(), found["scheme"] + MASK + "@") for found in _USER.finditer(text)]
        text, at = _replaced(text, edits, at)
        edits = [(*found.span(), f"{found['key']}={MASK}") for found in _QUERY.finditer(text)]
        text, at = _replaced(text, edits, at)
        edits = [(*found.span("value"), MASK) for found in _PAIR.finditer(text) if found["value"] != MASK]
        text, at = _replaced(text, edits, at)
    return text, at


def _secret_values(sql: str) -> list[tuple[int, int, str]]:
    """What is to be masked of the options of a statement: from, to, by what."""
    found: dict[tuple[int, int], str] = {}
    stated = _SECRET_STATEMENT.search(sql)
    if stated is not None and stated["value"] is not None:
        return [(*stated.span("value"), MASK)]
    for stated in _PASSWORD.finditer(sql):
        found[stated.span("value")] = MASK
    for start, end in _option_lists(sql):
        for pair in _OPTION.finditer(sql, start, end):
            if pair["alone"] is not None:
                found[pair.span("alone")] = MASK
            elif pair["secret"] is not None:
                continue  # the name of a secret
            elif pair["key"].strip("\"'").lower() not in _PLAIN_OPTIONS:
                found[pair.span("value")] = MASK
    return [(*span, text) for span, text in sorted(found.items())]


def _option_lists(sql: str) -> Iterator[tuple[int, int]]:
    """Where the brackets behind WITH begin and end; one that is never closed goes to the end of the text."""
    for opening in _OPENS.finditer(sql):
        depth, end = 1, len(sql)
        for each in _STRING_OR_BRACKET.finditer(sql, opening.end()):
            depth += {"(": 1, ")": -1}.get(each[0], 0)
            if depth == 0:
                end = each.start()
                break
        yield opening.end(), end


def _replaced(
    text: str, edits: list[tuple[int, int, str]], at: tuple[int, int] | None
) -> tuple[str, tuple[int, int] | None]:
    """The text with some parts replaced, and where a place of it, given in bytes, is then."""
    made, last = "", 0
    begin = None if at is None else len(text.encode()[: at[0]].decode(errors="ignore"))
    stop = None if at is None else len(text.encode()[: at[0] + at[1]].decode(errors="ignore"))
    moved_begin, moved_stop = begin, stop
    for start, end, fresh in edits:
        if start < last:
            continue
        by = len(fresh) - (end - start)
        if begin is not None and stop is not None and moved_begin is not None and moved_stop is not None:
            if begin >= end:
                moved_begin += by
            elif begin > start:
                moved_begin -= begin - start
            if stop >= end:
                moved_stop += by
            elif stop > start:
                moved_stop += len(fresh) - (stop - start)
        made += text[last:start] + fresh
        last = end
    made += text[last:]
    if at is None or moved_begin is None or moved_stop is None:
        return made, at
    first = len(made[:moved_begin].encode())
    return made, (first, max(1, len(made[:moved_stop].encode()) - first))

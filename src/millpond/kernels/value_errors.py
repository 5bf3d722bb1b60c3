"""Rewrites DuckDB's messages about values in PostgreSQL's words, and removes internal names from texts."""

from __future__ import annotations

import re

import pyarrow as pa

# The types of PostgreSQL, by the names that DuckDB's messages give them.
_TYPES = {
    "INT8": "smallint", "INT16": "smallint", "INT32": "integer", "INT64": "bigint", "INT128": "numeric",
    "BOOL": "boolean", "DOUBLE": "double precision", "FLOAT": "real", "UUID": "uuid", "INTERVAL": "interval",
    "TIMESTAMP": "timestamp", "DATE": "date", "TIME": "time",
}  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_TEXT_TO = re.compile(
    r"could not convert string (['\"])(.*)\1 to (\w+)(?:\([\d, ]*\))?(?: when casting .*)?", re.S | re.I
)
_TIME = re.compile(r'invalid (date|time|timestamp) field format: "(.*)", expected format is .*', re.S | re.I)
_OUT_OF_DAY = re.compile(
    r'(?:date|time|timestamp) field value out of range: "(.*?)"(, expected format is .*)?', re.S | re.I
)
_OVERFLOW = re.compile(r"overflow in \w+ of (\w+)(?:\(\d+\))? \(.*\)[!;.]?.*", re.S | re.I)
_CAST = re.compile(
    r"(?:type \w+ with value .* can't be cast because the value is out of range for the destination "
    r"type (\w+)|casting value .* to type (\w+)\(.*\) failed: value is out of range!?)(?: when casting .*)?",
    re.S | re.I,
)
_ARRAY = re.compile(
    r"type VARCHAR with value '(.*)' can't be cast to the destination type .*\](?: when casting .*)?",
    re.S | re.I,
)
_ZERO = re.compile(r"division by zero in expression .*", re.S | re.I)
_MANY = re.compile(r"(more than one row returned by a subquery used as an expression) - .*", re.S | re.I)
_COMPARED = re.compile(
    r"cannot (compare|mix) values of type (.+?) and (?:type )?(.+?)(?: in .* (?:operator|clause))?"
    r" - an explicit cast is required",
    re.S | re.I,
)
_NO_FUNCTION = re.compile(r"(?:scalar |table |aggregate )?function with name (\S+) does not exist!?", re.I)
# The types of PostgreSQL, by DuckDB's names in queries.
_SQL_TYPES = {
    "VARCHAR": "text", "DOUBLE": "double precision", "FLOAT": "real", "HUGEINT": "numeric", "BLOB": "bytea",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
}  # fmt: skip
_KIND = re.compile(r"(?:Conversion|Invalid Input|Out of Range|Constraint|Binder) Error: ")  # of DuckDB
_LITERAL = re.compile(r"__\w+\.main\.(?:array_beside|number_beside)\(('(?:[^']|'')*'), [^()]*\)")
_LIBRARY = re.compile(r"__(?:pg|spark|flink)\.(?:main\.)?|\"?system\"?\.main\.")


def without_libraries(text: str) -> str:
    """A stored text, or a message with one, without the names under which dialects keep their functions.

    >>> without_libraries("UPDATE t SET a = __pg.main.lower(b), l = __pg.main.array_beside('{1}', l)")
    "UPDATE t SET a = lower(b), l = '{1}'"
    """
    return _LIBRARY.sub("", _LITERAL.sub(r"\1", text))


def in_postgres_words(message: str) -> str:
    """The message in PostgreSQL's words; one that is not known stays as it is.

    >>> in_postgres_words("Could not convert string 'abc' to INT32")
    'invalid input syntax for type integer: "abc"'
    >>> in_postgres_words("Overflow in addition of INT64 (9223372036854775807 + 1)!")
    'bigint out of range'
    """
    if found := _TEXT_TO.fullmatch(message):
        return _unread(found[2], found[3].upper())
    if found := _TIME.fullmatch(message):
        return f'invalid input syntax for type {found[1].lower()}: "{found[2]}"'
    if found := _OUT_OF_DAY.fullmatch(message):
        wrong = found[2] is not None and not re.match(r"\s*\d", found[1])
        said = "invalid input syntax for type time" if wrong else "date/time field value out of range"
        return f'{said}: "{found[1]}"'
    if (found := _OVERFLOW.fullmatch(message)) or (found := _CAST.fullmatch(message)):
        kind = next(name for name in found.groups() if name).upper()
        known = _TYPES.get(kind)
        if kind == "DECIMAL" or known == "numeric":
            return "numeric field overflow"
        return message if known is None else f"{known} out of range"
    if found := _ARRAY.fullmatch(message):
        return f'malformed array literal: "{found[1]}"'
    if _ZERO.fullmatch(message):
        return "division by zero"
    if found := _COMPARED.fullmatch(message):
        left, right = _sql_type(found[2]), _sql_type(found[3])
        return f"cannot {found[1].lower()} {left} and {right}: an explicit cast is required"
    if found := _NO_FUNCTION.fullmatch(message):
        return f"function {found[1]} does not exist"
    if found := _MANY.fullmatch(message):
        return found[1][0].lower() + found[1][1:]
    return message


def _sql_type(kind: str) -> str:
    """
    >>> _sql_type("VARCHAR[]"), _sql_type("DECIMAL(11,1)"), _sql_type("BIGINT")
    ('text[]', 'numeric(11,1)', 'bigint')
    """
    plain = kind.rstrip("[]")
    name = _SQL_TYPES.get(plain.upper(), plain.lower()).replace("decimal", "numeric")
    return name + kind[len(plain) :]


def readable_reason(stored: str) -> str:
    """The reason of an error row as it is shown.

    Rows store the message as the kernel gave it: a later release must find the same row to retract it.

    >>> readable_reason("Invalid Input Error: Division by zero in expression (1 // k). Use TRY(...) to …")
    'division by zero'
    >>> readable_reason("Conversion Error: Could not convert string 'no' to INT32 when casting from …")
    'invalid input syntax for type integer: "no"'
    """
    return without_libraries(in_postgres_words(_KIND.sub("", stored, count=1)))


def with_readable_reasons(rows: pa.Table) -> pa.Table:
    """Error rows as they are shown: each distinct reason is rewritten once."""
    at = rows.schema.get_field_index("reason")
    stored = rows.column(at).combine_chunks().dictionary_encode()
    shown = pa.array([readable_reason(reason) for reason in stored.dictionary.to_pylist()], pa.string())
    return rows.set_column(at, rows.schema.field(at), shown.take(stored.indices))


def _unread(text: str, kind: str) -> str:
    if kind == "DECIMAL" and re.fullmatch(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", text, re.I):
        return "numeric field overflow"
    name = "numeric" if kind == "DECIMAL" else _TYPES.get(kind)
    if name is None:
        return f"could not convert string '{text}' to {kind}"
    if name in ("smallint", "integer", "bigint") and _NUMBER.fullmatch(text):
        return f'value "{text}" is out of range for type {name}'
    return f'invalid input syntax for type {name}: "{text}"'

"""Random typed expressions over edge values: for the pond, and for a real PostgreSQL.

An expression is a text that means the same in both, of a known type.  Literals are edge values: NULL, the
ends of integers, NaN, nothing, Unicode, leap days.  Many are asked in one query; where that fails in one of
the two, each is asked alone, because one error hides all others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

EDGES = {
    "int": ["0", "1", "-1", "2", "7", "-7", "100", "2147483647", "(-2147483647 - 1)", "NULL::int"],
    "bigint": ["0::bigint", "3::bigint", "-5::bigint", "9223372036854775807", "4294967296", "NULL::bigint"],
    "numeric": ["0.0", "1.5", "-2.25", "0.001", "1e3", "99999.99", "12345678901234567.5", "NULL::numeric(10,2)"],
    "float8": ["0::float8", "1.5::float8", "-2.5::float8", "1e15::float8", "1e-7::float8", "'NaN'::float8",
               "'Infinity'::float8", "123456.789::float8", "NULL::float8"],
    "text": ["''", "'a'", "'abc'", "'ABC'", "'é'", "'日本'", "' x '", "'12'", "'a%b'", "NULL::text"],
    "bool": ["true", "false", "NULL::bool"],
    "date": ["date '2024-02-29'", "date '1970-01-01'", "date '2000-12-31'", "date '1999-01-31'", "NULL::date"],
    "timestamp": ["timestamp '2024-02-29 23:59:59'", "timestamp '1970-01-01 00:00:00'",
                  "timestamp '2024-03-31 02:30:00.5'", "NULL::timestamp"],
    "interval": ["interval '1 day'", "interval '-1 month'", "interval '1 year 2 months 3 days 04:05:06'",
                 "interval '0'", "interval '36 hours'", "NULL::interval"],
}  # fmt: skip
# What makes a type: templates whose {type} is another expression.
MADE = {
    "int": ["({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "(- {int})",
            "(@ {int})", "({int} & {int})", "({int} | {int})", "({int} # {int})", "(~ {int})", "({int} << 2)",
            "({int} >> 1)", "({numeric}::int)", "({float8}::int)", "({bool}::int)", "({date} - {date})",
            "coalesce({int}, {int})", "nullif({int}, {int})", "(CASE WHEN {bool} THEN {int} ELSE {int} END)",
            "greatest({int}, {int})", "least({int}, {int})", "(({int}::text)::int)"],
    "bigint": ["({bigint} + {int})", "({int} * {bigint})", "({bigint} / {bigint})", "({bigint} % {int})",
               "({int}::bigint)", "coalesce({bigint}, {int})", "({numeric}::bigint)"],
    "numeric": ["({numeric} + {numeric})", "({numeric} - {int})", "({numeric} * 2)", "({numeric} / {int})",
                "({int} / {numeric})", "(- {numeric})", "(@ {numeric})", "({numeric}::numeric(12,2))",
                "coalesce({numeric}, {numeric})", "(CASE WHEN {bool} THEN {numeric} END)", "({int}::numeric)"],
    "float8": ["({float8} + {float8})", "({float8} - {int})", "({float8} * {float8})", "({float8} / {float8})",
               "(- {float8})", "(@ {float8})", "({int}::float8)", "({numeric}::float8)", "coalesce({float8}, {float8})"],
    "text": ["({text} || {text})", "({text} || {int})", "({int}::text)", "({float8}::text)", "({bool}::text)",
             "({date}::text)", "({timestamp}::text)", "({interval}::text)", "({text}::varchar(2))",
             "coalesce({text}, {text})", "(CASE WHEN {bool} THEN {text} ELSE {text} END)"],
    "bool": ["({int} = {int})", "({int} < {numeric})", "({text} < {text})", "({text} = {text})", "({date} <= {date})",
             "({float8} > {float8})", "({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})", "({int} IS NULL)",
             "({text} LIKE '%a%')", "({text} ILIKE 'A_C')", "({int} BETWEEN {int} AND {int})",
             "({int} BETWEEN SYMMETRIC {int} AND {int})", "({int} IN ({int}, {int}, NULL))",
             "({text} NOT IN ({text}, 'a'))", "({int} IS DISTINCT FROM {int})", "({bool} IS TRUE)",
             "({bool} IS NOT FALSE)", "({bool} IS UNKNOWN)", "({interval} < {interval})", "({interval} = {interval})",
             "({timestamp} > {date})", "({int} = ANY (ARRAY[{int}, {int}]))", "({int} <> ALL (ARRAY[{int}, 1]))",
             "({text} LIKE ANY (ARRAY['a%', '']))", "({text} SIMILAR TO 'a(b|c)*')"],
    "date": ["({date} + 1)", "({date} - 31)", "({timestamp}::date)", "coalesce({date}, {date})"],
    "timestamp": ["({timestamp} + {interval})", "({timestamp} - {interval})", "({date} + {interval})", "({date}::timestamp)"],
    "interval": ["({interval} + {interval})", "({interval} - {interval})", "(- {interval})", "({interval} * 2)",
                 "({timestamp} - {timestamp})"],
}  # fmt: skip


@dataclass(frozen=True)
class Expression:
    text: str
    type: str


def expression(rng: random.Random, kind: str | None = None, depth: int = 3) -> Expression:
    """A random expression, of the type if one is asked for."""
    kind = kind or rng.choice(list(MADE))
    return Expression(_text(rng, kind, depth), kind)


def _text(rng: random.Random, kind: str, depth: int) -> str:
    if depth == 0 or rng.random() < 0.25:
        return rng.choice(EDGES[kind])
    text = rng.choice(MADE[kind])
    while (at := text.find("{")) >= 0:
        end = text.index("}", at)
        text = text[:at] + _text(rng, text[at + 1 : end], depth - 1) + text[end + 1 :]
    return text

"""Random typed expressions over edge values: for the pond, and for a real PostgreSQL.

An expression is a text that means the same in both, of a known type.  Literals are edge values: NULL, the
ends of integers, NaN, nothing, Unicode, leap days.  Many are asked in one query; where that fails in one of
the two, each is asked alone, because one error hides all others.
"""

from __future__ import annotations

import random
import re
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
    "timestamptz": ["timestamptz '2024-03-31 01:30:00+00'", "timestamptz '2024-07-01 10:00 Asia/Tokyo'",
                    "timestamptz '1969-12-31 23:59:59.25-05'", "NULL::timestamptz"],
    "int[]": ["ARRAY[1, 2, 3]", "'{}'::int[]", "ARRAY[NULL, 7]", "ARRAY[2147483647]", "NULL::int[]"],
    "text[]": ["ARRAY['a', 'B']", "'{}'::text[]", "'{\"x y\",NULL,é}'::text[]", "NULL::text[]"],
    "jsonb": ["'{\"a\": 1, \"b\": [1, null, \"x\"]}'::jsonb", "'[1, {\"c\": true}]'::jsonb", "'\"s\"'::jsonb",
              "'null'::jsonb", "'{}'::jsonb", "NULL::jsonb"],
}  # fmt: skip
# What makes a type: templates whose {type} is another expression.
MADE = {
    "int": ["({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "(- {int})",
            "(@ {int})", "({int} & {int})", "({int} | {int})", "({int} # {int})", "(~ {int})", "({int} << 2)",
            "({int} >> 1)", "({numeric}::int)", "({float8}::int)", "({bool}::int)", "({date} - {date})",
            "coalesce({int}, {int})", "nullif({int}, {int})", "(CASE WHEN {bool} THEN {int} ELSE {int} END)",
            "greatest({int}, {int})", "least({int}, {int})", "(({int}::text)::int)", "length({text})",
            "ascii({text})", "position('a' in {text})", "array_length({int[]}, 1)", "cardinality({text[]})",
            "({int[]})[1]", "array_position({int[]}, {int})", "octet_length({text})", "extract(year from {date})::int",
            "extract(dow from {timestamp})::int", "strpos({text}, {text})"],
    "bigint": ["({bigint} + {int})", "({int} * {bigint})", "({bigint} / {bigint})", "({bigint} % {int})",
               "({int}::bigint)", "coalesce({bigint}, {int})", "({numeric}::bigint)"],
    "numeric": ["({numeric} + {numeric})", "({numeric} - {int})", "({numeric} * 2)", "({numeric} / {int})",
                "({int} / {numeric})", "(- {numeric})", "(@ {numeric})", "({numeric}::numeric(12,2))",
                "coalesce({numeric}, {numeric})", "(CASE WHEN {bool} THEN {numeric} END)", "({int}::numeric)"],
    "float8": ["({float8} + {float8})", "({float8} - {int})", "({float8} * {float8})", "({float8} / {float8})",
               "(- {float8})", "(@ {float8})", "({int}::float8)", "({numeric}::float8)", "coalesce({float8}, {float8})"],
    "text": ["({text} || {text})", "({text} || {int})", "({int}::text)", "({float8}::text)", "({bool}::text)",
             "({date}::text)", "({timestamp}::text)", "({interval}::text)", "({text}::varchar(2))",
             "coalesce({text}, {text})", "(CASE WHEN {bool} THEN {text} ELSE {text} END)",
             "upper({text})", "lower({text})", "left({text}, 2)", "right({text}, -1)", "substr({text}, 2)",
             "substring({text} from 0 for 3)", "replace({text}, 'a', '日')", "lpad({text}, 4, 'é')", "rpad({text}, 3)",
             "trim({text})", "btrim({text}, 'a ')", "reverse({text})", "split_part({text}, 'b', 1)", "initcap({text})",
             "translate({text}, 'ab', 'x')", "concat({text}, {int}, {bool})", "concat_ws('-', {text}, {text})",
             "repeat({text}, 2)", "overlay({text} placing 'Z' from 2)", "quote_literal({text})", "md5({text})",
             "({timestamptz}::text)", "({int[]}::text)", "({text[]}::text)", "({jsonb}::text)", "({jsonb} ->> 'a')",
             "({jsonb} #>> '{b,0}')", "({text[]})[1]", "array_to_string({text[]}, ',', '*')", "({numeric}::text)",
             "to_char({timestamp}, 'YYYY-MM-DD HH24:MI:SS.US')", "to_char({int}, 'FM9,999,999,999')"],
    "timestamptz": ["({timestamptz} + interval '1 month 2 days')", "({timestamp} AT TIME ZONE 'Europe/Berlin')", "({date}::timestamptz)",
                    "date_trunc('day', {timestamptz}, 'America/New_York')", "coalesce({timestamptz}, {timestamptz})"],
    "int[]": ["({int[]} || {int})", "({int[]} || {int[]})", "array_append({int[]}, {int})", "array_remove({int[]}, 2)",
              "({int[]})[2:]", "(CASE WHEN {bool} THEN {int[]} ELSE {int[]} END)"],
    "text[]": ["({text[]} || {text})", "string_to_array({text}, 'b')", "array_prepend({text}, {text[]})",
               "regexp_split_to_array({text}, '')", "({int[]}::text[])"],
    "jsonb": ["({jsonb} -> 'b')", "({jsonb} #> '{b,0}')", "({jsonb} || {jsonb})", "to_jsonb({int})", "to_jsonb({text}::text)",
              "jsonb_build_object('k', {int}, 'l', {text})", "({jsonb} - 'a')", "to_jsonb({int[]})"],
    "bool": ["({int} = {int})", "({int} < {numeric})", "({text} < {text})", "({text} = {text})", "({date} <= {date})",
             "({float8} > {float8})", "({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})", "({int} IS NULL)",
             "({text} LIKE '%a%')", "({text} ILIKE 'A_C')", "({int} BETWEEN {int} AND {int})",
             "({int} BETWEEN SYMMETRIC {int} AND {int})", "({int} IN ({int}, {int}, NULL))",
             "({text} NOT IN ({text}, 'a'))", "({int} IS DISTINCT FROM {int})", "({bool} IS TRUE)",
             "({bool} IS NOT FALSE)", "({bool} IS UNKNOWN)", "({interval} < {interval})", "({interval} = {interval})",
             "({timestamp} > {date})", "({int} = ANY (ARRAY[{int}, {int}]))", "({int} <> ALL (ARRAY[{int}, 1]))",
             "({text} LIKE ANY (ARRAY['a%', '']))", "({text} SIMILAR TO 'a(b|c)*')", "({int[]} = {int[]})",
             "({int[]} < {int[]})", "({int} = ANY ({int[]}))", "({int} < ALL ({int[]}))", "({int[]} @> {int[]})",
             "({int[]} && {int[]})", "({jsonb} = {jsonb})", "({jsonb} @> {jsonb})", "({jsonb} ? 'a')",
             "(({int}, {text}) = ({int}, {text}))", "(({int}, {int}) < ({int}, {int}))", "({timestamptz} < {timestamptz})",
             "({text} ~ '^a')", "({text} ~* 'B$')", "starts_with({text}, 'a')"],
    "date": ["({date} + 1)", "({date} - 31)", "({timestamp}::date)", "coalesce({date}, {date})"],
    "timestamp": ["({timestamp} + {interval})", "({timestamp} - {interval})", "({date} + {interval})", "({date}::timestamp)"],
    "interval": ["({interval} + {interval})", "({interval} - {interval})", "(- {interval})", "({interval} * 2)",
                 "({timestamp} - {timestamp})"],
}  # fmt: skip


_PLACE = re.compile(r"\{(" + "|".join(map(re.escape, EDGES)) + r")\}")


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
    return _PLACE.sub(lambda found: _text(rng, found[1], depth - 1), text)

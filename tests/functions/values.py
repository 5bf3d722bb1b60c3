"""Edge values of every type, as SQL that PostgreSQL and Millpond read alike; the first one is the plainest."""

from __future__ import annotations

ZONED = "TIMESTAMPTZ "
VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false", "NULL::boolean"),
    "smallint": ("2::smallint", "0::smallint", "'-7'::smallint", "32767::smallint", "'-32768'::smallint", "NULL::smallint"),
    "integer": ("2", "0", "1", "-1", "-5", "12345", "2147483647", "'-2147483648'::integer", "NULL::integer"),
    "bigint": (
        *("2::bigint", "0::bigint", "-5::bigint", "9223372036854775807", "'-9223372036854775808'::bigint"),
        "NULL::bigint",
    ),
    "real": ("1.5::real", "0::real", "'-2.5'::real", "'1e20'::real", "'NaN'::real", "'Infinity'::real", "NULL::real"),
    "double precision": (
        *("0.5::float8", "0::float8", "1::float8", "'-2.5'::float8", "2.5::float8", "123.456::float8", "'1e15'::float8"),
        *("'NaN'::float8", "'Infinity'::float8", "'-Infinity'::float8", "NULL::float8"),
    ),
    "numeric": (
        *("1.5", "0.0", "2.5", "-2.5", "12345.6789", "0.000120", "99999999999999999999.99", "-0.5", "100.00"),
        "NULL::numeric",
    ),
    "text": (
        *("'Hello World'", "''", "'a'", "'aXbXc'", "'ÄÖÜ ß €'", "'  padded  '", "'😀 e\u0301 x'"),
        "NULL::text",
    ),
    "character": ("'ab'::char(4)", "''::char(2)"),
    "bytea": (r"'\x1234567890'::bytea", r"'\x'::bytea", r"'\x00ff'::bytea", "NULL::bytea"),
    "date": (
        *("DATE '2024-02-29'", "DATE '1999-12-31'", "DATE '0001-01-01'", "DATE '9999-12-31'", "'infinity'::date"),
        "NULL::date",
    ),
    "time without time zone": ("TIME '13:45:30.25'", "TIME '00:00:00'", "TIME '23:59:59.999999'", "NULL::time"),
    "time with time zone": ("'13:45:30.25+02'::timetz", "'00:00:00-08'::timetz", "NULL::timetz"),
    "timestamp without time zone": (
        *("TIMESTAMP '2024-02-29 13:45:30.25'", "TIMESTAMP '2001-01-01 00:00:00'", "TIMESTAMP '1999-12-31 23:59:59.999999'"),
        *("TIMESTAMP '0001-01-01 00:00:00'", "'infinity'::timestamp", "'-infinity'::timestamp", "NULL::timestamp"),
    ),
    "timestamp with time zone": (
        *(ZONED + "'2024-02-29 13:45:30.25+00'", ZONED + "'2024-03-31 01:30:00+00'", ZONED + "'1999-12-31 23:59:59.5+03'"),
        *("'infinity'::timestamptz", "NULL::timestamptz"),
    ),
    "interval": (
        *("INTERVAL '1 day 02:03:04.5'", "INTERVAL '0'", "INTERVAL '1 year 2 months 3 days 04:05:06.789'"),
        *("INTERVAL '-1 month -10 days'", "INTERVAL '40 days 30 hours'", "INTERVAL '-3 days 5 hours'", "NULL::interval"),
    ),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "NULL::uuid"),
    "json": (
        *("""'{"a": 1, "b": {"c": [1, 2.50, null]}, "a": "x"}'::json""", "'[1, \"two\", null, {\"x\": true}]'::json"),
        *("'{}'::json", "'[]'::json", "'\"te\\u0301xt\"'::json", "'1.0'::json", "'null'::json", "NULL::json"),
    ),
    "jsonb": (
        *("""'{"a": 1, "b": {"c": [1, 2.50, null]}, "bb": "x", "a": 2}'::jsonb""", "'[1, \"two\", null, {\"x\": true}]'::jsonb"),
        *("'{}'::jsonb", "'[]'::jsonb", "'\"text\"'::jsonb", "'1.0'::jsonb", "'null'::jsonb", "NULL::jsonb"),
    ),
    "jsonpath": ("'$.a'", "'$[*]'", "'$.b.c[*] ? (@ > 1)'", "'$.missing'", "'$.**'"),
    "integer[]": ("ARRAY[3, 1, 2, 1]", "ARRAY[]::integer[]", "ARRAY[1, NULL]", "NULL::integer[]"),
    "text[]": ("ARRAY['a', 'b c', NULL, 'x,y']", "ARRAY[]::text[]", "ARRAY['a']", "NULL::text[]"),
    "double precision[]": ("ARRAY[0.25, 0.5]::float8[]",),
    "anyarray": ("ARRAY[3, 1, 2, 1]", "ARRAY['a', NULL, 'b \"q\"']", "ARRAY[1.50, 2.25]", "ARRAY[]::integer[]", "NULL::integer[]", "ARRAY[true, false]"),
    "anycompatiblearray": ("ARRAY[3, 1, 2, 1]", "ARRAY[1, NULL]", "ARRAY[]::integer[]", "NULL::integer[]"),
    "anycompatible": ("1", "5", "NULL::integer"),
    "anyelement": ("1", "'a\\b''c'::text", "1.50", "true", "DATE '2024-02-29'", "NULL::integer", "1.5::float8", "INTERVAL '1 month 3 days'"),
    '"any"': ("1", "'text'", "NULL::integer", "true", "2.50", "1.5::float8", "DATE '2024-02-29'", "INTERVAL '1 month'", "ARRAY[1, 2]", "TIMESTAMP '2024-02-29 10:00:00'"),
    "record": ("ROW(1, 'a')", "ROW(NULL, 'b')", "ROW(2, NULL)"),
}  # fmt: skip

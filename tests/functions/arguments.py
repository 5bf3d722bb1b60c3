"""Arguments with a language of their own (formats, patterns, fields, zones), and calls that need a query."""

from __future__ import annotations

from tests.functions.calls_rows import ROWS

_SMALL = ("2", "0", "1", "-1", "-5", "7", "NULL::integer")
_TEXTS = ("'foobarbequebaz'", "''", "'Hello World 2024'", "'ÄÖ ß line1\nline2'", "'aaa'", "NULL::text")
_PATTERNS = (
    *("'o'", "'(b)(.)'", "'[a-m]+'", "'x*'", "'^.'", r"'\d+'", r"'(\w+) (\w+)'", "'ba(r|z)'", "'B'", "'.$'", r"'\mW'", "NULL::text"),
    *(r"'(?i)BAR'", "'[[:upper:]]'", "'a{2}'", r"'(.)\1'", r"'(?:foo|bar)?'", "'o+?'", r"'\y'", "'***=.'"),
)  # fmt: skip
_FLAGS = ("''", "'i'", "'g'", "'n'", "'gi'", "'x'", "'q'")
_TRUNC = tuple(
    f"'{u}'" for u in ("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century", "millennium", "nonsense")
)  # fmt: skip
_FIELDS = tuple(
    f"'{u}'" for u in ("year", "month", "day", "hour", "minute", "second", "milliseconds", "microseconds", "epoch", "dow", "isodow", "doy", "week", "isoyear", "quarter", "decade", "century", "millennium", "julian", "timezone", "timezone_hour", "timezone_minute")
)  # fmt: skip
_ZONES = ("'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Kolkata'", "'nowhere'")
TIME_FORMATS = (
    *("'YYYY-MM-DD HH24:MI:SS.US'", "'Day, DD Month YYYY'", "'FMDay, FMDD FMMonth YYYY'", "'HH12:MI:SS AM'", "'hh:mi p.m.'"),
    *("'Dy Mon DDth'", "'IYYY-IW-ID'", "'J'", "'Q'", "'CC'", "'DDD'", "'SSSS'", "'MS US FF1 FF3 FF6'", "'RM rm'", "'WW W'"),
    *("'Y,YYY YYY YY Y'", "'TZ OF TZH:TZM'", "'\"quoted YYYY\" YYYY'", "'BC B.C. AD'", "'MON mon DAY day DY dy MONTH month'"),
    *("'FMMM/FMDD/FMYYYY'", "'D ID IDDD IYY IY I'", "'x\\y'", "''", "'HH24 HH'", "'MONTHDD'", "'FMHH12:FMMI'", "'yyyymmdd'"),
)  # fmt: skip
NUMBER_FORMATS = (
    *("'999'", "'9,999.99'", "'FM999.00'", "'0000.000'", "'S999'", "'999S'", "'999MI'", "'999PR'", "'PL999'", "'SG999'"),
    *("'RN'", "'FMRN'", "'99th'", "'99TH'", "'9.99EEEE'", "'L999'", "'999V99'", "'990D99'", "'9G999D9'", "'B999'", "'FM9,999,999'"),
    *("'99\"text\"99'", "''", "'FM0.999'", "'.99'", "'$999'", "'fm99999999999999999999.99'", "'00'", "'S0.0'", "'9999999999.9999'"),
)  # fmt: skip
_PATHS = (
    "'{a}'::text[]",
    "'{b,c,1}'::text[]",
    "'{b,c,-1}'::text[]",
    "'{}'::text[]",
    "'{zz}'::text[]",
    "'{1}'::text[]",
    "NULL::text[]",
)
_ANGLES = (
    "0::float8",
    "30::float8",
    "45::float8",
    "60::float8",
    "90::float8",
    "180::float8",
    "-270::float8",
    "361.5::float8",
    "'NaN'::float8",
    "NULL::float8",
)
_UNIT = (
    "0.5::float8",
    "0::float8",
    "1::float8",
    "-1::float8",
    "-0.5::float8",
    "0.25::float8",
    "'NaN'::float8",
    "NULL::float8",
)
_POSITIVE = ("1.5", "2.0", "10", "0.001", "12345.6789", "1.0", "NULL::numeric")

ARGUMENTS: dict[tuple[str, int] | tuple[str, int, str], tuple[str, ...]] = {
    ("left", 1): _SMALL, ("right", 1): _SMALL, ("repeat", 1): _SMALL, ("lpad", 1): (*_SMALL, "20"), ("rpad", 1): (*_SMALL, "20"),
    ("lpad", 2): ("'xy'", "''", "'€'", "NULL::text"), ("rpad", 2): ("'xy'", "''", "'€'", "NULL::text"),
    ("substr", 1): _SMALL, ("substr", 2): _SMALL, ("substring", 1, "integer"): _SMALL, ("substring", 2, "integer"): _SMALL,
    ("substring", 1, "text"): _PATTERNS, ("substring", 0, "text"): ("'foobarbequebaz'", "'Hello World'", "''", "NULL::text"),
    ("substring", 2, "text"): ("'#'",),
    ("split_part", 0): ("'a,b,,c'", "''", "'abc'", "NULL::text"), ("split_part", 1): ("','", "''", "'b'", "NULL::text"), ("split_part", 2): _SMALL,
    ("translate", 1): ("'lo'", "''", "'lol'", "'ÄX'"), ("translate", 2): ("'xy'", "''", "'z'"),
    ("replace", 1): ("'X'", "''", "'o'", "'l'", "NULL::text"), ("replace", 2): ("'--'", "''", "NULL::text"),
    ("strpos", 1): ("'o'", "''", "'World'", "'zz'", "'ß'", "NULL::text"), ("position", 1, "text"): ("'o'", "''", "'zz'", "NULL::text"),
    ("position", 1, "bytea"): (r"'\x34'::bytea", r"'\x'::bytea", r"'\xaa'::bytea"), ("starts_with", 1): ("'H'", "''", "'x'", "NULL::text"),
    ("overlay", 1, "text"): ("'##'", "''"), ("overlay", 2): ("2", "1", "0", "50", "-1"), ("overlay", 3): ("1", "0", "3", "-1", "100"),
    ("btrim", 1): ("' '", "'H d'", "''", "'ÄÖ'", "NULL::text"), ("ltrim", 1): ("' '", "'H d'", "''", "NULL::text"), ("rtrim", 1): ("' '", "'H d'", "''", "NULL::text"),
    ("btrim", 1, "bytea"): (r"'\x1290'::bytea", r"'\x'::bytea"), ("ltrim", 1, "bytea"): (r"'\x1290'::bytea",), ("rtrim", 1, "bytea"): (r"'\x1290'::bytea",),
    ("chr", 0): ("65", "8364", "128512", "0", "-1", "1114112", "NULL::integer"),
    ("encode", 1): ("'hex'", "'base64'", "'escape'", "'x'"), ("decode", 0): ("'MTIz'", "'1234'", "'a\\000b'", "'zz'", "''", "NULL::text"), ("decode", 1): ("'base64'", "'hex'", "'escape'"),
    ("get_byte", 1): ("2", "0", "9", "-1"), ("set_byte", 1): ("2", "0", "9"), ("set_byte", 2): ("65", "300"),
    ("get_bit", 1): ("2", "0", "30", "99"), ("set_bit", 1): ("2", "0", "30", "99"), ("set_bit", 2): ("1", "0", "2"),
    ("format", 0): ("'%s-%s-%s'", "'%I %L %s'", "'%3$s %1$s'", "'%%'", "'[%10s]'", "'[%-10s]'", "'%s %s %s %s'", "'no'", "'%L'", "'%5$s'", "'%x'", "NULL::text"),
    ("concat_ws", 0): ("','", "''", "NULL::text"),
    ("unistr", 0): (r"'d\0061t\+000061'", r"'\u00e4\U0001F600'", r"'a\\b'", r"'\zz'", "'plain'", r"'\D83D\DE00'"),
    ("quote_ident", 0): ("'Foo bar'", "'foo'", "'select'", "'a\"b'", "''", "'table'", "'x1_$'", "NULL::text"),
    ("quote_literal", 0, "text"): (r"'O''Reilly \ x'", "''", "'plain'", "NULL::text"), ("quote_nullable", 0, "text"): (r"'O''Reilly \ x'", "''", "NULL::text"),
    ("parse_ident", 0): ("'\"SomeSchema\".someTable'", "'a.b.c'", "'1x'", "' A . b '", "'x y'"), ("parse_ident", 1): ("true", "false"),
    ("normalize", 0): ("U&'\\0061\\0308bc'", "'ﬁ ①'", "'plain'", "NULL::text"), ("normalize", 1): ("'NFC'", "'NFKD'", "'NFD'", "'NFKC'"),
    ("is_normalized", 0): ("U&'\\0061\\0308bc'", "'plain'"), ("is_normalized", 1): ("'NFC'", "'NFD'"),
    ("string_to_array", 0): ("'a,b,,c'", "''", "'xx~~yy~~zz'", "NULL::text"), ("string_to_array", 1): ("','", "'~~'", "''", "NULL::text"), ("string_to_array", 2): ("'b'", "''", "'yy'", "NULL::text"),
    ("string_to_table", 0): ("'a,b,,c'", "''", "'xx~~yy~~zz'", "NULL::text"), ("string_to_table", 1): ("','", "'~~'", "''", "NULL::text"), ("string_to_table", 2): ("'b'", "''", "'yy'"),
    ("to_ascii", 1): ("8",),
    ("initcap", 0): ("'hello wORLD-foo_bar 2nd'", "''", "'éCOLE ßx'", "'o''neil'", "NULL::text"),
    # regular expressions
    **{(f"regexp_{f}", 0): _TEXTS for f in ("count", "instr", "like", "match", "matches", "replace", "split_to_array", "split_to_table", "substr")},
    **{(f"regexp_{f}", 1): _PATTERNS for f in ("count", "instr", "like", "match", "matches", "replace", "split_to_array", "split_to_table", "substr")},
    ("regexp_like", 2): _FLAGS, ("regexp_match", 2): ("'i'", "'n'", "''", "'x'"), ("regexp_matches", 2): ("'g'", "'gi'", "'i'", "''"),
    ("regexp_split_to_array", 2): ("'i'", "''"), ("regexp_split_to_table", 2): ("'i'", "''"), ("regexp_count", 2): ("1", "3", "0", "99"), ("regexp_count", 3): ("'i'", "''"),
    ("regexp_instr", 2): ("1", "3", "0"), ("regexp_instr", 3): ("1", "2", "0"), ("regexp_instr", 4): ("0", "1", "2"), ("regexp_instr", 5): ("'i'", "''"), ("regexp_instr", 6): ("0", "1", "2"),
    ("regexp_substr", 2): ("1", "3", "0"), ("regexp_substr", 3): ("1", "2"), ("regexp_substr", 4): ("'i'", "''"), ("regexp_substr", 5): ("0", "1"),
    ("regexp_replace", 2): (r"'[\1]'", "'X'", "''", r"'\&\\'", "NULL::text"), ("regexp_replace", 3, "text"): ("'g'", "'i'", "'gi'", "''", "'3'"),
    ("regexp_replace", 3, "integer"): ("1", "4", "0"), ("regexp_replace", 4): ("1", "0", "2"), ("regexp_replace", 5): ("'i'", "''", "'n'"),
    # formatting
    ("to_date", 0): ("'2024-02-29'", "'29 Feb 2024'", "'20240229'", "'02/29/24'", "'2024-13-01'", "'2023-02-29'", "''", "'12-1'", "NULL::text"),
    ("to_date", 1): ("'YYYY-MM-DD'", "'DD Mon YYYY'", "'YYYYMMDD'", "'MM/DD/YY'", "'YYYY-DDD'", "'IYYY-IW'", "'FMYYYY-FMMM-FMDD'"),
    ("to_timestamp", 0, "text"): ("'2024-02-29 13:45:30.25'", "'05 Dec 2000'", "'2024-02-29 01:45 PM'", "'97/Feb/16'", "'20240229134530'", "'2024-02-29 25:00:00'", "NULL::text"),
    ("to_timestamp", 1): ("'YYYY-MM-DD HH24:MI:SS.US'", "'DD Mon YYYY'", "'YYYY-MM-DD HH12:MI AM'", "'YY/Mon/DD'", "'YYYYMMDDHH24MISS'", "'YYYY-MM-DD HH24:MI:SS.MS'"),
    ("to_timestamp", 0, "double precision"): ("1700000000.25::float8", "0::float8", "-1.5::float8", "'Infinity'::float8", "'NaN'::float8", "NULL::float8"),
    ("to_number", 0): ("'12,454.8-'", "'$1,234.56'", "'1234'", "' 12 '", "'-5.5'", "'5.01-'", "'abc'", "'<123>'", "NULL::text"),
    ("to_number", 1): ("'99G999D9S'", "'L9G999D99'", "'9999'", "'99'", "'S9.9'", "'9.99S'", "'999PR'", "'9,999.99'"),
    # dates and times
    ("date_trunc", 0): _TRUNC, ("date_trunc", 2): _ZONES, ("date_part", 0): _FIELDS, ("timezone", 0, "text"): _ZONES,
    ("timezone", 0, "interval"): ("INTERVAL '02:00'", "INTERVAL '-08:30'"),
    ("date_bin", 0): ("INTERVAL '15 minutes'", "INTERVAL '1 day'", "INTERVAL '0'", "INTERVAL '1 month'", "INTERVAL '2 days 3 hours'"),
    ("make_date", 0): ("2024", "0", "-44", "9999", "2023"), ("make_date", 1): ("2", "0", "13", "12"), ("make_date", 2): ("29", "0", "31", "1"),
    ("make_time", 0): ("13", "24", "0", "-1"), ("make_time", 1): ("45", "60", "0"), ("make_time", 2): ("30.25::float8", "60::float8", "0::float8", "59.9999999::float8"),
    **{(f, 0): ("2024", "1", "-44", "0") for f in ("make_timestamp", "make_timestamptz")}, **{(f, 1): ("2", "13", "12") for f in ("make_timestamp", "make_timestamptz")},
    **{(f, 2): ("29", "31", "1") for f in ("make_timestamp", "make_timestamptz")}, **{(f, 3): ("13", "24", "0") for f in ("make_timestamp", "make_timestamptz")},
    **{(f, 4): ("45", "60", "0") for f in ("make_timestamp", "make_timestamptz")}, **{(f, 5): ("30.25::float8", "60::float8", "0::float8") for f in ("make_timestamp", "make_timestamptz")},
    ("make_timestamptz", 6): ("'Europe/Berlin'", "'UTC'", "'America/New_York'"), ("make_interval", 6): ("1.5::float8", "-0.000001::float8", "0::float8"),
    **{("make_interval", n): ("2", "0", "-5", "100") for n in range(6)},
    # JSON
    ("jsonb_set", 1): _PATHS, ("jsonb_set", 2): ("'9'::jsonb", "'{\"z\": []}'::jsonb", "NULL::jsonb"), ("jsonb_set_lax", 1): _PATHS, ("jsonb_insert", 1): _PATHS,
    ("jsonb_set_lax", 2): ("'9'::jsonb", "NULL::jsonb"), ("jsonb_set_lax", 4): ("'use_json_null'", "'delete_key'", "'return_target'", "'raise_exception'"), ("jsonb_insert", 2): ("'9'::jsonb",),
    ("json_object", 0): ("'{a,1,b,2}'::text[]", "'{}'::text[]", "'{a,NULL}'::text[]", "'{a}'::text[]"), ("json_object", 1): ("'{1,2,3,4}'::text[]", "'{x}'::text[]"),
    ("jsonb_object", 0): ("'{a,1,b,2}'::text[]", "'{}'::text[]", "'{a,NULL}'::text[]", "'{bb,1,a,2}'::text[]"), ("jsonb_object", 1): ("'{1,2,3,4}'::text[]", "'{x}'::text[]"),
    **{(f, p): v for f in ("json_extract_path", "json_extract_path_text", "jsonb_extract_path", "jsonb_extract_path_text")
       for p, v in ((1, ("'b'", "'a'", "'1'", "'zz'")), (2, ("'c'", "'x'", "'0'")), (3, ("'1'", "'-1'", "'0'", "'x'")))},
    ("json_build_object", 0): ("'k'", "1", "true"), ("jsonb_build_object", 0): ("'k'", "1", "true"),
    ("->", 1, "integer"): ("1", "0", "-1", "7", "NULL::integer"), ("->>", 1, "integer"): ("1", "0", "-1", "7"),
    ("->", 1, "text"): ("'a'", "'b'", "'zz'", "NULL::text"), ("->>", 1, "text"): ("'a'", "'b'", "'zz'", "NULL::text"), ("#>", 1): _PATHS, ("#>>", 1): _PATHS, ("#-", 1): _PATHS,
    ("?", 1): ("'a'", "'two'", "'text'"), ("?|", 1): ("ARRAY['a', 'zz']", "ARRAY['zz']"), ("?&", 1): ("ARRAY['a', 'b']", "ARRAY['a', 'zz']"),
    # arrays
    ("array_length", 1): ("1", "2", "0"), ("array_lower", 1): ("1", "2"), ("array_upper", 1): ("1", "2"), ("generate_subscripts", 1): ("1", "2"),
    ("array_fill", 0): ("7", "NULL::integer"), ("array_fill", 1): ("ARRAY[3]", "ARRAY[2, 2]", "ARRAY[0]", "ARRAY[]::integer[]"), ("array_fill", 2): ("ARRAY[1]", "ARRAY[1, 1]"),
    ("array_position", 1): ("1", "2", "9", "NULL::integer"), ("array_position", 2): ("1", "3", "9"), ("array_to_string", 1): ("','", "''", "NULL::text"), ("array_to_string", 2): ("'*'", "''", "NULL::text"),
    ("trim_array", 1): ("1", "0", "4", "9", "-1"), ("width_bucket", 1, "anycompatiblearray"): ("ARRAY[1, 3, 5]", "ARRAY[]::integer[]"),
    # mathematics
    **{(f, 0): _ANGLES for f in ("sind", "cosd", "tand", "cotd", "sin", "cos", "tan", "cot")}, **{(f, 0): _UNIT for f in ("acos", "asin", "acosd", "asind", "atanh")},
    ("acosh", 0): ("1::float8", "2.5::float8", "1e10::float8"), ("exp", 0, "numeric"): ("1.0", "0.0", "-2.5", "10.0", "NULL::numeric"),
    **{(f, 0, "numeric"): _POSITIVE for f in ("ln", "log", "log10", "sqrt")}, ("log", 1, "numeric"): _POSITIVE,
    **{(f, 0, "double precision"): ("2.5::float8", "1::float8", "100::float8", "1e-5::float8", "NULL::float8") for f in ("ln", "log", "log10", "sqrt")},
    ("exp", 0, "double precision"): _UNIT, ("sinh", 0): _UNIT, ("cosh", 0): _UNIT, ("tanh", 0): _UNIT,
    **{(f, 0, "numeric"): ("2.0", "1.5", "-2.0", "10.25") for f in ("power", "pow")}, **{(f, 1, "numeric"): ("2.0", "0.5", "-1.0", "3.0") for f in ("power", "pow")},
    **{(f, 0, "double precision"): ("2::float8", "1.5::float8", "-2::float8", "0::float8") for f in ("power", "pow", "^")}, **{(f, 1, "double precision"): ("2::float8", "0.5::float8", "-1::float8", "3::float8") for f in ("power", "pow", "^")},
    ("^", 0, "numeric"): ("2.0", "1.5", "-2.0"), ("^", 1, "numeric"): ("2.0", "-1.0", "3.0"),
    ("factorial", 0): ("5::bigint", "0::bigint", "20::bigint", "-1::bigint", "NULL::bigint"), ("round", 1): ("0", "1", "2", "-1", "-2"), ("trunc", 1): ("0", "1", "2", "-1", "-2"),
    ("width_bucket", 0, "double precision"): ("5.35::float8", "-1::float8", "99::float8", "0.024::float8"), ("width_bucket", 1, "double precision"): ("0.024::float8",), ("width_bucket", 2, "double precision"): ("10.06::float8", "-5::float8"), ("width_bucket", 3): ("5", "1", "0"),
    ("width_bucket", 0, "numeric"): ("5.35", "-1.0", "99.0"), ("width_bucket", 1, "numeric"): ("0.024",), ("width_bucket", 2, "numeric"): ("10.06", "-5.0"),
    ("lcm", 0, "numeric"): ("1.5", "0.0", "2.5", "-2.5", "12345.6789", "NULL::numeric"),
    ("div", 1): ("4.0", "0.0", "-2.5"), ("mod", 1, "numeric"): ("4.0", "0.0", "-2.5"), ("generate_series", 0, "integer"): ("2", "0"), ("generate_series", 1, "integer"): ("5", "1", "NULL::integer"), ("generate_series", 2, "integer"): ("2", "-1", "0"),
    ("generate_series", 0, "bigint"): ("2::bigint",), ("generate_series", 1, "bigint"): ("5::bigint", "1::bigint"), ("generate_series", 2, "bigint"): ("2::bigint", "-1::bigint"),
    ("generate_series", 0, "numeric"): ("1.1",), ("generate_series", 1, "numeric"): ("4.0", "0.5"), ("generate_series", 2, "numeric"): ("1.3", "0.5", "-1.0"),
    **{("generate_series", 0, f"timestamp {z} time zone"): (f"{w} '2024-02-28 12:00'",) for z, w in (("with", "TIMESTAMPTZ"), ("without", "TIMESTAMP"))},
    **{("generate_series", 1, f"timestamp {z} time zone"): (f"{w} '2024-03-02'", f"{w} '2024-01-01'") for z, w in (("with", "TIMESTAMPTZ"), ("without", "TIMESTAMP"))},
    ("generate_series", 2, "interval"): ("INTERVAL '1 day'", "INTERVAL '10 hours'", "INTERVAL '-1 month'"),
    **{(o, 1): ("3", "0", "31") for o in ("<<", ">>")}, ("~", 1, "text"): _PATTERNS, ("!~", 1, "text"): _PATTERNS, ("~*", 1, "text"): _PATTERNS, ("!~*", 1, "text"): _PATTERNS,
    **{(o, 0, "text"): _TEXTS for o in ("~", "!~", "~*", "!~*")},
    **{(o, 1, "text"): ("'H%'", "'%o_%'", "''", "'a'", "'%\\%'", "NULL::text") for o in ("~~", "!~~", "~~*", "!~~*")},
}  # fmt: skip
_OVERLAPS = [
    "SELECT (DATE '2024-01-01', DATE '2024-06-01') OVERLAPS (DATE '2024-05-01', DATE '2024-07-01')",
    "SELECT (DATE '2024-01-01', INTERVAL '10 days') OVERLAPS (DATE '2024-01-11', INTERVAL '1 day')",
    "SELECT (TIMESTAMP '2024-01-01', NULL) OVERLAPS (TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02')",
    "SELECT (TIME '10:00', TIME '09:00') OVERLAPS (TIME '09:30', INTERVAL '1 hour')",
]
_EXTRACT_FROM = ("TIMESTAMP '2024-02-29 13:45:30.25'", "DATE '1999-12-31'", "TIMESTAMPTZ '2024-03-31 01:30:00.123456+00'", "INTERVAL '1 year 14 months 3 days 04:05:06.789'", "TIME '13:45:30.25'", "'13:45:30.25+02'::timetz", "NULL::timestamp")  # fmt: skip
_PATH_DOCUMENT = """'{"a": [1, 2, 3.5, "x", null], "b": {"c": {"d": true}}, "s": "2024-02-29", "n": -7.5, "l": [{"k": 1, "v": "p"}, {"k": 2, "v": "q"}]}'::jsonb"""
_JSON_PATHS = (
    *("$", "$.a", "$.a[*]", "$.a[0]", "$.a[last]", "$.a[1 to 2]", "$.a[*] ? (@ > 1)", "$.b.c.d", "$.**.k", "$.l[*] ? (@.k == 2).v", "$.missing"),
    *("strict $.missing", "$.a.size()", "$.n.abs()", "$.n.floor()", "$.n.ceiling()", "$.s.type()", "$.*", "$.l[*].k + 1", "-$.n"),
    *('$.s ? (@ starts with "2024")', '$.s ? (@ like_regex "^20.*9$")', "$.l ? (exists (@[*].k))", "$.a[0, 2]", "$.a[*] ? (@ >= 2 && @ < 3)"),
    *("$.a[*] ? (!(@ == 1))", "$.a ? (@[0] == 1 || @[1] == 9)", '$."a"[2]', "$.l[$.a[0]]", "exists ($.a)", "$.n > 0", "($.a[0] + 2) * 3 % 4", "$.a[*] ? ((@ > 2) is unknown)"),
)  # fmt: skip


def _json_path(function: str, call: str) -> list[str]:
    return [f"SELECT {call.format(f=function, d=_PATH_DOCUMENT, p=path)}" for path in _JSON_PATHS]


CALLS: dict[str, list[str]] = {
    "overlaps": _OVERLAPS,
    "extract": [f"SELECT extract({field[1:-1]} FROM {value})" for field in _FIELDS for value in _EXTRACT_FROM],
    **{f"jsonb_path_{f}{tz}": [*_json_path(f"jsonb_path_{f}{tz}", "{f}({d}, '{p}')"), f"""SELECT jsonb_path_{f}{tz}('[1, 2, 3]'::jsonb, '$[*] ? (@ >= $min)', '{{\"min\": 2}}'::jsonb)"""] for f in ("exists", "query_array", "query_first", "match") for tz in ("", "_tz")},
    **{f"jsonb_path_query{tz}": _json_path(f"jsonb_path_query{tz}", "* FROM {f}({d}, '{p}')") for tz in ("", "_tz")},
    "percentile_cont": [f"SELECT percentile_cont({p}) WITHIN GROUP (ORDER BY {c}{o}) FROM {ROWS}" for p in ("0.5", "0.25", "0", "1", "ARRAY[0.25, 0.5, 0.9]") for c in ("f", "v", "i") for o in ("", " DESC")],
    "percentile_disc": [f"SELECT percentile_disc({p}) WITHIN GROUP (ORDER BY {c}{o}) FROM {ROWS}" for p in ("0.5", "0.25", "0", "1", "ARRAY[0.25, 0.5, 0.9]") for c in ("f", "t", "i", "day") for o in ("", " DESC")],
    "mode": [f"SELECT mode() WITHIN GROUP (ORDER BY {c}{o}) FROM {ROWS}" for c in ("i", "t", "b", "v", "o") for o in ("", " DESC")],
    "row_to_json": ["SELECT row_to_json(ROW(1, 'a', NULL))", f"SELECT row_to_json(r) FROM {ROWS}", "SELECT row_to_json(r) FROM (SELECT 1 AS a, 'x' AS b, ARRAY[1, 2] AS c, TIMESTAMP '2024-02-29 10:00' AS d) r", "SELECT row_to_json(ROW(1, 'a'), true)"],
    "json_to_record": ["""SELECT * FROM json_to_record('{"a": 1, "b": [1, 2], "c": "x", "d": {"e": 1}}'::json) AS x(a int, b text, c text, d json)"""],
    "jsonb_to_record": ["""SELECT * FROM jsonb_to_record('{"a": 1, "b": [1, 2], "c": "x", "d": {"e": 1}}'::jsonb) AS x(a int, b int[], c text, d jsonb)"""],
    "json_to_recordset": ["""SELECT * FROM json_to_recordset('[{"a": 1, "b": "x"}, {"a": "2"}]'::json) AS x(a int, b text)"""],
    "jsonb_to_recordset": ["""SELECT * FROM jsonb_to_recordset('[{"a": 1, "b": "x"}, {"a": "2"}]'::jsonb) AS x(a int, b text)"""],
    "unnest": ["SELECT * FROM unnest(ARRAY[1, 2, NULL])", "SELECT * FROM unnest(ARRAY['a', 'b'], ARRAY[1, 2, 3])", "SELECT unnest(ARRAY[1, 2])", "SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY", "SELECT * FROM unnest(ARRAY[[1, 2], [3, 4]])", "SELECT * FROM unnest(ARRAY[]::integer[])"],
    "count": [f"SELECT count(*), count(i), count(DISTINCT i), count(*) FILTER (WHERE o) FROM {ROWS}", f"SELECT o, count(t) FROM {ROWS} GROUP BY o ORDER BY o"],
    "position": [f"SELECT position({part} IN {text})" for part in ("'o'", "''", "'zz'", "NULL::text") for text in ("'Hello World'", "''", "'ÄÖ o'", "NULL::text")] + [r"SELECT position('\x34'::bytea IN '\x1234'::bytea)"],
    "normalize": [f"SELECT normalize({text}, {form})" for text in ("U&'\\0061\\0308bc'", "'ﬁ ①'", "NULL::text") for form in ("NFC", "NFD", "NFKC", "NFKD")],
    **{f: [f"SELECT n, {f}() OVER (ORDER BY i) FROM {ROWS} ORDER BY n", f"SELECT {f}(2) WITHIN GROUP (ORDER BY i) FROM {ROWS}", f"SELECT {f}(2, 'b') WITHIN GROUP (ORDER BY i DESC, t) FROM {ROWS}"] for f in ("rank", "dense_rank", "percent_rank", "cume_dist")},
    **{f: [f"SELECT {f}({k}, {v} ORDER BY n) FROM {ROWS} WHERE n <> 3" for k, v in (("t", "i"), ("n", "d"), ("t", "v"), ("i", "t"), ("n", "ARRAY[i, n]"))] + [f"SELECT {f}(t, i) FILTER (WHERE n > 9) FROM {ROWS}"] for f in ("json_object_agg", "jsonb_object_agg")},
    **{f: [f"SELECT {f}({v} ORDER BY n) FROM {ROWS}" for v in ("i", "t", "d", "o", "v", "day", "f", "ARRAY[i, n]", "ROW(n, t)")] + [f"SELECT {f}(r ORDER BY n) FROM {ROWS}", f"SELECT {f}(i) FROM {ROWS} WHERE n > 9", f"SELECT {f}(DISTINCT i) FROM {ROWS}"] for f in ("json_agg", "jsonb_agg")},
}  # fmt: skip

# They depend on the clock, on chance, or on a type that the caller has.
SKIPPED = frozenset(
    [
        *(
            "now",
            "clock_timestamp",
            "statement_timestamp",
            "transaction_timestamp",
            "timeofday",
            "random",
            "gen_random_uuid",
        ),
        *("age(timestamp with time zone)", "age(timestamp without time zone)"),
        *(
            "json_populate_record",
            "json_populate_recordset",
            "jsonb_populate_record",
            "jsonb_populate_recordset",
        ),
    ]
)

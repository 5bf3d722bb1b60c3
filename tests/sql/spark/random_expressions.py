"""Random typed expressions of Spark's SQL, over a table of edge values and over literals."""

from __future__ import annotations

import random

# The table that expressions read, as Spark's VALUES.
TABLE = """SELECT CAST(col1 AS INT) AS id, CAST(col2 AS INT) AS i, CAST(col3 AS BIGINT) AS l, CAST(col4 AS DOUBLE) AS f,
 CAST(col5 AS DECIMAL(10, 2)) AS d, CAST(col6 AS STRING) AS s, CAST(col7 AS BOOLEAN) AS b, CAST(col8 AS DATE) AS dt,
 CAST(col9 AS TIMESTAMP) AS ts, CAST(col10 AS ARRAY<INT>) AS ai, CAST(col11 AS ARRAY<STRING>) AS at FROM VALUES
 (1, 7, 42, 1.5D, 2.50, 'Spark SQL', true, '2024-02-29', '2024-02-29 13:05:09.12', array(1, 2, 3), array('a', 'b')),
 (2, 0, 0, 0.0D, 0.00, '', false, '1970-01-01', '1970-01-01 00:00:00', array(), array('')),
 (3, -7, -42, -2.5D, -0.05, '  é-ü, x ', true, '1999-12-31', '1999-12-31 23:59:59.999999', array(3, NULL, 1), array(NULL, 'b')),
 (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (5, 31, 100000, 1.0E10D, 12345678.90, '12', false, '2000-01-31', '2000-10-29 01:30:00', array(5, 5, -1), array('x', 'x')),
 (6, 12, 9, 0.001D, 99.99, '{"a": [1, {"b": null}], "c": "d"}', true, '2023-03-01', '2023-03-26 02:30:00', array(0), array('a,b', 'c'))"""

_COLUMNS = {
    "int": ["i", "id", "i", "size(ai)"],
    "bigint": ["l", "l"],
    "double": ["f", "f"],
    "decimal": ["d", "d"],
    "string": ["s", "s"],
    "boolean": ["b"],
    "date": ["dt", "dt"],
    "timestamp": ["ts", "ts"],
    "ints": ["ai"],
    "texts": ["at"],
}
_LITERALS = {
    "int": ["0", "1", "2", "3", "-1", "-3", "7", "10", "100", "NULL"],
    "bigint": ["0L", "1L", "-5L", "1000L", "4294967296L"],
    "double": ["0.0D", "1.5D", "-2.5D", "0.1D", "1E3", "1.0E-5D", "2.0D"],
    "decimal": ["1.5", "0.05", "-2.50", "100.000", "3.14159", "0.5"],
    "string": ["'abc'", "''", "'Spark'", "'a,b,,c'", "'  x '", "'Ünï'", "'12'", "'-3'", "'2024-01-31'", "'b'", "NULL"],
    "boolean": ["true", "false", "(NULL = 1)"],
    "date": ["DATE'2024-01-31'", "DATE'2023-12-31'", "DATE'2000-02-29'", "DATE'1969-07-20'"],
    "timestamp": ["TIMESTAMP'2024-03-31 10:20:30'", "TIMESTAMP'1999-12-31 23:59:59.5'", "TIMESTAMP'2024-02-29'"],
    "ints": ["array(1, 2, 2)", "array(3, NULL)", "array(-1)", "sequence(1, 4)"],
    "texts": ["array('a', 'b', NULL)", "array('x')", "split('a,b,,c', ',')"],
    "digit": ["0", "1", "2", "3"],
    "place": ["-3", "-1", "0", "1", "2", "3", "5"],
    "count": ["0", "1", "2", "4", "-1"],
    "pattern": ["'a'", "'[a-z]+'", "'(\\\\\\\\w)(\\\\\\\\w)'", "','", "'^S'", "'x*'", "'\\\\\\\\s+'"],
    "like": ["'%a%'", "'S_ark%'", "''", "'%'", "'_'", "'%\\\\_%'"],
    "unit": ["'year'", "'month'", "'quarter'", "'week'", "'MM'", "'yyyy'"],
    "time_unit": ["'year'", "'month'", "'week'", "'day'", "'hour'", "'minute'", "'second'", "'millisecond'", "'quarter'"],
    "word": ["year", "quarter", "month", "week", "day", "hour", "minute", "second"],
    "part": ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW", "DOY", "HOUR", "MINUTE", "SECOND", "YEAROFWEEK"],
    "format": ["'yyyy-MM-dd'", "'d MMM yy'", "'EEEE, MMMM d'", "'HH:mm:ss.SSS'", "'h:mm a'", "'D'", "'yyyyMMdd'", "'Q'", "'k K'"],
    "weekday": ["'MON'", "'Tuesday'", "'su'", "'FRI'"],
    "path": ["'$.a'", "'$.c'", "'$.a[1]'", "'$.a[0]'", "'$.a[1].b'", "'$'", "'$.zz'"],
    "separator": ["','", "' '", "'-'", "'ab'"],
    "large": ["2147483647", "-2147483647", "i", "id"],
    "huge": ["9223372036854775807L", "-9223372036854775807L", "4611686018427387904L", "l"],
    "printed": ["'%s'", "'%5s|'", "'%-6s|'"],
}  # fmt: skip
# (result, form): each {type} is an expression of that type.
_FORMS = [
    *(("int", f"({{int}} {sign} {{int}})") for sign in ("+", "-", "*", "%", "&", "|", "^")),
    *(("bigint", f"({{bigint}} {sign} {{bigint}})") for sign in ("+", "-", "*", "%")),
    *(("bigint", f"({{int}} {sign} {{bigint}})") for sign in ("+", "-")),
    *(("double", f"({{double}} {sign} {{double}})") for sign in ("+", "-", "*", "/", "%")),
    *(("double", f"({{int}} {sign} {{double}})") for sign in ("+", "*")),
    *(("decimal", f"({{decimal}} {sign} {{decimal}})") for sign in ("+", "-", "*", "/", "%")),
    *(("decimal", f"({{decimal}} {sign} {{int}})") for sign in ("+", "-", "*", "/")),
    *(("double", f"({{decimal}} {sign} {{double}})") for sign in ("+", "/")),
    ("double", "({int} / {int})"), ("double", "({bigint} / {int})"), ("bigint", "({int} DIV {int})"),
    ("bigint", "({bigint} DIV {int})"), ("bigint", "({decimal} DIV {int})"), ("int", "pmod({int}, {int})"), ("int", "-({int})"),
    ("int", "abs({int})"), ("double", "abs({double})"), ("decimal", "abs({decimal})"), ("int", "~{int}"),
    *(("boolean", f"({{{kind}}} {sign} {{{kind}}})") for kind in ("int", "double", "decimal", "string", "date", "timestamp")
      for sign in ("=", "<", ">=", "<>", "<=>")),
    *(("boolean", f"({{ints}} {sign} {{ints}})") for sign in ("=", "<>", "<=>")),
    ("boolean", "({int} = {double})"), ("boolean", "({int} < {decimal})"), ("boolean", "({decimal} > {double})"),
    ("boolean", "({date} < {timestamp})"), ("boolean", "({int} IN (1, 7, {int}))"), ("boolean", "({string} IN ('abc', {string}))"),
    ("boolean", "({int} BETWEEN {int} AND {int})"), ("boolean", "({boolean} AND {boolean})"), ("boolean", "({boolean} OR {boolean})"),
    ("boolean", "(NOT {boolean})"), ("boolean", "({string} IS NULL)"), ("boolean", "({int} IS NOT NULL)"), ("boolean", "isnan({double})"),
    ("int", "if({boolean}, {int}, {int})"), ("string", "CASE WHEN {boolean} THEN {string} ELSE {string} END"),
    ("int", "coalesce({int}, {int})"), ("string", "nvl({string}, {string})"), ("int", "nullif({int}, {int})"),
    ("string", "nvl2({int}, {string}, {string})"), ("int", "greatest({int}, {int})"), ("double", "least({double}, {double})"),
    ("string", "greatest({string}, {string})"), ("date", "greatest({date}, {date})"),
    # casts
    *(("string", f"CAST({{{kind}}} AS STRING)") for kind in ("int", "bigint", "double", "decimal", "boolean", "date", "timestamp")),
    *(("int", f"CAST({{{kind}}} AS INT)") for kind in ("bigint", "double", "decimal", "boolean")),
    *(("bigint", f"CAST({{{kind}}} AS BIGINT)") for kind in ("int", "double", "decimal", "timestamp")),
    *(("double", f"CAST({{{kind}}} AS DOUBLE)") for kind in ("int", "bigint", "decimal", "boolean")),
    *(("decimal", f"CAST({{{kind}}} AS DECIMAL(20, 3))") for kind in ("int", "bigint", "double", "decimal")),
    ("decimal", "CAST({decimal} AS DECIMAL(12, 1))"), ("int", "CAST({decimal} AS SMALLINT)"), ("boolean", "CAST({int} AS BOOLEAN)"),
    *((kind, f"TRY_CAST({{string}} AS {kind})") for kind in ("int", "bigint", "double", "date", "timestamp", "boolean")),
    ("decimal", "TRY_CAST({string} AS DECIMAL(10, 2))"), ("int", "TRY_CAST({double} AS INT)"), ("date", "CAST({timestamp} AS DATE)"),
    ("timestamp", "CAST({date} AS TIMESTAMP)"), ("int", "try_add({int}, {int})"), ("double", "try_divide({int}, {int})"),
    ("int", "try_multiply({int}, {int})"), ("decimal", "try_divide({decimal}, {decimal})"),
    # mathematics
    *(("double", f"{name}({{double}})") for name in ("sqrt", "exp", "ln", "log10", "log2", "sin", "cos", "atan", "tanh", "cbrt", "signum",
                                                     "degrees", "radians", "rint", "log1p", "asinh")),
    ("double", "pow({double}, {digit})"), ("double", "atan2({double}, {double})"), ("double", "log({double}, {double})"),
    ("bigint", "ceil({double})"), ("bigint", "floor({double})"), ("decimal", "ceil({decimal})"), ("decimal", "floor({decimal})"),
    ("double", "round({double}, {digit})"), ("decimal", "round({decimal}, {digit})"), ("decimal", "round({decimal})"),
    ("double", "bround({double}, {digit})"), ("int", "round({int}, -1)"), ("double", "round({double})"), ("decimal", "bround({decimal}, {digit})"),
    ("bigint", "factorial({digit})"), ("string", "hex({int})"), ("string", "bin({int})"), ("string", "conv({string}, 10, 16)"),
    ("int", "bit_count({int})"), ("int", "shiftleft({int}, {digit})"), ("int", "shiftright({int}, {digit})"), ("double", "hypot({double}, {double})"),
    ("string", "format_number({double}, {digit})"), ("string", "format_number({int}, {digit})"), ("int", "width_bucket({double}, 0.0D, 10.0D, 5)"),
    ("double", "nanvl({double}, {double})"), ("string", "hex({string})"), ("int", "nullifzero({int})"),
    # texts
    ("string", "({string} || {string})"), ("string", "concat({string}, {int}, {string})"), ("string", "concat_ws('-', {string}, {string})"),
    *(("string", f"{name}({{string}})") for name in ("upper", "lower", "trim", "ltrim", "rtrim", "initcap", "reverse", "soundex", "md5", "sha1",
                                                     "base64", "quote", "url_encode")),
    *(("int", f"{name}({{string}})") for name in ("length", "char_length", "octet_length", "bit_length", "ascii")),
    ("string", "substring({string}, {place}, {count})"), ("string", "substring({string}, {place})"), ("string", "substr({string}, {place}, {count})"),
    ("string", "left({string}, {count})"), ("string", "right({string}, {count})"), ("string", "lpad({string}, {digit}, 'xy')"),
    ("string", "rpad({string}, 6, {string})"), ("string", "repeat({string}, {count})"), ("string", "space({count})"),
    ("string", "replace({string}, {separator}, {string})"), ("string", "translate({string}, 'abS', 'x')"), ("int", "locate({separator}, {string})"),
    ("int", "locate({separator}, {string}, {place})"), ("int", "instr({string}, {string})"), ("string", "overlay({string} PLACING 'zz' FROM {digit})"),
    ("string", "substring_index({string}, {separator}, {place})"), ("string", "split_part({string}, ',', {digit})"), ("int", "levenshtein({string}, {string})"),
    ("texts", "split({string}, {pattern})"), ("texts", "split({string}, {pattern}, {place})"), ("boolean", "({string} RLIKE {pattern})"),
    ("boolean", "({string} LIKE {like})"), ("boolean", "({string} ILIKE {like})"), ("string", "regexp_replace({string}, {pattern}, 'z')"),
    ("string", "regexp_extract({string}, '(\\\\\\\\w)(\\\\\\\\w)', {digit})"), ("int", "regexp_count({string}, {pattern})"),
    ("string", "regexp_substr({string}, {pattern})"), ("int", "regexp_instr({string}, {pattern})"), ("boolean", "contains({string}, {string})"),
    ("boolean", "startswith({string}, {string})"), ("boolean", "endswith({string}, {string})"), ("int", "find_in_set({string}, 'abc,b,,Spark')"),
    ("string", "format_string({printed}, {string})"), ("string", "printf('%d|%5.2f', {int}, {double})"), ("string", "elt({digit}, 'x', {string}, 'z')"),
    ("string", "sha2({string}, 256)"), ("bigint", "crc32({string})"), ("string", "mask({string})"), ("string", "trim(BOTH 'Sx ' FROM {string})"),
    ("string", "char({int})"), ("string", "get_json_object({string}, {path})"), ("string", "btrim({string}, 'Sa ')"), ("boolean", "luhn_check({string})"),
    # dates and times
    ("date", "date_add({date}, {int})"), ("date", "date_sub({date}, {int})"), ("int", "datediff({date}, {date})"), ("date", "add_months({date}, {int})"),
    ("double", "months_between({date}, {date})"), ("double", "months_between({timestamp}, {timestamp}, false)"), ("date", "last_day({date})"),
    ("date", "next_day({date}, {weekday})"), ("date", "trunc({date}, {unit})"), ("timestamp", "date_trunc({time_unit}, {timestamp})"),
    *(("int", f"{name}({{date}})") for name in ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear", "unix_date")),
    *(("int", f"{name}({{timestamp}})") for name in ("hour", "minute", "second", "year", "dayofmonth")),
    ("string", "dayname({date})"), ("string", "monthname({date})"), ("string", "date_format({timestamp}, {format})"), ("string", "date_format({date}, {format})"),
    ("int", "extract({part} FROM {timestamp})"), ("bigint", "unix_timestamp({timestamp})"), ("bigint", "unix_millis({timestamp})"),
    ("bigint", "unix_micros({timestamp})"), ("string", "from_unixtime({bigint})"), ("string", "from_unixtime({bigint}, {format})"),
    ("date", "to_date('31/01/2024', 'dd/MM/yyyy')"), ("timestamp", "to_timestamp(CAST({timestamp} AS STRING))"), ("timestamp", "timestamp_seconds({int})"),
    ("timestamp", "timestamp_millis({bigint})"), ("date", "make_date(2024, 1 + pmod({int}, 12), 28)"), ("timestamp", "timestampadd({word}, {int}, {timestamp})"),
    ("bigint", "timestampdiff({word}, {timestamp}, {timestamp})"), ("date", "({date} + INTERVAL '1' MONTH)"), ("timestamp", "({timestamp} + INTERVAL '1 02:03:04' DAY TO SECOND)"),
    ("timestamp", "({timestamp} - INTERVAL 3 HOURS)"), ("date", "({date} + {digit})"), ("timestamp", "from_utc_timestamp({timestamp}, 'Europe/Brussels')"),
    ("timestamp", "to_utc_timestamp({timestamp}, 'America/New_York')"), ("date", "date_from_unix_date({int})"), ("bigint", "to_unix_timestamp({timestamp})"),
    # arrays and maps
    ("int", "size({ints})"), ("boolean", "array_contains({ints}, {int})"), ("ints", "array_distinct({ints})"), ("ints", "sort_array({ints})"),
    ("ints", "sort_array({ints}, false)"), ("ints", "array_sort({ints})"), ("ints", "transform({ints}, x -> x + {int})"), ("ints", "filter({ints}, x -> x > {int})"),
    ("ints", "transform({ints}, (x, k) -> x * k)"), ("boolean", "exists({ints}, x -> x > {int})"), ("boolean", "forall({ints}, x -> x > {int})"),
    ("int", "aggregate({ints}, 0, (acc, x) -> acc + x)"), ("string", "array_join({texts}, {separator})"), ("string", "array_join({texts}, '-', 'n')"),
    ("int", "array_max({ints})"), ("int", "array_min({ints})"), ("bigint", "array_position({ints}, {int})"), ("ints", "array_remove({ints}, {int})"),
    ("ints", "array_union({ints}, {ints})"), ("ints", "array_intersect({ints}, {ints})"), ("ints", "array_except({ints}, {ints})"),
    ("boolean", "arrays_overlap({ints}, {ints})"), ("ints", "concat({ints}, {ints})"), ("ints", "reverse({ints})"), ("ints", "slice({ints}, 1, {digit})"),
    ("ints", "slice({ints}, -2, {digit})"), ("ints", "array_append({ints}, {int})"), ("ints", "array_prepend({ints}, {int})"), ("ints", "array_compact({ints})"),
    ("ints", "array_repeat({int}, {count})"), ("ints", "array_insert({ints}, 2, {int})"), ("ints", "flatten(array({ints}, {ints}))"), ("int", "try_element_at({ints}, {digit})"),
    ("int", "get({ints}, {place})"), ("int", "element_at(map('a', 1, 'b', {int}), {string})"), ("int", "map('a', 1, 'b', {int})['b']"), ("int", "array({int}, {int})[1]"),
    ("texts", "map_keys(map('a', 1, 'b', 2))"), ("ints", "map_values(map('a', {int}, 'b', 2))"), ("int", "cardinality({texts})"), ("ints", "zip_with({ints}, {ints}, (x, y) -> x + y)"),
    ("int", "named_struct('x', {int}, 'y', {string}).x"), ("string", "struct({int} AS p, {string} AS q).q"), ("boolean", "map_contains_key(map('a', 1), {string})"),
    ("ints", "map_values(transform_values(map('a', 1, 'b', {int}), (k, v) -> v + 1))"), ("texts", "map_keys(map_filter(map('a', 1, 'b', {int}), (k, v) -> v > 0))"),
    ("string", "str_to_map('a:1,b:2', ',', ':')['b']"), ("int", "json_array_length({string})"),
    # documents and nested values
    ("string", "to_json(named_struct('a', {int}, 'b', {string}, 'c', {ints}))"), ("string", "to_json(map('k', {double}))"), ("string", "to_json({texts})"),
    ("int", "from_json({string}, 'a ARRAY<INT>, c STRING').a[0]"), ("string", "from_json({string}, 'a STRING, c STRING').c"),
    ("int", "from_json(to_json(named_struct('a', {int})), 'a INT').a"), ("ints", "from_json(to_json({ints}), 'ARRAY<INT>')"),
    ("date", "from_json(to_json(named_struct('a', {date})), 'a DATE').a"), ("texts", "json_object_keys({string})"),
    ("string", "to_csv(named_struct('a', {int}, 'b', {string}, 'c', {date}))"), ("string", "from_csv({string}, 'a STRING, b STRING').a"),
    ("int", "hash({int}, {string}, {double})"), ("bigint", "xxhash64({string}, {bigint}, {date})"), ("int", "hash({ints}, {string})"), ("bigint", "xxhash64({texts}, {decimal})"),
    ("int", "hash(named_struct('a', {int}, 'b', {texts}))"), ("int", "hash({timestamp}, {boolean})"), ("bigint", "xxhash64(CAST({decimal} AS DECIMAL(30, 2)))"),
    ("ints", "array_sort({ints}, (x, y) -> CASE WHEN x IS NULL THEN 1 WHEN y IS NULL THEN -1 ELSE y - x END)"), ("string", "CAST({ints} AS STRING)"),
    ("string", "CAST(map('a', {int}) AS STRING)"), ("string", "CAST(named_struct('a', {int}, 'b', {string}) AS STRING)"), ("string", "CAST({texts} AS STRING)"),
    ("int", "map_entries(map('a', {int}))[0].value"), ("ints", "map_values(map_concat(map('a', {int}), map('b', {int})))"),
    ("int", "map_from_entries(array(struct('a', {int})))['a']"), ("int", "map_from_arrays(array('a', 'b'), array({int}, {int}))['b']"),
    ("int", "map_zip_with(map('a', {int}), map('a', {int}), (k, v, w) -> v + w)['a']"), ("ints", "array({int}, {int}, NULL)"), ("texts", "array({string}, {string})"),
    ("int", "size(arrays_zip({ints}, {texts}))"), ("int", "instr({string}, {separator}, {place})"), ("boolean", "(struct({int}, {string}) = struct({int}, {string}))"),
    ("boolean", "(struct({int}, {date}) < struct({int}, {date}))"), ("int", "coalesce({int}, {digit}, 5)"), ("double", "coalesce({int}, {double})"),
    ("decimal", "greatest({int}, {decimal})"), ("double", "if({boolean}, {int}, {double})"), ("decimal", "CASE WHEN {boolean} THEN {int} ELSE {decimal} END"),
    ("bigint", "nvl({int}, {bigint})"), ("timestamp", "coalesce({date}, {timestamp})"), ("string", "typeof({int} + {bigint})"), ("string", "typeof(coalesce({int}, {decimal}))"),
    ("string", "typeof({decimal} * {int})"), ("string", "typeof({decimal} / {decimal})"), ("string", "typeof(if({boolean}, {int}, {double}))"),
]  # fmt: skip
# Forms that are errors in ANSI mode for many rows.
_LAX_FORMS = [
    *((kind, f"CAST({{string}} AS {kind.upper()})") for kind in ("int", "bigint", "double", "date", "timestamp", "boolean")),
    *(("int", f"CAST({{{kind}}} AS {to})") for kind in ("bigint", "double", "decimal", "string", "timestamp", "int")
      for to in ("TINYINT", "SMALLINT", "INT")),
    *(("bigint", f"CAST({{{kind}}} AS BIGINT)") for kind in ("double", "string", "timestamp", "decimal")),
    ("decimal", "CAST({string} AS DECIMAL(10, 2))"), ("decimal", "CAST({double} AS DECIMAL(6, 3))"), ("decimal", "CAST({decimal} AS DECIMAL(4, 2))"),
    *(("int", f"({{int}} {sign} {{large}})") for sign in ("+", "-", "*")), *(("bigint", f"({{bigint}} {sign} {{huge}})") for sign in ("+", "-", "*")),
    ("bigint", "({int} * {huge})"), ("int", "-({large})"), ("int", "abs({large})"), ("bigint", "-({huge})"), ("bigint", "abs({huge})"),
    *(("double", f"({{string}} {sign} {{int}})") for sign in ("+", "-", "*", "/", "%")), ("double", "({string} + {string})"), ("double", "-({string})"),
    *(("boolean", f"({{string}} {sign} {{{kind}}})") for sign in ("=", "<", ">=", "<>", "<=>")
      for kind in ("int", "bigint", "double", "decimal", "date", "timestamp", "boolean")),
    *(("boolean", f"({{{kind}}} {sign} {{string}})") for sign in ("=", ">") for kind in ("int", "double", "decimal", "date", "timestamp")),
    ("int", "{ints}[{int}]"), ("int", "element_at({ints}, {place})"), ("string", "element_at({texts}, {place})"), ("int", "size({ints})"),
    ("int", "cardinality({texts})"), ("string", "elt({int}, {string}, 'b')"), ("date", "make_date(2024, {int}, {int})"), ("date", "to_date({string})"),
    ("timestamp", "to_timestamp({string})"), ("date", "to_date({string}, 'yyyy-MM-dd')"), ("bigint", "unix_timestamp({string}, 'yyyy-MM-dd')"),
    ("timestamp", "make_timestamp(2024, {int}, {int}, 1, 2, 3.5)"), ("int", "year({string})"), ("int", "hour({string})"), ("date", "date_add({string}, {int})"),
    ("int", "datediff({string}, {date})"), ("string", "date_format({string}, 'yyyy')"), ("date", "last_day({string})"), ("date", "next_day({date}, {string})"),
    ("double", "sqrt({string})"), ("double", "pow({string}, {digit})"), ("bigint", "ceil({string})"), ("double", "round({string}, {digit})"),
    ("string", "conv({string}, 36, 10)"), ("string", "conv('ffffffffffffffffffff', 16, {digit})"), ("string", "coalesce({int}, {string})"),
    ("string", "if({boolean}, {int}, {string})"), ("int", "pmod({int}, {int})"), ("bigint", "({int} DIV {int})"), ("decimal", "({decimal} % {decimal})"),
    ("boolean", "({int} BETWEEN {string} AND {int})"), ("string", "CASE WHEN {boolean} THEN {string} ELSE {double} END"),
    ("decimal", "({decimal} * CAST({bigint} AS DECIMAL(38, 0)))"), ("int", "try_cast({string} AS INT)"), ("string", "parse_url({string}, 'HOST')"),
]  # fmt: skip
# Aggregates of all rows and of groups.
_AGGREGATES = [
    *(f"{name}({{{kind}}})" for name in ("sum", "avg") for kind in ("int", "bigint", "double", "decimal")),
    *(f"{name}({{{kind}}})" for name in ("min", "max", "count") for kind in ("int", "double", "decimal", "string", "date", "timestamp", "boolean")),
    *(f"{name}({{double}})" for name in ("stddev", "stddev_pop", "var_pop", "variance", "skewness", "kurtosis", "median")),
    *(f"{name}({{boolean}})" for name in ("bool_and", "bool_or", "every", "some", "count_if")),
    *(f"{name}({{int}})" for name in ("bit_and", "bit_or", "bit_xor", "approx_count_distinct")),
    *(f"sort_array(collect_list({{{kind}}}))" for kind in ("int", "string", "date", "decimal")),
    *(f"sort_array(collect_set({{{kind}}}))" for kind in ("int", "string", "date", "double")),
    *(f"count(DISTINCT {{{kind}}})" for kind in ("int", "string", "double", "decimal")), "count(DISTINCT {int}, {string})", "count({int}, {string})",
    "sum(DISTINCT {int})", "avg(DISTINCT {decimal})", "sum({int}) FILTER (WHERE {boolean})", "count(*) FILTER (WHERE {boolean})",
    "corr({double}, {double})", "covar_pop({double}, {int})", "covar_samp({double}, {double})", "regr_slope({double}, {double})", "regr_count({int}, {int})",
    "max_by({int}, id)", "min_by({string}, id)", "percentile({int}, 0.3)", "percentile({double}, array(0.1, 0.9))", "percentile_approx({int}, 0.5)",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY {double})", "percentile_disc(0.4) WITHIN GROUP (ORDER BY {int} DESC)",
    "listagg({string}, '-') WITHIN GROUP (ORDER BY {string})", "max(struct({int}, {string})).col1", "sum({int}) + count(*)", "sum({int}) / count({int})",
    "max({ints})", "sum(size({ints}))", "array_size(collect_list({ints}))", "try_sum({int})", "try_avg({decimal})", "max({int}) - min({int})",
]  # fmt: skip
_BY_TYPE: dict[str, list[str]] = {}
for _kind, _form in _FORMS:
    _BY_TYPE.setdefault(_kind, []).append(_form)


class Maker:
    """Makes expressions from one seed; each form comes as often as any other."""

    def __init__(self, seed: int, *, ansi: bool = True) -> None:
        self.dice = random.Random(seed)
        self.ansi = ansi

    def expression(self) -> str:
        _, form = self.dice.choice(_FORMS if self.ansi or self.dice.random() < 0.4 else _LAX_FORMS)
        return self._filled(form, self.dice.choice((0, 1, 1, 2)))

    def aggregate(self) -> str:
        form = self.dice.choice(_AGGREGATES)
        return self._filled(form, self.dice.choice((0, 1, 1, 2)))

    def _filled(self, form: str, depth: int) -> str:
        made, rest = "", form
        while "{" in rest:
            head, _, tail = rest.partition("{")
            kind, _, rest = tail.partition("}")
            made += head + self._value(kind, depth)
        return (made + rest).replace("\\\\\\\\", "\\\\")

    def _value(self, kind: str, depth: int) -> str:
        if kind in _BY_TYPE and depth > 0 and self.dice.random() < 0.5:
            return self._filled(self.dice.choice(_BY_TYPE[kind]), depth - 1)
        if kind in _COLUMNS and self.dice.random() < 0.7:
            return self.dice.choice(_COLUMNS[kind])
        return self.dice.choice(_LITERALS[kind])
